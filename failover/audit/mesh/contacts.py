"""Who else knew what a router knew whose log may lack its end: told from the control rows alone.

A subscriber's attach is answered when every router in contact has joined it, and each of them logs that. So while a
router was in contact with one whose log is whole, nobody can have attached there unseen, however much of its own log
is lost. A contact counts as long as neither of the two is known to have lost it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from failover.audit.mesh.clients import FOREVER, Span
from failover.audit.read.inventory import ControlRow, Log
from topic.journal import Event

Ends = tuple[str, str]  # the log that tells, and the router.incarnation or router that it is about


def watched_spans(rows: Iterable[ControlRow], logs: Sequence[Log]) -> dict[str, list[Span]]:
    """By open log of a router: when, in µs of wall clock, its joins were seen by a router whose log is whole."""
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
    """Whether every router whose log breaks off found its state store when it was started again: whoever attached
    unseen and outlived its router is in one of these, and so in the next log."""
    found = {row.log_name for row in rows if row.event == Event.KEPT and row.details.get("found")}
    routers = sorted((log for log in logs if log.role == "router"), key=lambda log: (log.source, log.incarnation))
    pairs = zip_longest(routers, routers[1:])
    return all(
        log.whole or (following is not None and following.source == log.source and following.name in found)
        for log, following in pairs
    )


def contacts(rows: Iterable[ControlRow], logs: Mapping[str, Log], *, by_hlc: bool = False) -> dict[Ends, list[Span]]:
    """Each router's own view of its contacts, by wall or by hybrid clock; one that its log does not see end goes on."""
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
