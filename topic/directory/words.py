"""How an address is read: its words, and which of them are wildcards (protocol 2, Address)."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

WORD, LEVEL, REST = "*", "+", "#"
SEPARATORS: Final = "./"
MOST_READ: Final = 1024
"""Addresses of which it is remembered what they are made of."""

MARKED: Final = 16
"""Words of an address that it is found by."""
Mark = tuple[int, int, str]
"""The number of a level, that of a word in it, and the word; no word where an address ends."""


@lru_cache(maxsize=MOST_READ)
def read(address: str) -> tuple[list[str], dict[int, str]]:
    """Words, all but the first with the separator before them; and which of them are wildcards, by their places, in
    order."""
    words = re.split("(?=[./])", address)
    return words, {at: words[at][1:] for at in range(1, len(words)) if _is_wildcard(words, at)}


def _is_wildcard(words: Sequence[str], at: int) -> bool:
    separator, word = words[at][0], words[at][1:]
    is_last = at + 1 == len(words)
    if word == LEVEL:
        return separator == "/" and (is_last or words[at + 1][0] == "/")
    return word == WORD or (word == REST and is_last)


def marks(address: str) -> list[Mark]:
    """What it has in common with all addresses that it covers, or with those patterns: words at their places, `MARKED`
    of them, and where it ends. All but a wildcard of several words leave what follows where it is; that leaves the
    next level there."""
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
