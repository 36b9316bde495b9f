"""Turns the judged deliveries of one bucket into rows, one for each delivery and subscriber. This code runs in Spark's
workers.

A bucket does not show the whole order of deliveries, so `frames` adds the violations of order.
"""

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa

from failover.audit.bucket import Judged
from failover.audit.judge.kinds import KINDS
from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import Client
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import Groups, taken
from failover.audit.tables.columns import OUTCOMES, lists, named, numbers, times
from failover.audit.tables.schema import DELIVERIES, TYPES, VIOLATIONS, arrow_schema
from topic.journal import Event

JUDGED = tuple(column for column in DELIVERIES if column.name != "verdict")
"""All columns except the verdict, which `frames` adds."""
MISSED = ("away", "there")
Violated = tuple[Ints, Ints, Ints]
"""Violations as three columns: the row, the kind, and the log. The log is `NONE` if the violated rule is not about a
router's record."""


def delivery_rows(judged: Judged, case: Case, tags: Mapping[bytes, bytes]) -> pa.Table:
    """Return the rows of `schema.DELIVERIES`, without the verdict."""
    rows = _rows(judged)
    columns = _steps(judged, rows) | _links(judged, case, rows) | _verdicts(judged, rows)
    keys = judged.uses.key
    columns["key"] = pa.array(keys[rows.delivery]).cast(pa.string())
    columns["use"] = pa.array(np.where(judged.uses.sure, judged.uses.number, 0)[rows.delivery], pa.int32())
    columns["tag"] = pa.array([tags.get(key) for key in keys.tolist()], pa.binary()).take(pa.array(rows.delivery))
    schema = arrow_schema(JUDGED)
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


@attrs.frozen
class _Rows:
    """For each row of the table, its delivery, its pair, its subscriber, and the reason why the subscriber missed the
    delivery."""

    delivery: Ints
    pair: Ints
    """For each row, the index of its pair of a delivery and a subscriber; `NONE` if no log has an entry about both. The
    rows of all pairs come first."""
    subscriber: Ints
    """The subscriber, as an index into `names`. `NONE` in the only row of a delivery that has no subscriber."""
    names: Sequence[str]
    missed: Ints
    """Why the subscriber missed the delivery, as an index into `MISSED`."""

    def __len__(self) -> int:
        return len(self.delivery)


def _rows(judged: Judged) -> _Rows:
    """Return a row for each pair. There is also a row for each subscriber that missed a delivery without any log entry,
    and for each delivery without a subscriber."""
    pairs, codes = judged.pairs, {name: code for code, name in enumerate(judged.pairs.names)}
    number = max(len(codes), 1)
    known = pairs.delivery * number + pairs.subscriber  # the subscribers are sorted
    missed = np.full(len(known), NONE, np.int64)
    deliveries, subscribers, theirs = [pairs.delivery], [pairs.subscriber], list[Ints]()
    for name, at, there in judged.unattributed.missed(judged.verdicts.subscribers):
        told = np.zeros(len(at), np.bool_)
        if name in codes and codes[name] < number:
            told = np.isin(at * number + codes[name], known)
            missed[np.searchsorted(known, at[told] * number + codes[name])] = there[told]
        deliveries.append(at[~told])
        subscribers.append(np.full(int((~told).sum()), codes.setdefault(name, len(codes)), np.int64))
        theirs.append(there[~told].astype(np.int64))
    alone = np.setdiff1d(np.arange(len(judged.uses.key)), np.concatenate(deliveries))
    nobody = np.full(len(alone), NONE, np.int64)
    delivery = np.concatenate([*deliveries, alone])
    pair = np.where(np.arange(len(delivery)) < len(known), np.arange(len(delivery)), NONE)
    subscriber, lacking = np.concatenate([*subscribers, nobody]), np.concatenate([missed, *theirs, nobody])
    return _Rows(delivery, pair, subscriber, list(codes), lacking)


