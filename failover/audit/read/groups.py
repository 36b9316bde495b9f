"""Facts of groups of rows, all groups at once: which row of a group comes first, how many there are, the highest value.

`groups` says for each row which group it is of. Rows are named by their index; `NONE` where a group has no such row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from failover.audit.read.columns import NONE, Flags, Ints, Texts, hashed

BIG = np.iinfo(np.int64).max


class Groups:
    def __init__(self, of: Ints, number: int) -> None:
        self.of = of
        self.number = number

    def first(self, rows: Flags, *by: Any) -> Ints:
        """The row of those with the lowest `by`, the first of these columns counting most."""
        at = np.flatnonzero(rows)
        ordered = at[np.lexsort((*(column[at] for column in reversed(by)), self.of[at]))]
        group = self.of[ordered]
        opening = np.flatnonzero(np.diff(group, prepend=NONE))
        found = np.full(self.number, NONE, np.int64)
        found[group[opening]] = ordered[opening]
        return found

    def any(self, rows: Flags) -> Flags:
        found: Flags = self.count(rows) > 0
        return found

    def count(self, rows: Flags) -> Ints:
        return np.bincount(self.of[rows], minlength=self.number)

    def lowest(self, rows: Flags, column: Any) -> Ints:
        """`BIG` for groups without any."""
        found = np.full(self.number, BIG, np.int64)
        np.minimum.at(found, self.of[rows], column[rows])
        return found

    def highest(self, rows: Flags, column: Any) -> Ints:
        """`NONE` for groups without any."""
        found = np.full(self.number, NONE, np.int64)
        np.maximum.at(found, self.of[rows], column[rows])
        return found

    def distinct(self, rows: Flags, *columns: Any) -> Ints:
        """How many different values of these columns."""
        at = np.flatnonzero(rows)
        together = (self.of[at], *(column[at] for column in columns))
        ordered = np.lexsort(together)
        new = np.zeros(len(at), np.bool_)
        new[:1] = True
        for column in together:
            new[1:] |= np.diff(column[ordered]) != 0
        return np.bincount(self.of[at][ordered][new], minlength=self.number)


def taken(column: Any, index: Ints, none: Any = NONE) -> Any:
    """The column at these rows; `none` where there is no row."""
    if not len(column):
        return np.full(len(index), none)
    return np.where(index >= 0, column[index], none)


def by_key(keys: Texts) -> tuple[Ints, Texts]:
    """For each row the group of its key, and the key of each group."""
    number = hashed(keys)
    order = np.argsort(number, kind="stable")
    opening = np.ones(len(order), np.bool_)
    opening[1:] = number[order][1:] != number[order][:-1]
    if not np.array_equal(keys[order][1:] != keys[order][:-1], opening[1:]):  # two keys of one hash
        distinct, group = np.unique(keys, return_inverse=True)
        return group.astype(np.int64), distinct
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(opening) - 1
    return group, keys[order[opening]]


def codes_of(names: Sequence[str], strings: Sequence[str]) -> Ints:
    """The codes that these names have among the strings; of those that none says, `NONE`."""
    known = {text: code for code, text in enumerate(strings)}
    return np.array([known.get(name, NONE) for name in names], np.int64)
