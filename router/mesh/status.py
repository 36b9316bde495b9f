"""Gathers the reports of a mesh's routers, and finds what the routers lack before the mesh is up.

A report is the JSON object that a router sends to a client of `$status`. The function that fetches it is an argument,
so that this module does not need AMQP. The module never starts or stops a router.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

import attrs
import trio

from router.mesh.config import Topology
from router.mesh.quantities import Address
from router.mesh.rundir import RouterEntry, RunDirectory
from router.mesh.topology import reachable

# A function that asks the router at a host and port for its status, for at most the given seconds.
# The function raises OSError, trio.BrokenResourceError or trio.TooSlowError.
FetchStatus = Callable[[str, int, float], Awaitable[dict[str, Any]]]

PATIENCE_S = 2.0
RESTS_S = 0.05, 0.5
"""The shortest and the longest pause between two looks, in seconds."""


@attrs.frozen
class RouterView:
    """One router as seen from outside. `status` is None if the router is stopped or does not answer."""

    name: str
    pid: int | None
    amqp: str
    log: str
    status: dict[str, Any] | None
    http: str = ""
    """The address for browsers; empty if there is none."""
    mqtt: str = ""
    """The address for MQTT clients; empty if there is none."""
    more: Mapping[str, str] = attrs.Factory(dict)
    """The addresses of further listeners, keyed by the listener's name."""
    is_elsewhere: bool = False
    """True if the router may run on another host: then only the router's own report can tell whether it runs."""

    @property
    def running(self) -> bool:
        """Whether the router runs, or may run on another host."""
        return self.pid is not None or self.is_elsewhere


async def look(directory: RunDirectory, fetch: FetchStatus) -> dict[str, RouterView]:
    """Ask all routers of the mesh at the same time."""
    views: dict[str, RouterView] = {}

    async def ask(name: str, entry: RouterEntry, pid: int | None) -> None:
        status = await status_at(entry.amqp, fetch) if pid is not None else None
        http = _url(entry, scheme)
        views[name] = RouterView(name, pid, entry.amqp, entry.log, status, http, entry.mqtt, entry.more)

    entries = directory.read().routers
    shows = any(entry.http for entry in entries.values())
    scheme = "https" if shows and directory.topology().security.tls else "http"
    async with trio.open_nursery() as nursery:
        for name, entry in entries.items():
            process = directory.process(name, entry)
            nursery.start_soon(ask, name, entry, process.pid if process is not None else None)
    return {name: views[name] for name in entries}


async def rest(began: float, since: float) -> None:
    """Pause between two looks at the mesh. `began`: the time at which the last look began. `since`: the time at which
    the whole wait began. A look that takes long means that routers are busy, so the pause grows with the look. But a
    router that has just started is also slow, so the pause is at most a quarter of the time since `since`."""
    shortest, longest = RESTS_S
    now = trio.current_time()
    await trio.sleep(max(shortest, min(4 * (now - began), (now - since) / 4, longest)))


def _url(entry: RouterEntry, scheme: str) -> str:
    return f"{scheme}://{Address.parse(entry.http).here}/" if entry.http else ""


async def status_at(amqp: str, fetch: FetchStatus) -> dict[str, Any] | None:
    """The report of the router at this host:port; None if it does not answer."""
    address = Address.parse(amqp)
    try:
        return await fetch(address.here.host, address.port, PATIENCE_S)
    except (OSError, trio.BrokenResourceError, trio.TooSlowError):
        return None


def contacts_of(view: RouterView) -> set[str]:
    routes = view.status["routes"] if view.status else []
    return {route["router"] for route in routes if route["contact"]}


def unseen_by(view: RouterView) -> set[str]:
    """The members of the mesh, on any host, that the router is not in contact with; none if it does not answer."""
    members = {name for name, standing in planned({view.name: view}).items() if standing == "member"}
    return members - contacts_of(view) - {view.name}


def planned(views: Mapping[str, RouterView]) -> dict[str, str]:
    """Router -> `member` or `leaving`, for all routers in the plans of these routers."""
    plans = [view.status["plan"]["routers"] for view in views.values() if view.status]
    return {name: standing for plan in plans for name, standing in plan.items()}


def unapplied(topology: Topology, views: Mapping[str, RouterView], running: Collection[str]) -> dict[str, str]:
    """Maps each router that does not follow the applied topology yet to a text that says what is missing."""
    names = [name for name in running if name in topology.routers]
    lacking = unfinished(topology, views, names)
    lacking |= {name: "still runs" for name in running if name not in topology.routers}
    digests = set()
    for name in names:
        plan = (views[name].status or {}).get("plan", {})
        digests.add(plan.get("digest"))
        if plan.get("routers") != dict.fromkeys(sorted(topology.routers), "member"):
            leaving = [other for other, standing in plan.get("routers", {}).items() if standing == "leaving"]
            lacking.setdefault(name, f"waits for {', '.join(leaving)} to leave" if leaving else "has another plan")
    return lacking or (dict.fromkeys(names, "has another plan") if len(digests) > 1 else {})


def unfinished(topology: Topology, views: Mapping[str, RouterView], names: Collection[str]) -> dict[str, str]:
    """Maps each router that is not up to a text that says what is missing: a link to a running neighbour, or contact
    with a router that it can reach through running routers."""
    up = {name for name, view in views.items() if view.running}
    links = [(link.a, link.b) for link in topology.links if {link.a, link.b} <= up]
    lacking = {}
    for name in names:
        peers = reachable(name, links)
        lack = _lack(views[name], peers - {name}, whole=len(peers) == len(topology.routers))
        neighbours = [b if a == name else a for a, b in links if name in (a, b)]
        lack = lack or _links_lack(name, views, names, neighbours)
        if lack:
            lacking[name] = lack
    return lacking


def _lack(view: RouterView, peers: set[str], whole: bool) -> str:
    if view.status is None:
        return "does not answer"
    unseen = sorted(peers - contacts_of(view))
    if unseen:
        return f"is not in contact with {', '.join(unseen)}"
    # If other parts of the mesh may be down (not `whole`), a router may wait for them for up to boot_wait.
    if whole and view.status["state"] != "ready":
        return f"is {view.status['state']}"
    return ""


def _linked(view: RouterView) -> set[str]:
    return {link["neighbour"] for link in view.status["links"] if link["up"]} if view.status else set()


def _links_lack(name: str, views: Mapping[str, RouterView], names: Collection[str], neighbours: Iterable[str]) -> str:
    """A text about the neighbours whose link to this router is not up; empty if all links are up. The router may still
    be in contact with these neighbours through other routers. A link is up if both ends report it. If the neighbour is
    in `names`, only this router's report counts here, because the caller calls this function for the neighbour, too."""
    missing = [
        other
        for other in neighbours
        if other not in _linked(views[name]) or (other not in names and name not in _linked(views[other]))
    ]
    return f"has no link to {', '.join(sorted(missing))}" if missing else ""
