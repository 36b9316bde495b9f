"""Watches the loop from another thread. If a router dies, other routers replace it. But if a router is stuck while its
process lives, no router replaces it, so the watch ends its process.

A *turn* is the loop's work between two waits for input. The *watch* is a thread that looks at the present turn at
intervals. If a turn lasts longer than `dead`, the watch logs the place in the code. If a turn does not end, the watch
ends the process. It does so soon if the turn computes, and later if the turn is blocked (by a disk, for example),
because the block may pass.

The watch measures the age of a turn by the number of its own looks. So a turn does not age while the process or the
machine is stopped, and a router that SIGCONT wakes goes on. The processor time of the process shows whether the turn
computes. On a busy machine a turn gets little processor time, so the watch does not take a slow turn for an endless
one.

While the process does not run, the watch does not run either. Afterwards the watch notices the gap by its late look,
and logs it, because neighbours may have given up the router meanwhile.

Some C code never lets other threads run. While such code runs, the watch cannot look either, because it is one of these
threads.
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
# The number of looks of the watch within `dead`. More looks would wake an idle process more often.
LOOKS: Final = 4
# A turn that has used this many times `dead` of processor time counts as endless.
COMPUTES: Final = 5
# A turn that has been blocked for this many times `dead` counts as endless.
BLOCKED: Final = 30
# The seconds that the log has to take the last line. Perhaps the log itself blocks the loop.
TELL_S: Final = 1.0


class Health(Enum):
    WELL = "well"
    LATE = "late"  # the watch reports each late turn only once
    STUCK = "stuck"


class Turn:
    """The current turn, as the watch's looks have seen it. Times are in seconds."""

    def __init__(self, dead: float) -> None:
        self._dead = dead
        self._number = 0
        self._looks = 0
        self._processor = 0.0  # the processor time at the first look at the turn

    @property
    def lasted(self) -> float:
        return self._looks * self._dead / LOOKS

    def look(self, number: int, processor: float) -> Health:
        """Look at the turn with this number; 0 means that the loop waits. `processor`: the processor time of the
        process so far."""
        if number != self._number or not number:
            self._number, self._looks, self._processor = number, 0, processor
            return Health.WELL
        self._looks += 1
        computed = processor - self._processor
        if self.lasted >= BLOCKED * self._dead or min(self.lasted, computed) >= COMPUTES * self._dead:
            return Health.STUCK
        return Health.LATE if self._looks == LOOKS else Health.WELL


class Turns(trio.abc.Instrument):
    """Counts the turns of the loop. Trio calls this object as its instrument."""

    def __init__(self) -> None:
        self.count = 0
        self.current = 0  # the number of the current turn; 0 while the loop waits

    def after_io_wait(self, timeout: float) -> None:
        self.count = self.current = self.count + 1

    def before_io_wait(self, timeout: float) -> None:
        self.current = 0


@contextmanager
def watched(dead: float) -> Iterator[None]:
    """Watch over the trio run in which this is called."""
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
    """Finds times in which the whole process did not run. It sees them as gaps between the watch's looks. Times are in
    seconds."""

    def __init__(self, dead: float, now: float, processor: float) -> None:
        self._dead = dead
        self._last = now, processor

    def look(self, now: float, processor: float) -> str:
        """Look, at the time `now`. `processor`: the processor time of the process so far. Returns a line for the log if
        the gap since the last look is longer than `dead`; otherwise an empty text."""
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
    """Log in another thread, because the loop may hold the log's lock."""
    stack = traceback.extract_stack(sys._current_frames()[thread])
    where = ", ".join(f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in reversed(stack))
    teller = threading.Thread(target=log.critical, args=("%s: in %s", what, where), daemon=True)
    teller.start()
    teller.join(TELL_S)
