"""The judged tables counted and sampled: the few Spark jobs whose results make up the report."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import attrs
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from failover.audit.inventory import Inventory
from failover.audit.lives import split_name
from failover.audit.parties import Parties, Party
from failover.audit.report import FINDINGS_KEPT, Finding, PairRow, PublisherRow

# The flag columns of `checks` and the kinds of the report they stand for.
PAIR_KINDS = {
    "lost": "lost",
    "duplicated": "duplicated",
    "disordered": "out of order",
    "early": "accepted too early",
    "overruled": "accepted though refused",
    "unasked": "never published",
}
DELIVERY_KINDS = {"misreported": "misreported"}
RECORD_KINDS = {"settled_early": "settled before accepted", "kept": "never forgotten"}


@attrs.frozen(slots=True)
class Evidence:
    """The judged tables of Spark, and the plain facts they were joined with."""

    inventory: Inventory
    parties: Parties
    deliveries: DataFrame
    pairs: DataFrame
    records: DataFrame
    unaddressed: DataFrame
    cut_off: DataFrame | None
    """None if no subscriber was."""


@attrs.frozen(slots=True)
class Counts:
    """The judged tables, counted."""

    by_publisher: Sequence[Row]
    by_pair: Sequence[Row]
    by_router: Sequence[Row]
    violations: dict[str, int]
    unknown_records: int
    cut_off: Mapping[tuple[str, str], int]
    """By publisher and subscriber."""


def count(evidence: Evidence) -> Counts:
    by_publisher = _by_publisher(evidence.deliveries)
    by_pair = _by_pair(evidence.pairs)
    by_router = _by_router(evidence.records)
    violations = {
        kind: total
        for kinds, rows in ((PAIR_KINDS, by_pair), (DELIVERY_KINDS, by_publisher), (RECORD_KINDS, by_router))
        for flag, kind in kinds.items()
        if (total := sum(row[flag] for row in rows))
    }
    unknown_records = sum(row["kept_unknown"] for row in by_router)
    return Counts(by_publisher, by_pair, by_router, violations, unknown_records, _cut_off(evidence.cut_off))


def _cut_off(missed: DataFrame | None) -> dict[tuple[str, str], int]:
    if missed is None:
        return {}
    rows = missed.groupBy("publisher", "subscriber").agg(F.count("key").alias("missed")).collect()
    return {(row["publisher"], row["subscriber"]): row["missed"] for row in sorted(rows)}


def _flags(names: Iterable[str]) -> list[Column]:
    return [F.count_if(F.col(name)).alias(name) for name in names]


def _by_publisher(judged: DataFrame) -> list[Row]:
    answered = F.col("is_accepted") | F.col("refused") | F.col("told_refused")
    flags = {
        "published_count": F.col("is_published"),
        "accepted_count": F.col("is_accepted"),
        "unanswered": F.col("is_published") & ~answered,
        "misreported": F.col("misreported"),
        "unaddressed": F.col("is_accepted") & ~F.col("has_audience"),
    }
    counted = [F.count_if(flag).alias(name) for name, flag in flags.items()]
    address = F.max("address").alias("address")
    return sorted(judged.groupBy("publisher").agg(address, *counted).collect())


def _by_pair(pairs: DataFrame) -> list[Row]:
    processed = F.count_if("taken").alias("processed_count")
    counted = _flags(["owed", *PAIR_KINDS, "unknown", "unplaced"])
    return sorted(pairs.groupBy("publisher", "subscriber").agg(processed, *counted).collect())


def _by_router(records: DataFrame) -> list[Row]:
    counted = _flags([*RECORD_KINDS, "kept_unknown"])
    return records.groupBy("source", "incarnation").agg(*counted).collect()


def publisher_rows(counts: Counts, parties: Parties) -> tuple[PublisherRow, ...]:
    return tuple(
        PublisherRow(
            _identity(parties.publishers, row["publisher"]),
            row["address"] or "",
            row["published_count"],
            row["accepted_count"],
            row["unanswered"],
        )
        for row in counts.by_publisher
    )


def pair_rows(counts: Counts, parties: Parties) -> tuple[PairRow, ...]:
    judged = {(row["publisher"], row["subscriber"]): row.asDict() for row in counts.by_pair}
    totals = {row["publisher"]: row for row in counts.by_publisher}
    return tuple(
        _pair_row(totals[names[0]], names, judged.get(names, {}), counts.cut_off.get(names, 0), parties)
        for names in sorted({*judged, *counts.cut_off})
    )


def _pair_row(
    totals: Row, names: tuple[str, str], judged: Mapping[str, int], cut_off: int, parties: Parties
) -> PairRow:
    return PairRow(
        _identity(parties.publishers, names[0]),
        _identity(parties.subscribers, names[1]),
        _mode(parties.subscribers, names[1]),
        totals["published_count"],
        totals["accepted_count"],
        judged.get("owed", 0),
        judged.get("processed_count", 0),
        {kind: judged[flag] for flag, kind in PAIR_KINDS.items() if judged.get(flag)},
        judged.get("unknown", 0) + judged.get("unplaced", 0),
        cut_off,
    )


def _identity(known: Mapping[str, Party], name: str) -> str:
    return known[name].identity if name in known else name


def _mode(known: Mapping[str, Party], name: str) -> str:
    return known[name].mode if name in known else ""


def findings(evidence: Evidence, counts: Counts) -> tuple[Finding, ...]:
    """The first few violations of each kind, by delivery key. Costs nothing where there are none."""
    everybody = F.sort_array(F.collect_set(F.when(F.col("in_audience"), F.col("subscriber"))))
    audience = evidence.pairs.groupBy("key").agg(everybody.alias("audience"))
    local = F.when(F.size("subscribers") > 0, F.col("subscribers")).otherwise(F.col("audience"))
    nowhere = F.lit(None).cast("string")
    tables = (
        (PAIR_KINDS, evidence.pairs, F.array("subscriber"), nowhere),
        (DELIVERY_KINDS, evidence.deliveries.join(audience, "key", "left"), F.col("audience"), nowhere),
        (RECORD_KINDS, evidence.records.join(audience, "key", "left"), local, F.col("source")),
    )
    found: list[Finding] = []
    for kinds, table, subscribers, router in tables:
        for flag in (flag for flag, kind in kinds.items() if kind in counts.violations):
            columns = table.filter(F.col(flag)).select(
                "key", "publisher", subscribers.alias("subscribers"), router.alias("router")
            )
            rows = columns.orderBy("key", "router").limit(FINDINGS_KEPT).collect()
            found += [_finding(kinds[flag], row, evidence.parties) for row in rows]
    return tuple(found)


def _finding(kind: str, row: Row, parties: Parties) -> Finding:
    subscribers = tuple(_identity(parties.subscribers, name) for name in row["subscribers"] or ())
    key, life = split_name(row["key"])
    return Finding(kind, key, _identity(parties.publishers, row["publisher"]), subscribers, row["router"], life)


def doubts(evidence: Evidence, counts: Counts) -> Iterator[str]:
    """What is not known and matters: any of these keeps the verdict from holding."""
    parties = evidence.parties
    if not any(row["accepted_count"] for row in counts.by_publisher):
        yield "no delivery was accepted, so there is nothing that could hold"
    for row in counts.by_pair:
        names = (
            _identity(parties.publishers, row["publisher"]),
            _identity(parties.subscribers, row["subscriber"]),
        )
        if row["unknown"]:
            yield f"{row['unknown']} deliveries from {names[0]} to {names[1]}: entries lost with the end of a log"
        if row["unplaced"]:
            yield f"{row['unplaced']} deliveries from {names[0]} to {names[1]}: published in an unknown order"
    for role, known in (("publisher", parties.publishers), ("subscriber", parties.subscribers)):
        for party in sorted(known.values(), key=lambda party: party.identity):
            if party.doubts:
                yield _open_ended(role, party)
    if any(row["unaddressed"] for row in counts.by_publisher):
        yield from _unaddressed(evidence)


def _unaddressed(evidence: Evidence) -> Iterator[str]:
    """Which logs end too early to tell for whom accepted deliveries were, if that matters for any."""
    counted = F.count_if(F.col("subscriber").isNotNull()).alias("in_vain")
    rows = evidence.unaddressed.groupBy("last_home").agg(counted).collect()
    if not rows:
        return
    homes = {row["last_home"] for row in rows}
    for log in evidence.inventory.logs:
        if log.role == "router" and not log.stopped and (log.name in homes or None in homes):
            end = datetime.fromtimestamp(log.last_time // 1_000_000).strftime("%H:%M:%S")
            yield f"the log of {log.source} has no clean end: who was owed what after {end} is not known"
    if in_vain := sum(row["in_vain"] for row in rows):
        yield f"{in_vain} accepted deliveries lack in a log whom they were for, and a subscriber did not get them"


def _open_ended(role: str, party: Party) -> str:
    logs = ", ".join(sorted(set(party.open_logs)))
    if role == "subscriber" and party.logs:
        return f"{role} {party.identity}: its log {logs} has no clean end"
    own = "no clean end of a log of its own" if party.logs else "no log of its own"
    return f"{role} {party.identity}: it has {own}, and its router's log {logs} has no clean end"
