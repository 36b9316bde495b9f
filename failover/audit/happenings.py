"""What happened besides the verdict, as data for the report: what became of deliveries that a fault met on their way,
and how often routers had to retry, resolve and fence.

`Happened` is counted by bucket (`crossing`); the rest is made of the sum by the driver.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from failover.audit.faults import Chaos
from failover.audit.inventory import Log
from topic.journal import Event

FATES = ("accepted", "refused", "abandoned", "unanswered", "unknown", "violated")
RESOLUTIONS = {"received": Event.RECEIVED, "settled": Event.RESOLVED, "abandoned": Event.ABANDONED}
DOINGS = ("received", "received_again", "sent", "sent_again", "refused", "rehomed")
MOST_FAULTS = 100


@attrs.frozen(slots=True)
class Crossing:
    """Deliveries that were published before a fault struck, and had no outcome yet."""

    fault: str
    at_us: int
    crossed: int
    fates: dict[str, int]
    """By `FATES`, as far as they are known without the order of deliveries."""


@attrs.frozen(slots=True)
class RouterRow:
    """What one router's logs tell, of all its incarnations."""

    router: str
    incarnations: int
    unended: int
    """Incarnations whose log has no clean end."""
    received: int
    """From publishers; `received_again` are those that some home had received before."""
    received_again: int
    sent: int
    """To subscribers; `sent_again` are those that some router had sent to the same one before."""
    sent_again: int
    refused: int
    """Outcomes of its subscribers that are no acceptance."""
    rehomed: int
    placeholders: dict[str, int]
    """By what became of them: one of `RESOLUTIONS`, "forgotten", "held", "unknown"."""
    fenced: int
    stolen: int
    """Links that attached elsewhere while they were attached here."""


@attrs.define(slots=True)
class Happened:
    routers: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    """By router and what it did."""
    placeholders: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    crossed: Counter[tuple[int, str]] = attrs.field(factory=Counter)
    """By instant and fate."""

    def add(self, other: "Happened") -> None:
        for name in ("routers", "placeholders", "crossed"):
            getattr(self, name).update(getattr(other, name))


def fault_instants(chaos: Chaos | None, logs: Iterable[Log]) -> list[tuple[str, int]]:
    """By chaos.json; without one, where routers' logs break off."""
    if chaos is not None:
        return [(fault.text, fault.at_us) for fault in chaos.faults[:MOST_FAULTS]]
    ends = (log for log in logs if log.role == "router" and not log.stopped)
    return [(f"the log of {log.source} ends", log.last_time) for log in sorted(ends, key=_end)][:MOST_FAULTS]


def _end(log: Log) -> tuple[int, str]:
    return log.last_time, log.name


def crossings(happened: Happened, instants: Sequence[tuple[str, int]]) -> tuple[Crossing, ...]:
    found = []
    for number, (text, at_us) in enumerate(instants):
        fates = {name: happened.crossed[number, name] for name in FATES if happened.crossed[number, name]}
        found.append(Crossing(text, at_us, sum(fates.values()), fates))
    return tuple(found)


def router_rows(happened: Happened, logs: Iterable[Log], turns: Counter[tuple[str, int]]) -> tuple[RouterRow, ...]:
    own: dict[str, list[Log]] = {}
    for log in logs:
        if log.role == "router":
            own.setdefault(log.source, []).append(log)
    return tuple(_router_row(router, lives, happened, turns) for router, lives in sorted(own.items()))


def _router_row(router: str, lives: Sequence[Log], happened: Happened, turns: Counter[tuple[str, int]]) -> RouterRow:
    done = {what: happened.routers[router, what] for what in DOINGS}
    return RouterRow(
        router=router,
        incarnations=len(lives),
        unended=sum(not log.stopped for log in lives),
        placeholders={name: number for (of, name), number in sorted(happened.placeholders.items()) if of == router},
        fenced=turns[router, Event.FENCED],
        stolen=turns[router, Event.STOLEN],
        **done,
    )
