"""The fates of deliveries that were under way when a fault struck, and the numbers of times that routers had to retry,
resolve and fence. Workers count `Happened` in each bucket; everything else is computed from the sum."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np

from failover.audit.judge.deliveries import Deliveries, Records
from failover.audit.judge.pairs import Pairs
from failover.audit.judge.tally import Verdicts
from failover.audit.measure.frame import Frame
from failover.audit.mesh.case import Case
from failover.audit.read.columns import Flags, Ints
from failover.audit.read.facts import BIG, Facts, Groups, taken
from failover.audit.read.inventory import ControlRow, Log
from topic.journal import Event

FATES = ("accepted", "refused", "abandoned", "unanswered", "unknown", "violated")
RESOLUTIONS = {"received": Event.RECEIVED, "settled": Event.RESOLVED, "abandoned": Event.ABANDONED}
DOINGS = ("received", "received_again", "sent", "sent_again", "refused", "rehomed")


@attrs.frozen(slots=True)
class Crossing:
    """The deliveries that were published before a fault struck, and that had no outcome when it struck."""

    fault: str
    at_us: int
    crossed: int
    fates: dict[str, int]
    """The number of these deliveries for each of `FATES`. Whether they came in order does not count here."""


@attrs.frozen(slots=True)
class RouterRow:
    """The counts of one router, over all its incarnations."""

    router: str
    incarnations: int
    unended: int
    """The number of incarnations whose log has no clean end."""
    received: int
    """The number of deliveries from publishers. `received_again` has the ones that some home had received before."""
    received_again: int
    sent: int
    """The number of deliveries to subscribers. `sent_again` has the ones that some router had sent to the same
    subscriber before."""
    sent_again: int
    refused: int
    """How many outcomes of the router's subscribers were no acceptances."""
    rehomed: int
    placeholders: dict[str, int]
    """The number of placeholders for each fate: one of `RESOLUTIONS`, "forgotten", "held" or "unknown"."""
    fenced: int
    stolen: int
    """The number of links that attached at another router while they were attached here."""


@attrs.define(slots=True)
class Happened:
    routers: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    """Maps each router, and each name in `DOINGS` such as "received", to the number of times that the router did
    this."""
    placeholders: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    crossed: Counter[tuple[int, str]] = attrs.field(factory=Counter)
    """The number of deliveries for each fault (given by when it struck) and each fate."""

    def add(self, other: "Happened") -> None:
        for name in ("routers", "placeholders", "crossed"):
            getattr(self, name).update(getattr(other, name))


def crossings(happened: Happened, instants: Sequence[tuple[str, int]]) -> tuple[Crossing, ...]:
    found = []
    for number, (text, at_us) in enumerate(instants):
        fates = {name: happened.crossed[number, name] for name in FATES if happened.crossed[number, name]}
        found.append(Crossing(text, at_us, sum(fates.values()), fates))
    return tuple(found)


def router_rows(happened: Happened, control: Iterable[ControlRow], logs: Iterable[Log]) -> tuple[RouterRow, ...]:
    turns = Counter((row.source, row.event) for row in control)
    own: dict[str, list[Log]] = {}
    for log in logs:
        if log.role == "router":
            own.setdefault(log.source, []).append(log)
    return tuple(
        RouterRow(
            router=router,
            incarnations=len(lives),
            unended=sum(not log.stopped for log in lives),
            placeholders={name: number for (of, name), number in sorted(happened.placeholders.items()) if of == router},
            fenced=turns[router, Event.FENCED],
            stolen=turns[router, Event.STOLEN],
            **{what: happened.routers[router, what] for what in DOINGS},
        )
        for router, lives in sorted(own.items())
    )


def count_happenings(
    facts: Facts, found: Deliveries, records: Records, fate: Ints, case: Case, frame: Frame
) -> Happened:
    happened = Happened()
    for what, rows in _doings(facts, found).items():
        counted = np.bincount(facts.rows.log[rows], minlength=len(facts.rows.logs)).tolist()
        for log, number in zip(facts.rows.logs, counted, strict=True):
            if log.role == "router":
                happened.routers[log.source, what] += number
    happened.placeholders.update(_placeholders(facts, records, case))
    happened.crossed.update(_crossed(_ended(facts, found), found, fate, frame))
    return happened


