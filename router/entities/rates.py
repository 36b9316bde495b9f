"""Rates of totals: how much a total grows in a second, from one look at a router to the next.

All surfaces that show a rate have it from here. The totals of a link begin anew with each attach, the totals of a
connection with each connection, and the totals of a router with each of its lives. If the total began between two
looks, all of it counts. A link or router that the former look lacks has no rate. The time between two looks is measured
by the router's uptime, so the duration of a request does not matter."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import asdict, frozen

from router.entities.links import PUBLISHER, SUBSCRIBER
from router.entities.queues import LED_QUEUE
from router.entities.table import Entity

Row = dict[str, Any]

DIRECTIONS: Final = "Received", "Sent"
"""A neighbour's attributes for the two directions of a link, in a router's report. If both ends report a direction, the
figure of the sender (`Sent`) replaces the figure of the receiver."""
TOTALS: Final = "deliveriesIngress", "deliveriesEgress", "acceptedDeliveries"


@frozen
class RouterLook:
    """One router's look at itself, as in `GET-LOOK` of management (docs/management.md)."""

    time: float
    """The time of the look, in seconds since 1970, by the router's clock."""
    status: Row
    """The router's report, as docs/status.md describes it."""
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
    """The messages a second of a link. `rate` counts messages received from a publisher, or transferred to a
    subscriber."""

    role: str
    container: str
    link: str
    address: str
    router: str
    status: str
    rate: float
    accepted: float | None
    """The messages a second that a subscriber accepts."""
    bytes: float | None
    """The bytes a second in the same direction on the link's connection; None if unknown."""
    waiting: int
    """The number of messages that are unsettled or queued now."""


@frozen
class NeighbourRate:
    """The traffic that one router sends to a neighbour in a second. This includes traffic that it passes on for other
    routers."""

    router: str
    neighbour: str
    messages: float | None
    """The AMQP messages between the routers, a second. Each may carry many deliveries."""
    bytes: float | None


@frozen
class QueueRate:
    """The rates of a queue: `came` and `left` are messages a second into the queue and out of it."""

    queue: str
    router: str
    """The router that leads the set of the queue."""
    came: float
    left: float
    messages: int
    """The number of messages in the queue now."""
    consumers: int
    oldest_s: float
    """The age of the oldest message, in seconds."""


@frozen
class RouterRate:
    """The messages a second on all present and former links of a router."""

    router: str
    received: float
    delivered: float
    accepted: float
    links: int
    records: int
    memory: int
    """The resident memory of the router process, in bytes."""


@frozen
class MeshRates:
    """The rates of a mesh, the busiest entities first."""

    seconds: float
    routers: list[RouterRate]
    neighbours: list[NeighbourRate]
    queues: list[QueueRate]
    links: list[LinkRate]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@frozen
class _Spell:
    """The time between two looks at a router, with both looks. `former` is None for a router that was started in
    between."""

    former: RouterLook | None
    new: RouterLook
    seconds: float

    def before(self, kind: str) -> list[Row]:
        return self.former.status.get(kind, []) if self.former is not None else []


def _spells(before: Looks, after: Looks) -> Iterator[tuple[str, _Spell]]:
    """The time between the two looks, for each router that has answered both times."""
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
    """One rate for each direction of each link between routers. If the sending router has answered, its count is used,
    otherwise the count of the receiving router."""
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
    """The rates of the queues. If the former look at its leader lacks a queue, its rates are 0, because nobody knows
    since when it was counted."""
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
    """The growth of a total in a second. If `before` is None, or more than `now`, the total began between the two
    looks."""
    more = now - before if before is not None and now >= before else now
    return round(more / seconds, 1) if seconds > 0 else 0.0
