"""Counts latencies in bounded memory. Values that differ by at most 1/64 share a bucket."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

SUB_BITS: Final = 6
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


class Histogram:
    """A histogram of integers from 0 on."""

    def __init__(self) -> None:
        self._buckets: Counter[tuple[int, int]] = Counter()
        self.count = 0
        self.most = 0

    def add(self, value: int) -> None:
        """Count a value. The exponent and the highest bits of the value name its bucket."""
        assert value >= 0
        shift = max(0, value.bit_length() - SUB_BITS - 1)
        self._buckets[shift, value >> shift] += 1
        self.count += 1
        self.most = max(self.most, value)

    def quantile(self, part: float) -> int:
        """Return the value that `part` of all counted values do not exceed. The result is the upper end of a bucket, so
        it may be too high by the width of the bucket. The quantile of an empty histogram is 0."""
        awaited = part * self.count
        for (shift, bits), count in sorted(self._buckets.items()):
            awaited -= count
            if awaited <= 0:
                return min(self.most, (bits + 1 << shift) - 1)
        return self.most

    def bars(self, rows: int) -> Sequence[tuple[int, int]]:
        """Return at most `rows` bars. A bar has its upper end, and the number of values between the bar before it and
        this end."""
        ordered = sorted(self._buckets.items())
        if not ordered:
            return []
        (low_shift, low), _ = ordered[0]
        first, last = max(1, low << low_shift), max(1, self.most)
        step = max(2.0, (last / first) ** (1 / max(1, rows - 1)) * 1.0001)
        ends, found = [float(first)], [0]
        for (shift, bits), count in ordered:
            while (bits << shift) > ends[-1]:
                ends.append(ends[-1] * step)
                found.append(0)
            found[-1] += count
        return [(round(end), count) for end, count in zip(ends, found, strict=True)]
