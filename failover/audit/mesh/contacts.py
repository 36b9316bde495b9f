"""Computes from the contacts between routers what each router could know. It reads only the control rows.

*Watched*: a router answers a subscriber's attach when every router in contact has joined the subscriber, and each of
these routers logs this. So if a router's log is lost, but the router was in contact with a router whose log is whole,
that log shows all attaches of this time. A contact counts until one of the two routers logs that the contact is lost.

*Hearing*: a publisher's home knows which deliveries the publisher has settled, and tells the routers in contact. While
the publisher has no home, no router knows this. A router with a record of such a delivery then keeps the record until
the publisher comes back, or until the publisher's life has certainly ended (protocol 8).

*Heard endings*: the router that ends a subscriber's link, and the subscriber's custodian, log the ending. Other routers
learn of the ending from their contacts (protocol 3.3), and no longer wait for the subscriber, but log nothing. If a
router cannot have learnt of the ending, it must still wait.

If a router joins the subscriber in the life that ended, the custodian sent news of the subscriber before it ended the
link. So the news of the ending arrives after the join. If a router joins the subscriber once more before the news of
the ending arrives, other routers have sent it the news that the link still exists.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise, zip_longest

import attrs

from failover.audit.mesh.clients import FOREVER, Client, Span, life_of
from failover.audit.mesh.clocks import wall_us
from failover.audit.read.inventory import ControlRow, Log
from topic.journal import Event

# A pair that names one end of a contact: the log of one router, and the other router, with or without its incarnation.
Ends = tuple[str, str]
Hearing = Mapping[tuple[str, str], Sequence[Span]]
"""Maps the log of a router, and a publisher, to spans in µs of wall clock."""
Heard = dict[str, int]
"""Maps the log of a router to the hybrid clock from which on the router knew some news."""
Neighbours = Mapping[str, list[tuple[str, Span]]]
"""Maps the log of a router to the contacts of this router. A contact is given by the other router and by a span of the
first router's hybrid clock."""


def watched_spans(rows: Iterable[ControlRow], logs: Sequence[Log]) -> dict[str, list[Span]]:
    """Maps each router's open log to the spans, in µs of wall clock, in which the router was in contact with any router
    with a whole log."""
    routers = [log for log in logs if log.role == "router"]
    met = contacts(rows, {log.name: log for log in routers})
    return {
        log.name: [
            span
            for witness in routers
            if witness.whole and witness.ordered and log.ordered
            for span in _both(met.get((witness.name, log.name), ()), met.get((log.name, witness.name), ()))
        ]
        for log in routers
        if not log.whole
    }


def all_remembered(rows: Iterable[ControlRow], logs: Iterable[Log]) -> bool:
    """Whether every router whose log breaks off found its state store when it started again. If so, no attach of a
    durable link is lost with the end of a log: the link is in the store, and the router's next log repeats it."""
    found = {row.log_name for row in rows if row.event == Event.KEPT and row.details.get("found")}
    routers = sorted((log for log in logs if log.role == "router"), key=lambda log: (log.source, log.incarnation))
    pairs = zip_longest(routers, routers[1:])
    return all(
        log.whole or (following is not None and following.source == log.source and following.name in found)
        for log, following in pairs
    )


def contacts(rows: Iterable[ControlRow], logs: Mapping[str, Log], *, by_hlc: bool = False) -> dict[Ends, list[Span]]:
    """Maps each router's log and each other router.incarnation to the spans of their contact, by the first router's
    wall clock or hybrid clock. If the log does not have the end of a contact, its span by hybrid clock has no end. Its
    span by wall clock ends with the log if the log is complete, and otherwise has no end either."""
    since: dict[Ends, tuple[str, int]] = {}
    found: dict[Ends, list[Span]] = {}
    told = (row for row in rows if row.event in (Event.CONTACT, Event.LOST) and row.peer and row.log_name in logs)
    for row in sorted(told, key=lambda row: (row.source, row.incarnation, row.place)):
        by_peer, at = (row.log_name, row.peer or ""), row.hlc if by_hlc else row.time
        if begun := since.pop(by_peer, None):
            found.setdefault((by_peer[0], begun[0]), []).append((begun[1], at))
        if row.event == Event.CONTACT:
            since[by_peer] = (f"{row.peer}.{row.details.get('incarnation')}", at)
    for (name, _), (peer, at) in since.items():
        end = logs[name].last_time if logs[name].whole and not by_hlc else FOREVER
        found.setdefault((name, peer), []).append((at, end))
    return found


