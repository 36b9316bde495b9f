"""Computes when every router had to know a subscriber, when the subscriber was there, and when it was apart from a
home. It reads only the control rows.

A subscriber is *known* from the answer to its attach until it closes its link. It has to get the deliveries that
routers receive in that time (protocol 1).

A subscriber is *there* while its process runs, by its own logs. Without logs, it is there while a router has its link.
If the subscriber is away for no longer than its timeout, it counts as there, because routers wait for it. The mesh
promises nothing to a subscriber that is away for longer.

A subscriber is *apart* from a home while the home is out of contact with the subscriber's custodian, or while the
custodian does not have the subscriber's link.

A link is *ended in use* if a router ended it as expired while its client was attached there.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge

import attrs

from failover.audit.mesh.audiences import closed_at
from failover.audit.mesh.clients import CLOSING, FOREVER, Client, Span, life_of
from failover.audit.mesh.clocks import COUNTER_BITS, SKEW_US, HybridTimeline
from failover.audit.read.inventory import ControlRow, Log
from topic.journal import Event

LEAVING = (Event.SUSPENDED, Event.STOLEN, *CLOSING)
OF_HOME = (Event.JOINED, Event.EXPIRED, Event.CONTACT, Event.LOST, Event.KEPT, Event.BOOT)


@attrs.frozen(slots=True)
class Presence:
    """When routers had to know one client (`known`), and when the client was there (`there`), as spans of hybrid
    clocks."""

    known: Sequence[Span]
    there: Sequence[Span]


@attrs.frozen(slots=True)
class Parting:
    """A *parting*: a time during which a subscriber and a home were out of contact. `since` and `till` are hybrid
    clocks."""

    since: int
    till: int
    known: bool
    """Whether the home knew the subscriber before the parting."""
    lasted_us: int | None
    """How long the parting lasted, in µs of wall clock. None if it lasted until the end of the log, or if one of its
    two entries has no usable time."""
    ending: str | None
    """The reason that the router logged, perhaps an empty text, if the parting began because a router ended the link.
    None for any other parting."""

    @property
    def weight(self) -> tuple[bool, int]:
        """The key by which partings are sorted. If there are several partings, reports name the parting with the
        highest key."""
        return self.known, self.till - self.since


Partings = Mapping[tuple[str, str], Sequence[Parting]]
"""The partings of each home (router.incarnation) and subscriber."""


def presences(
    rows: Iterable[ControlRow], clients: Mapping[str, Client], hybrid: HybridTimeline, logs: Mapping[str, Log]
) -> dict[str, Presence]:
    """The presence of each client. `clients`: all clients of one role."""
    told: dict[str, list[ControlRow]] = defaultdict(list)
    for row in rows:
        name = row.subscriber or row.publisher or ""
        if name in clients and row.event in (Event.ATTACHED, *LEAVING):
            told[name].append(row)
    return {name: _presence(client, told[name], hybrid, logs) for name, client in clients.items()}


def _presence(client: Client, rows: Sequence[ControlRow], hybrid: HybridTimeline, logs: Mapping[str, Log]) -> Presence:
    attached = [row for row in rows if row.event == Event.ATTACHED and (row.time or row.role == "router")]
    known = [_known(client, row, hybrid) for row in attached]
    own = [(hybrid.at(log.first_time), hybrid.at(log.last_time)) for log in client.logs]
    dated = all(log.ordered for log in client.logs)
    there = own if own and client.timeout_s and dated else list(_held(rows, hybrid, logs))
    return Presence(joined(known, 0), joined(there, int(client.timeout_s * 1000) << COUNTER_BITS))


def _known(client: Client, row: ControlRow, hybrid: HybridTimeline) -> Span:
    """The span from an ATTACHED entry to the end of the link. A router's entry has a hybrid clock, but a client's entry
    has only a wall clock."""
    if row.role == "router":
        return row.hlc, closed_at(client, life_of(row))
    return hybrid.at(row.time + SKEW_US), closed_at(client, hybrid.at(row.time - SKEW_US))


def _held(rows: Iterable[ControlRow], hybrid: HybridTimeline, logs: Mapping[str, Log]) -> Iterator[Span]:
    """The spans in which a router had the client's link, according to the router's log."""
    since: dict[str, int] = {}
    for row in sorted((row for row in rows if row.role == "router"), key=lambda row: row.place):
        begun = since.pop(row.log_name, None)
        if begun is not None:
            yield begun, row.hlc
        if row.event == Event.ATTACHED:
            since[row.log_name] = row.hlc
    for name, begun in since.items():
        yield begun, max(begun, hybrid.at(logs[name].last_time)) if name in logs else FOREVER


def joined(spans: Iterable[Span], gap: int) -> list[Span]:
    """Sort the spans, and join two spans if the gap between them is at most `gap`."""
    found: list[Span] = []
    for since, till in sorted(span for span in spans if span[0] <= span[1]):
        if found and since - found[-1][1] <= gap:
            found[-1] = (found[-1][0], max(found[-1][1], till))
        else:
            found.append((since, till))
    return found


def partings(rows: Iterable[ControlRow], subscribers: Iterable[str]) -> dict[tuple[str, str], list[Parting]]:
    of_home: dict[str, list[ControlRow]] = defaultdict(list)
    suspended: dict[str, list[ControlRow]] = defaultdict(list)
    for row in sorted((row for row in rows if row.role == "router"), key=lambda row: row.hlc):
        if row.event in OF_HOME:
            of_home[row.log_name].append(row)
        elif row.event == Event.SUSPENDED and row.subscriber is not None:
            suspended[row.subscriber].append(row)
    return {
        (home, name): found
        for home, told in of_home.items()
        for name in subscribers
        if (found := list(_partings(name, merge(told, suspended[name], key=lambda row: row.hlc))))
    }


def _partings(subscriber: str, rows: Iterable[ControlRow]) -> Iterator[Parting]:
    """The partings of the subscriber from one home. Before the home joins the subscriber, or finds it in its store, the
    home does not know the subscriber."""
    custodian: str | None = None
    known, ended, life = False, False, 0
    apart: ControlRow | None = None
    for row in rows:
        mine = row.subscriber == subscriber
        if row.event == Event.BOOT:
            apart = attrs.evolve(row, time=row.incarnation * 1000)  # the audit cannot use the time in a BOOT entry yet
        elif mine and row.event == Event.KEPT:
            known, custodian, life = True, (row.home or "").rpartition(".")[0], life_of(row)
        elif mine and row.event == Event.EXPIRED:
            if known and life_of(row) >= life:
                ended, apart = True, apart or row
        elif (mine and row.event == Event.JOINED) or (
            row.event == Event.CONTACT and row.peer == custodian and not ended
        ):
            if apart:
                yield _apart(apart, row, known=known)
            apart, known = None, True
            if mine:
                custodian, ended, life = row.peer or row.source, False, life_of(row)
        elif known and _is_gone(row, subscriber, custodian):
            apart = apart or row
    if apart:
        yield _apart(apart, None, known=known)


def _apart(since: ControlRow, till: ControlRow | None, *, known: bool) -> Parting:
    lasted_us = till.time - since.time if till and till.time and since.time else None
    ending = (since.detail or "") if since.event == Event.EXPIRED else None
    return Parting(since.hlc, FOREVER if till is None else till.hlc, known, lasted_us, ending)


def _is_gone(row: ControlRow, subscriber: str, custodian: str | None) -> bool:
    """Whether the row shows that the home lost contact with the subscriber's custodian, or that the custodian suspended
    the subscriber's link."""
    if row.event == Event.LOST:
        return row.peer == custodian
    return row.event == Event.SUSPENDED and row.subscriber == subscriber and row.source == custodian


