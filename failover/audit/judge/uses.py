"""Deliveries that share a key, told apart: a publisher may use a tag again once the delivery before is settled.

Routers withhold a key until the old delivery is forgotten (protocol 5, Reused tags), so the uses of one key follow each
other in the mesh. Each use is a delivery of its own from here on. If the logs do not show for certain which use an
entry belongs to, no use of that key is sure, and the audit concludes nothing from how they were told apart.

The publisher's own log shows the number of uses if it is whole. Otherwise the routers' logs do, by the places in the
publisher's order (epoch, n) at which they received the key. A second transfer of a delivery that the publisher sent
once is no new use: this is how the audit finds duplicates.
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
"""A place in the order of hybrid clocks; equal clocks are in the order of the logs."""


@attrs.frozen
class Uses:
    """The deliveries of a bucket, one element each."""

    of: Ints
    """The delivery that each row concerns."""
    key: Texts
    number: Ints
    """Which use of its key it is, from 1 on; 0 if its key was used once."""
    sure: Flags
    """Whether it is certain which rows concern it."""

    @property
    def reused(self) -> Flags:
        return self.number > 0

    def publisher(self) -> Texts:
        return self.key.astype(f"S{NAME_LENGTH}")

    def name(self, delivery: int) -> tuple[str, int]:
        """(key, which of its uses) for people; 0 also if the use is not certain."""
        return self.key[delivery].decode(), int(self.number[delivery]) if self.sure[delivery] else 0


def tell_apart(
    facts: Facts, whole: Collection[str], disordered: Collection[str] = (), settling_first: Collection[str] = ()
) -> Uses:
    """`whole` are the publishers with whole logs. The routers' hybrid clocks do not order the entries about the
    publishers in `disordered`. Those in `settling_first` ever used receiver settle mode first."""
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
    """Keys that may have been used again: sent more than once, or received at several places of an order. Keys that a
    whole log shows as sent once are left out."""
    sent = groups.count(facts.tells(Event.PUBLISHED))
    received = facts.tells(Event.RECEIVED) & (facts.rows.n >= 0)
    moved = groups.distinct(received, facts.epoch_hlc, facts.rows.n) > 1
    by_itself = np.isin(keys.astype(f"S{NAME_LENGTH}"), [name.encode() for name in whole]) & (sent == 1)
    again: Flags = (sent > 1) | (moved & ~by_itself)
    return again


def uses_of(rows: Sequence[DeliveryEntry], *, whole: bool, first: bool = False) -> tuple[list[int], bool]:
    """The use, from 1 on, that each row of one key belongs to, and whether that is certain. `whole`: the log of its
    publisher is whole. `first`: its publisher ever used receiver settle mode first."""
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
    """Whether it can only be one use, although nothing orders the entries of different routers. A home gives one use
    one place, the publisher settles it at one home, and no home receives it after its publisher's map left it out."""
    told = sorted((row for row in rows if row.role == "router"), key=_stamp)
    received = [(row.epoch_hlc or 0, row.n) for row in told if row.event == Event.RECEIVED and row.n >= 0]
    settled = {row.epoch_hlc for row in told if _is_settled_by(row)}
    latest = max(received, default=(0, 0))[0]
    is_left_out = any(epoch <= latest for epoch in _omitting(told))
    return len(dict(received)) == len({*received}) and len(settled) <= 1 and not is_left_out


def _is_settled_by(row: DeliveryEntry) -> bool:
    """Whether a home says that the publisher has settled the delivery, or will not come back to it. A home that gave it
    up for another life of the publisher does not say so: the life that it took for over may go on at another router
    (protocol 10), and the publisher sends the same delivery again there."""
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
    """The uses of one key, as the routers know them."""

    starts: Sequence[DeliveryEntry]
    """The row with which each use began."""
    ends: Sequence[Stamp]
    """When each use was over, at the latest when the next one began; the last use may not be over."""
    places: Mapping[tuple[int, int], int]
    """The use that was received at this place (epoch, n)."""
    sent_again: bool
    """Whether any use began in another epoch than the one before. In receiver settle mode first the home settles what
    it answers, and tells the next home so. A publisher that has not read the answer sends the same use again."""