def _doings(facts: Facts, found: Deliveries) -> dict[str, Flags]:
    rows = facts.rows
    received, sent = facts.at_home & facts.flags_of(Event.RECEIVED), facts.by_router & facts.flags_of(Event.DELIVERED)
    return {
        "received": received,
        "received_again": _again(received, rows.hlc, found.groups),
        "sent": sent,
        "sent_again": _again(sent, rows.hlc, _by_subscriber(facts, found)),
        "refused": facts.by_router & facts.flags_of(Event.OUTCOME) & ~facts.accepted,
        "rehomed": facts.by_router & facts.flags_of(Event.REHOMED),
    }


def _by_subscriber(facts: Facts, found: Deliveries) -> Groups:
    of = found.uses.of * (len(facts.rows.strings) + 1) + facts.rows.subscriber
    distinct, group = np.unique(of, return_inverse=True)
    return Groups(group.astype(np.int64), len(distinct))


def _again(rows: Flags, hlc: Ints, groups: Groups) -> Flags:
    """Flags all rows of each group except the first one."""
    first = groups.first(rows, hlc)
    again = rows.copy()
    again[first[first >= 0]] = False
    return again


def _placeholders(facts: Facts, records: Records, case: Case) -> Iterator[tuple[str, str]]:
    """Yields the router and the fate of each record that began as a placeholder."""

    def last(event: Event) -> Ints:
        return records.groups.highest(facts.flags_of(event), facts.rows.place)

    begun = last(Event.PLACEHOLDER)
    if not (begun >= 0).any():
        return
    ends = {name: last(event) > begun for name, event in (RESOLUTIONS | {"forgotten": Event.FORGOTTEN}).items()}
    for record in np.flatnonzero(begun >= 0).tolist():
        log = facts.rows.logs[records.log[record]]
        known = case.logs.get(log.name)
        held = "held" if known is not None and known.stopped else "unknown"
        yield log.source, next((name for name, flags in ends.items() if flags[record]), held)


def _ended(facts: Facts, found: Deliveries) -> Ints:
    """When the publisher of each delivery read an outcome or gave the delivery up, in µs of wall clock; `BIG` if no log
    shows it."""
    given_up = found.groups.lowest(facts.by_router & facts.flags_of(Event.ABANDONED), facts.rows.time)
    ended = found.told_time
    for other in (taken(facts.rows.time, found.answered, BIG), found.home_settled_time, given_up):
        ended = np.where(ended != BIG, ended, other)
    return ended


def fates(found: Deliveries, pairs: Pairs, records: Records, verdicts: Verdicts, unaddressed: Flags) -> Ints:
    """The fate of each delivery, as an index into `FATES`. If several fates apply, the worst one counts, which is the
    last one in this list."""
    of_pairs, of_routers = verdicts.subscribers, verdicts.routers
    told: list[tuple[str, Flags | Ints]] = [
        ("abandoned", found.abandoned),
        ("refused", found.refused | found.told_refused),
        ("accepted", verdicts.fates.is_accepted),
        ("unknown", unaddressed),
        ("unknown", pairs.delivery[of_pairs.unknown | of_pairs.unplaced]),
        *(("violated", flags) for flags in verdicts.publishers.values()),
        *(("violated", pairs.delivery[flags]) for flags in of_pairs.violations.values()),
        *(("violated", records.delivery[flags]) for flags in of_routers.violations.values()),
    ]
    fate = np.full(len(found.uses.key), FATES.index("unanswered"), np.int64)
    for name, deliveries in told:
        fate[deliveries] = FATES.index(name)
    return fate


def _crossed(ended: Ints, found: Deliveries, fate: Ints, frame: Frame) -> Counter[tuple[int, str]]:
    counted: Counter[tuple[int, str]] = Counter()
    for number, (_, instant) in enumerate(frame.instants):
        met = (found.begun_time <= instant) & (instant < ended)
        for name, count in zip(FATES, np.bincount(fate[met], minlength=len(FATES)).tolist(), strict=True):
            if count:
                counted[number, name] += count
    return counted
