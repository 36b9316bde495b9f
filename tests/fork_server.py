"""A process that has imported the first modules of a program, and forks processes that continue as that program:
`python [-P] -m tests.fork_server SOCKET MODULE...`.

For tests that start one program hundreds of times (forks.py). Each message on the socket starts a process; the answer
is the process's id. The new process is no child of this one: the requesting process adopts it, waits for it and sees
how it ends.

A forked process differs from a started one in two ways: its siblings share its hashes of strings, and `/proc` shows the
environment of the server.
"""

import ctypes
import fcntl
import gc
import importlib
import json
import os
import random
import runpy
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

LARGEST: Final = 1 << 20
MOST_DESCRIPTORS: Final = 250
"""The most descriptors that Linux passes at a time."""

PR_SET_MM: Final = 35
PR_SET_MM_MAP: Final = 14
FIELDS: Final = (
    ("start_code", 26), ("end_code", 27), ("start_data", 45), ("end_data", 46), ("start_brk", 47), ("brk", 47),
    ("start_stack", 28), ("arg_start", 48), ("arg_end", 49), ("env_start", 50), ("env_end", 51),
)  # fmt: skip
"""Fields of the kernel's struct prctl_mm_map -> the number of the field in /proc/PID/stat, counted from one
(proc(5))."""


@attrs.frozen
class Start:
    """The start of a process. Its standard streams come first among the descriptors of the message."""

    arguments: list[str]
    """The words after the interpreter's own options: `-m MODULE ...` or `-c CODE ...`."""
    command: list[str]
    """The whole command line, as other processes see it."""
    environment: dict[str, str]
    """Variables in addition to the server's."""
    directory: str
    numbers: list[int]
    """The numbers that the descriptors have in the new process, in the message's order."""
    new_session: bool

    def to_bytes(self) -> bytes:
        return json.dumps(attrs.asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Start":
        return cls(**json.loads(data))


def serve(requests: socket.socket) -> Start:
    """Fork until the requesting process has ended. Each forked process returns."""
    chances = [one for one in gc.get_objects() if isinstance(one, random.Random)]
    gc.collect()
    gc.freeze()
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(requests, LARGEST, MOST_DESCRIPTORS)
        except KeyboardInterrupt:  # also for the requesting process
            data = b""
        if not data:
            os._exit(0)
        start = Start.from_bytes(data)
        waits, adopted = os.pipe()
        if (between := os.fork()) == 0:
            pid = os.fork()
            if pid == 0:
                os.close(adopted)
                os.read(waits, 1)  # until the new process is a child of the requesting process
                os.close(waits)
                _become(start, descriptors, requests, chances)
                return start
            requests.send(str(pid).encode())
            os._exit(0)
        os.waitpid(between, 0)
        requests.send(b"adopted")
        for number in (*descriptors, waits, adopted):
            os.close(number)


def _become(start: Start, descriptors: Sequence[int], requests: socket.socket, chances: list[random.Random]) -> None:
    requests.close()
    above = max([*descriptors, *start.numbers]) + 1
    for number, wanted in zip([_moved(number, above) for number in descriptors], start.numbers, strict=True):
        os.dup2(number, wanted)
        os.close(number)
    if start.new_session:
        os.setsid()
    os.chdir(start.directory)
    os.environ.update(start.environment)
    for chance in chances:  # generators that modules have made; Python reseeds its own
        chance.seed()
    show(start.command)


def _moved(number: int, above: int) -> int:
    moved = fcntl.fcntl(number, fcntl.F_DUPFD, above)
    os.close(number)
    return moved


_shown: Any = None
"""The memory that the kernel shows as the command line of this process."""


def show(command: Sequence[str]) -> None:
    """Set the command line that other processes see. Raises OSError if the kernel refuses."""
    global _shown
    joined = b"".join(os.fsencode(word) + b"\0" for word in command)
    _shown = ctypes.create_string_buffer(joined, len(joined))
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # fields from the third on
    values = {name: int(fields[number - 3]) for name, number in FIELDS}
    at = ctypes.addressof(_shown)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    values |= {"brk": libc.sbrk(0), "arg_start": at, "arg_end": at + len(joined)}
    told = (ctypes.c_uint64 * (len(FIELDS) + 2))(*values.values(), 0, (1 << 32) - 1 << 32)  # no auxv, no other program
    if libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(told), ctypes.sizeof(told), 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def run(start: Start) -> None:
    """Run the program as the interpreter would run it."""
    option, program, *arguments = start.arguments
    sys.orig_argv = start.command
    if not sys.flags.safe_path:
        sys.path[0] = "" if option == "-c" else start.directory
    if option == "-m":
        sys.argv = [program, *arguments]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *arguments]
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})


if __name__ == "__main__":
    number, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    show(sys.orig_argv)
    with socket.socket(fileno=int(number)) as requests:
        requests.send(b"ready")
        start = serve(requests)
    run(start)
