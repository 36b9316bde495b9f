"""Computes facts about the rows of one bucket, and about all groups of these rows at once.

`Facts` has the writer and the home of each row. `Groups` gets the group of each row; it finds, for each group, the
first row, the number of rows, or the highest value. A result that is a row is given by its index, or `NONE` if a group
has no such row.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from failover.audit.read.columns import NONE, Flags, Ints, Rows, Texts, hashed
from topic.journal import Event, LoggedOutcome

ROLES = ("router", "publisher", "subscriber")
BIG = np.iinfo(np.int64).max


class Facts:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        role = _by_log([ROLES.index(log.role) if log.role in ROLES else NONE for log in rows.logs])[rows.log]
        self.by_router, self.by_publisher, self.by_subscriber = (role == number for number in range(len(ROLES)))
        self.at_home: Flags = self.by_router & (rows.peer == NONE)
        self.accepted: Flags = rows.outcome == LoggedOutcome.ACCEPTED
        self.incarnation = _by_log([log.incarnation for log in rows.logs])[rows.log]
        sources = _ranks(log.source for log in rows.logs)
        self.hosts = sorted({log.host for log in rows.logs} - {""})
        self.source = _by_log([sources[log.source] for log in rows.logs])[rows.log]
        self.host = _by_log([self.host_code(log.host) for log in rows.logs])[rows.log]
        """The host that wrote each row, as an index into `hosts`; `NONE` if it is unknown."""
        self.homes, of_epoch, hlc = _epochs(rows.strings)
        """`homes` has the homes that epochs name, as router.incarnation, sorted."""
        self.home = of_epoch[rows.epoch]
        """The home that each row's epoch names, as an index into `homes`."""
        self.epoch_hlc = hlc[rows.epoch]

    def flags_of(self, *events: Event) -> Flags:
        """Flags the rows that have one of these events."""
        found: Flags = np.logical_or.reduce([self.rows.event == event for event in events])
        return found

    def host_code(self, host: str) -> int:
        """The index of the host in `hosts`. If no row has the host, the result is the number of hosts, which is no
        index; `NONE` if the host is empty."""
        if not host:
            return NONE
        return self.hosts.index(host) if host in self.hosts else len(self.hosts)

    def home_code(self, home: str) -> int:
        """The index of the home in `homes`. If no row names the home, the result is the number of homes, which is no
        index."""
        return self.homes.index(home) if home in self.homes else len(self.homes)


def _by_log(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)


def _ranks(texts: Iterable[str]) -> dict[str, int]:
    return {text: rank for rank, text in enumerate(sorted(set(texts)))}


def _epochs(strings: Sequence[str]) -> tuple[list[str], Ints, Ints]:
    """Return the homes that epochs name. Also return, for each code of a text, the index of its home and its hybrid
    clock; `NONE` if the text is no epoch. The last element is for the code `NONE`, that is, for rows without a text."""
    parsed = [*(epoch_of(text) for text in strings), (None, None)]
    ranks = _ranks(home for _, home in parsed if home is not None)
    of_epoch = np.array([NONE if home is None else ranks[home] for _, home in parsed], np.int64)
    return list(ranks), of_epoch, np.array([NONE if hlc is None else hlc for hlc, _ in parsed], np.int64)


def epoch_of(text: str) -> tuple[int | None, str | None]:
    """Split the text of an epoch, "hlc.router.incarnation", into hlc and "router.incarnation"; (None, None) for any
    other text."""
    hlc, dot, home = text.partition(".")
    return (int(hlc), home) if dot and hlc.isdigit() and len(hlc) < 19 else (None, None)


