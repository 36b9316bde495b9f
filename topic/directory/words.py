"""How an address is read: its words, and which of them are wildcards (protocol 2, Address)."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

WORD, LEVEL, REST = "*", "+", "#"
SEPARATORS: Final = "./"
MOST_READ: Final = 1024
"""Addresses of which it is remembered what they are made of."""


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
