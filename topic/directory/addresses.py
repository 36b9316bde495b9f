"""Addresses, and the patterns to which subscribers attach (protocol 2, Address).

A publisher has an exact address. A subscriber has an exact address or a pattern. Elsewhere in the code "address" means
either, as a text. This module finds which addresses and patterns meet: two meet if one address belongs to both.

The cost of a search depends on the number of its results, not on the size of the table (`tree`). Clients come and go
with many exact addresses. So this module looks exact addresses up directly, and begins to index their words only when a
pattern is first searched.
"""

from collections.abc import Collection, Mapping
from itertools import chain
from operator import attrgetter
from typing import Final, Generic, TypeVar

from topic.directory.tree import Tree
from topic.directory.words import LEVEL, REST, SEPARATORS, WORD, Mark, marks, read

K = TypeVar("K")
V = TypeVar("V")
MOST: Final = 4096
"""The largest number of addresses whose results a `Found` keeps."""


def is_pattern(address: str) -> bool:
    """Whether the address is a pattern. An address without a wildcard character is not parsed, because it would take
    room in the small cache of parsed addresses."""
    return (WORD in address or LEVEL in address or REST in address) and bool(read(address)[1])


def is_misplaced(address: str) -> bool:
    """Whether the address has a `#` that is not its last word."""
    return any(word.lstrip(SEPARATORS) == REST for word in read(address)[0][:-1])


def begins_with_wildcard(address: str) -> bool:
    """Whether the first word of the address is a wildcard, which has no meaning there."""
    return read(address)[0][0] in (WORD, LEVEL, REST)


def parts(pattern: str) -> tuple[str, str | None]:
    """Return two values. The first is the prefix that the covered addresses share. The second is the one covered
    address that lacks this prefix; None if there is none."""
    words, wildcards = read(pattern)
    first = min(wildcards)
    begin = "".join(words[:first])
    return begin + words[first][0], begin if wildcards[first] == REST else None


def meets(one: str, other: str) -> bool:
    """Whether some address belongs to both arguments, each of which is an address or a pattern. Two different patterns
    always count as meeting, because a closer check is not needed."""
    if one == other:
        return True
    if is_pattern(one):
        return is_pattern(other) or _covers(one, other)
    return is_pattern(other) and _covers(other, one)


def _covers(pattern: str, address: str) -> bool:
    """Whether the pattern covers the address. Each word is read once."""
    (wanted, wildcards), (words, _) = read(pattern), read(address)
    at = 0
    for place, word in enumerate(wanted):
        wildcard = wildcards.get(place)
        if wildcard is None:
            if words[at : at + 1] != [word]:
                return False
        elif at == len(words):
            return wildcard == REST
        elif words[at][0] != word[0]:
            return False
        elif wildcard == REST:
            return True
        elif wildcard == WORD and len(words[at]) == 1:
            return False
        at += 1
        while wildcard == LEVEL and at < len(words) and words[at][0] != "/":
            at += 1
    return at == len(words)


class Found(Generic[V]):
    """A cache of search results for exact addresses. It keeps at most `MOST` results, because clients may name any
    number of addresses.

    A changed pattern makes the results of all addresses that it covers stale. The cache finds a stale result only when
    its address is looked up, so the cost of a lookup does not grow with the number of changes.
    """

    __slots__ = ("_changed", "_changes", "_found")

    def __init__(self) -> None:
        self._found: dict[str, tuple[V, int]] = {}
        """Maps each address to its result, and to the number of pattern changes (`_changes`) up to which the result is
        known to be valid."""
        self._changes = 0
        self._changed: Tree[int] = Tree()
        """Maps each changed pattern to the value of `_changes` just before its last change."""

    def get(self, address: str) -> V | None:
        known = self._found.get(address)
        if known is None:
            return None
        found, changes = known
        if changes < self._changes:
            if max(self._changed.covering(address), default=-1) >= changes:
                del self._found[address]
                return None
            self._found[address] = found, self._changes
        return found

    def keep(self, address: str, found: V) -> V:
        if len(self._found) >= MOST:
            self.clear()
        self._found[address] = found, self._changes
        return found

    def clear(self) -> None:
        self._found.clear()
        self._changes, self._changed = 0, Tree()

    def forget(self, address: str) -> None:
        """Forget the result of this address, or of all addresses that a pattern covers."""
        if not is_pattern(address):
            self._found.pop(address, None)
        elif self._changes >= MOST:
            self.clear()
        elif self._found:
            self._changed.put(address, self._changes)
            self._changes += 1


