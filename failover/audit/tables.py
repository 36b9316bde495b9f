"""The small facts (logs, parties, stays) as Spark tables to broadcast beside the deliveries."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from failover.audit.amnesia import Forgetting
from failover.audit.audiences import Membership, Term, closed_at
from failover.audit.inventory import ControlRow, Log
from failover.audit.parties import CLOSING, FOREVER, Parties, Span
from topic.journal import Event

TEXT, LONG, FLAG = pa.string(), pa.int64(), pa.bool_()
SPANS = pa.list_(pa.struct([("since", LONG), ("till", LONG)]))
TERMS = pa.list_(pa.struct([("home", TEXT), ("since", LONG), ("till", LONG), ("ended", LONG)]))
GATES = pa.list_(pa.struct([("publisher", TEXT), ("since", LONG), ("till", LONG)]))
STAY = [("subscriber", TEXT), ("since", LONG), ("till", LONG), ("closed", LONG), ("gates", GATES)]
STAYS = pa.list_(pa.struct(STAY))


def _table(spark: SparkSession, rows: Sequence[dict[str, Any]], **types: pa.DataType) -> DataFrame:
    table: Any = pa.Table.from_pylist(list(rows), schema=pa.schema(list(types.items())))
    return F.broadcast(spark.createDataFrame(table))


def _spans(spans: Iterable[Span]) -> list[dict[str, int]]:
    return [{"since": since, "till": till} for since, till in spans]


def log_table(spark: SparkSession, logs: Sequence[Log], rows: Sequence[ControlRow]) -> DataFrame:
    """By (source, incarnation): whether and when the log ended cleanly, and who was suspended there at the end."""
    suspended = _suspended(rows)
    found = [
        {
            "source": log.source,
            "incarnation": log.incarnation,
            "stopped": log.stopped,
            "last_time": log.last_time,
            "suspended": suspended.get((log.source, log.incarnation), []),
        }
        for log in logs
    ]
    names = pa.list_(TEXT)
    return _table(spark, found, source=TEXT, incarnation=LONG, stopped=FLAG, last_time=LONG, suspended=names)


def _suspended(rows: Sequence[ControlRow]) -> dict[tuple[str, int], list[str]]:
    """Subscribers whose last entry about their link, per log, is SUSPENDED."""
    events = (Event.ATTACHED, Event.SUSPENDED, Event.STOLEN, *CLOSING)
    last: dict[tuple[str, int, str], int] = {}
    for row in sorted(rows, key=lambda row: row.place):
        if row.subscriber is not None and row.event in events:
            last[row.source, row.incarnation, row.subscriber] = row.event
    found: dict[tuple[str, int], list[str]] = {}
    for (source, incarnation, subscriber), event in last.items():
        if event == Event.SUSPENDED:
            found.setdefault((source, incarnation), []).append(subscriber)
    return found


def publisher_table(spark: SparkSession, parties: Parties) -> DataFrame:
    """By publisher: whether it has whole logs of its own, and when entries of its homes may be missing."""
    rows = [
        {"publisher": party.name, "logged": party.logged, "home_gaps": _spans(party.custody)}
        for party in parties.publishers.values()
    ]
    return _table(spark, rows, publisher=TEXT, logged=FLAG, home_gaps=SPANS)


def subscriber_table(spark: SparkSession, parties: Parties, terms: Mapping[str, Sequence[Term]]) -> DataFrame:
    """By subscriber: who judges it, what is in doubt, and its terms."""
    rows = [
        {
            "subscriber": party.name,
            "of_address": party.address,
            "own": bool(party.logs),
            "doubts": _spans(party.doubts),
            "custody": _spans(party.custody),
            "bridged": _spans(party.bridged),
            "present": _spans(party.present),
            "terms": [attrs.asdict(term) for term in terms[party.name]],
        }
        for party in parties.subscribers.values()
    ]
    types = {"subscriber": TEXT, "of_address": TEXT, "own": FLAG}
    return _table(spark, rows, **types, doubts=SPANS, custody=SPANS, bridged=SPANS, present=SPANS, terms=TERMS)


def cut_table(
    spark: SparkSession,
    parties: Parties,
    terms: Mapping[str, Sequence[Term]],
    forgettings: Sequence[Forgetting],
) -> DataFrame | None:
    """By subscriber and home: from when to when it had expired there though its attach lived, or was forgotten. None if
    nobody was."""
    expired = [
        (name, term.home, term.ended, term.till) for name, listed in terms.items() for term in listed if term.rejoined
    ]
    rows = [
        {
            "subscriber": name,
            "of_address": parties.subscribers[name].address,
            "cut_home": home,
            "since": since,
            "till": till,
        }
        for name, home, since, till in (*expired, *_forgotten(parties, terms, forgettings))
    ]
    types = {"subscriber": TEXT, "of_address": TEXT, "cut_home": TEXT, "since": LONG, "till": LONG}
    return _table(spark, rows, **types) if rows else None


def _forgotten(
    parties: Parties, terms: Mapping[str, Sequence[Term]], forgettings: Sequence[Forgetting]
) -> Iterator[tuple[str, str, int, int]]:
    """Subscribers that had been attached, at the homes that did not know it, until these joined them."""
    for forgetting in forgettings:
        for name, party in parties.subscribers.items():
            lives = [life for life, opened, _ in party.lives if opened < forgetting.at]
            if not lives or closed_at(party, max(lives)) < forgetting.at:
                continue
            for home in forgetting.homes:
                joined = [term.since for term in terms[name] if term.home == home]
                yield name, home, forgetting.at, min(joined, default=FOREVER)


def stay_table(spark: SparkSession, stays: Sequence[Membership]) -> DataFrame:
    """By (source, incarnation, address): who was joined there, from which place in the log to which."""
    found: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for stay in stays:
        gates = [{"publisher": name, "since": since, "till": till} for name, since, till in stay.gates]
        row = {name: getattr(stay, name) for name in ("subscriber", "since", "till", "closed")} | {"gates": gates}
        found.setdefault((stay.source, stay.incarnation, stay.address), []).append(row)
    rows = [
        {"source": source, "incarnation": incarnation, "address": address, "stays": listed}
        for (source, incarnation, address), listed in found.items()
    ]
    return _table(spark, rows, source=TEXT, incarnation=LONG, address=TEXT, stays=STAYS)
