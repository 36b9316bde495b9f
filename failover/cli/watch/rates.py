"""Rates from two looks at the routers of a mesh: what each link and each router did in between, a second.

What a link counts begins anew with each attach, what a connection does with each one, and what a router does with each
of its lives: of what began in between, all counts. Links that have gone are left out.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import asdict, frozen

Report = Mapping[str, Any]
"""A router's, as docs/status.md has it, and its `neighbours`, as docs/management.md has these."""

COUNTED: Final = {"publishers": ("received",), "subscribers": ("delivered", "accepted")}
DIRECTIONS: Final = "Received", "Sent"
"""In this order, as who sends knows better."""
OF_NEIGHBOUR: Final = ("name", *(f"{what}{way}" for what in ("messages", "bytes") for way in DIRECTIONS))


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
    messages: float
    """Of AMQP: each has as many deliveries as were ready."""
    bytes: float | None


@frozen
class RouterRate:
    """Messages a second, of all its links."""

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
    links: list[LinkRate]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def rates(before: Mapping[str, Report], after: Mapping[str, Report]) -> MeshRates:
    """Of routers that have answered both times."""
    seen = [(before[router], report) for router, report in after.items() if router in before]
    links = [link for old, new in seen for link in _links(old, new)]
    links.sort(key=lambda link: (-link.rate, link.role, link.container, link.link, link.address))
    routers = [_router(new, [link for link in links if link.router == new["router"]]) for _, new in seen]
    routers.sort(key=lambda router: (-router.received - router.delivered, router.router))
    neighbours = sorted(_neighbours(seen), key=lambda one: (-one.messages, one.router, one.neighbour))
    return MeshRates(round(max((_seconds(*pair) for pair in seen), default=0.0), 3), routers, neighbours, links)


def _seconds(old: Report, new: Report) -> float:
    lived: float = new["uptime_s"]
    return lived - old["uptime_s"] if old["incarnation"] == new["incarnation"] else lived


def _former(old: Report, new: Report, kind: str) -> Iterable[Mapping[str, Any]]:
    return old[kind] if old["incarnation"] == new["incarnation"] else ()


def _links(old: Report, new: Report) -> Iterable[LinkRate]:
    seconds = _seconds(old, new)
    for kind, counters in COUNTED.items():
        former = {_name(link): link for link in _former(old, new, kind)}
        for link in new[kind]:
            known = former.get(_name(link), {})
            counts = [_rate(known.get(counter), link[counter], seconds) for counter in counters]
            carried = _known_rate(known.get("connection_bytes"), link["connection_bytes"], seconds)
            yield LinkRate(
                kind.removesuffix("s"),
                *_name(link)[:3],
                new["router"],
                link["status"],
                counts[0],
                counts[1] if len(counts) > 1 else None,
                carried,
                link["unsettled"] + link.get("queued", 0),
            )


def _name(link: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return link["container"], link["link"], link["address"], link.get("user") or ""


def _neighbours(seen: Iterable[tuple[Report, Report]]) -> Iterable[NeighbourRate]:
    """Each direction once: as its sender counts, or, of one that has not answered, as the other end does."""
    found: dict[tuple[str, str], NeighbourRate] = {}
    for way in DIRECTIONS:
        for old, new in seen:
            former = {row["name"]: row for row in _former(old, new, "neighbours")}
            for row in new["neighbours"]:
                ends, known = (new["router"], row["name"]), former.get(row["name"], {})
                named = ends if way == "Sent" else ends[::-1]
                keys = f"messages{way}", f"bytes{way}"
                messages, carried = (_known_rate(known.get(key), row[key], _seconds(old, new)) for key in keys)
                if messages is not None:
                    found[named] = NeighbourRate(*named, messages, carried)
    return found.values()


def _known_rate(before: int | None, now: int | None, seconds: float) -> float | None:
    return _rate(before, now, seconds) if now is not None else None


def _rate(before: int | None, now: int, seconds: float) -> float:
    more = now - before if before is not None and now >= before else now
    return round(more / seconds, 1) if seconds else 0.0


def _sum(rates: Iterable[float]) -> float:
    return round(sum(rates, 0.0), 1)


def _router(report: Report, links: list[LinkRate]) -> RouterRate:
    publishers = [link.rate for link in links if link.role == "publisher"]
    subscribers = [link for link in links if link.role == "subscriber"]
    return RouterRate(
        report["router"],
        _sum(publishers),
        _sum(link.rate for link in subscribers),
        _sum(link.accepted or 0.0 for link in subscribers),
        len(links),
        sum(report["records"].values()),
        report["rss_bytes"],
    )
