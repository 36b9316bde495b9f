"""When a subscriber should have been known to every router, when it was there, and when it was apart from a home.

Told from the control rows alone. From the answer to its attach until it closes its link, a subscriber is *known*: what
is received meanwhile it is to get (protocol 1). It is *there* while its process runs, by its own logs, or else while a
router has its link; a gap that is no longer than its timeout does not count, as routers wait that long. Who is not
there for longer has itself to thank. *Apart* is the time in which a home was out of contact with its custodian, or its
custodian without its link.

*Ended in use* are links that a router ended as expired while a client was attached there by them.
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
    """Of a subscriber or publisher; spans are of hybrid clocks."""

    known: Sequence[Span]
    there: Sequence[Span]


@attrs.frozen(slots=True)
class Parting:
    """From when to when a subscriber was apart from a home; the first two are hybrid clocks."""

    since: int
    till: int
    known: bool
    """Whether the home had heard of it before."""
    lasted_us: int | None
    """None if it lasted until the end of the log, or if one of the two entries that tell of it has no time: nothing is
    ordered by the clock of its log."""
    ending: str | None
    """If it began as some router had ended its link: what that says of it, maybe nothing."""

    @property
    def weight(self) -> tuple[bool, int]:
        """Of several, the one that weighs most is told of."""
        return self.known, self.till - self.since


Partings = Mapping[tuple[str, str], Sequence[Parting]]
"""By home (router.incarnation) and subscriber."""


def presences(
    rows: Iterable[ControlRow], clients: Mapping[str, Client], hybrid: HybridTimeline, logs: Mapping[str, Log]
) -> dict[str, Presence]:
    """By name; `clients` are those of one role."""
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
    """From this answer on, as the router's clock or the client's wall clock has it."""
    if row.role == "router":
        return row.hlc, closed_at(client, life_of(row))
    return hybrid.at(row.time + SKEW_US), closed_at(client, hybrid.at(row.time - SKEW_US))


def _held(rows: Iterable[ControlRow], hybrid: HybridTimeline, logs: Mapping[str, Log]) -> Iterator[Span]:
    """While a router had its link, by that router's own log."""
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
    """In order, those that are no further apart than `gap` made one."""
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
    """At one home. Until that hears of the subscriber, be it from its store, it does not know it."""
    custodian: str | None = None
    known, ended, life = False, False, 0
    apart: ControlRow | None = None
    for row in rows:
        mine = row.subscriber == subscriber
        if row.event == Event.BOOT:
            apart = attrs.evolve(row, time=row.incarnation * 1000)  # its clocks are not set yet
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
    """A subscriber that this home has joined, with its custodian or from it."""
    if row.event == Event.LOST:
        return row.peer == custodian
    return row.event == Event.SUSPENDED and row.subscriber == subscriber and row.source == custodian


@attrs.frozen(slots=True)
class EndedLink:
    """By the link's name."""

    link: str
    router: str
    at: int
    """By hybrid clock."""
    reason: str
    """As that router tells it, or empty."""


def ended_in_use(rows: Iterable[ControlRow], presences: Mapping[str, Presence]) -> Iterator[EndedLink]:
    """Not those of clients that were gone, which their router need not know yet."""
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
