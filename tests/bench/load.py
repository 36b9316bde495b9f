"""Meshes for benches, the bare line beside them, and the load from `amqpload.c` (qpid-proton C)."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BINARY = ROOT / "build" / "amqpload"
LIBRARIES = ("-l:libqpid-proton-core.so.10", "-l:libqpid-proton-proactor.so.1")
TIMEOUT_S = 120

Routers = Mapping[str, Any]
"""Router name -> its address for clients (`amqp`), and its process (`pid`)."""


@attrs.frozen
class Load:
    """One publisher and its subscribers: where they attach, and the options of `amqpload`."""

    subscribers: tuple[str, ...]
    options: tuple[str, ...] = ("--second",)
    count: int = 100_000
    size: int = 100
    window: int = 1000
    publisher: str = "a"
    address: str = "topic/bench"


def build() -> None:
    """Compile the load generator. If that fails, say what to install."""
    source = HERE / "amqpload.c"
    if BINARY.exists() and BINARY.stat().st_mtime > source.stat().st_mtime:
        return
    BINARY.parent.mkdir(exist_ok=True)
    compiler = shutil.which("cc") or shutil.which("gcc")
    command = [compiler or "cc", "-O2", "-w", "-o", str(BINARY), str(source), *LIBRARIES]
    if compiler is None or subprocess.run(command, check=False).returncode:
        sys.exit("bench: the load generator needs a C compiler and qpid-proton; on Debian: make bench-tools (as root)")


def topology(name: str) -> str:
    """The text of a ready mesh; `ring-N` is a ring of N routers."""
    kind, _, count = name.partition("-")
    if not count:
        return (ROOT / "topologies" / f"{name}.yaml").read_text()
    assert kind == "ring"
    names = [f"r{number}" for number in range(int(count))]
    routers = [f"  {router}: {{amqp: 127.0.0.1:0}}" for router in names]
    links = [f"  - [{one}, {other}]" for one, other in zip(names, [*names[1:], names[0]], strict=True)]
    lines = [f"mesh: {name}", "routers:", *routers, "links:", *links, "addresses:", "  - {prefix: topic/, kind: topic}"]
    return "\n".join(lines)


def with_free_ports(text: str) -> str:
    """The topology with every client listener on a free port."""
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", text)


@contextmanager
def mesh(name: str, *, http: bool = False, more: str = "") -> Iterator[Routers]:
    """A running mesh on free ports, with HTTP listeners if `http`, and with `more` at the end of its topology. Yields
    the routers of its mesh.json."""
    oncemesh = [str(Path(sys.executable).with_name("oncemesh"))]
    with tempfile.TemporaryDirectory() as directory:
        plan, run_dir = Path(directory) / f"{name}.yaml", Path(directory) / "run"
        text = with_free_ports(topology(name)) + more
        plan.write_text(text.replace("{amqp:", "{http: 127.0.0.1:0, amqp:") if http else text)
        command = [*oncemesh, "up", str(plan), "--run-dir", str(run_dir), "--detach"]
        try:
            subprocess.run(command, check=True, capture_output=True)
            yield json.loads((run_dir / "mesh.json").read_text())["routers"]
        finally:
            subprocess.run([*oncemesh, "down", "--run-dir", str(run_dir)], check=True, capture_output=True)


@contextmanager
def bare(name: str) -> Iterator[Routers]:
    """The bare mesh `line` or `single`."""
    command = [sys.executable, "-m", "tests.bench.bare", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.communicate()


def started(load: Load, routers: Routers) -> subprocess.Popen[str]:
    """Start the load generator."""
    command = [str(BINARY), "--pub", f"{routers[load.publisher]['amqp']}/{load.address}"]
    for name in load.subscribers:
        command += ["--sub", f"{routers[name]['amqp']}/{load.address}"]
    for name, router in routers.items():
        command += ["--pid", f"{name}={router['pid']}"]
    figures = {"-n": load.count, "-s": load.size, "-w": load.window, "-c": load.window, "--timeout": TIMEOUT_S}
    command += [str(word) for pair in figures.items() for word in pair]
    return subprocess.Popen([*command, *load.options], stdout=subprocess.PIPE, text=True)


def finished(load: Load, process: subprocess.Popen[str]) -> dict[str, Any]:
    """The results of the load generator. Ends the bench if a message was lost or doubled, as the speed then means
    nothing.
    """
    told, _ = process.communicate()
    result: dict[str, Any] = json.loads(told)
    wrong = {name: result[name] for name in ("lost_accepted", "dup", "out_of_order") if result[name]}
    if wrong or result["accepted"] != load.count:
        sys.exit(f"bench: {load}: {wrong}, {result['accepted']} of {load.count} accepted")
    return result


def measure(load: Load, routers: Routers) -> dict[str, Any]:
    return finished(load, started(load, routers))
