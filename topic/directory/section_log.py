"""A log of changes of this router's section, by version. It keeps a change until other routers have acknowledged it
(protocol 3.3)."""

from collections.abc import Hashable, Iterator
from itertools import takewhile
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class SectionLog(Generic[T]):
    """Items, each with the version of its change. They are in ascending order of versions, and each item occurs
    once."""

    def __init__(self) -> None:
        self._versions: dict[T, int] = {}

    def __iter__(self) -> Iterator[T]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    def add(self, item: T, version: int) -> None:
        """Add the item with its version, which is not lower than any version before."""
        self.discard(item)
        self._versions[item] = version

    def discard(self, item: T) -> None:
        self._versions.pop(item, None)

    def since(self, version: int) -> tuple[T, ...]:
        """The items whose versions are later than this one."""
        if not self._versions:
            return ()
        later = takewhile(lambda item: self._versions[item] > version, reversed(self._versions))
        return tuple(later)[::-1]

    def take(self, version: int) -> list[T]:
        """Remove and return the items of this version and of all earlier versions."""
        if not self._versions:
            return []
        earlier = list(takewhile(lambda item: self._versions[item] <= version, self._versions))
        for item in earlier:
            del self._versions[item]
        return earlier
