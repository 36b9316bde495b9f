"""`python -m tests.fuzz`: see the package's text."""

import argparse
import logging
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable
from ctypes import c_longlong
from random import Random
from types import FrameType
from typing import Any

from tests.fuzz.clients import frames, maps
from tests.fuzz.files import logs, yaml
from tests.fuzz.odd.rounds import odd
from tests.fuzz.odd.wrong import wrong
from tests.fuzz.queues import queues
from tests.fuzz.routers import routers
from tests.fuzz.shared import shared
from tests.heap import heap_bytes
from tests.router.amqp.memory import watched

KINDS: dict[str, Callable[[Random], None]] = {
    kind.__name__: kind for kind in (frames, maps, queues, shared, odd, wrong, routers, logs, yaml)
}
ROUND_S = 20.0
"""Processor seconds that a round may take."""
WARM = 300
"""Rounds after which memory no longer grows."""
GROWTH_BYTES = 48 << 20


class TooLong(Exception):
    """A round has not ended in time."""


def play(kind: str, seed: int, number: int) -> None:
    """Play one round. Raises what the round raises."""

    def stop(_: int, frame: FrameType | None) -> None:
        raise TooLong(f"{ROUND_S:g} s of processor time")

    former = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, ROUND_S)
    try:
        with watched():
            KINDS[kind](Random(f"{seed} {kind} {number}"))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)


def fuzz(kind: str, seed: int, seconds: float, first: int = 0, reached: Any = None) -> int:
    """Play rounds until the time is over. Returns their number. `reached`, if given, gets the number of the present
    round.
    """
    until, number, warm = time.monotonic() + seconds, first, 0
    while time.monotonic() < until or number == first:
        if reached is not None:
            reached.value = number
        play(kind, seed, number)
        number += 1
        if number - first == WARM:
            warm = heap_bytes()
    assert not warm or heap_bytes() - warm < GROWTH_BYTES, (
        f"{(heap_bytes() - warm) >> 20} MiB more after {number} rounds"
    )
    return number - first


def _apart(kind: str, seed: int, seconds: float, first: int) -> bool:
    """Fuzz in a child process, whose death is reported, too."""
    reached = multiprocessing.Value(c_longlong, first)
    process = multiprocessing.Process(target=fuzz, args=(kind, seed, seconds, first, reached))
    process.start()
    process.join()
    rounds = reached.value - first + 1
    print(f"{kind}: {rounds} rounds", "held" if process.exitcode == 0 else f"end with {process.exitcode}", flush=True)
    if process.exitcode:
        print(f"    python -m tests.fuzz --seed {seed} --round {reached.value} {kind}", flush=True)
    return not process.exitcode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round", type=int, help="only this one")
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=list(KINDS), help=", ".join(KINDS))
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.round is not None:
        for kind in options.kinds:
            play(kind, options.seed, options.round)
        return 0
    failed = [kind for kind in options.kinds if not _apart(kind, options.seed, options.seconds, 0)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
