"""The rules of the audit, as columns over what `deliveries` gathered.

A rule that fires is a violation only if the entry it misses can not have been lost with the end of an open log; else
the delivery is *unknown* for that subscriber, which keeps the verdict from holding. Hybrid clocks decide between
routers. Wall clocks decide where a client's log is compared with another: exactly on one host, within `SKEW_US`
between two.
"""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from failover.audit.amnesia import Forgetting
from failover.audit.inventory import Log
from failover.audit.lives import reused, unsure
from failover.audit.parties import SKEW_US, Span, open_windows

FORGET_GRACE_US = 2_000_000
"""A record settled this shortly before its router stopped may rightly have waited to be forgotten."""


def judge_deliveries(found: DataFrame, publishers: DataFrame, logs: Sequence[Log]) -> DataFrame:
    """What holds for a delivery whoever subscribes: whether it was published, accepted, and reported truly."""
    logged, doubted = F.coalesce("logged", F.lit(False)), _home_doubted(logs)
    told, answered = F.col("told_accepted").isNotNull(), F.col("accepted_stamp").isNotNull()
    published = F.col("published").isNotNull() | (~logged & F.col("received_hlc").isNotNull())
    misreported = (told & ~answered) | (F.col("told_refused") & ~F.col("refused"))
    return found.join(publishers, "publisher", "left").withColumns(
        {
            "home_doubted": doubted,
            "is_accepted": told | answered,
            "is_published": published,
            "invented": ~published & (logged | ~doubted),
            "misreported": misreported & ~doubted & ~unsure(),
            "accepted_time": F.coalesce("accepted.time", "told_accepted.time"),
            "accepted_hlc": F.coalesce("accepted_stamp.hlc", _wall_hlc("told_accepted.time")),
            "position": F.when(~unsure(), _position(logged)),
            "lives_doubted": reused() & ~logged & doubted,
        }
    )


def _home_doubted(logs: Sequence[Log]) -> Column:
    """Whether a home of the delivery may have lost entries: one that is named, any if none is, or the one at which its
    publisher was attached meanwhile, which may be named by no entry that is left."""
    doubted = [log.name for log in logs if log.role == "router" and not log.stopped]
    if not doubted:
        return F.lit(False)
    named = F.coalesce(F.col("first_home").isin(doubted) | F.col("last_home").isin(doubted), F.lit(True))
    return named | _homed_in(F.coalesce("home_gaps", _spans(open_windows(logs))))


def _homed_in(gaps: Column) -> Column:
    """Whether the delivery was open while entries of its publisher's home may have got lost."""
    begun = F.col("begun_time")
    ended = F.coalesce("told_time", "accepted.time", "home_settled_time", begun)
    return F.coalesce(F.exists(gaps, lambda gap: (gap["since"] <= ended) & (begun <= gap["till"])), F.lit(True))


def _wall_hlc(time_us: str) -> Column:
    """The highest hybrid clock of a wall clock's millisecond."""
    return F.floor(F.col(time_us) / 1000) * 65536 + 65535


def _position(logged: Column) -> Column:
    """The delivery's place in its publisher's order: by the publisher's log, or else by epoch and n."""
    by_log = F.struct(F.col("published.incarnation").alias("major"), F.col("published.place").alias("minor"))
    by_home = F.struct(F.col("ranked.epoch_hlc").alias("major"), F.col("ranked.n").alias("minor"))
    return F.when(logged & F.col("published").isNotNull(), by_log).when(~logged & F.col("ranked").isNotNull(), by_home)