def _links(judged: Judged, case: Case, rows: _Rows) -> dict[str, pa.Array]:
    """The columns about the publisher, the routers and the subscriber."""
    facts, found, groups = judged.facts, judged.found, judged.found.groups
    received = facts.at_home & facts.flags_of(Event.RECEIVED)
    last = groups.first(received, -facts.epoch_hlc, facts.rows.hlc)
    home = taken(facts.home, np.where(found.accepted >= 0, found.accepted, last))[rows.delivery]
    names, publisher = np.unique(judged.uses.publisher()[rows.delivery], return_inverse=True)
    publishers = [name.decode() for name in names.tolist()]
    sent = facts.by_router & facts.flags_of(Event.DELIVERED)
    clients = case.clients
    return {
        "publisher": named(publisher, publishers),
        "publisher_identity": named(publisher, _identities(publishers, clients.publishers)),
        "subscriber": named(rows.subscriber, rows.names),
        "subscriber_identity": named(rows.subscriber, _identities(rows.names, clients.subscribers)),
        "address": named(found.address[rows.delivery], facts.rows.strings),
        "home": named(home, facts.homes),
        "homes": _logs(judged, groups, received, facts.epoch_hlc, rows.delivery),
        "custodians": _logs(judged, judged.pairs.groups, sent, facts.rows.hlc, rows.pair),
        "sent": pa.array(taken(judged.pairs.groups.count(sent), rows.pair, 0), pa.int32()),
    }


def _identities(names: Sequence[str], known: Mapping[str, Client]) -> list[str]:
    return [known[name].identity if name in known else name for name in names]


def _logs(judged: Judged, groups: Groups, flags: Flags, by: Ints, of: Ints) -> pa.Array:
    """For each row, the list of logs that have flagged entries of the row's group. Each log occurs once in a list.
    `by`: for each entry, the number by which the logs are sorted. `of`: the group of each row."""
    log, chosen = judged.facts.rows.log, flags[groups.at]
    at, group = groups.at[chosen], groups.of[chosen]
    at, group = (column[np.lexsort((by[at], log[at], group))] for column in (at, group))
    first = np.ones(len(at), np.bool_)
    first[1:] = (np.diff(group) != 0) | (np.diff(log[at]) != 0)
    at, group = at[first], group[first]
    order = np.lexsort((by[at], group))
    told = named(log[at][order], [one.name for one in judged.facts.rows.logs])
    none = np.where(of == NONE, groups.number, of)
    return lists(group[order], told, groups.number + 1).take(pa.array(none))


def _steps(judged: Judged, rows: _Rows) -> dict[str, pa.Array]:
    """The columns with the time of each step, and with the outcome."""
    facts, found, pairs = judged.facts, judged.found, judged.pairs
    logged, first, of = facts.rows, judged.found.groups.first, rows.delivery
    stamp = logged.hlc, facts.source, logged.place
    told = first(facts.by_publisher & facts.flags_of(Event.OUTCOME), facts.incarnation, logged.place)
    told = np.where(found.told_accepted >= 0, found.told_accepted, told)
    answered = np.where(found.accepted >= 0, found.accepted, found.answered)
    published = first(facts.by_publisher & facts.flags_of(Event.PUBLISHED), facts.incarnation, logged.place)[of]
    steps = {
        "published": published,
        "received": first(facts.at_home & facts.flags_of(Event.RECEIVED), *stamp)[of],
        "sent": taken(pairs.first_sent, rows.pair),
        "handed": taken(pairs.own_order, rows.pair),
        "processed": taken(pairs.own_processed, rows.pair),
        "reported": taken(pairs.edge_stamp, rows.pair),
        "answered": answered[of],
        "told": told[of],
        "settled": first(facts.at_home & facts.flags_of(Event.SETTLED), *stamp)[of],
        "forgotten": first(facts.by_router & facts.flags_of(Event.FORGOTTEN), -logged.hlc)[of],
    }
    accepted = np.where(found.accepted >= 0, found.accepted, found.told_accepted)
    outcome = np.where(accepted >= 0, accepted, np.where(answered >= 0, answered, told))[of]
    return {
        **{f"{step}_at": _when(judged, index) for step, index in steps.items()},
        "processed_us": _since(judged, published, steps["processed"]),
        "told_us": _since(judged, published, steps["told"]),
        "outcome": named(taken(logged.outcome.astype(np.int64), outcome), OUTCOMES),
        "published": pa.array(judged.verdicts.fates.is_published[of]),
    }


