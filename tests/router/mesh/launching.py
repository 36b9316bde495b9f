"""Shared by tests of the launcher: a mesh of three routers, and replacements for their processes (`stub_router.py`)."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from router.mesh import launcher, status
from router.mesh.rundir import RunDirectory
from tests.hangs import HANGS_S

STUB = (sys.executable, str(Path(__file__).with_name("stub_router.py")))
PATIENCE_S = HANGS_S
LINE = """\
mesh: line
routers:
  a: {amqp: 127.0.0.1:0}
  b: {amqp: 127.0.0.1:0}
  c: {amqp: 127.0.0.1:0}
links: [[a, b], [b, c]]
"""


async def fetch(host: str, port: int, timeout: float) -> dict[str, Any]:
    with trio.fail_after(timeout):
        async with await trio.open_tcp_stream(host, port) as stream:
            data = b"".join([chunk async for chunk in stream])
    return dict(json.loads(data))


def write(folder: Path, text: str = LINE) -> Path:
    path = folder / "mesh.yaml"
    path.write_text(text)
    return path


def give_up_on(monkeypatch: pytest.MonkeyPatch, lacking: Mapping[str, str]) -> None:
    """A start ends as soon as nothing else is lacking, however long that takes."""

    def unfinished(*arguments: Any) -> dict[str, str]:
        seen = status.unfinished(*arguments)
        monkeypatch.setattr(launcher, "START_S", 0.001 if seen == lacking else PATIENCE_S)
        return seen

    monkeypatch.setattr(launcher, "unfinished", unfinished)


def misbehave(directory: RunDirectory, name: str, how: str) -> None:
    (directory.path / name).mkdir(parents=True, exist_ok=True)
    (directory.path / name / "behaviour").write_text(how)
