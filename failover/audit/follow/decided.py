"""Finds the decided deliveries. A delivery is decided if no later entry can change the verdict on it.

All of these conditions must hold: the publisher has settled the delivery at its home; every router with a record of the
delivery has forgotten the record, or has ended; no subscriber misses the delivery; every router to which the home
forwarded the delivery has written entries since then; and no rule has found a violation or a missing entry.

A delivery that violates a rule is not decided, because an entry that explains it may still come, or a log may turn out
to be incomplete. But if no router has a record of a delivery, and no entry about the delivery has come for an hour, the
delivery counts as decided.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from failover.audit.bucket import Judged
from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import FOREVER, Client
from failover.audit.read.columns import NONE, Flags, Ints, Rows
from failover.audit.read.facts import BIG, Groups, codes_of
from failover.audit.read.inventory import Log
from topic.journal import BY_MAP, Event

LONG_US = 3_600_000_000
"""If no entry about a delivery has come for this time (in µs), the audit expects none any more."""
BY_MAPS: Final = (
    *(Event.KEPT, Event.PLACEHOLDER, Event.RESOLVED, Event.REHOMED, Event.FENCED),
    *(Event.SETTLED, Event.ABANDONED, Event.FORGOTTEN),
)
"""Events that may follow even when no router has a record of a delivery any more: routers log them if a client attaches
with a map that still names the delivery."""
SILENCE_US = 60_000_000
"""A client counts as absent if it has written no entry for its timeout plus this time (in µs)."""


def decided(judged: Judged, case: Case, until: int) -> Flags:
    """Flag the decided deliveries. `until`, in µs of wall clock: all logs have been read up to this time."""
    found, fates, records = judged.found, judged.verdicts.fates, judged.records
    number = len(judged.uses.key)
    nothing = ~fates.is_published & ~fates.is_accepted & ~found.handed
    over = (found.home_settled_time != BIG) | found.abandoned | nothing
    held = _flagged(number, records.delivery, [(records.held_place > records.forgotten_place) & ~_ended(judged, case)])
    strange = _flagged(number, records.delivery, judged.verdicts.routers.violations.values())
    strange |= _flagged(number, np.arange(number), [*judged.verdicts.publishers.values(), judged.verdicts.unshared])
    told = judged.verdicts.subscribers
    strange |= _flagged(
        number, judged.pairs.delivery, [told.unknown, told.unplaced, told.vague, *told.violations.values()]
    )
    strange |= judged.unaddressed | fates.unheard | fates.earlier | ~judged.uses.sure | _unread(judged, case)
    forgotten: Flags = (over | _gone(judged, case)) & (_last(judged) < until - LONG_US)
    found_here: Flags = ~held & ~_missed(judged, case, until) & ((over & ~strange) | forgotten)
    return found_here


def only_by_maps(rows: Rows, groups: Groups) -> Flags:
    """Flag the rows of deliveries that only unsettled maps name, as far as these rows show. The audit has judged and
    forgotten these deliveries in an earlier step, so it does not judge them again. `groups`: the rows of each key."""
    (by_map,) = codes_of([BY_MAP], rows.strings).tolist()
    said = np.isin(rows.event, [int(event) for event in BY_MAPS])
    said |= (rows.event == Event.OUTCOME) & (rows.detail == by_map) & (by_map != NONE)
    found: Flags = ~groups.any(~said)[groups.of]
    return found


def _last(judged: Judged) -> Ints:
    """For each delivery, the time of the last entry about it."""
    rows, groups = judged.facts.rows, judged.found.groups
    found: Ints = groups.highest(np.ones(len(rows), np.bool_), rows.time)
    return found


def _gone(judged: Judged, case: Case) -> Flags:
    """Flag the deliveries of publishers whose link has ended, as far as the logs so far show."""
    here = [name.encode() for name, client in case.clients.publishers.items() if not _has_ended(client)]
    found: Flags = ~np.isin(judged.uses.publisher(), here)
    return found


def _has_ended(client: Client) -> bool:
    return not client.lives or any(life >= client.last_life for life, _, _ in client.closings)


def _flagged(number: int, of: Ints, flags: Iterable[Flags]) -> Flags:
    """For each delivery, whether `flags` flags any of its elements. `number`: the number of deliveries. `of`: the
    delivery of each element."""
    found = np.zeros(number, np.bool_)
    for each in flags:
        found[of[each]] = True
    return found


def _ended(judged: Judged, case: Case) -> Flags:
    """Flag the records whose log is over: it ends in STOPPED or in a gap, or a later incarnation of the router has a
    log."""
    latest: dict[str, int] = {}
    for log in case.logs.values():
        latest[log.source] = max(log.incarnation, latest.get(log.source, 0))
    logs = [case.logs.get(log.name) for log in judged.facts.rows.logs]
    over = [
        log is not None and (log.stopped or log.gap is not None or log.incarnation < latest[log.source]) for log in logs
    ]
    found: Flags = np.array(over, np.bool_)[judged.records.log]
    return found


def _missed(judged: Judged, case: Case, until: int) -> Flags:
    """Flag the deliveries that a home accepted without a subscriber, as long as the logs do not show whether the
    subscriber's process was running at that time. The process may be stopped at present, and write entries later."""
    found, accepted = np.zeros(len(judged.uses.key), np.bool_), judged.verdicts.fates.accepted_time
    routers = [log for log in case.logs.values() if log.role == "router" and not log.stopped]
    for name, at, _ in judged.unattributed.missed(judged.verdicts.subscribers):
        client = case.clients.subscribers[name]
        timeout_us = int(client.timeout_s * 1_000_000)
        known = _heard_until(client.logs if client.logs and client.timeout_s else routers)
        found[at] |= accepted[at] + timeout_us > max(min(known, until), until - timeout_us - SILENCE_US)
    return found


def _unread(judged: Judged, case: Case) -> Flags:
    """Flag the deliveries that were forwarded to a router that has neither received them nor written an entry
    afterwards. The router's process may be stopped at present, and receive them later."""
    facts, rows, uses = judged.facts, judged.facts.rows, judged.uses
    heard = {log.source: _heard_until([log]) for log in _latest(case.logs.values()) if log.role == "router"}
    till = np.array([*(heard.get(name, FOREVER) for name in rows.strings), FOREVER], np.int64)
    here = codes_of([log.source for log in rows.logs], rows.strings)[rows.log]
    number = len(rows.strings) + 1
    read = (uses.of * number + here)[facts.by_router & facts.flags_of(Event.RECEIVED)]
    sent = facts.by_router & facts.flags_of(Event.FORWARDED) & (rows.time > till[rows.peer])
    found = np.zeros(len(uses.key), np.bool_)
    found[uses.of[sent & ~np.isin(uses.of * number + rows.peer, read)]] = True
    return found


def _heard_until(logs: Iterable[Log]) -> int:
    """The time up to which the audit has read the latest log of every writer. A log that ended cleanly does not
    count."""
    return min((FOREVER if log.stopped else log.last_time for log in _latest(logs)), default=FOREVER)


def _latest(logs: Iterable[Log]) -> Iterable[Log]:
    """Return the latest log of each writer."""
    by_source: dict[str, Log] = {}
    for log in logs:
        if log.source not in by_source or log.incarnation > by_source[log.source].incarnation:
            by_source[log.source] = log
    return by_source.values()
