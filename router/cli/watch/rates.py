"""Rates from two looks at the routers of a mesh: what each link and each router did in between, a second.

What a link counts begins anew with each attach, and what a router counts with each of its lives: of what began in
between, all counts. Links that have gone are left out.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import asdict, frozen

Report = Mapping[str, Any]
"""A router's, as docs/status.md has it."""

COUNTED: Final = {"publishers": ("received",), "subscribers": ("delivered", "accepted")}


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
    waiting: int
    """Unsettled, and queued."""


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
    return MeshRates(round(max((_seconds(*pair) for pair in seen), default=0.0), 3), routers, links)


def _seconds(old: Report, new: Report) -> float:
    lived: float = new["uptime_s"]
    return lived - old["uptime_s"] if old["incarnation"] == new["incarnation"] else lived


def _links(old: Report, new: Report) -> Iterable[LinkRate]:
    seconds = _seconds(old, new)
    for kind, counters in COUNTED.items():
        former = {_name(link): link for link in old[kind]} if old["incarnation"] == new["incarnation"] else {}
        for link in new[kind]:
            known = former.get(_name(link), {})
            counts = [_rate(known.get(counter, 0), link[counter], seconds) for counter in counters]
            yield LinkRate(
                kind.removesuffix("s"), *_name(link)[:3], new["router"], link["status"], counts[0],
                counts[1] if len(counts) > 1 else None, link["unsettled"] + link.get("queued", 0),
            )  # fmt: skip


def _name(link: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return link["container"], link["link"], link["address"], link.get("user") or ""


def _rate(before: int, now: int, seconds: float) -> float:
    more = now - before if now >= before else now
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