class Groups:
    """Groups of rows of one bucket, by delivery for example. The arguments of its methods have one flag, or one value,
    for each row of the bucket."""

    def __init__(self, of: Ints, number: int, at: Ints | None = None) -> None:
        """`of`: the index of each row's group. If `at` is given, it lists the rows that have groups, and `of` has the
        group for each item of `at`. A row may occur in `at` several times."""
        self.of, self.number, self.at = of, number, np.arange(len(of)) if at is None else at
        self._is_of_all = at is None

    def flagged_rows(self, flags: Flags) -> tuple[Ints, Ints]:
        """Return two columns: the group of each flagged row, and the row. A row in several groups occurs several
        times."""
        if self._is_of_all:
            rows = np.flatnonzero(flags)
            return self.of[rows], rows
        chosen = np.flatnonzero(flags[self.at])
        return self.of[chosen], self.at[chosen]

    def all_told(self, flags: Flags, groups: Ints) -> tuple[Ints, Ints]:
        """Find the flagged rows of these groups. Returns two columns: the place of the row's group in `groups`, and the
        row."""
        group, rows = self.flagged_rows(flags)
        order = np.argsort(group, kind="stable")
        start, end = (np.searchsorted(group[order], groups, side) for side in ("left", "right"))
        spans = [np.arange(*span) for span in zip(start, end, strict=True)]
        return np.repeat(np.arange(len(groups)), end - start), rows[order[np.concatenate([start[:0], *spans])]]

    def first(self, flags: Flags, *by: Any) -> Ints:
        """The flagged row of each group that comes first in the order of the columns `by`. The first of these columns
        counts most."""
        group, rows = self.flagged_rows(flags)
        ordered = np.lexsort((*(column[rows] for column in reversed(by)), group))
        rows, group = rows[ordered], group[ordered]
        opening = np.flatnonzero(np.diff(group, prepend=NONE))
        found = np.full(self.number, NONE, np.int64)
        found[group[opening]] = rows[opening]
        return found

    def any(self, flags: Flags) -> Flags:
        found: Flags = self.count(flags) > 0
        return found

    def count(self, flags: Flags) -> Ints:
        return np.bincount(self.flagged_rows(flags)[0], minlength=self.number)

    def lowest(self, flags: Flags, column: Any) -> Ints:
        """The lowest value among the flagged rows of each group; `BIG` if a group has none."""
        group, rows = self.flagged_rows(flags)
        found = np.full(self.number, BIG, np.int64)
        np.minimum.at(found, group, column[rows])
        return found

    def highest(self, flags: Flags, column: Any) -> Ints:
        """The highest value among the flagged rows of each group; `NONE` if a group has none."""
        group, rows = self.flagged_rows(flags)
        found = np.full(self.number, NONE, np.int64)
        np.maximum.at(found, group, column[rows])
        return found

    def distinct(self, flags: Flags, *columns: Any) -> Ints:
        """The number of different values of these columns in the flagged rows of each group."""
        group, rows = self.flagged_rows(flags)
        together = (group, *(column[rows] for column in columns))
        ordered = np.lexsort(together)
        new = np.zeros(len(rows), np.bool_)
        new[:1] = True
        for column in together:
            new[1:] |= np.diff(column[ordered]) != 0
        return np.bincount(group[ordered][new], minlength=self.number)


def taken(column: Any, index: Ints, none: Any = NONE) -> Any:
    """The values of the column at these rows; `none` where the index is no row."""
    if not len(column):
        return np.full(len(index), none)
    found = column[index]
    # NumPy 2.5 raises an error if an unsigned number is set to `NONE`, which is negative.
    if found.dtype.kind == "u":
        found = found.astype(np.int64)
    return np.where(index >= 0, found, none)


def by_key(keys: Texts) -> tuple[Ints, Texts]:
    """Group the rows by key. Returns the group of each row, and the key of each group."""
    number = hashed(keys)
    order = np.argsort(number, kind="stable")
    number, ordered = number[order], keys[order]
    opening = np.ones(len(order), np.bool_)
    opening[1:] = number[1:] != number[:-1]
    # If this condition holds, two different keys have the same hash.
    if not np.array_equal(ordered[1:] != ordered[:-1], opening[1:]):
        distinct, group = np.unique(keys, return_inverse=True)
        return group.astype(np.int64), distinct
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(opening) - 1
    return group, ordered[opening]


def codes_of(names: Sequence[str], strings: Sequence[str]) -> Ints:
    """The codes of these names in `strings`; `NONE` for a name that is not among them."""
    known = {text: code for code, text in enumerate(strings)}
    return np.array([known.get(name, NONE) for name in names], np.int64)