def _both(ones: Iterable[Span], others: Sequence[Span]) -> Iterator[Span]:
    for one in ones:
        for other in others:
            since, till = max(one[0], other[0]), min(one[1], other[1])
            if since < till:
                yield since, till


def hearing(
    rows: Sequence[ControlRow], logs: Sequence[Log], publishers: Iterable[Client]
) -> dict[tuple[str, str], list[Span]]:
    """Maps each router's log and publisher to the spans in which the router could learn of settlements. In these spans,
    the router was the publisher's last home, or was in contact with this home. The publisher was attached at this home,
    or had closed its link."""
    routers = {log.name: log for log in logs if log.role == "router"}
    met = contacts(rows, routers)
    lost = _suspended(rows)
    found: dict[tuple[str, str], list[Span]] = {}
    for client in (client for client in publishers if client.lives):
        life, _, home = max(client.lives)
        if home in routers and not routers[home].ordered:
            continue
        known = FOREVER if home not in routers or routers[home].whole else routers[home].last_time
        attached = client.opened[life], lost.get((home, client.name), known)
        for log in routers.values():
            own = [(log.first_time, log.last_time)] if log.name == home else met.get((log.name, home), ())
            if spans := list(_clipped(own, attached)):
                found[log.name, client.name] = spans
    return found


def _suspended(rows: Iterable[ControlRow]) -> dict[tuple[str, str], int]:
    """Maps each router's log and publisher to the time at which the publisher's link was last suspended at this router,
    in µs of wall clock. Links that came back or were closed are left out."""
    found: dict[tuple[str, str], int] = {}
    told = (row for row in rows if row.publisher is not None and row.role == "router")
    for row in sorted(told, key=lambda row: row.place):
        where = row.log_name, row.publisher or ""
        if row.event == Event.SUSPENDED:
            found[where] = row.time
        elif row.event in (Event.ATTACHED, Event.CLOSED):
            found.pop(where, None)
    return found


def _clipped(spans: Iterable[Span], to: Span) -> Iterator[Span]:
    for span in spans:
        since, till = max(span[0], to[0]), min(span[1], to[1])
        if since < till:
            yield since, till


def heard_endings(
    rows: Iterable[ControlRow],
    logs: Iterable[Log],
    subscribers: Mapping[str, Client],
    before: Sequence[ControlRow] = (),
) -> list[ControlRow]:
    """The EXPIRED entries of `before`, and one added entry for each router that can have learnt of an ending without
    logging it. Subscribers without a timeout are left out: a router ends their links when it loses contact with their
    custodian, not when it learns of an ending.
    """
    told = [row for row in rows if row.role == "router"]
    said, heard = (_endings(those, subscribers) for those in (told, before))
    around = neighbours(told, logs) if said or heard else {}
    joined = _joined(told)
    lives = dict.fromkeys([*said, *heard])
    known = ((said.get(life, ()), heard.get(life, ()), around, joined.get(life, {})) for life in lives)
    return [*before, *(row for each in known for row in _heard(*each))]


