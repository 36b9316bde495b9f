"""A set of digests in little memory: a third of what Python's own takes, which decides how large a scope may be."""

from tests.exhaustive.state import DIGEST

EMPTY = bytes(DIGEST)
"""No digest: one in 2**128 that is would be visited again and again, not missed."""


class Seen:
    """Open addressing in one bytearray, at most three quarters full. Digests are random enough to be their own hash."""

    def __init__(self) -> None:
        self._table = bytearray(DIGEST << 10)
        self._mask = (1 << 10) - 1
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, digest: bytes) -> bool:
        """False if it was there already."""
        table, mask = self._table, self._mask
        start = DIGEST * (int.from_bytes(digest[:8], "little") & mask)
        while (found := table[start : start + DIGEST]) != EMPTY:
            if found == digest:
                return False
            start = (start + DIGEST) & (DIGEST * mask + DIGEST - 1)
        table[start : start + DIGEST] = digest
        self._count += 1
        if 4 * self._count > 3 * mask:
            self._grow()
        return True

    def _grow(self) -> None:
        old, self._count = bytes(self._table), 0
        self._mask = 2 * self._mask + 1
        self._table = bytearray(2 * len(old))
        for start in range(0, len(old), DIGEST):
            if (digest := old[start : start + DIGEST]) != EMPTY:
                self.add(digest)
