"""`python -m tests.bench.timed_router FOLDER NAME TOPOLOGY …`: an ordinary router process whose turns are timed.

When it ends it writes the turns that lasted longer than `SHORT_S` to NAME.json in FOLDER: when each began, by the clock
that all processes share, and how long it took, in seconds.
"""

import json
import runpy
import sys
import time
from pathlib import Path
from typing import Final

from router import watchdog

SHORT_S: Final = 0.001


class TimedTurns(watchdog.Turns):
    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()
        made.append(self)
        self.long: list[tuple[float, float]] = []

    def after_io_wait(self, timeout: float) -> None:
        super().after_io_wait(timeout)
        self._began = time.monotonic()

    def before_io_wait(self, timeout: float) -> None:
        took = time.monotonic() - self._began
        if took > SHORT_S:
            self.long.append((self._began, took))
        super().before_io_wait(timeout)


made: list[TimedTurns] = []

if __name__ == "__main__":
    file = Path(sys.argv.pop(1)) / f"{sys.argv[1]}.json"
    watchdog.Turns = TimedTurns  # type: ignore[misc]
    try:
        runpy.run_module("router", run_name="__main__", alter_sys=True)
    finally:
        file.write_text(json.dumps([turn for turns in made for turn in turns.long]))