@attrs.frozen(slots=True)
class EndedLink:
    """A link that a router ended as expired while its client was attached there."""

    link: str
    router: str
    at: int
    """The hybrid clock at which the router ended the link."""
    reason: str
    """The reason in this router's log; empty if the log has none."""


def ended_in_use(rows: Iterable[ControlRow], presences: Mapping[str, Presence]) -> Iterator[EndedLink]:
    """Yields the links that a router ended as expired while they were in use. A client that had already gone does not
    count, even if its router did not know this yet."""
    attached: dict[tuple[str, str], int] = {}
    events = (Event.ATTACHED, Event.SUSPENDED, Event.STOLEN, *CLOSING)
    for row in sorted((row for row in rows if row.role == "router" and row.event in events), key=lambda row: row.place):
        name = row.publisher or row.subscriber
        if name is None:
            continue
        if row.event == Event.ATTACHED:
            attached[row.log_name, name] = life_of(row)
            continue
        life = attached.pop((row.log_name, name), None)
        if row.event == Event.EXPIRED and life == life_of(row) and _there(presences.get(name), row.hlc):
            yield EndedLink(name, row.source, row.hlc, row.detail or "")


def _there(presence: Presence | None, hlc: int) -> bool:
    return presence is not None and any(since < hlc <= till for since, till in presence.there)
