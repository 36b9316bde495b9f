"""Addresses, and patterns of addresses that subscribers attach to (protocol 2, Address).

A publisher has an exact address. A subscriber has an exact address or a pattern. Everywhere else both are texts, the
address of a link. This module decides which addresses and patterns meet.

A search costs as much as its results, not as much as the table (`tree`). Exact addresses come and go with messages.
They are indexed by their words only once a search for the addresses of a pattern has been made; until then they are
only looked up.
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
"""Addresses whose results a `Found` keeps."""


def is_pattern(address: str) -> bool:
    """Whether the address is a pattern. Most addresses have no wildcard character and are not parsed: the cache of
    parsed addresses is small."""
    return (WORD in address or LEVEL in address or REST in address) and bool(read(address)[1])


def is_misplaced(address: str) -> bool:
    """Whether the address has a `#` that is not its last word."""
    return any(word.lstrip(SEPARATORS) == REST for word in read(address)[0][:-1])


def parts(pattern: str) -> tuple[str, str | None]:
    """Return the prefix of all addresses that the pattern covers. If the pattern covers one address without this
    prefix, return this address, too; else None."""
    words, wildcards = read(pattern)
    first = min(wildcards)
    begin = "".join(words[:first])
    return begin + words[first][0], begin if wildcards[first] == REST else None


def meets(one: str, other: str) -> bool:
    """Whether an address may belong to both arguments, each an address or a pattern. Two patterns are assumed to have a
    common address."""
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
    """Results for exact addresses, at most `MOST`, because clients may name any number of addresses. When a pattern
    changes, the results that it covers become stale. A stale result is found when its address is looked up, so that
    many changes of patterns cost a lookup no more than one change."""

    __slots__ = ("_changed", "_changes", "_found")

    def __init__(self) -> None:
        self._found: dict[str, tuple[V, int]] = {}
        """The result, and the number of changes before which it was valid."""
        self._changes = 0
        self._changed: Tree[int] = Tree()
        """Patterns that changed, and how many changes had come before the last change of each."""

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
    """The exact addresses of a table that a pattern covers. The addresses are indexed by their words at the first
    search; later changes are indexed at the next search."""

    __slots__ = ("_by_mark", "_changed", "_table")

    def __init__(self, table: Mapping[str, V]) -> None:
        self._table = table
        self._by_mark: dict[Mark, dict[str, None]] | None = None
        self._changed: dict[str, None] = {}

    def changed(self, address: str) -> None:
        """An address was added to the table, or removed."""
        if self._by_mark is not None:
            self._changed[address] = None
            if len(self._changed) > MOST + len(self._table):  # no search for a long time
                self._by_mark = None

    def by(self, pattern: str) -> list[V]:
        """The values at the addresses that the pattern covers, in no order. Searches the shortest list of addresses
        that share a mark with the pattern."""
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
        """Remove the address from the index, if it is there."""
        for mark in marks(address):
            alike = by_mark.get(mark, {})
            if alike.pop(address, address) is None and not alike:
                del by_mark[mark]


class _Members(dict[K, V]):
    """The values at one address."""

    __slots__ = ("number",)

    number: int
    """How many addresses came before this one."""


class ByAddress(Generic[K, V]):
    """The values at each address or pattern, keyed by a key of their own, in order. An exact address is looked up. It
    is matched with the patterns again only after a pattern that covers it has come or gone."""

    __slots__ = ("_asked", "_at", "_covered", "_found", "_number", "_patterns", "_tree")

    def __init__(self) -> None:
        self._at: dict[str, _Members[K, V]] = {}
        self._number = 0
        self._patterns: dict[str, _Members[K, V]] = {}
        """The members of `_at` that are at patterns."""
        self._tree: Tree[_Members[K, V]] = Tree()
        """The same members as a tree."""
        self._covered: Covered[_Members[K, V]] = Covered(self._at)
        self._found: Found[list[_Members[K, V]]] = Found()
        self._asked: dict[str, list[_Members[K, V]]] = {}
        """The members that meet the last pattern that was looked up: the same pattern is often looked up again."""

    def at(self, address: str) -> dict[K, V]:
        """The values at exactly that address or pattern; the caller may add to them."""
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
        """An address or pattern has come or gone. Without patterns, no results are kept."""
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
