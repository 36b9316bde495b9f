"""What every log says of each delivery of a bucket, side by side; and of its record at each incarnation of a router.

Only facts are gathered here, no rule is applied. A fact is the row that tells it, or `NONE`; a time
that nobody tells is `BIG`.
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
"""Which elements they are about, and from when to when."""


@attrs.frozen
class Deliveries:
    """One element per delivery."""

    groups: Groups
    """The rows by delivery."""
    uses: Uses
    """Which deliveries these are."""
    address: Ints
    """Code."""
    published: Ints
    """By the publisher's log, or what it kept."""
    handed: Flags
    """To some subscriber, by anybody's log."""
    ranked: Ints
    """Where a home gave it its place in the publisher's order."""
    begun_time: Ints
    undated: Flags
    """Nobody can tell by wall clocks when."""
    received_hlc: Ints
    """The first router to receive it."""
    sent_last: Ints
    """The latest attach of its publisher under which a router received it, by its epoch's clock."""
    has_audience: Flags
    balanced: Flags
    """It is for one of many."""
    answered: Ints
    """The first answer to the publisher by a home."""
    accepted: Ints
    """The first acceptance by a home, by hybrid clock."""
    accepted_first: Ints
    """The same by wall clock."""
    refused: Flags
    told_accepted: Ints
    """By the publisher's log."""
    told_time: Ints
    told_refused: Flags
    abandoned: Flags
    omitted: Flags
    """The map of its publisher omits it, by the word of a home that had not received it under that attach."""
    home_settled_time: Ints
    first_home: Ints
    last_home: Ints
    """`homes` that its entries name, the first and the last of them. If no router received it, they are only those that
    were asked about it: none."""


def gather(facts: Facts, uses: Uses) -> Deliveries:
    rows, groups = facts.rows, Groups(uses.of, len(uses.key))
    (one_of_many,) = codes_of([ONE_OF_MANY], rows.strings).tolist()
    received = facts.by_router & facts.tells(Event.RECEIVED)
    published = facts.by_publisher & facts.tells(Event.PUBLISHED)
    kept = facts.by_publisher & facts.tells(Event.KEPT)
    home_says = facts.at_home & facts.tells(Event.ACCEPTED)
    told = facts.by_publisher & facts.tells(Event.OUTCOME)
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
        handed=groups.any(facts.tells(Event.DELIVERED, Event.PROCESSED)),
        ranked=groups.first(received & (rows.n >= 0), facts.epoch_hlc, rows.n, ~facts.at_home, *stamp),
        begun_time=groups.lowest(facts.by_router | published, rows.time),
        undated=groups.any(rows.undated),
        received_hlc=received_hlc,
        sent_last=groups.highest(received, facts.epoch_hlc),
        has_audience=groups.any(facts.tells(Event.AUDIENCE)),
        balanced=groups.any(facts.tells(Event.AUDIENCE) & (rows.detail == one_of_many) & (one_of_many != NONE)),
        answered=groups.first(home_says, *stamp),
        accepted=accepted,
        accepted_first=groups.first(home_says & facts.accepted, *instant),
        refused=groups.any(home_says & ~facts.accepted),
        told_accepted=groups.first(told & facts.accepted, *instant),
        told_time=groups.lowest(told, rows.time),
        told_refused=groups.any(told & ~facts.accepted),
        abandoned=groups.any(facts.by_router & facts.tells(Event.ABANDONED)),
        omitted=groups.any(_omitted(facts, groups)),
        home_settled_time=groups.lowest(facts.at_home & facts.tells(Event.SETTLED), rows.time),
        first_home=np.where(heard & (first_home != BIG), first_home, NONE),
        last_home=np.where(heard, last_home, NONE),
    )


def _omitted(facts: Facts, groups: Groups) -> Flags:
    """Such a home writes nothing itself if it has no record: the routers that asked it tell what it said."""
    rows, number = facts.rows, len(facts.rows.strings) + 1
    resolved, under = facts.by_router & facts.tells(Event.RESOLVED), groups.of * number + rows.epoch
    received = facts.at_home & facts.tells(Event.RECEIVED)
    found: Flags = resolved & (facts.at_home | ~np.isin(under, under[received]))
    return found


def dated(undated: Flags, begun: Ints, ended: Ints) -> tuple[Ints, Ints]:
    """What nobody can date may have lasted all the time."""
    return np.where(undated, 0, begun), np.where(undated & (ended != BIG), BIG - 1, ended)


def within(spans: Spans, begun: Ints, ended: Ints) -> Flags:
    """Which elements, that lasted so long, overlap any of the spans that are about them."""
    found = np.zeros(len(begun), np.bool_)
    for about, listed in spans:
        for since, till in listed:
            found[about] |= (since <= ended[about]) & (begun[about] <= till)
    return found


@attrs.frozen
class Records:
    """One element per record."""

    groups: Groups
    """The rows of the bucket that tell of records, and which record each of them tells of."""
    delivery: Ints
    log: Ints
    held_place: Ints
    held_time: Ints
    forgotten_place: Ints
    settled: Ints
    """The row that first tells it."""
    settled_time: Ints
    awaited: Flags
    """Whether the log ends with a subscriber of it suspended."""


def gather_records(facts: Facts, uses: Uses, case: Case) -> Records:
    rows, at = facts.rows, np.flatnonzero(facts.by_router)
    number = max(len(rows.logs), 1)
    distinct, record = np.unique(uses.of[at] * number + rows.log[at], return_inverse=True)
    groups, tells = Groups(record.astype(np.int64), len(distinct), at), facts.tells
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
    """Which of these settled records were so after the life of their publisher had ended, for their router or for the
    home that told it: the one in which it was sent last, or a later one. Or under an attach of another life,
    or one that no router answered: nobody knows whether that began another."""
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
    """Rows about subscribers that are suspended where the log ends."""
    found = np.zeros(len(facts.rows), np.bool_)
    for number, log in enumerate(facts.rows.logs):
        if names := case.suspended.get(log.name):
            codes = codes_of(sorted(names), facts.rows.strings)
            found |= (facts.rows.log == number) & np.isin(facts.rows.subscriber, codes[codes != NONE])
    return found