def judge_pairs(
    found: DataFrame, judged: DataFrame, subscribers: DataFrame, logs: Sequence[Log], forgettings: Sequence[Forgetting]
) -> DataFrame:
    """A flag for every kind of violation per (delivery, subscriber), and for what can not be known.

    A subscriber with logs of its own is judged by them, any other by its routers.
    """
    own, no = F.coalesce("own", F.lit(False)), F.lit(False)
    by_edge = (F.col("edge_count") > 0).cast("long")
    order = F.when(own, _order("own_order", "incarnation")).otherwise(_order("edge_order", "hlc"))
    sent_again = (F.col("last_sent_hlc") > F.col("edge_stamp.hlc")) | (F.col("edge_count") > F.col("edges"))
    joined = found.join(judged, "key").join(subscribers, "subscriber", "left")
    edge_doubted = _overlaps(F.coalesce("custody", _spans(open_windows(logs))))
    bridged = _overlaps(F.col("bridged"))
    stated = joined.withColumns(
        {
            "count": F.when(own, F.greatest("own_count", F.when(bridged, by_edge))).otherwise(by_edge),
            "processed": F.when(own, F.col("own_processed")).otherwise(F.col("edge_accepted")),
            "refused_it": F.when(own, F.col("own_refused")).otherwise(F.col("edge_refused")),
            "duplicated": F.when(own, F.col("own_count") > 1).otherwise(F.coalesce(sent_again, no)),
            "handed": order,
            "owed": F.col("in_audience") & F.col("is_accepted") & ~_excused() & ~_forgotten(forgettings),
            "doubted": _overlaps(F.coalesce("doubts", _spans(open_windows(logs)))) | (bridged & edge_doubted),
            "edge_doubted": edge_doubted,
        }
    )
    stated = stated.withColumn("vague", unsure() | (F.col("lives_doubted") & F.col("duplicated")))
    missing = F.col("owed") & (F.col("count") == 0)
    taken, handed = F.col("owed") & (F.col("count") > 0), F.col("handed").isNotNull()
    refused, doubted = F.col("refused_it"), F.col("doubted")
    edge_later = F.coalesce(_edge_later(), no) & ~F.col("edge_doubted")  # else it may be a later router that says so
    early = edge_later | F.coalesce(_clock_later(), no)
    proven = F.coalesce(~_edge_later(), no) | F.coalesce(_clock_earlier(), no)
    flags = {
        "duplicated": F.col("duplicated"),
        "lost": missing & ~refused & ~doubted,
        "overruled": missing & refused,
        "early": taken & early,
        "unasked": handed & F.col("invented"),
        "disordered": _disordered(),
        "unknown": (missing & ~refused & doubted) | (taken & ~early & ~proven),
        "unplaced": handed & F.col("position").isNull() & ~F.col("invented"),
        "taken": F.col("count") > 0,
    }
    vague = F.col("vague")
    sure = {name: flag & ~vague for name, flag in flags.items() if name not in ("unknown", "unplaced", "taken")}
    flags |= sure | {"unknown": flags["unknown"] | (vague & (F.col("owed") | handed))}
    kept = ("key", "publisher", "subscriber", "in_audience", "owed")
    return stated.select(*kept, *(flag.alias(name) for name, flag in flags.items()))


def unaddressed(
    pairs: DataFrame,
    judged: DataFrame,
    subscribers: DataFrame,
    watched: Mapping[str, Sequence[Span]],
    forgettings: Sequence[Forgetting],
) -> DataFrame:
    """Accepted deliveries whose audience got lost with their home's log, if it matters: a subscriber may have belonged
    to it in vain, or somebody may have whom no whole log knows. One row per delivery and such a subscriber, or none.
    Not if everybody was forgotten before, by routers whose logs are whole. `watched`: the routers at which somebody may
    have been unseen, and when not."""
    astray = judged.filter(F.col("is_accepted") & ~F.col("has_audience"))
    for forgetting in forgettings:
        if forgetting.whole:
            astray = astray.filter(F.coalesce(F.col("accepted_hlc") < forgetting.at, F.lit(True)))
    possible = astray.join(subscribers, F.col("address") == F.col("of_address")).filter(_may_have_been_there())
    served = pairs.filter(F.col("in_audience") | (F.col("own_count") + F.col("edge_count") > 0))
    in_vain = possible.join(served, ["key", "subscriber"], "left_anti")
    unseen = astray.filter(_unwatched(watched)).withColumn("subscriber", F.lit(None).cast("string"))
    columns = ("key", "publisher", "subscriber", "last_home")
    return in_vain.select(*columns).unionByName(unseen.select(*columns))


def cut_off(pairs: DataFrame, judged: DataFrame, cuts: DataFrame) -> DataFrame:
    """Deliveries accepted while a subscriber that lived on had expired in the view of their home, and not got by it:
    owed to nobody, but to be seen."""
    meant = (F.col("address") == F.col("of_address")) & F.col("cut_home").isin(F.col("first_home"), F.col("last_home"))
    received = F.coalesce("received_hlc", "accepted_hlc")
    within = (F.col("since") <= F.col("accepted_hlc")) & (received <= F.col("till"))
    missed = judged.filter("is_accepted").join(cuts, meant & within)
    got = pairs.filter(F.col("owed") | F.col("taken"))
    return missed.join(got, ["key", "subscriber"], "left_anti").select("key", "publisher", "subscriber").distinct()


def _unwatched(watched: Mapping[str, Sequence[Span]]) -> Column:
    """Whether the delivery's home, or any that may have been it, had a log without a clean end, and no router with a
    whole one saw who was joined there. The home's wall clock and its witness's may differ; contact is lost later than
    the router, so this is of no consequence for a router that died."""
    blind = F.lit(False)
    for name, spans in sorted(watched.items()):
        may_be_home = F.coalesce(F.col("first_home").isin(name) | F.col("last_home").isin(name), F.lit(True))
        seen = F.lit(False)
        for since, till in spans:
            seen = seen | F.col("accepted_time").between(since, till)
        blind = blind | (may_be_home & ~seen)
    return blind


def _order(column: str, major: str) -> Column:
    first = F.struct(F.col(f"{column}.{major}").alias("major"), F.col(f"{column}.place").alias("minor"))
    return F.when(F.col(column).isNotNull(), first)


