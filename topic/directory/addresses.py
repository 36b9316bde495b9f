"""Addresses, and patterns of addresses that subscribers attach to (protocol 2, Address).

A publisher has an exact address, a subscriber that or a pattern. Everywhere else both are texts that are the address of
a link; who belongs together is asked here.
"""

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, Generic, TypeVar

WORD, LEVEL, REST = "*", "+", "#"
MOST: Final = 4096
"""Addresses of which it is remembered what was found out of them."""
MOST_READ: Final = 1024
"""Those of which it is remembered what they are made of."""


@lru_cache(maxsize=MOST_READ)
def _read(address: str) -> tuple[list[str], dict[int, str]]:
    """Words and, between them, separators; and which of the words are wildcards, by their places, in order."""
    words = re.split("([./])", address)
    return words, {at: words[at] for at in range(2, len(words), 2) if _is_wildcard(words, at)}


def _is_wildcard(words: Sequence[str], at: int) -> bool:
    following = words[at + 1] if at + 1 < len(words) else ""
    if words[at] == LEVEL:
        return words[at - 1] == "/" and following in ("", "/")
    return words[at] == WORD or (words[at] == REST and not following)


def is_pattern(address: str) -> bool:
    """Few are: the rest is not read, as no more than some of that are remembered."""
    return (WORD in address or LEVEL in address or REST in address) and bool(_read(address)[1])


def is_misplaced(address: str) -> bool:
    """Whether it has a `#` for a word that is not the last one."""
    return REST in _read(address)[0][:-1]


def parts(pattern: str) -> tuple[str, str | None]:
    """What everything that the pattern covers begins with, and the one address that does not; else None."""
    words, wildcards = _read(pattern)
    first = min(wildcards)
    begin = "".join(words[:first])
    return begin, begin[:-1] if words[first] == REST else None


def meets(one: str, other: str) -> bool:
    """Whether these have an address in common; of two patterns it is assumed."""
    if one == other:
        return True
    if is_pattern(one):
        return is_pattern(other) or _covers(one, other)
    return is_pattern(other) and _covers(other, one)


def _covers(pattern: str, address: str) -> bool:
    """Looks at each word once."""
    (wanted, wildcards), (words, _) = _read(pattern), _read(address)
    at = 0
    for place, word in enumerate(wanted):
        if place not in wildcards:
            if at == len(words):
                return wanted[place + 1 :] == [REST]
            if words[at] != word:
                return False
            at += 1
        elif word == REST:
            return True
        elif word == LEVEL:
            while at < len(words) and words[at] != "/":
                at += 1
        elif at < len(words) and words[at]:
            at += 1
        else:
            return False
    return at == len(words)


K = TypeVar("K")
V = TypeVar("V")


class Found(dict[str, V]):
    """What was found out of exact addresses, `MOST` of them: anybody may name others."""

    def keep(self, address: str, found: V) -> V:
        if len(self) >= MOST:
            self.clear()
        self[address] = found
        return found

    def forget(self, address: str) -> None:
        """It holds no more of this one; or of those that a pattern covers."""
        if is_pattern(address):
            for covered in [other for other in self if meets(address, other)]:
                del self[covered]
        else:
            self.pop(address, None)


class ByAddress(Generic[K, V]):
    """What is at each address or pattern, by a key of its own, in order. An exact address is looked up: it is matched
    with the patterns that there are when one that covers it has come or gone."""

    __slots__ = ("_at", "_found", "_patterns")

    def __init__(self) -> None:
        self._at: dict[str, dict[K, V]] = {}
        self._patterns: dict[str, dict[K, V]] = {}
        """Those of `_at` that are at patterns."""
        self._found: Found[list[dict[K, V]]] = Found()

    def at(self, address: str) -> dict[K, V]:
        """What is at that very address or pattern, to add to it."""
        members = self._at.get(address)
        if members is None:
            members = self._at[address] = {}
            if is_pattern(address):
                self._patterns[address] = members
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
            self._patterns.pop(address, None)
            self._found.forget(address)

    def meeting(self, address: str) -> Collection[V]:
        """What is at the address, and at whatever else meets it."""
        if is_pattern(address):
            found = [members for other, members in self._at.items() if meets(address, other)]
        elif self._patterns:
            known = self._found.get(address)
            found = self._find(address) if known is None else known
        else:
            members = self._at.get(address)
            return () if members is None else members.values()
        return found[0].values() if len(found) == 1 else list(chain.from_iterable(map(dict.values, found)))

    def _find(self, address: str) -> list[dict[K, V]]:
        exact = [self._at[address]] if address in self._at else []
        found = [*exact, *(members for pattern, members in self._patterns.items() if meets(pattern, address))]
        return self._found.keep(address, found)
