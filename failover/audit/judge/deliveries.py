"""Gathers from all logs the facts about each delivery of a bucket, and about its record at each incarnation of a
router.

This module applies no rule. Most facts are given as the index of the row that shows the fact, or `NONE`. A time that no
row shows is `BIG`.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from failover.audit.judge.uses import Uses
from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import Span
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import BIG, Facts, Groups, codes_of, taken
from topic.journal import ONE_OF_MANY, Event

Spans = list[tuple[Flags | Ints, Sequence[Span]]]
"""Lists of spans of time. Each list comes with the deliveries or records (flags or indices) to which it applies."""


@attrs.frozen
class Deliveries:
    """The facts about deliveries. Each column has one element for each delivery."""

    groups: Groups
    """The rows of the bucket, grouped by delivery."""
    uses: Uses
    """The key of each delivery, and its number among the deliveries with this key."""
    address: Ints
    """The delivery's address, as an index into the strings of the rows."""
    published: Ints
    """The row that shows the publication: in the publisher's log, or in its state file."""
    handed: Flags
    """Whether any log shows that a subscriber got the delivery."""
    ranked: Ints
    """The row in which a home gave the delivery its place in the publisher's order."""
    begun_time: Ints
    undated: Flags
    """Whether wall clocks cannot tell when the delivery happened, because a log's clock is unusable."""
    received_hlc: Ints
    """The hybrid clock at which the first router received the delivery."""
    sent_last: Ints
    """The publisher's latest attach in which a router received the delivery, named by the hybrid clock in the epoch of
    this attach."""
    has_audience: Flags
    balanced: Flags
    """Whether the delivery's address is balanced, or belongs to a queue."""
    answered: Ints
    """The row in which a home first answered the publisher."""
    accepted: Ints
    """The row in which a home first accepted the delivery, in the order of hybrid clocks."""
    accepted_first: Ints
    """The row in which a home first accepted the delivery, in the order of wall clocks."""
    refused: Flags
    told_accepted: Ints
    """The row of the publisher's own log that shows that the publisher read *accepted*."""
    told_time: Ints
    told_refused: Flags
    abandoned: Flags
    omitted: Flags
    """Whether, by the entries of routers, the publisher's map lacked the delivery in some attach. If the home received
    the delivery in this attach, only the home's own entries count."""
    home_settled_time: Ints
    first_home: Ints
    last_home: Ints
    """`first_home` and `last_home` tell the homes of the delivery. They are the lowest and the highest index, in
    `homes`, of a home that an entry about the delivery names. `NONE` if no router received the delivery: the entries
    then name only homes that routers have asked about the delivery."""


def gather(facts: Facts, uses: Uses) -> Deliveries:
    rows, groups = facts.rows, Groups(uses.of, len(uses.key))
    (one_of_many,) = codes_of([ONE_OF_MANY], rows.strings).tolist()
    received = facts.by_router & facts.flags_of(Event.RECEIVED)
    published = facts.by_publisher & facts.flags_of(Event.PUBLISHED)
    kept = facts.by_publisher & facts.flags_of(Event.KEPT)
    home_says = facts.at_home & facts.flags_of(Event.ACCEPTED)
    told = facts.by_publisher & facts.flags_of(Event.OUTCOME)
    stamp, instant = (rows.hlc, facts.source, rows.place), (rows.time, facts.host)
    received_hlc = groups.lowest(received, rows.hlc)
    heard, named = received_hlc != BIG, facts.home != NONE
    accepted = groups.first(home_says & facts.accepted, *stamp)
    first_home, last_home = groups.lowest(named, facts.home), groups.highest(named, facts.home)
    return Deliveries(
        groups,
        uses,
        address=taken(rows.address, groups.first(rows.has_address)),
        published=groups.first(published | kept, facts.incarnation, rows.place),
        handed=groups.any(facts.flags_of(Event.DELIVERED, Event.PROCESSED)),
        ranked=groups.first(received & (rows.n >= 0), facts.epoch_hlc, rows.n, ~facts.at_home, *stamp),
        begun_time=groups.lowest(facts.by_router | published, rows.time),
        undated=groups.any(rows.undated),
        received_hlc=received_hlc,
        sent_last=groups.highest(received, facts.epoch_hlc),
        has_audience=groups.any(facts.flags_of(Event.AUDIENCE)),
        balanced=groups.any(facts.flags_of(Event.AUDIENCE) & (rows.detail == one_of_many) & (one_of_many != NONE)),
        answered=groups.first(home_says, *stamp),
        accepted=accepted,
        accepted_first=groups.first(home_says & facts.accepted, *instant),
        refused=groups.any(home_says & ~facts.accepted),
        told_accepted=groups.first(told & facts.accepted, *instant),
        told_time=groups.lowest(told, rows.time),
        told_refused=groups.any(told & ~facts.accepted),
        abandoned=groups.any(facts.by_router & facts.flags_of(Event.ABANDONED)),
        omitted=groups.any(_omitted(facts, groups)),
        home_settled_time=groups.lowest(facts.at_home & facts.flags_of(Event.SETTLED), rows.time),
        first_home=np.where(heard & (first_home != BIG), first_home, NONE),
        last_home=np.where(heard, last_home, NONE),
    )


