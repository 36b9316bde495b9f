"""Which connections of a process have something to write, and when they do: as the step ends that gave it to them.

A *step* is a call of an engine or a core, and all that follows from it. Nothing leaves in its midst: what it would tell
of may not be written down yet, and proton forgets what a callback may still name. As it ends, everybody whom it has
given something to writes what his stream takes at once. No other task has to run first: what somebody waits for is with
the kernel when the step is over.
"""

from types import TracebackType
from typing import Protocol


class Writer(Protocol):
    """What drives a connection."""

    def flush(self) -> None:
        """Write what there is, as far as that goes at once. What others are given as there is room is for later."""

    def rouse(self) -> None:
        """Write what there is, soon."""


class Outbound:
    """One a process, or one a connection; in a `with` it is one step."""

    __slots__ = ("_is_stepping", "_woken")

    def __init__(self) -> None:
        self._woken: dict[Writer, None] = {}
        self._is_stepping = False

    def wake(self, writer: Writer) -> None:
        """It has something to write."""
        if self._is_stepping:
            self._woken[writer] = None
        else:
            writer.rouse()

    def __enter__(self) -> None:
        assert not self._is_stepping, "steps follow each other"
        self._is_stepping = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """After an error, which ends the process, nothing is written."""
        self._is_stepping = False
        woken, self._woken = self._woken, {}
        if error is None:
            for writer in woken:
                writer.flush()
