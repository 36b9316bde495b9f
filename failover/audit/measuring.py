"""What `measures` is made of, counted by Spark over the rows of an audit: three passes with small results.

Latencies are differences of wall clocks, so they are told only where publisher and subscriber wrote on one host; faults
are placed by the clock of the host on which most clients wrote. Times in a state are differences of one router's clock.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from failover.audit.deliveries import accepted
from failover.audit.faults import Fault, Found
from failover.audit.inventory import Log
from failover.audit.lives import unsure
from failover.audit.measures import (
    ACCEPTED,
    PROCESSED,
    STATES,
    STEPS,
    Measures,
    Pause,
    StateTime,
    Tally,
    Track,
    fault_measures,
    phase_latencies,
    series,
)
from failover.audit.parties import Parties, Party
from failover.audit.phases import ELSEWHERE, Phases
from topic.journal import Event

FINE_US = 50_000
"""Pauses shorter than this are none."""
BINS = 240
WIDTHS_US = tuple(
    round(seconds * 1_000_000)
    for seconds in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 86400)
)
MOST_FAULTS = 100


@attrs.frozen(slots=True)
class Span:
    """Of the run, by the clock of one host."""

    host: str
    began_us: int
    ended_us: int

    @property
    def bin_us(self) -> int:
        return next((width for width in WIDTHS_US if self.ended_us - self.began_us <= width * BINS), WIDTHS_US[-1])

    @property
    def bins(self) -> int:
        return (self.ended_us - self.began_us) // self.bin_us + 1


def measure(rows: DataFrame, logs: Sequence[Log], parties: Parties, found: Found) -> Measures:
    """`rows` are cached, and those of one delivery are together."""
    span = _span(logs)
    faults = found.chaos.faults[:MOST_FAULTS] if found.chaos else ()
    phases = Phases(faults)
    tallies = list(_latencies(rows, span, phases))
    tracks = _tracks(rows, span, parties)
    comparable = [track for track in tracks if track.host == span.host]
    return Measures(
        span.began_us,
        span.bin_us,
        found.chaos,
        phase_latencies(tallies, phases),
        fault_measures(faults, phases, tallies, comparable),
        series(tracks, faults, span.bins),
        tuple(_states(rows)),
        tuple(_notes(span, logs, tracks, tallies, found, faults)),
    )


def _span(logs: Sequence[Log]) -> Span:
    """Clients tell best when the run was; where none logged, routers do."""
    writers = [log for log in logs if log.role != "router"] or list(logs)
    hosts = Counter(log.host for log in writers)
    host = max(sorted(hosts), key=lambda name: hosts[name], default="")
    there = [log for log in writers if log.host == host]
    began = min((log.first_time for log in there), default=0)
    return Span(host, began, max((log.last_time for log in there), default=began))


def _notes(
    span: Span,
    logs: Sequence[Log],
    tracks: Sequence[Track],
    tallies: Sequence[Tally],
    found: Found,
    faults: Sequence[Fault],
) -> Iterator[str]:
    if found.problem:
        yield found.problem
    others = sorted({log.host or "unknown" for log in logs} - {span.host})
    if others:
        yield (
            f"the clocks of other hosts ({', '.join(others)}) cannot be compared with that of {span.host or 'unknown'}:"
            " latencies between hosts are not known, and what was written elsewhere is not measured by fault"
        )
    away = sum(track.host != span.host for track in tracks)
    if away and faults:
        yield f"pauses around faults are not known of {away} clients on other hosts"
    for name, of in ((ACCEPTED, "acceptance"), (PROCESSED, "processing")):
        unknown = sum(tally.count for tally in tallies if tally.measure == name and tally.bucket is None)
        if unknown:
            yield f"the time to {of} of {unknown} deliveries is not known: no publisher's log, or clocks of two hosts"
    if found.chaos and len(found.chaos.faults) > len(faults):
        yield f"only the first {len(faults)} of {len(found.chaos.faults)} faults are measured one by one"


def _is(role: str, event: Event) -> Column:
    return (F.col("role") == role) & (F.col("event") == int(event))


def _latencies(rows: DataFrame, span: Span, phases: Phases) -> Iterator[Tally]:
    """From each publication to what came of it; both are in one partition, so nothing is shuffled but counts."""
    sure = rows.filter(F.col("key").isNotNull() & ~unsure())
    published = sure.filter(_is("publisher", Event.PUBLISHED)).select(
        "key", F.col("time").alias("from"), F.col("host").alias("from_host")
    )
    ends = sure.filter((_is("publisher", Event.OUTCOME) | _is("subscriber", Event.PROCESSED)) & accepted()).select(
        "key", "time", "host", F.when(F.col("role") == "publisher", ACCEPTED).otherwise(PROCESSED).alias("measure")
    )
    joined = ends.join(published.hint("shuffle_hash"), "key", "left")
    comparable = (F.col("host") == F.col("from_host")) & (F.col("host") != "")
    us = F.when(comparable, F.greatest(F.col("time") - F.col("from"), F.lit(1)))
    placed = F.coalesce("from_host", "host") == span.host
    number = F.when(placed, _slice(phases)).otherwise(ELSEWHERE)
    bucket = F.floor(F.log2(us.cast("double")) * STEPS).cast("int")
    counted = joined.groupBy("measure", number.alias("slice"), bucket.alias("bucket"))
    for row in counted.agg(F.count(F.lit(1)).alias("count"), F.max(us).alias("max_us")).collect():
        yield Tally(*row)


def _slice(phases: Phases) -> Column:
    """Where it was published; or, if it was overtaken by the next fault, the first slice of that."""
    ended = _passed(F.col("time"), phases.boundaries)
    begun = _passed(F.coalesce("from", "time"), phases.boundaries)
    return F.when(begun.isin(phases.calm), F.least(begun + 1, ended)).otherwise(begun)


def _passed(time: Column, boundaries: Sequence[int], first: int = 0) -> Column:
    """How many boundaries are not after it, searched for in halves."""
    if not boundaries:
        return F.lit(first)
    middle = len(boundaries) // 2
    earlier = _passed(time, boundaries[:middle], first)
    later = _passed(time, boundaries[middle + 1 :], first + middle + 1)
    return F.when(time < boundaries[middle], earlier).otherwise(later)


def _tracks(rows: DataFrame, span: Span, parties: Parties) -> list[Track]:
    """Every client's progress: by its own log, or its router's where it has none."""
    done, role, name = _progress(parties)
    who = F.when(role == "subscriber", F.col("subscriber")).otherwise(name)
    fine = (
        rows.filter(F.col("key").isNotNull() & done)
        .groupBy(role.alias("role"), who.alias("who"), "host", F.floor(F.col("time") / FINE_US).alias("fine"))
        .agg(F.count(F.lit(1)).alias("count"), F.min("time").alias("first"), F.max("time").alias("last"))
    )
    before = F.lag("last").over(Window.partitionBy("role", "who", "host").orderBy("fine"))
    pause = F.struct((F.col("first") - before).alias("us"), before.alias("since"))
    long = F.when(F.col("first") - before >= FINE_US, pause)
    number = F.floor((F.col("first") - span.began_us) / span.bin_us)
    coarse = fine.select("role", "who", "host", "count", number.alias("bin"), long.alias("pause"))
    counted = coarse.groupBy("role", "who", "host", "bin").agg(
        F.sum("count").alias("count"), F.max("pause").alias("pause")
    )
    return _tracked(counted.collect(), parties)


def _progress(parties: Parties) -> tuple[Column, Column, Column]:
    """Which rows tell that a delivery was done with, for whom by role, and a publisher's name."""
    own_subscribers = [name for name, party in parties.subscribers.items() if party.logs]
    own_publishers = [name for name, party in parties.publishers.items() if party.logs]
    publisher = F.coalesce("publisher", F.substring("key", 1, 12))
    processed = _is("subscriber", Event.PROCESSED)
    answered = _is("router", Event.OUTCOME) & ~F.col("subscriber").isin(own_subscribers)
    learned = _is("publisher", Event.OUTCOME)
    told = _is("router", Event.ACCEPTED) & ~publisher.isin(own_publishers)
    role = F.when(processed | answered, "subscriber").otherwise("publisher")
    return accepted() & (processed | answered | learned | told), role, publisher


