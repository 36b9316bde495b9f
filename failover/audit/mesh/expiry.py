"""Which routers can have heard, and when at the earliest, that a subscriber's link has ended.

A router that ends a link says so in its log, and so does its custodian; others hear of it from those that they are in
contact with (protocol 3.3), write nothing, and wait for it no more. Who cannot have heard has no such excuse.

One that joins the subscriber in that very life does so by what its custodian told before it ended that: its word of the
end, which is its last of that life, comes behind. Without it, who joins again has been told that the link lives.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

import attrs

from failover.audit.mesh.clients import Client, Span, life_of
from failover.audit.mesh.clocks import wall_us
from failover.audit.mesh.contacts import contacts
from failover.audit.read.inventory import ControlRow, Log
from topic.journal import Event

Heard = dict[str, int]
"""By log of a router, hybrid clocks."""
Neighbours = Mapping[str, list[tuple[str, Span]]]
"""By log of a router: with whom it was in contact, and when, by its own hybrid clock."""


def heard_endings(
    rows: Iterable[ControlRow], logs: Iterable[Log], subscribers: Mapping[str, Client]
) -> list[ControlRow]:
    """An EXPIRED entry for each router that can have heard of one and has none of its own. Without a timeout, a link
    ends for each router that loses its custodian, and for no other."""
    told = [row for row in rows if row.role == "router"]
    ended: dict[tuple[str, int], list[ControlRow]] = {}
    for row in (row for row in told if row.event == Event.EXPIRED):
        name = row.subscriber or ""
        if name in subscribers and subscribers[name].timeout_s:
            ended.setdefault((name, life_of(row)), []).append(row)
    neighbours = _neighbours(told, logs) if ended else {}
    joined = _joined(told)
    return [row for life, said in ended.items() for row in _heard(said, neighbours, joined.get(life, {}))]


def _joined(rows: Iterable[ControlRow]) -> dict[tuple[str, int], Heard]:
    """By subscriber and life: when each router joined it for the last time."""
    found: dict[tuple[str, int], Heard] = {}
    for row in rows:
        if row.event == Event.JOINED and row.subscriber is not None:
            at = found.setdefault((row.subscriber, life_of(row)), {})
            at[row.log_name] = max(row.hlc, at.get(row.log_name, row.hlc))
    return found


def _heard(said: Sequence[ControlRow], neighbours: Neighbours, joined: Heard) -> Iterator[ControlRow]:
    own: Heard = {}
    for row in said:
        own[row.log_name] = min(row.hlc, own.get(row.log_name, row.hlc))
    first = min(said, key=lambda row: (not row.detail, row.hlc))
    by_custodian: Heard = {row.log_name: row.hlc for row in said if row.log_name == row.home}
    heard = {log: at for log, at in earliest(own, neighbours).items() if log not in own}
    behind = earliest(by_custodian, neighbours, joined) if by_custodian else {}
    for log, at in [*heard.items(), *(item for item in behind.items() if item[0] not in by_custodian)]:
        source, _, incarnation = log.rpartition(".")
        time = first.time + wall_us(at) - wall_us(first.hlc)
        yield attrs.evolve(first, source=source, incarnation=int(incarnation), hlc=at, time=time)


def _neighbours(rows: Iterable[ControlRow], logs: Iterable[Log]) -> Neighbours:
    found: dict[str, list[tuple[str, Span]]] = {}
    routers = {log.name: log for log in logs if log.role == "router"}
    for (name, peer), spans in contacts(rows, routers, by_hlc=True).items():
        found.setdefault(name, []).extend((peer, span) for span in spans)
    return found


def earliest(said: Heard, neighbours: Neighbours, later: Heard | None = None) -> Heard:
    """When each router can have heard, be it by others; those in `later` after that. What one sends has a lower hybrid
    clock than its receipt."""
    heard: Heard = {}
    waiting = sorted((at, name) for name, at in said.items())
    while waiting:
        at, name = heappop(waiting)
        if name not in heard:
            heard[name] = at
            for since, peer in _told(at, neighbours.get(name, ()), later or {}):
                heappush(waiting, (since, peer))
    return heard


def _told(at: int, neighbours: Iterable[tuple[str, Span]], later: Heard) -> Iterator[tuple[int, str]]:
    for peer, (since, till) in neighbours:
        heard = max(at, since, later.get(peer, -1) + 1)
        if heard <= till:
            yield heard, peer