def _when(judged: Judged, index: Ints) -> pa.Array:
    rows = judged.facts.rows
    return times(taken(rows.time, index, 0), (index >= 0) & ~taken(rows.undated, index, False))


def _since(judged: Judged, one: Ints, other: Ints) -> pa.Array:
    """The time from one row to another, in µs; null unless both have the same clock."""
    rows, host = judged.facts.rows, judged.facts.host
    known = (one >= 0) & (other >= 0) & (taken(host, one) == taken(host, other)) & (taken(host, one) != NONE)
    known &= ~taken(rows.undated, one, False)
    return numbers(taken(rows.time, other, 0) - taken(rows.time, one, 0), known)


def _verdicts(judged: Judged, rows: _Rows) -> dict[str, pa.Array]:
    verdicts = judged.verdicts.subscribers

    def flag(flags: Flags) -> pa.Array:
        return pa.array(taken(flags, rows.pair, False).astype(np.bool_))

    def reason(reasons: Mapping[str, Flags]) -> pa.Array:
        code = np.full(len(rows), NONE, np.int64)
        for number, flags in enumerate(reasons.values()):
            code[taken(flags, rows.pair, False).astype(np.bool_)] = number
        return named(code, list(reasons))

    return {
        "owed": flag(verdicts.owed),
        "processed": flag(verdicts.taken),
        "refused": flag(judged.pairs.own_refused | judged.pairs.edge_refused),
        "unowed": reason(verdicts.unowed),
        "unprocessed": reason(verdicts.unprocessed),
        "left_out": named(rows.missed, MISSED),
        "unknown": flag(verdicts.unknown | verdicts.unplaced | judged.verdicts.unshared[judged.pairs.delivery]),
        "violations": _violations(judged, rows),
    }


def _violations(judged: Judged, rows: _Rows) -> pa.Array:
    """The violations of each row. A violation about a delivery, or about a router's record of it, appears in all rows
    of this delivery."""
    found = [np.concatenate(column) for column in zip(*_violated(judged, rows), strict=True)]
    row, kind, log = (column[np.lexsort((found[2], found[1], found[0]))] for column in found)
    names = [one.name for one in judged.facts.rows.logs]
    told = pa.StructArray.from_arrays([named(kind, list(KINDS)), named(log, names)], names=["kind", "router"])
    return lists(row, told, len(rows)).cast(TYPES[VIOLATIONS][1])


def _violated(judged: Judged, rows: _Rows) -> Iterator[Violated]:
    none, kinds = np.empty(0, np.int64), list(KINDS)
    yield none, none, none
    order = np.argsort(rows.delivery, kind="stable")
    bounds = np.searchsorted(rows.delivery[order], np.arange(len(judged.uses.key) + 1))
    by_pair, records = judged.verdicts.subscribers.violations, judged.records
    for kind, flags in by_pair.items():
        at = np.flatnonzero(flags)
        yield at, np.full(len(at), kinds.index(kind), np.int64), np.full(len(at), NONE, np.int64)
    for kind, flags in judged.verdicts.publishers.items():
        for delivery in np.flatnonzero(flags).tolist():
            at = order[bounds[delivery] : bounds[delivery + 1]]
            yield at, np.full(len(at), kinds.index(kind), np.int64), np.full(len(at), NONE, np.int64)
    for kind, flags in judged.verdicts.routers.violations.items():
        for record in np.flatnonzero(flags).tolist():
            at = order[bounds[records.delivery[record]] : bounds[records.delivery[record] + 1]]
            log = np.full(len(at), records.log[record], np.int64)
            yield at, np.full(len(at), kinds.index(kind), np.int64), log