def _tracked(rows: Sequence[Row], parties: Parties) -> list[Track]:
    tracks: dict[tuple[str, str, str], Track] = {}
    for row in sorted(rows, key=lambda row: (row["role"], row["who"], row["host"], row["bin"])):
        known = parties.subscribers if row["role"] == "subscriber" else parties.publishers
        found = tracks.setdefault(
            (row["role"], row["who"], row["host"]),
            Track(_short(known.get(row["who"]), row["who"]), row["role"], row["host"]),
        )
        found.counts[row["bin"]] = row["count"]
        if row["pause"] is not None:
            found.pauses.append(Pause(row["pause"]["since"], row["pause"]["us"]))
    return sorted(tracks.values(), key=lambda track: (track.role, track.party, track.host))


def _short(party: Party | None, name: str) -> str:
    return party.identity.removesuffix(f" on {party.address}") if party else name


def _states(rows: DataFrame) -> Iterator[StateTime]:
    """Between what a router says of one record."""
    records = (
        rows.filter(F.col("key").isNotNull() & (F.col("role") == "router"))
        .groupBy("key", "source", "incarnation")
        .agg(
            _time(F.min, Event.RECEIVED, Event.PLACEHOLDER).alias("received"),
            _time(F.min, Event.DELIVERED).alias("sent"),
            _time(F.max, Event.OUTCOME).alias("outcome"),
            _time(F.min, Event.ACCEPTED).alias("told"),
            _time(F.min, Event.SETTLED, Event.RESOLVED, Event.ABANDONED).alias("ended"),
            _time(F.max, Event.FORGOTTEN).alias("forgotten"),
        )
    )
    spans = dict(zip(STATES, _spans(), strict=True))
    of_each = [column for name, us in spans.items() for column in _summary(name, F.when(us >= 0, us))]
    for row in sorted(records.groupBy("source").agg(*of_each).collect()):
        for name in spans:
            if row[f"{name}_count"]:
                yield StateTime(
                    row["source"], name, row[f"{name}_count"], round(row[f"{name}_mean"]), row[f"{name}_max"]
                )


def _time(function: Any, *events: Event) -> Column:
    found: Column = function(F.when(F.col("event").isin([int(event) for event in events]), F.col("time")))
    return found


def _spans() -> Iterator[Column]:
    """The time in each of `STATES`, null where the record was not in it."""
    at_home = F.col("told").isNotNull()
    yield F.when(at_home, F.col("told") - F.col("received"))
    yield F.when(at_home, F.col("ended") - F.col("told"))
    yield F.col("sent") - F.col("received")
    yield F.col("outcome") - F.col("sent")
    yield F.when(~at_home, F.col("ended") - F.col("outcome"))
    yield F.col("forgotten") - F.col("ended")


def _summary(name: str, us: Column) -> list[Column]:
    return [F.count(us).alias(f"{name}_count"), F.avg(us).alias(f"{name}_mean"), F.max(us).alias(f"{name}_max")]
