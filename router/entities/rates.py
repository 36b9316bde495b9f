"""Rates: what counts up, a second, from look to look. Whoever shows a rate has it from here.

What a link counts begins anew with each attach, what a connection does with each one, and what a router does with each
of its lives: of what began in between, all counts. Of what was not there at the look before, nothing is known. Time is
what a router says of its life, not how long it took to ask it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import asdict, frozen

from router.entities.links import PUBLISHER, SUBSCRIBER
from router.entities.queues import LED_QUEUE
from router.entities.table import Entity

Row = dict[str, Any]

DIRECTIONS: Final = "Received", "Sent"
"""In this order, as who sends knows better."""
TOTALS: Final = "deliveriesIngress", "deliveriesEgress", "acceptedDeliveries"


@frozen
class RouterLook:
    """What one router says of itself, as `GET-LOOK` of management has it (docs/management.md)."""

    time: float
    """Seconds since 1970, by its clock."""
    status: Row
    """As docs/status.md has it."""
    totals: Row
    neighbours: list[Row]
    last_event: int = 0

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> "RouterLook":
        [totals] = told["totals"]
        return cls(told["time"], json.loads(told["status"]), totals, told["neighbours"], told["lastEvent"])


Looks = Mapping[str, RouterLook]


@frozen
class LinkRate:
    """Messages a second: `rate` is what came of a publisher, or was transferred to a subscriber."""

    role: str
    container: str
    link: str
    address: str
    router: str
    status: str
    rate: float
    accepted: float | None
    """Of a subscriber."""
    bytes: float | None
    """A second, in the same direction, on the connection that the link is on; None if that is not known."""
    waiting: int
    """Unsettled, and queued."""


@frozen
class NeighbourRate:
    """What one router sends to a neighbour, for whomever, a second."""

    router: str
    neighbour: str
    messages: float | None
    """Of AMQP: each has as many deliveries as were ready."""
    bytes: float | None


@frozen
class QueueRate:
    """Messages a second that came into a queue, and that left it."""

    queue: str
    router: str
    """The leader."""
    came: float
    left: float
    messages: int
    """In the queue now."""
    consumers: int
    oldest_s: float
    """How old its oldest message is."""


@frozen
class RouterRate:
    """Messages a second, of all links that it has, or had."""

    router: str
    received: float
    delivered: float
    accepted: float
    links: int
    records: int
    memory: int
    """Bytes."""


@frozen
class MeshRates:
    """The busiest come first."""

    seconds: float
    routers: list[RouterRate]
    neighbours: list[NeighbourRate]
    queues: list[QueueRate]
    links: list[LinkRate]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@frozen
class _Spell:
    """From one look at a router to the next; what began in between has no former."""

    former: RouterLook | None
    new: RouterLook
    seconds: float

    def before(self, kind: str) -> list[Row]:
        return self.former.status.get(kind, []) if self.former is not None else []


def _spells(before: Looks, after: Looks) -> Iterator[tuple[str, _Spell]]:
    """Of routers that have answered both times."""
    for name, new in after.items():
        old, lived = before.get(name), new.status["uptime_s"]
        if old is not None:
            goes_on = old.status["incarnation"] == new.status["incarnation"]
            yield name, _Spell(old, new, lived - old.status["uptime_s"]) if goes_on else _Spell(None, new, lived)


def rates(before: Looks, after: Looks) -> MeshRates:
    spells = [spell for _, spell in _spells(before, after)]
    links = [link for spell in spells for link in _links(spell)]
    links.sort(key=lambda link: (-link.rate, link.role, link.container, link.link, link.address))
    routers = list(router_rates(before, after))
    routers.sort(key=lambda router: (-router.received - router.delivered, router.router))
    neighbours = list(neighbour_rates(before, after))
    neighbours.sort(key=lambda one: (-(one.messages or 0.0), one.router, one.neighbour))
    queues = list(queue_rates(before, after))
    queues.sort(key=lambda one: (-one.came - one.left, -one.messages, one.queue))
    return MeshRates(round(max((one.seconds for one in spells), default=0.0), 3), routers, neighbours, queues, links)


def router_rates(before: Looks, after: Looks) -> Iterator[RouterRate]:
    for name, spell in _spells(before, after):
        known, totals, status = spell.former.totals if spell.former else {}, spell.new.totals, spell.new.status
        received, delivered, accepted = (rate(known.get(one), totals[one], spell.seconds) for one in TOTALS)
        links = sum(len(status[kind.status]) for kind in (PUBLISHER, SUBSCRIBER))
        records = sum(status["records"].values())
        yield RouterRate(name, received, delivered, accepted, links, records, status["rss_bytes"])


def neighbour_rates(before: Looks, after: Looks) -> Iterable[NeighbourRate]:
    """Each direction once: as its sender counts, or, of one that has not answered, as the other end does."""
    found: dict[tuple[str, str], NeighbourRate] = {}
    for way in DIRECTIONS:
        for name, spell in _spells(before, after):
            former = {row["name"]: row for row in spell.former.neighbours} if spell.former else {}
            for row in spell.new.neighbours:
                known, ends = former.get(row["name"], {}), (name, row["name"])
                sender, taker = ends if way == "Sent" else ends[::-1]
                keys = f"messages{way}", f"bytes{way}"
                messages, carried = (_known(known.get(key), row[key], spell.seconds) for key in keys)
                if messages is not None or carried is not None:
                    found[sender, taker] = NeighbourRate(sender, taker, messages, carried)
    return found.values()


def queue_rates(before: Looks, after: Looks) -> Iterator[QueueRate]:
    """A queue that the former look of its leader lacks has the rates 0: it is not known since when it was counted."""
    for router, spell in _spells(before, after):
        former = {row["name"]: row for row in spell.before(LED_QUEUE.status)}
        for row in spell.new.status.get(LED_QUEUE.status, ()):
            known = former.get(row["name"], row)
            came, left = (rate(known[one], row[one], spell.seconds) for one in ("enqueued", "dequeued"))
            yield QueueRate(row["name"], router, came, left, row["messages"], row["consumers"], row["oldest_s"])


def _links(spell: _Spell) -> Iterator[LinkRate]:
    for kind in (PUBLISHER, SUBSCRIBER):
        former = {_name(link): link for link in spell.before(kind.status)}
        for link in spell.new.status[kind.status]:
            counted = _counted(kind, former.get(_name(link), {}), link, spell.seconds)
            yield LinkRate(
                kind.name,
                *_name(link)[:3],
                spell.new.status["router"],
                link["status"],
                counted["received" if kind is PUBLISHER else "delivered"] or 0.0,
                counted.get("accepted"),
                counted["connection_bytes"],
                link["unsettled"] + link.get("queued", 0),
            )


def _counted(kind: Entity[Any], before: Row, now: Row, seconds: float) -> dict[str, float | None]:
    names = [attribute.name for attribute in kind.attributes if attribute.type.counts]
    return {name: _known(before.get(name), now[name], seconds) for name in names}


def _name(link: Row) -> tuple[str, str, str, str]:
    return link["container"], link["link"], link["address"], link.get("user") or ""


def _known(before: float | None, now: float | None, seconds: float) -> float | None:
    return rate(before, now, seconds) if now is not None else None


def rate(before: float | None, now: float, seconds: float) -> float:
    """Of a total that was `before`; None, or more than now: it has begun in between."""
    more = now - before if before is not None and now >= before else now
    return round(more / seconds, 1) if seconds > 0 else 0.0