def _omitted(facts: Facts, groups: Groups) -> Flags:
    """Flags the rows which show that a publisher's map lacks a delivery. A home without a record of the delivery does
    not log that the map lacks it. But a router that asks this home logs the home's answer."""
    rows, number = facts.rows, len(facts.rows.strings) + 1
    resolved, under = facts.by_router & facts.flags_of(Event.RESOLVED), groups.of * number + rows.epoch
    received = facts.at_home & facts.flags_of(Event.RECEIVED)
    found: Flags = resolved & (facts.at_home | ~np.isin(under, under[received]))
    return found


def dated(undated: Flags, begun: Ints, ended: Ints) -> tuple[Ints, Ints]:
    """The beginning and the end of each delivery. If wall clocks cannot date a delivery, it gets the longest possible
    span."""
    return np.where(undated, 0, begun), np.where(undated & (ended != BIG), BIG - 1, ended)


def within(spans: Spans, begun: Ints, ended: Ints) -> Flags:
    """Flags the elements whose time, from `begun` to `ended`, overlaps a span that applies to them."""
    found = np.zeros(len(begun), np.bool_)
    for about, listed in spans:
        for since, till in listed:
            found[about] |= (since <= ended[about]) & (begun[about] <= till)
    return found


@attrs.frozen
class Records:
    """The facts about records. There is one element for each delivery and each incarnation of a router that has a
    record of it."""

    groups: Groups
    """The rows about records, grouped by record."""
    delivery: Ints
    log: Ints
    held_place: Ints
    held_time: Ints
    forgotten_place: Ints
    settled: Ints
    """The first row that shows the settlement of the record."""
    settled_time: Ints
    awaited: Flags
    """Whether a subscriber for which the record waits is suspended when the log ends."""


def gather_records(facts: Facts, uses: Uses, case: Case) -> Records:
    rows, at = facts.rows, np.flatnonzero(facts.by_router)
    number = max(len(rows.logs), 1)
    distinct, record = np.unique(uses.of[at] * number + rows.log[at], return_inverse=True)
    groups, tells = Groups(record.astype(np.int64), len(distinct), at), facts.flags_of
    return Records(
        groups,
        delivery=distinct // number,
        log=distinct % number,
        held_place=groups.highest(tells(Event.RECEIVED, Event.PLACEHOLDER), rows.place),
        held_time=groups.highest(tells(Event.RECEIVED, Event.PLACEHOLDER), rows.time),
        forgotten_place=groups.highest(tells(Event.FORGOTTEN), rows.place),
        settled=groups.first(tells(Event.SETTLED), rows.hlc, rows.place),
        settled_time=groups.lowest(tells(Event.SETTLED, Event.ABANDONED, Event.RESOLVED), rows.time),
        awaited=groups.any(_suspended(facts, case)),
    )


def outlived(facts: Facts, found: Records, of: Deliveries, case: Case, records: Ints) -> Flags:
    """Flags the records (of `records`) that a router settled after the end of a life of the publisher: the life in
    which the publisher last sent the delivery.

    A record is flagged in three cases: its router, or the home that sent the settlement, knew that this life or a later
    one had ended; its router settled it in an attach of another life; its router settled it in an attach that no router
    answered, because such an attach may have begun another life.
    """
    settled, delivery = found.settled[records], found.delivery[records]
    sent, publisher = of.sent_last[delivery], of.uses.publisher()[delivery]
    router = np.array([log.name for log in facts.rows.logs])[found.log[records]]
    home = np.array([*facts.homes, ""])[facts.home[settled]]
    over = np.zeros(len(records), np.bool_)
    for name in np.unique(publisher):
        client = case.clients.publishers.get(name.decode())
        if client is None:
            continue
        under, lives = facts.epoch_hlc[settled], client.generations
        attached = np.isin(under, [NONE, *(life for life, _, _ in client.lives)])
        for generation in {*lives.values()}:
            ours, others = ([life for life in lives if (lives[life] == generation) is same] for same in (True, False))
            attached &= ~(np.isin(sent, ours) & np.isin(under, others))
        over |= (publisher == name) & ~attached
        for life, since, where in client.closings:
            knew = (where == "") | (router == where) | (home == where)
            ended = (sent != NONE) & (sent <= life) & (since < facts.rows.hlc[settled])
            over |= (publisher == name) & knew & ended
    return over


def _suspended(facts: Facts, case: Case) -> Flags:
    """Flags the rows about subscribers whose link is suspended when the log ends."""
    found = np.zeros(len(facts.rows), np.bool_)
    for number, log in enumerate(facts.rows.logs):
        if names := case.suspended.get(log.name):
            codes = codes_of(sorted(names), facts.rows.strings)
            found |= (facts.rows.log == number) & np.isin(facts.rows.subscriber, codes[codes != NONE])
    return found
