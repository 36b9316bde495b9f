"""A process that a server forks in place of a start is like a started one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests import forks
from tests.hangs import HANGS_S

PROGRAM = (sys.executable, "-P", "-m", "tests.itself")
OF_CODE = (sys.executable, "-c", "from tests.itself import main; import sys; main(sys.argv[1:])")
PIPES: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    """Let servers of this file fork the program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forks, "IMPORTED", {PROGRAM: ("json", "psutil"), OF_CODE: ("tests.itself",)})
        patch.setattr(forks, "_servers", {})
        begin(), begin(program=OF_CODE)  # a server is made only at the second start
        yield
        assert [server.end() for server in forks._servers.values() if server is not None] == [0, 0, 0]


class Spy:
    """Counts the calls of a method, which works as before."""

    def __init__(self, method: Any) -> None:
        self.method, self.count = method, 0

    def __get__(self, server: Any, _: object) -> Any:
        self.count += 1
        return self.method.__get__(server)


def begin(*arguments: str, program: tuple[str, ...] = PROGRAM, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([*program, *arguments], timeout=HANGS_S, check=False, **PIPES | options)


def started(monkeypatch: pytest.MonkeyPatch, *arguments: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    """Let the kernel start the program."""
    with monkeypatch.context() as patch:
        patch.setattr(forks, "is_on", False)
        return begin(*arguments, **options)


@pytest.mark.parametrize("program", [PROGRAM, OF_CODE], ids=["a module", "code"])
def test_it_is_told_the_same(program: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(forks.Server, "fork", spied := Spy(forks.Server.fork))
    options: dict[str, Any] = {
        "program": program,
        "pass_fds": (writing, reading),
        "start_new_session": True,
        "cwd": tmp_path,
    }
    forked = json.loads(begin("a", "b c", "", **options).stdout)
    assert forked == json.loads(started(monkeypatch, "a", "b c", "", **options).stdout)
    assert forked["parent"] == os.getpid()
    assert forked["seen as"] == [*program, "a", "b c", ""]
    assert forked["leads its session"]
    assert spied.count == 1
    assert set(forked["descriptors"]) == {"0", "1", "2", str(reading), str(writing)}
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("how", ["status", "words", "raise", "interrupt", "terminate", "abort"])
def test_it_ends_the_same(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forked, real = begin("end", how), started(monkeypatch, "end", how)
    assert forked.returncode == real.returncode != 0
    assert forked.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]
    assert forked.stdout.startswith(b"{")


async def test_it_is_waited_for_and_killed() -> None:
    process = await trio.lowlevel.open_process(
        [*PROGRAM, "end", "never"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    async with process.stdin, process.stdout:
        assert await process.stdout.receive_some(1) == b"{"
        process.kill()
        assert await process.wait() == -signal.SIGKILL


def test_no_two_draw_the_same() -> None:
    drawn = [begin("draw").stdout for _ in range(3)]
    assert len(set(drawn)) == 3


def test_one_that_inherits_something_else_is_no_child_of_the_same_server() -> None:
    ignored = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        begin("once")
        assert signal.SIGUSR1 in json.loads(begin().stdout)["ignored"]
    finally:
        signal.signal(signal.SIGUSR1, ignored)
    assert signal.SIGUSR1 not in json.loads(begin().stdout)["ignored"]


def test_what_no_message_says_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks.Server, "fork", pytest.fail)
    began = [begin(umask=0o77), begin(env={}), begin(preexec_fn=os.setsid), begin(close_fds=False)]
    assert [process.returncode for process in began] == [0, 0, 0, 0]
    other = subprocess.run([sys.executable, "-P", "-c", "print(1)"], stdout=subprocess.PIPE, check=True)
    assert other.stdout == b"1\n"


@pytest.mark.real_start
def test_what_a_test_wants_started_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks.Server, "fork", pytest.fail)
    assert begin().returncode == 0