def _excused() -> Column:
    """Whether the subscriber was gone for good, as far as this delivery's home is concerned, before the delivery was
    accepted. The home's JOINED rows tell in which of its lives the subscriber was owed the delivery; without any there,
    its attaches do."""
    received = F.coalesce("received_hlc", "accepted_hlc")

    def term(at_home: Callable[[Column], Column]) -> Column:
        return F.filter(
            "terms", lambda term: at_home(term["home"]) & (term["since"] < received) & (received <= term["till"])
        )

    here = term(lambda home: home.isin(F.col("first_home"), F.col("last_home")))
    applying = F.when(F.size(here) > 0, here).otherwise(term(lambda home: home == ""))
    return F.coalesce(F.exists(applying, lambda term: term["ended"] <= F.col("accepted_hlc")), F.lit(False))


def _forgotten(forgettings: Sequence[Forgetting]) -> Column:
    """Whether the mesh forgot the subscriber after it had last been meant to get this, and before it was accepted."""
    forgotten = F.lit(False)
    for forgetting in forgettings:
        forgotten = forgotten | ((F.col("meant_hlc") < forgetting.at) & (F.col("accepted_hlc") >= forgetting.at))
    return F.coalesce(forgotten, F.lit(False))


def _may_have_been_there() -> Column:
    """Whether any attach of the subscriber had begun and not ended when the delivery was accepted."""
    accepted = F.col("accepted_hlc")

    def attached(term: Column) -> Column:
        return (term["home"] == "") & (term["since"] <= accepted) & (accepted < term["ended"])

    by_its_log = F.exists(
        "present",
        lambda span: (span["since"] <= F.col("accepted_time")) & (F.col("begun_time") <= span["till"]),
    )
    return F.exists("terms", attached) | F.coalesce(by_its_log, F.lit(False))


def _spans(spans: Sequence[Span]) -> Column:
    rows = [F.struct(F.lit(since).alias("since"), F.lit(till).alias("till")) for since, till in spans]
    return F.array(*rows).cast("array<struct<since:bigint,till:bigint>>")


def _overlaps(doubts: Column) -> Column:
    """Whether the delivery was open while entries about the subscriber may have got lost."""
    overlap = F.exists(
        doubts,
        lambda doubt: (doubt["since"] <= F.col("accepted_time")) & (F.col("begun_time") <= doubt["till"]),
    )
    return F.coalesce(overlap, F.lit(False))


def _edge_later() -> Column:
    """Whether the subscriber's acceptance came to its router after the home had accepted; null if not both known."""
    edge, home = F.col("edge_stamp"), F.col("accepted_stamp")
    return (edge["hlc"] > home["hlc"]) | (
        (edge["hlc"] == home["hlc"]) & ((edge["source"] != home["source"]) | (edge["place"] > home["place"]))
    )


def _answer() -> Column:
    """When the publisher knew: by its own log, else when its home told it."""
    return F.coalesce("told_accepted", "accepted")


def _slack() -> Column:
    same = (F.col("processed.host") == _answer()["host"]) & (F.col("processed.host") != "")
    return F.when(same, F.lit(0)).otherwise(F.lit(SKEW_US))


def _clock_later() -> Column:
    return F.col("processed.time") > _answer()["time"] + _slack()


def _clock_earlier() -> Column:
    return F.col("processed.time") <= _answer()["time"] - _slack()


def _disordered() -> Column:
    """Handed to the subscriber for the first time after a later delivery of the same publisher was."""
    before = (
        Window.partitionBy("publisher", "subscriber")
        .orderBy("handed")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    latest = F.max(F.when(F.col("handed").isNotNull(), F.col("position"))).over(before)
    return F.coalesce(F.col("handed").isNotNull() & (F.col("position") < latest), F.lit(False))


def judge_records(found: DataFrame, judged: DataFrame, logs: DataFrame) -> DataFrame:
    """Per record of a router: settled before its publisher was answered, or never forgotten."""
    settled, answered = F.col("settled_stamp"), F.col("answered_stamp")
    told = F.col("told_accepted").isNotNull() | F.col("told_refused")
    unanswered = answered.isNull() & ~told & ~F.col("home_doubted")
    too_soon = settled.isNotNull() & ~F.col("abandoned") & (F.coalesce(settled < answered, F.lit(False)) | unanswered)
    held = F.col("held_place").isNotNull() & (F.col("held_place") > F.coalesce("forgotten_place", F.lit(-1)))
    ended = F.least("settled_time", "home_settled_time")
    due = ended + FORGET_GRACE_US < F.col("last_time")
    awaited = F.coalesce(F.arrays_overlap("subscribers", "suspended"), F.lit(False))
    joined = found.join(judged, "key").join(logs, ["source", "incarnation"], "left")
    kept = held & F.coalesce("stopped", F.lit(False)) & F.coalesce(due, F.lit(False)) & ~awaited
    return joined.select(
        "key",
        "publisher",
        "source",
        "incarnation",
        "subscribers",
        (too_soon & ~unsure()).alias("settled_early"),
        (kept & ~unsure()).alias("kept"),
        (held & ended.isNotNull() & ~kept).alias("kept_unknown"),
    )
