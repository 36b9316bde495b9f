"""A run cut into slices at the instants at which faults begin and end: measures are counted by slice, told by phase.

    faults      ──────1111111──────222222222────
                               ───────33333333──
    slices      0     1      2     3  4     5  6
    calm        yes          yes               yes

A fault is *during* all its slices. *Before* it is the slice that it ends, *after* it the one that it begins, unless
another fault is under way there: then nothing can be said of it. A delivery belongs where it was published, but to the
next fault if that overtook it.
"""

from bisect import bisect_left
from collections.abc import Sequence

from failover.audit.mesh.clients import FOREVER
from failover.audit.read.faults import Fault

ELSEWHERE = -1
"""The slice of what was written by another host's clock."""
WHOLE, BEFORE, DURING, AFTER = "the whole run", "before the first fault", "during faults", "after and between faults"


class Phases:
    def __init__(self, faults: Sequence[Fault]) -> None:
        self._spans = [(fault.at_us, FOREVER if fault.until_us is None else fault.until_us) for fault in faults]
        edges = {instant for span in self._spans for instant in span}
        self.boundaries = sorted(edges - {FOREVER})
        """Slice k ends before the k-th of these."""
        self.calm = [number for number in range(len(self.boundaries) + 1) if self._calm(number)]
        """The slices without a fault; the one behind each begins with one."""

    @property
    def names(self) -> list[str]:
        return [BEFORE, DURING, AFTER] if self._spans else [WHOLE]

    def slices(self, name: str) -> set[int]:
        """Those of a phase of the run."""
        every = set(range(len(self.boundaries) + 1))
        if name == WHOLE:
            return every | {ELSEWHERE}
        calm = {*self.calm}
        return {BEFORE: {0}, DURING: every - calm, AFTER: calm - {0}}[name]

    def around(self, fault: int) -> tuple[set[int], set[int], set[int]]:
        """Those before, during and after one fault."""
        since, till = self._spans[fault]
        first = bisect_left(self.boundaries, since) + 1
        end = len(self.boundaries) + 1 if till == FOREVER else bisect_left(self.boundaries, till) + 1
        calm = {*self.calm}
        return {first - 1} & calm, set(range(first, end)), {end} & calm

    def _calm(self, number: int) -> bool:
        if number == 0:
            return True
        begun = self.boundaries[number - 1]
        return not any(since <= begun < till for since, till in self._spans)