def given_up(rows: Iterable[ControlRow], subscribers: Iterable[Client]) -> Iterator[ControlRow]:
    """Yields an EXPIRED entry for each subscriber without a timeout at each router that no longer waits for it.

    When a router stops waiting for all these subscribers of one custodian, it logs only one GIVEN_UP entry. If the LOST
    entry of a contact has no grace, the router stops waiting when the contact is lost.
    """
    plain = _by_custodian(subscribers)
    met: dict[tuple[str, str | None], object] = {}
    for row in sorted(rows, key=lambda row: (row.source, row.incarnation, row.place)) if plain else ():
        peer = row.log_name, row.peer
        if row.event in (Event.CONTACT, Event.GIVEN_UP):
            met[peer] = row.details.get("incarnation")
        if row.event == Event.GIVEN_UP or (row.event == Event.LOST and "grace" not in row.details):
            custodian = f"{row.peer}.{met.get(peer)}"
            for client, life in plain.get(custodian, ()):
                if row.hlc > life:
                    yield attrs.evolve(
                        row,
                        event=Event.EXPIRED,
                        subscriber=client.name,
                        address=client.address,
                        epoch_hlc=life,
                        home=custodian,
                        peer=None,
                        detail=None,
                    )


def begun_anew(
    rows: Iterable[ControlRow], subscribers: Iterable[Client]
) -> Iterator[tuple[Client, tuple[int, int, str]]]:
    """Yields each subscriber without a timeout whose custodian has started again, with a closing (`Client.closings`).
    The start ends the link for all routers, so the last field of the closing is ""."""
    plain = _by_custodian(subscribers)
    told = (row for row in rows if row.event == Event.BOOT and row.role == "router") if plain else ()
    for former, row in pairwise(sorted(told, key=lambda row: (row.source, row.incarnation))):
        if former.source == row.source:
            yield from ((client, (life, row.hlc, "")) for client, life in plain.get(former.log_name, ()))


def departures(
    rows: Iterable[ControlRow], logs: Iterable[Log], subscribers: Mapping[str, Client]
) -> Iterator[ControlRow]:
    """Yields EXPIRED entries for subscribers without a timeout that have left their custodian. There is one entry for
    each router that can have learnt of the departure before it knew of a later attach. For such a router, the
    subscriber's link had ended.

    A subscriber leaves when it attaches elsewhere, or when the custodian ends its link because a home has accepted a
    message without it.
    """
    plain = {name for name, client in subscribers.items() if not client.timeout_s}
    told = [row for row in rows if row.role == "router" and row.subscriber in plain]
    around = neighbours(rows, logs) if any(row.event in (Event.STOLEN, Event.EXPIRED) for row in told) else {}
    joined = _joinings(told)
    here: dict[tuple[str, str | None], int] = {}
    for row in sorted(told, key=lambda row: (row.source, row.incarnation, row.place)):
        if row.event == Event.ATTACHED or (row.event == Event.JOINED and row.peer is None):
            here[row.log_name, row.subscriber] = life_of(row)
        elif (life := here.get((row.log_name, row.subscriber))) is not None and _leaves(row, life):
            del here[row.log_name, row.subscriber]
            for heard, log in _told(row.hlc, around.get(row.log_name, ()), {}):
                if all(known <= life or at > heard for known, at in joined.get((log, row.subscriber), ())):
                    source, _, incarnation = log.rpartition(".")
                    yield attrs.evolve(
                        row,
                        event=Event.EXPIRED,
                        source=source,
                        incarnation=int(incarnation),
                        hlc=heard,
                        epoch_hlc=life,
                        home=row.log_name,
                        peer=None,
                    )


def _leaves(row: ControlRow, life: int) -> bool:
    """Whether this row ends the attach of this life at the subscriber's custodian."""
    return row.event == Event.STOLEN or (row.event == Event.EXPIRED and life_of(row) == life)


def _joinings(rows: Iterable[ControlRow]) -> dict[tuple[str, str | None], list[tuple[int, int]]]:
    """Maps the pair of a router's log and a subscriber to the joinings that the log has. Each joining is a pair: the
    life of the subscriber's link, and the hybrid clock at which the router joined the subscriber in this life."""
    found: dict[tuple[str, str | None], list[tuple[int, int]]] = {}
    for row in rows:
        if row.event == Event.JOINED:
            found.setdefault((row.log_name, row.subscriber), []).append((life_of(row), row.hlc))
    return found


