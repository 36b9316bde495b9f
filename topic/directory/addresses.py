"""Addresses, and patterns of addresses that subscribers attach to (protocol 2, Address).

A publisher has an exact address, a subscriber that or a pattern. Everywhere else both are texts that are the address of
a link; who belongs together is asked here.

What meets an address or a pattern is found at the cost of what that is, not of what there is (`tree`). As long as
nobody has asked for what a pattern covers, exact addresses are only looked up: they come and go with messages.
"""

from collections.abc import Collection, Mapping
from itertools import chain
from operator import attrgetter
from typing import Final, Generic, TypeVar

from topic.directory.tree import Tree
from topic.directory.words import LEVEL, REST, SEPARATORS, WORD, read

K = TypeVar("K")
V = TypeVar("V")
MOST: Final = 4096
"""Addresses of which it is remembered what was found out of them."""


def is_pattern(address: str) -> bool:
    """Few are: the rest is not read, as no more than some of that are remembered."""
    return (WORD in address or LEVEL in address or REST in address) and bool(read(address)[1])


def is_misplaced(address: str) -> bool:
    """Whether it has a `#` for a word that is not the last one."""
    return any(word.lstrip(SEPARATORS) == REST for word in read(address)[0][:-1])


def parts(pattern: str) -> tuple[str, str | None]:
    """What everything that the pattern covers begins with, and the one address that does not; else None."""
    words, wildcards = read(pattern)
    first = min(wildcards)
    begin = "".join(words[:first])
    return begin + words[first][0], begin if wildcards[first] == REST else None


def meets(one: str, other: str) -> bool:
    """Whether these have an address in common; of two patterns it is assumed."""
    if one == other:
        return True
    if is_pattern(one):
        return is_pattern(other) or _covers(one, other)
    return is_pattern(other) and _covers(other, one)


def _covers(pattern: str, address: str) -> bool:
    """Looks at each word once."""
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


class Covered:
    """Which of the addresses of a table a pattern covers. The tree of them is made when somebody asks, and follows
    what has come and gone since when somebody asks again."""

    __slots__ = ("_changed", "_listed", "_table", "_tree")

    def __init__(self, table: Mapping[str, object]) -> None:
        self._table = table
        self._tree: Tree[str] | None = None
        self._listed: set[str] = set()
        self._changed: dict[str, None] = {}

    def changed(self, address: str) -> None:
        """It has come, or gone; it is no pattern."""
        if self._tree is not None:
            self._changed[address] = None
            if len(self._changed) > MOST + len(self._listed):  # nobody has asked for long
                self._tree = None

    def by(self, pattern: str) -> list[str]:
        """In no order."""
        if self._tree is None:
            self._tree, self._listed, self._changed = Tree(), set(), dict.fromkeys(self._table)
        for address in self._changed:
            is_there = address in self._table
            if is_there and address not in self._listed and not is_pattern(address):
                self._tree.put(address, address)
                self._listed.add(address)
            elif address in self._listed and not is_there:
                self._tree.remove(address)
                self._listed.discard(address)
        self._changed.clear()
        return self._tree.covered(pattern)


class Found(dict[str, V]):
    """What was found out of exact addresses, `MOST` of them: anybody may name others."""

    def __init__(self) -> None:
        self._covered = Covered(self)

    def keep(self, address: str, found: V) -> V:
        if len(self) >= MOST:
            self.clear()
        self[address] = found
        self._covered.changed(address)
        return found

    def clear(self) -> None:
        super().clear()
        self._covered = Covered(self)

    def forget(self, address: str) -> None:
        """It holds no more of this one; or of those that a pattern covers."""
        if not self:
            return
        if is_pattern(address):
            for covered in self._covered.by(address):
                self.forget(covered)
        elif self.pop(address, None) is not None:
            self._covered.changed(address)


class _Members(dict[K, V]):
    """What is at one address."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number
        """How many addresses had come before."""


class ByAddress(Generic[K, V]):
    """What is at each address or pattern, by a key of its own, in order. An exact address is looked up: it is matched
    with the patterns that there are when one that covers it has come or gone."""

    __slots__ = ("_at", "_covered", "_found", "_number", "_patterns", "_tree")

    def __init__(self) -> None:
        self._at: dict[str, _Members[K, V]] = {}
        self._number = 0
        self._patterns: dict[str, _Members[K, V]] = {}
        """Those of `_at` that are at patterns."""
        self._tree: Tree[_Members[K, V]] = Tree()
        """The same."""
        self._covered = Covered(self._at)
        self._found: Found[list[_Members[K, V]]] = Found()

    def at(self, address: str) -> dict[K, V]:
        """What is at that very address or pattern, to add to it."""
        members = self._at.get(address)
        if members is None:
            members = self._at[address] = _Members(self._number)
            self._number += 1
            if is_pattern(address):
                self._patterns[address] = members
                self._tree.put(address, members)
            else:
                self._covered.changed(address)
            self._found.forget(address)
        return members

    def discard(self, address: str, *keys: K) -> None:
        members = self._at.get(address)
        if members is None:
            return
        for key in keys:
            members.pop(key, None)
        if not members:
            del self._at[address]
            if self._patterns.pop(address, None) is not None:
                self._tree.remove(address)
            else:
                self._covered.changed(address)
            self._found.forget(address)

    def meeting(self, address: str) -> Collection[V]:
        """What is at the address, and at whatever else meets it."""
        if is_pattern(address):
            covered = [self._at[other] for other in self._covered.by(address)]
            found = sorted([*covered, *self._patterns.values()], key=_NUMBER)
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