class Covered(Generic[V]):
    """Finds the exact addresses of a table that a pattern covers. The first search indexes all addresses by their
    words. Each later search first indexes the addresses that have changed since."""

    __slots__ = ("_by_mark", "_changed", "_table")

    def __init__(self, table: Mapping[str, V]) -> None:
        self._table = table
        self._by_mark: dict[Mark, dict[str, None]] | None = None
        self._changed: dict[str, None] = {}

    def changed(self, address: str) -> None:
        """An address was added to the table, or removed from it."""
        if self._by_mark is not None:
            self._changed[address] = None
            # no search for a pattern has come for a long time, so drop the index
            if len(self._changed) > MOST + len(self._table):
                self._by_mark = None

    def by(self, pattern: str) -> list[V]:
        """The values at the addresses that the pattern covers, in no particular order. A pattern and an address have
        marks (`words.Mark`), such as a word and its place. A covered address has all marks of the pattern. So it is
        enough to read the list of addresses with the pattern's rarest mark."""
        if self._by_mark is None:
            self._by_mark, self._changed = {}, dict.fromkeys(self._table)
        for address in self._changed:
            if address not in self._table:
                self._unlist(self._by_mark, address)
            elif not is_pattern(address):
                self._list(self._by_mark, address)
        self._changed.clear()
        alike = [self._by_mark.get(mark, {}) for mark in marks(pattern)]
        return [self._table[address] for address in min(alike, key=len) if _covers(pattern, address)]

    @staticmethod
    def _list(by_mark: dict[Mark, dict[str, None]], address: str) -> None:
        for mark in marks(address):
            by_mark.setdefault(mark, {})[address] = None

    @staticmethod
    def _unlist(by_mark: dict[Mark, dict[str, None]], address: str) -> None:
        """Remove the address from the index if the index has it."""
        for mark in marks(address):
            alike = by_mark.get(mark, {})
            if alike.pop(address, address) is None and not alike:
                del by_mark[mark]


class _Members(dict[K, V]):
    """The values at one address of a `ByAddress`."""

    __slots__ = ("number",)

    number: int
    """The running number of this address, by which results are sorted."""


class ByAddress(Generic[K, V]):
    """Maps each address or pattern to its values. Each value has a key of its own, and the values keep their order.

    Results for exact addresses are cached. An address is matched with the patterns again only after a pattern that
    covers it has come or gone.
    """

    __slots__ = ("_asked", "_at", "_covered", "_found", "_number", "_patterns", "_tree")

    def __init__(self) -> None:
        self._at: dict[str, _Members[K, V]] = {}
        self._number = 0
        self._patterns: dict[str, _Members[K, V]] = {}
        """The entries of `_at` whose keys are patterns."""
        self._tree: Tree[_Members[K, V]] = Tree()
        """The content of `_patterns` as a tree."""
        self._covered: Covered[_Members[K, V]] = Covered(self._at)
        self._found: Found[list[_Members[K, V]]] = Found()
        self._asked: dict[str, list[_Members[K, V]]] = {}
        """The result for the last pattern that was looked up, because callers often look up the same pattern again."""

    def at(self, address: str) -> dict[K, V]:
        """The values at exactly this address or pattern. The caller may add to the returned dict."""
        members = self._at.get(address)
        if members is None:
            members = self._at[address] = _Members()
            members.number = self._number
            self._number += 1
            if is_pattern(address):
                self._patterns[address] = members
                self._tree.put(address, members)
            self._changed(address)
        return members

    def discard(self, address: str, *keys: K) -> None:
        members = self._at.get(address)
        if members is None:
            return
        for key in keys:
            members.pop(key, None)
        if not members:
            del self._at[address]
            self._changed(address)
            if self._patterns and self._patterns.pop(address, None) is not None:
                self._tree.remove(address)
                if not self._patterns:
                    self._found.clear()

    def _changed(self, address: str) -> None:
        """Drop the results that are stale because an address was added or removed. As long as there are no patterns,
        there are no results."""
        self._covered.changed(address)
        if self._patterns:
            self._found.forget(address)
        if self._asked:
            self._asked.clear()

    def meeting(self, address: str) -> Collection[V]:
        """The values at the address, and at every pattern or address that meets it."""
        if is_pattern(address):
            found = self._asked.get(address)
            if found is None:
                found = sorted([*self._covered.by(address), *self._patterns.values()], key=_NUMBER)
                self._asked = {address: found}
        elif self._patterns:
            known = self._found.get(address)
            found = self._find(address) if known is None else known
        else:
            members = self._at.get(address)
            return () if members is None else members.values()
        return found[0].values() if len(found) == 1 else list(chain.from_iterable(map(dict.values, found)))

    def _find(self, address: str) -> list[_Members[K, V]]:
        exact = [self._at[address]] if address in self._at else []
        found = [*exact, *sorted(self._tree.covering(address), key=_NUMBER)]
        return self._found.keep(address, found)


_NUMBER: Final = attrgetter("number")
