"""Tests start some programs hundreds of times, and a router takes half a second of a processor for its imports. Here a
server forks such a process (fork_server.py) from one that has imported them already.

`subprocess` asks the server, so the product's launcher need not know. The process is a child of ours. It has the
command line, environment, directory, descriptors and session that its starter named. Signals that are ignored, limits
and niceness it inherits from a server that inherited the same from us. The kernel starts every other program, and the
processes of a test that is marked `real_start`.
"""

import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from inspect import signature
from typing import Any, Final

from failover.chaos.clients import COMMAND as CLIENT
from router.mesh.launcher import ROUTER_COMMAND as ROUTER
from tests.fork_server import LARGEST, MOST_DESCRIPTORS, Start
from tests.hangs import HANGS_S

COMMAND_LINE: Final = (sys.executable, "-c", "from router.cli.main import main; main(prog_name='oncemesh')")
"""`oncemesh`, wherever it is installed."""
IMPORTED: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ROUTER: ("router.cli.router", "router.process", "router.plan.request"),
    CLIENT: ("failover.chaos.client",),
    COMMAND_LINE: (
        "router.cli.main", "failover.cli.mesh", "failover.cli.doctor.command", "failover.cli.publish",
        "failover.cli.subscribe", "failover.cli.watch.status",
    ),
}  # fmt: skip
"""Maps a program to the modules that it imports first, including those that it would import only when needed."""

TEST: Final = "PYTEST_CURRENT_TEST"
"""The only variable of the environment that may differ among processes of one server."""
PR_SET_CHILD_SUBREAPER: Final = 36
LIMITS: Final = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_CORE)
UNKNOWN: Final = ("shell", "gid", "gids", "uid", "executable", "preexec_fn", "process_group")
"""Options of a start that a message to a server cannot carry."""

is_on = True
"""Whether servers fork processes in place of starts."""
_servers: dict[Any, "Server | None"] = {}
_asked: Counter[Any] = Counter()
_lock = threading.RLock()  # reentrant, because a server is started while it is held


class Server:
    """A server for processes of one program that inherit the same state."""

    def __init__(self, program: Sequence[str]) -> None:
        interpreter, *options = program[: _options_end(program)]
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            command = [interpreter, *options, "-m", "tests.fork_server", str(its.fileno()), *IMPORTED[tuple(program)]]
            nothing = subprocess.DEVNULL
            self._process = subprocess.Popen(  # outside of the tests' folders, where it would look like a leftover
                command, cwd="/", stdin=nothing, stdout=nothing, pass_fds=[its.fileno()]
            )
        self._requests = ours
        self.runs = ours.recv(LARGEST) == b"ready"

    def fork(self, start: Start, descriptors: Sequence[int]) -> int:
        _adopt(True)
        try:
            socket.send_fds(self._requests, [start.to_bytes()], descriptors)
            pid = int(self._requests.recv(LARGEST))
            assert self._requests.recv(LARGEST) == b"adopted"
        finally:
            _adopt(False)
        return pid

    def end(self) -> int:
        """End the server: make no more requests to it."""
        self._requests.close()
        return self._process.wait(HANGS_S)


def _adopt(orphans: bool) -> None:
    """Whether descendants whose parent ends become children of this process."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)


def install() -> None:
    """Install the servers for the life of this process."""
    usual = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    names = signature(usual)

    def execute(popen: Any, *arguments: Any) -> None:
        options = names.bind(popen, *arguments).arguments
        program = next((one for one in IMPORTED if _begins(options["args"], one)), None)
        with _lock:
            server = _server(program) if program is not None and is_on and _can_be_asked(options) else None
            if program is None or server is None:
                usual(popen, *arguments)
            else:
                _fork(popen, server, program, options)

    subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]


def _begins(command: Any, program: Sequence[str]) -> bool:
    return isinstance(command, (list, tuple)) and tuple(command[: len(program)]) == program


def _options_end(program: Sequence[str]) -> int:
    """The index of the word at which the interpreter's own options end."""
    return next(place for place, word in enumerate(program) if word in ("-c", "-m"))


def _can_be_asked(options: dict[str, Any]) -> bool:
    """Whether a message to a server can carry all options of the start."""
    usual = options["close_fds"] and options["restore_signals"] and options["umask"] == -1 and options["env"] is None
    return usual and not any(options[name] not in (None, False, -1) for name in UNKNOWN)


def _server(program: Sequence[str]) -> Server | None:
    """The server for this start. None at the first start of a program, because one start is not worth a server."""
    key = program, _inherited()
    _asked[key] += 1
    if key not in _servers and _asked[key] > 1:
        server = Server(program)
        _servers[key] = server if server.runs else None
    return _servers.get(key)


def _inherited() -> tuple[object, ...]:
    """The state that a process inherits from its starter and that no message carries; and the environment, because
    imports may read it."""
    ignored = [number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    limits = [resource.getrlimit(which) for which in LIMITS]
    environment = [(name, value) for name, value in os.environ.items() if name != TEST]
    sets = environment, ignored, blocked, os.sched_getaffinity(0)
    network = os.readlink("/proc/thread-self/ns/net")
    return *(tuple(sorted(one)) for one in sets), tuple(limits), os.nice(0), network


def _fork(popen: Any, server: Server, program: Sequence[str], options: dict[str, Any]) -> None:
    streams = [options["p2cread"], options["c2pwrite"], options["errwrite"]]
    descriptors = [number if number != -1 else stream for stream, number in enumerate(streams)]
    passed = sorted(number for number in options["pass_fds"] if number > 2)
    command = [os.fsdecode(word) for word in options["args"]]
    start = Start(
        arguments=command[_options_end(program) :],
        command=command,
        environment={TEST: os.environ[TEST]} if TEST in os.environ else {},
        directory=os.path.abspath(options["cwd"] or "."),
        numbers=[0, 1, 2, *passed],
        new_session=options["start_new_session"],
    )
    assert len(start.numbers) <= MOST_DESCRIPTORS
    popen.pid = server.fork(start, [*descriptors, *passed])
    popen._child_created = True
    popen._close_pipe_fds(
        options["p2cread"], options["p2cwrite"], options["c2pread"], options["c2pwrite"],
        options["errread"], options["errwrite"],
    )  # fmt: skip