def _by_custodian(subscribers: Iterable[Client]) -> dict[str, list[tuple[Client, int]]]:
    """Maps each custodian to its subscribers without a timeout, each with its life at this custodian."""
    found: dict[str, list[tuple[Client, int]]] = {}
    for client in subscribers:
        for life, _, custodian in () if client.timeout_s else client.lives:
            found.setdefault(custodian, []).append((client, life))
    return found


def _endings(rows: Iterable[ControlRow], subscribers: Mapping[str, Client]) -> dict[tuple[str, int], list[ControlRow]]:
    """Maps each life of each subscriber with a timeout to the EXPIRED entries about this life."""
    found: dict[tuple[str, int], list[ControlRow]] = {}
    for row in (row for row in rows if row.event == Event.EXPIRED):
        name = row.subscriber or ""
        if name in subscribers and subscribers[name].timeout_s:
            found.setdefault((name, life_of(row)), []).append(row)
    return found


def _joined(rows: Iterable[ControlRow]) -> dict[tuple[str, int], Heard]:
    """Maps each life of each subscriber to the hybrid clocks at which routers last joined it."""
    found: dict[tuple[str, int], Heard] = {}
    for row in rows:
        if row.event == Event.JOINED and row.subscriber is not None:
            at = found.setdefault((row.subscriber, life_of(row)), {})
            at[row.log_name] = max(row.hlc, at.get(row.log_name, row.hlc))
    return found


def _heard(
    said: Sequence[ControlRow], before: Sequence[ControlRow], neighbours: Neighbours, joined: Heard
) -> Iterator[ControlRow]:
    """Yields added EXPIRED entries for the routers that can have learnt of one ending. `said`: the entries that routers
    have logged about the ending. `before`: the entries that earlier calls have added. `joined`: when each router joined
    the subscriber.
    """
    own: Heard = {}
    for row in (*said, *before):
        own[row.log_name] = min(row.hlc, own.get(row.log_name, row.hlc))
    first = min((*said, *before), key=lambda row: (not row.detail, row.hlc))
    by_custodian: Heard = {row.log_name: row.hlc for row in said if row.log_name == row.home}
    heard = {log: at for log, at in earliest(own, neighbours).items() if log not in own}
    behind = earliest(by_custodian, neighbours, joined) if by_custodian else {}
    for log, at in [*heard.items(), *(item for item in behind.items() if item[0] not in by_custodian)]:
        source, _, incarnation = log.rpartition(".")
        time = first.time + wall_us(at) - wall_us(first.hlc)
        yield attrs.evolve(first, source=source, incarnation=int(incarnation), hlc=at, time=time)


def neighbours(rows: Iterable[ControlRow], logs: Iterable[Log]) -> Neighbours:
    found: dict[str, list[tuple[str, Span]]] = {}
    routers = {log.name: log for log in logs if log.role == "router"}
    for (name, peer), spans in contacts(rows, routers, by_hlc=True).items():
        found.setdefault(name, []).extend((peer, span) for span in spans)
    return found


def earliest(said: Heard, neighbours: Neighbours, later: Heard | None = None, takes: int = 0) -> Heard:
    """The earliest hybrid clock at which each router can have learnt some news, directly or through other routers.

    `said`: the routers that know the news first, and when. `later`: for some routers, the hybrid clock before which the
    router does not learn the news. `takes`: the time that a message between two routers takes, as a difference of
    hybrid clocks.
    """
    heard: Heard = {}
    waiting = sorted((at, name) for name, at in said.items())
    while waiting:
        at, name = heappop(waiting)
        if name not in heard:
            heard[name] = at
            for since, peer in _told(at, neighbours.get(name, ()), later or {}):
                heappush(waiting, (since + takes, peer))
    return heard


def _told(at: int, neighbours: Iterable[tuple[str, Span]], later: Heard) -> Iterator[tuple[int, str]]:
    for peer, (since, till) in neighbours:
        heard = max(at, since, later.get(peer, -1) + 1)
        if heard <= till:
            yield heard, peer