def _routed(rows: Iterable[DeliveryEntry]) -> _Routed:
    """The uses of one key. A use begins at a new place in the same order, or after the publisher had settled the use
    before. If a home receives the key in a later epoch without that, it is the same use, resumed at the next home. If a
    home receives it in an older epoch, a former home had been paused and reads late what was sent to it then."""
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
        elif row.event == Event.RESOLVED and epoch > latest:  # a later home, which never received it, says so
            ends.setdefault(len(starts), _stamp(row))
    return _Routed(starts, [ends[use] for use in range(1, len(starts) + 1) if use in ends], places, sent_again)


def _stamp(row: DeliveryEntry) -> Stamp:
    return row.hlc, row.source, row.place


def _omitting(told: Iterable[DeliveryEntry]) -> set[int]:
    """The epochs whose home answered that the delivery is settled, although nothing was settled in that epoch. The
    publisher had settled the delivery earlier, so its transfer in that epoch is another use. A home without a record
    answers only the routers that ask, and these may read the answer after the transfer."""
    omitting, settling = set[int](), set[int]()
    for row in told:
        epoch = row.epoch_hlc or 0
        if row.event == Event.RESOLVED and epoch not in settling:
            omitting.add(epoch)
        elif _is_settled_by(row):
            settling.add(epoch)
    return omitting


class _Clocks:
    """Maps clocks to uses: the wall clocks of hosts on which it is known when each use began, and the hybrid clock."""

    def __init__(self, publishing: Sequence[DeliveryEntry], routed: _Routed, *, whole: bool) -> None:
        self.certain = True
        starts = routed.starts
        published = sum(row.event == Event.PUBLISHED for row in publishing)
        unreceived = published - len(starts)  # the last may never have reached a router
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
        """The use that a router's row concerns. A place in the publisher's order belongs to one use, and a settled use
        was over by then. For all other rows the publisher's own clock decides best; hybrid clocks decide if no start is
        missing."""
        if self._by_stamp and (use := self._routed.places.get((row.epoch_hlc or 0, row.n))):
            return use
        if row.event in (Event.RESOLVED, Event.SETTLED):
            return self._of_settled(row)
        if self._by_stamp and (row.host != self._own_host or not self._own_host):
            return max(bisect_right(self._stamps, _stamp(row)), 1)
        return self.of_client(row)

    def _of_settled(self, row: DeliveryEntry) -> int:
        """The last use that was over. A later use may have begun before the row by the row's clock, but not by its
        home's: the clock of the row's router may be ahead."""
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
    """The host that wrote all rows; empty if it is unknown or not one host."""
    hosts = {row.host for row in rows}
    return hosts.pop() if len(hosts) == 1 else ""


def _ends(publishing: Sequence[DeliveryEntry]) -> list[int]:
    """When each publication may have begun: right after the last entry about the one before. One entry stands for all
    publications within a moment, so their own time is less exact."""
    ends: list[int] = []
    for before, row in zip([None, *publishing], publishing, strict=False):
        if row.event == Event.PUBLISHED:
            ends.append(before.time if before else row.time)
    return ends


def _of_router(log: Sequence[DeliveryEntry], clocks: _Clocks) -> dict[int, int]:
    """The uses of a router's rows. A record that begins with a subscriber's map belongs to the use that its home shows
    next, or that is settled next. No hybrid clock orders a map: a router with a faster clock may have sent the
    subscriber what the map names."""
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
    """The use that each row of a log concerns: the use of the opening row before it, because entries about the end of
    one use may come after the next has begun elsewhere. A row after a record was forgotten opens the next use: outcomes
    from a map come before the placeholder."""
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
    """The uses of a subscriber's rows, by the wall clock of its host. On a host whose clock is unknown they are counted
    one by one, if the subscriber was handed the key as often as routers sent it: the uses follow each other, whichever
    router's clock is ahead."""
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
