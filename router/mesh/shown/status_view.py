"""Shows the status of a mesh: tables for people, one JSON document for programs.

The JSON document is `{"mesh", "run_dir", "routers": {NAME: {"running", "pid", "amqp", "http", "mqtt", "more",
"log", "status"}}, "needed"}`. `status` is the router's own report, or null. `needed` has, for each router without which
replica sets lose their majority, the names of these sets. This module asks no router: it shows what
router/mesh/status.py gathered.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from router.entities.catalogue import ENTITIES
from router.entities.table import Entity
from router.mesh.quantities import format_duration, format_size
from router.mesh.shown.sets import ShownSet, needed_by, shown_queues, shown_sets, stops
from router.mesh.shown.waits import counted, link_name, waits
from router.mesh.status import RouterView, contacts_of, unseen_by
from router.text.fitting import Fitting
from router.text.printable import printable

# The highest number of links in one table. Programs get all of them.
MOST_ROWS = 25

_STYLES = {"ready": "green", "booting": "yellow", "no answer": "red", "stopped": "dim"}


def as_json(mesh: str, run_dir: Path | None, views: Mapping[str, RouterView]) -> dict[str, Any]:
    routers = {
        name: {
            "running": view.running,
            "pid": view.pid,
            "amqp": view.amqp,
            "http": view.http,
            "mqtt": view.mqtt,
            "more": dict(view.more),
            "log": view.log,
            "status": view.status,
        }
        for name, view in views.items()
    }
    needed = needed_by(shown_sets(views.values()))
    return {
        "mesh": mesh,
        "run_dir": str(run_dir) if run_dir is not None else None,
        "routers": routers,
        "needed": needed,
    }


def state_of(view: RouterView) -> str:
    if not view.running:
        return "stopped"
    return str(view.status["state"]) if view.status is not None else "no answer"


def headline(mesh: str, views: Collection[RouterView]) -> str:
    ready = sum(state_of(view) == "ready" for view in views)
    publishers = sum(len(view.status["publishers"]) for view in views if view.status)
    subscribers = sum(len(view.status["subscribers"]) for view in views if view.status)
    return (
        f"mesh {mesh}: {ready} of {counted(len(views), 'router')} ready, "
        f"{counted(publishers, 'publisher')}, {counted(subscribers, 'subscriber')}"
    )


def render(mesh: str, views: Mapping[str, RouterView]) -> RenderableType:
    """The whole status. A table of clients appears only if there are any."""
    parts: list[RenderableType] = [Text(headline(mesh, views.values()), style="bold"), routers_table(views)]
    if where := shown_at(views.values()):
        parts.append(Text(where))
    for kind in ENTITIES:
        if kind.columns and (links := list(_links(views, kind))):
            parts += _clients(kind, links)
    if sets := shown_sets(views.values()):
        parts.append(sets_table(sets))
        running = [name for name, view in views.items() if view.status is not None]
        parts.append(Text("\n".join(map(printable, stops(sets, running)))))
        parts += _queues(*shown_queues(views.values(), sets))
    told = [*waits(views.values()), *untold(views.values()), *disks(views.values()), *aside(sets)]
    if told:
        parts.append(Text("\n".join(map(printable, told)), style="yellow"))
    return Group(*(piece for part in parts for piece in (part, "")))


def shown_at(views: Iterable[RouterView]) -> str:
    """The addresses at which routers serve HTTP and MQTT, and the addresses of further listeners; empty if there are
    none."""
    found: dict[str, list[str]] = {}
    for view in views:
        for what, place in {"console": view.http, "MQTT": view.mqtt, **view.more}.items():
            if place:
                found.setdefault(what, []).append(f"{view.name} {place}")
    return "\n".join(f"{what}: {', '.join(places)}" for what, places in found.items())


def routers_table(views: Mapping[str, RouterView]) -> Fitting:
    table = _table("Router", "State", "Clients connect to")
    for heading in ("Pid", "Up for", "Memory", "Connections"):
        table.add_column(heading, justify="right")
    for heading in ("Neighbours", "Sees", "Records"):
        table.add_column(heading, overflow="fold")
    for name, view in views.items():
        state = state_of(view)
        styled = Text(state, style=_STYLES.get(state, ""))
        table.add_row(Text(name, style="bold"), styled, view.amqp, *_facts(view))
    return Fitting(table, "Pid", "Memory", "Connections", "Neighbours", "Up for", "Records")


def _table(*headings: str) -> Table:
    return Table(*headings, box=SIMPLE_HEAD, pad_edge=False, show_edge=False)


def _facts(view: RouterView) -> list[Text | str]:
    status = view.status
    pid = str(view.pid or "")
    if status is None:
        return [pid, *[""] * 6]
    return [
        pid,
        format_duration(status["uptime_s"]),
        format_size(status["rss_bytes"]),
        str(status["connections"]),
        Text(", ").join(_neighbour(link) for link in status["links"]),
        _sees(view),
        _records(status["records"]),
    ]


def _neighbour(link: Mapping[str, Any]) -> Text:
    cost = f"({link['cost']})" if link["cost"] != 1 else ""
    mark, style = ("", "green") if link["up"] else (" down", "red")
    return Text(f"{link['neighbour']}{cost}{mark}", style=style)


def _sees(view: RouterView) -> Text:
    """The number of routers in contact with this one, and the next hop to each of them that is no neighbour."""
    assert view.status is not None
    seen, unseen = len(contacts_of(view)), len(unseen_by(view))
    far = [route for route in view.status["routes"] if route["contact"] and route["next_hop"] != route["router"]]
    hops = ", ".join(f"{route['router']} via {route['next_hop']}" for route in far)
    return Text(f"{seen}/{seen + unseen}", style="red" if unseen else "green") + Text(f" {hops}" if hops else "")


def _records(records: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in records.items() if count)


def _links(views: Mapping[str, RouterView], kind: Entity[Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    for name, view in views.items():
        yield from ((name, link) for link in (view.status[kind.status] if view.status else ()))


def _clients(kind: Entity[Any], links: list[tuple[str, dict[str, Any]]]) -> list[RenderableType]:
    table = _table(kind.name.capitalize(), "Address", "Router", "Status")
    for named in table.columns[:2]:
        named.overflow = "fold"
    for counter in kind.columns:
        table.add_column(counter.capitalize(), justify="right")
    for router, link in links[:MOST_ROWS]:
        cells = [link_name(link), link["address"], router, link["status"]]
        cells += [str(link[counter]) for counter in kind.columns]
        # Clients choose these names, so they may hold control codes: neither rich nor the terminal may interpret them.
        table.add_row(*(Text(printable(cell)) for cell in cells))
    rest, fitting = links[MOST_ROWS:], Fitting(table, *map(str.capitalize, kind.spared))
    if not rest:
        return [fitting]
    more = f"and {counted(len(rest), f'more {kind.name}', 's')} (--json lists all)"
    return [fitting, Text(more, style="dim")]


def sets_table(sets: Iterable[ShownSet]) -> Fitting:
    table = _table("Set", "Leader", "Voters", "Learners", "Prefix")
    for heading in ("Queues", "Term", "Committed", "Unstored"):
        table.add_column(heading, justify="right")
    table.add_column("Behind", overflow="fold")
    table.add_column("Needs", overflow="fold")
    for one in sets:
        row = one.best
        leader = Text(one.leader, style="green") if one.leader else Text("none", style="red")
        learners = ", ".join(f"{router} {row['copied'].get(router, 0)}%" for router in row["learners"])
        members = [Text(", ".join(row["voters"])), Text(learners)]
        counts = [str(row[key]) for key in ("queues", "term", "commit")]
        behind = ", ".join(f"{router} {count}" for router, count in row["behind"].items() if count)
        table.add_row(
            Text(one.name, style="bold"),
            leader,
            *members,
            row["prefix"],
            *counts,
            format_size(row["unstored_bytes"]),
            behind,
            Text(", ".join(one.needed), style="yellow"),
        )
    return Fitting(table, "Unstored", "Term", "Committed", "Prefix", "Learners", "Behind")


def _queues(queues: list[tuple[str, Mapping[str, Any]]], more: int) -> list[RenderableType]:
    """The table of queues. `queues`: pairs of a leader and a row, the deepest queue first. `more`: how many other
    queues the mesh has."""
    if not queues:
        return []
    table = _table("Queue", "Set", "Leader")
    table.columns[0].overflow = "fold"
    for heading in ("Messages", "Bytes", "Reserved", "Oldest", "Consumers"):
        table.add_column(heading, justify="right")
    for leader, row in queues[:MOST_ROWS]:
        oldest = format_duration(row["oldest_s"]) if row["messages"] else ""
        size, counts = format_size(row["bytes"]), [str(row[key]) for key in ("messages", "reserved", "consumers")]
        cells = [row["name"], row["set"], leader, counts[0], size, counts[1], oldest, counts[2]]
        table.add_row(*(Text(printable(cell)) for cell in cells))
    more += len(queues[MOST_ROWS:])
    rest = [Text(f"and {counted(more, 'more queue')} (oncemesh queue list has all)", style="dim")] if more else []
    return [Fitting(table, "Reserved", "Set", "Bytes"), *rest]


def aside(sets: Iterable[ShownSet]) -> Iterator[str]:
    """Yield a sentence for each store that its router no longer trusts."""
    for one in sets:
        for router, row in one.rows.items():
            if row["why_aside"]:
                yield f"{router} set its store of replica set {one.name} aside: {row['why_aside']}"


def untold(views: Iterable[RouterView]) -> list[str]:
    """Sentences about clients that have missed messages because their link has ended, and that no router has told so
    yet. All routers in contact report the same clients, so each client is shown once."""
    ended = (link for view in views if view.status is not None for link in view.status["untold"])
    return list(
        dict.fromkeys(
            f"{link_name(one)} on {one['address']} was ended, and its client does not know yet: {one['ending']}"
            for one in ended
        )
    )


def disks(views: Iterable[RouterView]) -> Iterator[str]:
    """Yield a sentence for each file that a router cannot write."""
    for view in views:
        disk = view.status["disk"] if view.status is not None else {}
        missing = f"; entries that are missing: {disk['missing']}" if disk.get("missing") else ""
        if disk.get("log"):
            yield f"{view.name} cannot write its delivery log: {disk['log']}{missing}"
        elif missing:
            yield f"{view.name} writes its delivery log again{missing}"
        if disk.get("queues"):
            yield f"{view.name} cannot write its replica sets: {disk['queues']}"
        if disk.get("store"):
            yield f"{view.name} refuses new durable links: {disk['store']}"
