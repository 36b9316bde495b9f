"""Distinguishes deliveries that have the same key. A publisher may use a tag again after it has settled the earlier
delivery.

Each *use* of a key is one delivery. Routers withhold a key until the old delivery is forgotten (protocol 5, Reused
tags), so in the mesh the uses of one key follow each other. If the logs do not show for certain to which use an entry
belongs, no use of that key is *sure*, and the audit concludes nothing about it.

If the publisher's own log is whole, it shows the number of uses. Otherwise the routers' logs show it, by the places in
the publisher's order (epoch, n) at which they received the key. If the publisher's log shows only one use, a second
transfer of the key is no new use; in this way the audit finds duplicates.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby

import attrs
import numpy as np

from failover.audit.read.columns import Flags, Ints, Texts
from failover.audit.read.entries import DeliveryEntry, entries_at
from failover.audit.read.facts import Facts, Groups, by_key
from topic.identity import NAME_LENGTH
from topic.journal import Event

Locate = Callable[[DeliveryEntry], int]
Stamp = tuple[int, str, int]
"""A place in the order of hybrid clocks. Rows with equal clocks are ordered by their logs."""


@attrs.frozen
class Uses:
    """The deliveries of a bucket. The column `of` has one element for each row. The other columns have one element for
    each delivery."""

    of: Ints
    """For each row of the bucket, the index of its delivery."""
    key: Texts
    number: Ints
    """The number of this use of the key, from 1 on; 0 if the key was used only once."""
    sure: Flags
    """Whether it is certain which rows belong to the delivery."""

    @property
    def reused(self) -> Flags:
        return self.number > 0

    def publisher(self) -> Texts:
        return self.key.astype(f"S{NAME_LENGTH}")

    def name(self, delivery: int) -> tuple[str, int]:
        """The key and the number of the use, as reports show them. The number is 0 if the key was used only once, or if
        it is uncertain which rows belong to the delivery."""
        return self.key[delivery].decode(), int(self.number[delivery]) if self.sure[delivery] else 0


def tell_apart(
    facts: Facts, whole: Collection[str], disordered: Collection[str] = (), settling_first: Collection[str] = ()
) -> Uses:
    """Find the uses of all keys.

    `whole`: the publishers with whole logs. `disordered`: the publishers for which hybrid clocks do not order the
    entries of different routers. `settling_first`: the publishers that have ever used receiver settle mode first.
    """
    of, keys = by_key(facts.rows.key)
    number, sure = np.zeros(len(keys), np.int64), np.ones(len(keys), np.bool_)
    more: list[tuple[int, int, bool]] = []
    reused = np.flatnonzero(_reused(facts, Groups(of, len(keys)), keys, whole))
    ordered = np.argsort(of, kind="stable") if len(reused) else of
    bounds = np.searchsorted(of, np.stack([reused, reused + 1], axis=1), sorter=ordered)
    for group, (start, end) in zip(reused.tolist(), bounds, strict=True):
        at = ordered[start:end]
        publisher = keys[group][:NAME_LENGTH].decode()
        entries = list(entries_at(facts.rows, at))
        found, certain = uses_of(entries, whole=publisher in whole, first=publisher in settling_first)
        is_ordered = publisher in whole or publisher not in disordered
        sure[group] = is_ordered or _is_one(entries)
        if max(found) > 1:
            certain &= is_ordered
            number[group], sure[group] = 1, certain
            later = [(group, use, certain) for use in range(2, max(found) + 1)]
            first = len(keys) + len(more)
            of[at] = np.array([group, group, *range(first, first + len(later))])[found]
            more += later
    again = np.array(more, np.int64).reshape(-1, 3)
    return Uses(
        of,
        np.concatenate([keys, keys[again[:, 0]]]),
        np.concatenate([number, again[:, 1]]),
        np.concatenate([sure, again[:, 2] > 0]),
    )


def _reused(facts: Facts, groups: Groups, keys: Texts, whole: Collection[str]) -> Flags:
    """Flags the keys that may have been used more than once: the publisher sent the key more than once, or homes
    received the key at several places in the publisher's order. If the publisher's log is whole and shows that the key
    was sent once, the key is not flagged."""
    sent = groups.count(facts.flags_of(Event.PUBLISHED))
    received = facts.flags_of(Event.RECEIVED) & (facts.rows.n >= 0)
    moved = groups.distinct(received, facts.epoch_hlc, facts.rows.n) > 1
    by_itself = np.isin(keys.astype(f"S{NAME_LENGTH}"), [name.encode() for name in whole]) & (sent == 1)
    again: Flags = (sent > 1) | (moved & ~by_itself)
    return again


def uses_of(rows: Sequence[DeliveryEntry], *, whole: bool, first: bool = False) -> tuple[list[int], bool]:
    """For each row about one key, the number of the use to which it belongs, from 1 on. Also returns whether this is
    certain for all rows.

    `whole`: the log of the publisher is whole. `first`: the publisher has ever used receiver settle mode first.
    """
    publishing = _in_order(row for row in rows if row.role == "publisher")
    uses = {id(row): use for row, use in zip(publishing, _publications(publishing), strict=True)}
    routed = _routed(rows)
    clocks = _Clocks(publishing, routed, whole=whole)
    ordered = whole or (len({row.incarnation for row in publishing}) <= 1 and not (first and routed.sent_again))
    for _, log in groupby(_in_order(row for row in rows if row.role == "router"), lambda row: row.source):
        uses |= _of_router(list(log), clocks)
    for _, log in groupby(_in_order(row for row in rows if row.role == "subscriber"), lambda row: row.source):
        uses |= _of_subscriber(list(log), rows, uses, clocks)
    return [uses[id(row)] for row in rows], ordered and clocks.certain


def _is_one(rows: Iterable[DeliveryEntry]) -> bool:
    """Whether these rows can only be about one use, although no clock orders the entries of different routers.

    A home gives each use one place in the publisher's order, and the publisher settles each use at one home. Once a map
    of the publisher lacks the delivery, its use is over, so no home receives it in that epoch or a later one.
    """
    told = sorted((row for row in rows if row.role == "router"), key=_stamp)
    received = [(row.epoch_hlc or 0, row.n) for row in told if row.event == Event.RECEIVED and row.n >= 0]
    settled = {row.epoch_hlc for row in told if _is_settled_by(row)}
    latest = max(received, default=(0, 0))[0]
    is_left_out = any(epoch <= latest for epoch in _omitting(told))
    return len(dict(received)) == len({*received}) and len(settled) <= 1 and not is_left_out


def _is_settled_by(row: DeliveryEntry) -> bool:
    """Whether this row is a home's statement that the publisher has settled the delivery, or will not resume it.

    The statement does not count if the home gave the delivery up because of another life of the publisher. The former
    life may go on at another router (protocol 10), where the publisher sends the same delivery again.
    """
    given_up = row.event == Event.ABANDONED and row.detail is None
    return row.peer is None and (given_up or row.event == Event.SETTLED)


def _in_order(rows: Iterable[DeliveryEntry]) -> list[DeliveryEntry]:
    return sorted(rows, key=lambda row: (row.source, row.incarnation, row.place))


def _publications(rows: Iterable[DeliveryEntry]) -> Iterable[int]:
    use = 0
    for row in rows:
        use += row.event == Event.PUBLISHED
        yield max(use, 1)


@attrs.frozen
class _Routed:
    """The uses of one key, found in the logs of routers."""

    starts: Sequence[DeliveryEntry]
    """The row with which each use of the key began."""
    ends: Sequence[Stamp]
    """The place in the order of hybrid clocks at which each use ended. A use ends when the publisher settles the
    delivery, when a later home answers that it never received the key, or when the next use begins. The last use may
    have no end."""
    places: Mapping[tuple[int, int], int]
    """Maps each place in the publisher's order (epoch, n) to the number of the use that homes received at this
    place."""
    sent_again: bool
    """Whether any use began in another epoch than the use before it.

    If so, the logs may show one use as two. On a link with receiver settle mode *first*, the home settles each delivery
    with its answer. If the publisher has not read the answer, it sends the delivery again at its next home.
    """


def _routed(rows: Iterable[DeliveryEntry]) -> _Routed:
    """Find the uses of one key in the logs of routers.

    A use begins at a new place in the same epoch, or after the publisher has settled the use before. If a home receives
    the delivery in a later epoch, without such a settlement, this is the same use, which the publisher resumes at its
    next home. A receipt in an earlier epoch is no new use, either: a former home was paused, and reads an old transfer
    late.
    """
    told = sorted((row for row in rows if row.role == "router"), key=_stamp)
    omitting = _omitting(told)
    starts: list[DeliveryEntry] = []
    places: dict[tuple[int, int], int] = {}
    ends: dict[int, Stamp] = {}
    latest, ended, sent_again = 0, True, False
    for row in told:
        epoch = row.epoch_hlc or 0
        if row.event == Event.RECEIVED and row.n >= 0 and epoch >= latest and (epoch, row.n) not in places:
            if ended or epoch == latest or any(latest < under <= epoch for under in omitting):
                sent_again |= bool(starts) and epoch != latest
                ends.setdefault(len(starts), _stamp(row))
                starts.append(row)
            places[epoch, row.n] = len(starts)
            latest, ended = epoch, False
        elif _is_settled_by(row) and epoch >= latest:
            ends.setdefault(len(starts), _stamp(row))
            ended = True
        elif row.event == Event.RESOLVED and epoch > latest:
            # An answer of a later home, which never received the key, shows that the use is over.
            ends.setdefault(len(starts), _stamp(row))
    return _Routed(starts, [ends[use] for use in range(1, len(starts) + 1) if use in ends], places, sent_again)


def _stamp(row: DeliveryEntry) -> Stamp:
    return row.hlc, row.source, row.place


def _omitting(told: Iterable[DeliveryEntry]) -> set[int]:
    """The epochs in which a home answered that the delivery is settled although, by earlier entries, no home had
    settled it in this epoch.

    The publisher had then settled the delivery before this epoch, so a transfer of the key in this epoch is another
    use. A home without a record answers only routers that ask, and a router may log the answer only after the transfer.
    """
    omitting, settling = set[int](), set[int]()
    for row in told:
        epoch = row.epoch_hlc or 0
        if row.event == Event.RESOLVED and epoch not in settling:
            omitting.add(epoch)
        elif _is_settled_by(row):
            settling.add(epoch)
    return omitting


class _Clocks:
    """Finds to which use of a key a row belongs, by the time of the row. If the clock of the row's host shows when each
    use began, wall clocks decide. Otherwise hybrid clocks decide."""

    def __init__(self, publishing: Sequence[DeliveryEntry], routed: _Routed, *, whole: bool) -> None:
        self.certain = True
        starts = routed.starts
        published = sum(row.event == Event.PUBLISHED for row in publishing)
        unreceived = published - len(starts)  # perhaps the last use has not reached any router
        told = unreceived <= 0 or (unreceived == 1 and publishing[-1].event == Event.PUBLISHED)
        self._by_stamp = told and (unreceived >= 0 or not whole or not published)
        self._routed = routed
        self._stamps = [_stamp(row) for row in starts]
        self._walls: dict[str, list[int]] = {}
        self._guess = [row.time for row in starts]
        if self._by_stamp and (host := _only_host(starts)):
            self._walls[host] = self._guess
        self._own_host = _only_host(publishing) if whole else ""
        if whole and published:
            self._guess = _ends(publishing)
        self._over = self._guess[1:]
        if publishing and publishing[-1].event == Event.SETTLED:
            self._over = [*self._over, publishing[-1].time]
        if self._own_host:
            self._walls[self._own_host] = self._guess

    def of_router(self, row: DeliveryEntry) -> int:
        """The use to which a router's row belongs.

        If the row has a place in the publisher's order, the place decides. If the row is about a settlement, it belongs
        to the last use that had ended by then. For any other row from the publisher's host, the wall clock decides. For
        a row from another host, hybrid clocks decide, if the routers' logs show when every use began; otherwise the
        wall clock decides.
        """
        if self._by_stamp and (use := self._routed.places.get((row.epoch_hlc or 0, row.n))):
            return use
        if row.event in (Event.RESOLVED, Event.SETTLED):
            return self._of_settled(row)
        if self._by_stamp and (row.host != self._own_host or not self._own_host):
            return max(bisect_right(self._stamps, _stamp(row)), 1)
        return self.of_client(row)

    def _of_settled(self, row: DeliveryEntry) -> int:
        """The last use that had ended when the row was written. By the row's clock a later use may have begun. This
        does not count, because the clock of the row's router may be ahead."""
        if self._by_stamp:
            return max(bisect_right(self._routed.ends, _stamp(row)), 1)
        return max(min(bisect_right(self._over, row.time), self.of_client(row)), 1)

    def of_client(self, row: DeliveryEntry) -> int:
        walls = self._walls.get(row.host)
        if walls is None:
            self.certain = False
        return max(bisect_right(self._guess if walls is None else walls, row.time), 1)

    def known_at(self, host: str) -> bool:
        return host in self._walls


