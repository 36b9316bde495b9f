"""Which deliveries of those that were judged are decided: nothing that may still come says anything else of them.

The publisher has settled it where it is at home, every router that held it forgot it or has ended, nobody misses it,
it was forwarded to none that sleeps, and no rule found anything, or anything missing. A delivery that violates a rule
is not decided either: what looks violated may be an entry that comes later, or that a broken log is found to lack. But
not for ever: where nobody holds it any more, and nothing was said of it for an hour, it counts as it stands.
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
"""Nothing is said any more of what was not spoken of for so long."""
BY_MAPS: Final = (
    *(Event.KEPT, Event.PLACEHOLDER, Event.RESOLVED, Event.REHOMED, Event.FENCED),
    *(Event.SETTLED, Event.ABANDONED, Event.FORGOTTEN),
)
"""What is said of a delivery that a client's map names, and nobody knows any more."""
SILENCE_US = 60_000_000
"""Who has written nothing for so long, and its timeout, was not there."""


def decided(judged: Judged, case: Case, until: int) -> Flags:
    """One flag per delivery. `until`: up to that instant all is known, in µs of wall clock."""
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
    """Rows of deliveries, by groups of one key, that only unsettled maps speak of: these were settled, and forgotten
    here, long ago."""
    (by_map,) = codes_of([BY_MAP], rows.strings).tolist()
    said = np.isin(rows.event, [int(event) for event in BY_MAPS])
    said |= (rows.event == Event.OUTCOME) & (rows.detail == by_map) & (by_map != NONE)
    found: Flags = ~groups.any(~said)[groups.of]
    return found


def _last(judged: Judged) -> Ints:
    """When anything was said of each."""
    rows, groups = judged.facts.rows, judged.found.groups
    found: Ints = groups.highest(np.ones(len(rows), np.bool_), rows.time)
    return found


def _gone(judged: Judged, case: Case) -> Flags:
    """Whose publisher's link has ended, for all that is known."""
    here = [name.encode() for name, client in case.clients.publishers.items() if not _has_ended(client)]
    found: Flags = ~np.isin(judged.uses.publisher(), here)
    return found


def _has_ended(client: Client) -> bool:
    return not client.lives or any(life >= client.last_life for life, _, _ in client.closings)


def _flagged(number: int, of: Ints, flags: Iterable[Flags]) -> Flags:
    """Deliveries of which any element has any of these flags."""
    found = np.zeros(number, np.bool_)
    for each in flags:
        found[of[each]] = True
    return found


def _ended(judged: Judged, case: Case) -> Flags:
    """Per record: whether its router writes no more to that log."""
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
    """Accepted without a subscriber of which it is not known yet whether it was there: it may go on as it was."""
    found, accepted = np.zeros(len(judged.uses.key), np.bool_), judged.verdicts.fates.accepted_time
    routers = [log for log in case.logs.values() if log.role == "router" and not log.stopped]
    for name, at, _ in judged.unattributed.missed(judged.verdicts.subscribers):
        client = case.clients.subscribers[name]
        timeout_us = int(client.timeout_s * 1_000_000)
        known = _heard_until(client.logs if client.logs and client.timeout_s else routers)
        found[at] |= accepted[at] + timeout_us > max(min(known, until), until - timeout_us - SILENCE_US)
    return found


def _unread(judged: Judged, case: Case) -> Flags:
    """Forwarded to a router that has not read it, nor written anything since: woken, it may go on and read."""
    facts, rows, uses = judged.facts, judged.facts.rows, judged.uses
    heard = {log.source: _heard_until([log]) for log in _latest(case.logs.values()) if log.role == "router"}
    till = np.array([*(heard.get(name, FOREVER) for name in rows.strings), FOREVER], np.int64)
    here = codes_of([log.source for log in rows.logs], rows.strings)[rows.log]
    number = len(rows.strings) + 1
    read = (uses.of * number + here)[facts.by_router & facts.tells(Event.RECEIVED)]
    sent = facts.by_router & facts.tells(Event.FORWARDED) & (rows.time > till[rows.peer])
    found = np.zeros(len(uses.key), np.bool_)
    found[uses.of[sent & ~np.isin(uses.of * number + rows.peer, read)]] = True
    return found


def _heard_until(logs: Iterable[Log]) -> int:
    """Of a client, its own logs: those behind a clean end say all. Of routers, each."""
    return min((FOREVER if log.stopped else log.last_time for log in _latest(logs)), default=FOREVER)


def _latest(logs: Iterable[Log]) -> Iterable[Log]:
    """Of each writer."""
    by_source: dict[str, Log] = {}
    for log in logs:
        if log.source not in by_source or log.incarnation > by_source[log.source].incarnation:
            by_source[log.source] = log
    return by_source.values()
