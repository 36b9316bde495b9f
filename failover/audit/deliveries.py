"""One row per delivery, and one per (delivery, subscriber): what every log says of it, side by side.

Only facts are gathered here, no rule is applied; `checks` does that. Conditional minima over the cached rows, which
are hashed by delivery, so nothing is shuffled.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topic.identity import NAME_LENGTH
from topic.journal import Event, Outcome

NAMES = "array<string>"
FACT_COLUMNS = ("key", "source", "role", "incarnation", "host", "place", "time", "hlc", "event", "outcome")


def _is(*events: Event) -> Column:
    return F.col("event").isin([int(event) for event in events])


def _by(role: str) -> Column:
    return F.col("role") == role


def accepted() -> Column:
    return F.col("outcome") == int(Outcome.ACCEPTED)


def at_home() -> Column:
    return _by("router") & F.col("peer").isNull()


def _first(condition: Column, value: Column | str) -> Column:
    return F.min(F.when(condition, F.col(value) if isinstance(value, str) else value))


def _any(condition: Column) -> Column:
    return F.coalesce(F.bool_or(condition), F.lit(False))


def deliveries(rows: DataFrame) -> DataFrame:
    """By key: publisher, order, what its publisher was told, what its homes did."""
    log_order = F.struct("incarnation", "place")
    instant = F.struct("time", "host")
    stamp = F.struct("hlc", "source", "place")
    home_says = at_home() & _is(Event.ACCEPTED)
    told = _by("publisher") & _is(Event.OUTCOME)
    heard = F.col("received_hlc").isNotNull()  # else the homes named are only those that were asked about it
    return (
        rows.filter(F.col("key").isNotNull())
        .groupBy("key")
        .agg(
            F.max("address").alias("address"),
            _first(_by("publisher") & _is(Event.PUBLISHED, Event.KEPT), log_order).alias("published"),
            _first(_by("router") & _is(Event.RECEIVED) & (F.col("n") >= 0), F.struct("epoch_hlc", "n")).alias("ranked"),
            _first(_by("router") | (_by("publisher") & _is(Event.PUBLISHED)), "time").alias("begun_time"),
            _first(_by("router") & _is(Event.RECEIVED), "hlc").alias("received_hlc"),
            _any(at_home() & _is(Event.RECEIVED)).alias("at_home"),
            _any(_is(Event.AUDIENCE)).alias("has_audience"),
            _first(home_says, stamp).alias("answered_stamp"),
            _first(home_says & accepted(), stamp).alias("accepted_stamp"),
            _first(home_says & accepted(), instant).alias("accepted"),
            _any(home_says & ~accepted()).alias("refused"),
            _first(told & accepted(), instant).alias("told_accepted"),
            _first(told, "time").alias("told_time"),
            _any(told & ~accepted()).alias("told_refused"),
            _any(_by("router") & _is(Event.ABANDONED)).alias("abandoned"),
            _first(at_home() & _is(Event.SETTLED), "time").alias("home_settled_time"),
            F.min("home").alias("first_home"),
            F.max("home").alias("last_home"),
        )
        .withColumns({name: F.when(heard, F.col(name)) for name in ("first_home", "last_home")})
        .withColumn("publisher", F.substring("key", 1, NAME_LENGTH))
    )


def pairs(rows: DataFrame, stays: DataFrame) -> DataFrame:
    """By (key, subscriber): whether it was in an audience, and what it and its routers say of the delivery."""
    joins = at_home() & _is(Event.RECEIVED)
    telling = joins | _is(Event.AUDIENCE, Event.DELIVERED, Event.OUTCOME, Event.PROCESSED, Event.KEPT)
    keyed = rows.filter(F.col("key").isNotNull() & telling)
    audience = F.from_json("detail", NAMES)
    joined = F.transform(F.filter("stays", _in_stay), lambda stay: stay["subscriber"])
    names = (
        F.when(_is(Event.AUDIENCE), audience)
        .when(joins, joined)
        .when(F.col("subscriber").isNotNull(), F.array("subscriber"))
    )
    told = keyed.join(stays, ["source", "incarnation", "address"], "left")
    facts = told.select(*FACT_COLUMNS, F.explode(names).alias("who"))
    return facts.groupBy("key", F.col("who").alias("subscriber")).agg(*_pair_facts())


def _in_stay(stay: Column) -> Column:
    """Whether this RECEIVED row falls into a stay, its publisher not gated for the subscriber."""
    place, publisher = F.col("place"), F.substring("key", 1, NAME_LENGTH)
    gated = F.exists(
        stay["gates"],
        lambda gate: (gate["publisher"] == publisher) & (gate["since"] < place) & (place < gate["till"]),
    )
    return (stay["since"] < place) & (place < stay["till"]) & (F.col("hlc") < stay["closed"]) & ~gated


def _pair_facts() -> list[Column]:
    instant = F.struct("time", "host")
    processed = _by("subscriber") & _is(Event.PROCESSED)
    kept = _by("subscriber") & _is(Event.KEPT)
    answered = _by("router") & _is(Event.OUTCOME)
    handed = _by("subscriber") & _is(Event.DELIVERED, Event.PROCESSED)
    sent = _by("router") & _is(Event.DELIVERED)
    return [
        _any(_is(Event.AUDIENCE, Event.RECEIVED)).alias("in_audience"),
        F.max(F.when(_is(Event.AUDIENCE, Event.RECEIVED), F.col("hlc"))).alias("meant_hlc"),
        _own_count(processed & accepted(), kept & accepted()).alias("own_count"),
        _first(processed & accepted(), instant).alias("own_processed"),
        _any((processed | kept) & ~accepted()).alias("own_refused"),
        _first(handed, F.struct("incarnation", "place")).alias("own_order"),
        F.count_if(answered & accepted()).alias("edge_count"),
        F.size(F.collect_set(F.when(answered & accepted(), F.struct("source", "incarnation")))).alias("edges"),
        _first(answered & accepted(), F.struct("hlc", "source", "place")).alias("edge_stamp"),
        _first(answered & accepted(), instant).alias("edge_accepted"),
        _any(answered & ~accepted()).alias("edge_refused"),
        F.max(F.when(sent, F.col("hlc"))).alias("last_sent_hlc"),
        _first(sent, F.struct("hlc", "place")).alias("edge_order"),
    ]


def _own_count(processed: Column, kept: Column) -> Column:
    """How often the subscriber processed it by its own word. What it kept of an earlier life it processed then, whether
    or not that life could still write it down: what it processed in the same life or a later one was one more."""
    count = F.count_if(processed)
    since, last = _first(kept, "incarnation"), F.max(F.when(processed, F.col("incarnation")))
    least = F.when(since.isNull(), 0).when(F.coalesce(last >= since, F.lit(False)), 2).otherwise(1)
    return F.greatest(count, least)


def records(rows: DataFrame) -> DataFrame:
    """By (key, router incarnation): the life of one delivery record."""
    last_held = F.max(F.when(_is(Event.RECEIVED, Event.PLACEHOLDER), F.col("place")))
    return (
        rows.filter(F.col("key").isNotNull() & _by("router"))
        .groupBy("key", "source", "incarnation")
        .agg(
            last_held.alias("held_place"),
            F.max(F.when(_is(Event.FORGOTTEN), F.col("place"))).alias("forgotten_place"),
            _first(_is(Event.SETTLED), F.struct("hlc", "source", "place")).alias("settled_stamp"),
            _first(_is(Event.SETTLED, Event.ABANDONED, Event.RESOLVED), "time").alias("settled_time"),
            F.sort_array(F.collect_set("subscriber")).alias("subscribers"),
        )
    )