def _only_host(rows: Sequence[DeliveryEntry]) -> str:
    """The host that wrote all these rows; empty if it is unknown, or if there are several."""
    hosts = {row.host for row in rows}
    return hosts.pop() if len(hosts) == 1 else ""


def _ends(publishing: Sequence[DeliveryEntry]) -> list[int]:
    """The earliest possible time of each publication: the time of the entry before the publication's own entry. One
    entry may stand for all publications within a moment, so the time of the publication's own entry is less exact."""
    ends: list[int] = []
    for before, row in zip([None, *publishing], publishing, strict=False):
        if row.event == Event.PUBLISHED:
            ends.append(before.time if before else row.time)
    return ends


def _of_router(log: Sequence[DeliveryEntry], clocks: _Clocks) -> dict[int, int]:
    """Maps each row of a router (by its id) to its use.

    A record may begin with a subscriber's map. The record then belongs to the use of the router's next entry about a
    receipt or a settlement. The hybrid clock of the record's first row cannot decide this: the subscriber may have got
    the delivery from a router with a faster clock.
    """
    following: DeliveryEntry | None = None
    told: dict[int, DeliveryEntry] = {}
    for row in reversed(log):
        if following and (row.incarnation != following.incarnation or row.event == Event.FORGOTTEN):
            following = None
        if row.event in (Event.RECEIVED, Event.RESOLVED, Event.SETTLED):
            following = row
        told[id(row)] = following or row
    return _follow(log, (Event.RECEIVED, Event.PLACEHOLDER), lambda row: clocks.of_router(told[id(row)]))


