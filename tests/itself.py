"""A program that reports how it was started, and then obeys: `python -m tests.itself [end HOW | draw]`."""

import json
import os
import random
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil


def told() -> dict[str, object]:
    """The state that a process gets from its starter."""
    own = psutil.Process()
    return {
        "arguments": sys.argv[1:],
        "begun as": sys.orig_argv,
        "seen as": own.cmdline(),
        "program": own.exe(),
        "name": own.name(),
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "searched": sys.path,
        "parent": own.ppid(),
        "leads its session": os.getsid(0) == os.getpid(),
        "descriptors": {number: kind(number) for number in open_descriptors()},
        "ignored": [number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN],
        "taken": [number for number in signal.valid_signals() if callable(signal.getsignal(number))],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "files at most": resource.getrlimit(resource.RLIMIT_NOFILE),
        "niceness": os.nice(0),
        "buffered": [type(stream.buffer).__name__ for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "by line": [stream.line_buffering for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "threads": own.num_threads(),
        "children": len(own.children()),
    }


def open_descriptors() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        if Path(f"/proc/self/fd/{name}").exists():  # without the descriptor that lists the others
            found.append(int(name))
    return sorted(found)


def kind(number: int) -> str:
    return os.readlink(f"/proc/self/fd/{number}").partition(":")[0]


def end(how: str) -> None:
    match how:
        case "raise":
            raise RuntimeError("as it was told")
        case "status":
            sys.exit(7)
        case "words":
            sys.exit("it ends with words")
        case "interrupt":
            signal.raise_signal(signal.SIGINT)
        case "terminate":
            signal.raise_signal(signal.SIGTERM)
        case "abort":
            os.abort()
        case "never":
            sys.stdin.read()


def main(arguments: Sequence[str]) -> None:
    print(json.dumps(told()) if arguments != ["draw"] else random.random(), flush=True)
    if arguments[:1] == ["end"]:
        end(arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
