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
        start = self._find(digest)
        if self._table[start : start + DIGEST] == digest:
            return False
        self._table[start : start + DIGEST] = digest
        self._count += 1
        if 4 * self._count > 3 * self._mask:
            self._grow()
        return True

    def _find(self, digest: bytes) -> int:
        """Where it is, or else the free place for it."""
        table, mask = self._table, self._mask
        place = int.from_bytes(digest[:8], "little") & mask
        while (found := table[DIGEST * place : DIGEST * place + DIGEST]) != digest and found != EMPTY:
            place = (place + 1) & mask
        return DIGEST * place

    def _grow(self) -> None:
        old = bytes(self._table)
        self._mask = 2 * self._mask + 1
        self._table = bytearray(2 * len(old))
        for start in range(0, len(old), DIGEST):
            digest = old[start : start + DIGEST]
            if digest != EMPTY:
                place = self._find(digest)
                self._table[place : place + DIGEST] = digest