def _follow(log: Sequence[DeliveryEntry], opening: Collection[int], locate: Locate) -> dict[int, int]:
    """Maps each row of a log (by its id) to its use. This is the use of the last `opening` row before it.

    The clock alone cannot decide: after the next use has begun at another router, this log may still get entries about
    the end of the earlier use. After a FORGOTTEN row, any row opens a use, because the outcomes in a map come before
    the PLACEHOLDER row.
    """
    uses: dict[int, int] = {}
    current, incarnation = 0, None
    for row in log:
        if row.event in opening or not current or row.incarnation != incarnation:
            current, incarnation = locate(row), row.incarnation
        uses[id(row)] = current
        if row.event == Event.FORGOTTEN:
            current = 0
    return uses


def _of_subscriber(
    log: Sequence[DeliveryEntry], rows: Iterable[DeliveryEntry], known: dict[int, int], clocks: _Clocks
) -> dict[int, int]:
    """Maps each row of a subscriber (by its id) to its use, by the wall clock of the subscriber's host.

    If this clock does not show when each use began, and the subscriber got as many transfers as routers sent, transfers
    are matched by their order: the first transfer that the subscriber got is the first transfer that a router sent, and
    so on.
    """
    handed = [row for row in log if row.event == Event.DELIVERED]
    if all(clocks.known_at(row.host) for row in log):
        return _follow(log, (Event.DELIVERED,), clocks.of_client)
    sent = [
        row
        for row in rows
        if row.role == "router" and row.event == Event.DELIVERED and row.subscriber == log[0].subscriber
    ]
    if not handed or len(sent) != len(handed):
        return _follow(log, (Event.DELIVERED,), clocks.of_client)
    order = [(row.incarnation, row.place) for row in handed]
    places = sorted(known[id(row)] for row in sent)
    return _follow(
        log,
        (Event.DELIVERED,),
        lambda row: places[min(bisect_left(order, (row.incarnation, row.place)), len(places) - 1)],
    )
