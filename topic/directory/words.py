"""Parses an address: its words, and which of them are wildcards (protocol 2, Address)."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

WORD, LEVEL, REST = "*", "+", "#"
SEPARATORS: Final = "./"
MOST_READ: Final = 1024
"""The highest number of addresses whose parsed words are cached."""

MARKED: Final = 16
"""The highest number of words of an address that are indexed."""
Mark = tuple[int, int, str]
"""A word and its place in an address. The place has two numbers: the level of the word, and its place within this
level. A level begins at each `/`. An empty word marks the end of an address."""


@lru_cache(maxsize=MOST_READ)
def read(address: str) -> tuple[list[str], dict[int, str]]:
    """Return the words of an address, and its wildcards by their place among the words, in order. Each word but the
    first has its separator before it."""
    words = re.split("(?=[./])", address)
    return words, {at: words[at][1:] for at in range(1, len(words)) if _is_wildcard(words, at)}


def _is_wildcard(words: Sequence[str], at: int) -> bool:
    separator, word = words[at][0], words[at][1:]
    is_last = at + 1 == len(words)
    if word == LEVEL:
        return separator == "/" and (is_last or words[at + 1][0] == "/")
    return word == WORD or (word == REST and is_last)


def marks(address: str) -> list[Mark]:
    """The marks of a pattern that every address covered by the pattern also has: at most `MARKED` words with their
    places, and the end of the address.

    Words after a wildcard for one word have the same places in pattern and address. A wildcard for several words stands
    for any number of words of its level, so only the words of later levels keep their places.
    """
    words, wildcards = read(address)
    found: list[Mark] = []
    level = place = 0
    for at, word in enumerate(words):
        if word[:1] == "/" and at:
            level, place = level + 1, 0
        if at not in wildcards and at < MARKED:
            found.append((level, place, word))
        place += 1
    last = wildcards.get(len(words) - 1)
    if last != REST:
        found.append((level, -1, ""))
        if last != LEVEL:
            found.append((level, place, ""))
    return found
