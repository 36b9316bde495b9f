"""A watch over the loop, from outside of it: a router that is dead others replace, but not one that is deaf.

A *turn* is what the loop does between two waits for input. A thread looks at it again and again. A turn that lasts
longer than `dead` is told in the log with where it is; one that does not come back ends the process: soon if it
computes, later if it is blocked (by a disk, say), as that may end by itself.

A turn lasts as long as the watch itself has run beside it, counted in its looks. So it does not age while the process
or the machine is stopped: a router that is woken by SIGCONT goes on. And whether it computes is told by the process'
processor time: on a machine with too much to do a turn is slow, not endless.

A process that does not run at all cannot be watched from inside. But the watch notices it afterwards, by a look that
came late, and tells it in the log: neighbours may have given the router up meanwhile.

Never here: code of C that never lets other threads run; the watch is one of them.
"""

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

import trio

log = logging.getLogger("oncemesh")

STUCK: Final = 75
"""The exit status of a process that the watch has ended."""
LOOKS: Final = 4  # in `dead`; each wakes an idle process
COMPUTES: Final = 5  # times `dead`, of the watch and of the processor: it will not come back
BLOCKED: Final = 30  # the same of the watch alone
TELL_S: Final = 1.0  # for the log to take our last words: it may be what the loop is blocked by


class Health(Enum):
    WELL = "well"
    LATE = "late"  # as told once a turn
    STUCK = "stuck"


class Turn:
    """The turn that the watch sees from look to look. Times in seconds."""

    def __init__(self, dead: float) -> None:
        self._dead = dead
        self._number = 0
        self._looks = 0
        self._processor = 0.0  # as the turn was first seen

    @property
    def lasted(self) -> float:
        return self._looks * self._dead / LOOKS

    def look(self, number: int, processor: float) -> Health:
        """A look at the turn of this number, by which the process has had so much of the processor. 0: it waits."""
        if number != self._number or not number:
            self._number, self._looks, self._processor = number, 0, processor
            return Health.WELL
        self._looks += 1
        computed = processor - self._processor
        if self.lasted >= BLOCKED * self._dead or min(self.lasted, computed) >= COMPUTES * self._dead:
            return Health.STUCK
        return Health.LATE if self._looks == LOOKS else Health.WELL


class Turns(trio.abc.Instrument):
    """Counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.current = 0  # its number; 0 while the loop waits

    def after_io_wait(self, timeout: float) -> None:
        self.count = self.current = self.count + 1

    def before_io_wait(self, timeout: float) -> None:
        self.current = 0


@contextmanager
def watched(dead: float) -> Iterator[None]:
    """Watch over the trio run that this is called in."""
    turns, over = Turns(), threading.Event()
    thread = threading.get_ident()
    watch = threading.Thread(target=_watch, args=(turns, thread, dead, over), name="watchdog", daemon=True)
    trio.lowlevel.add_instrument(turns)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()
        trio.lowlevel.remove_instrument(turns)


class Stops:
    """The times for which the whole process did not run, as the watch sees them by its own looks. Times in seconds."""

    def __init__(self, dead: float, now: float, processor: float) -> None:
        self._dead = dead
        self._last = now, processor

    def look(self, now: float, processor: float) -> str:
        """A look at this time, by which the process has had so much of the processor. What to tell of a gap before it
        that was longer than `dead`; empty if there was none."""
        (then, before), self._last = self._last, (now, processor)
        if (lasted := now - then) <= self._dead:
            return ""
        return (
            f"the watchdog did not run for {lasted:.1f} s, in which the process used {processor - before:.1f} s of "
            "processor time"
        )


def _watch(turns: Turns, thread: int, dead: float, over: threading.Event) -> None:
    turn, stops = Turn(dead), Stops(dead, time.monotonic(), time.process_time())
    while not over.wait(dead / LOOKS):
        if stopped := stops.look(time.monotonic(), time.process_time()):
            log.warning("%s: the machine was busy, or the process was suspended", stopped)
        match turn.look(turns.current, time.process_time()):
            case Health.LATE:
                _tell(f"the event loop is blocked for more than {dead:g} s", thread)
            case Health.STUCK:
                _tell(f"the event loop is blocked for {turn.lasted:g} s, the router exits", thread)
                os._exit(STUCK)


def _tell(what: str, thread: int) -> None:
    """Not by the watch itself: the loop may hold the log's lock."""
    stack = traceback.extract_stack(sys._current_frames()[thread])
    where = ", ".join(f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in reversed(stack))
    teller = threading.Thread(target=log.critical, args=("%s: in %s", what, where), daemon=True)
    teller.start()
    teller.join(TELL_S)
