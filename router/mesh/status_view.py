"""How the status of a mesh reads: tables for people, one JSON document for programs.

The JSON document is `{"mesh", "run_dir", "routers": {NAME: {"running", "pid", "amqp", "http", "mqtt", "log",
"status"}}}`, `status` being what the router says of itself, or null. Never asks anybody anything: it shows what
router/mesh/status.py gathered.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from failover.fitting import Fitting
from failover.printable import printable
from router.mesh.quantities import format_duration, format_size
from router.mesh.status import RouterView, contacts_of, unseen_by

# Links shown in one table; programs get all of them.
MOST_ROWS = 25

LASTING_S = 1.0
"""In a mesh under load somebody is always awaited, for milliseconds. People are told of waits that last longer."""
UNHEARD_OF = "a router that has heard of its client's last attach"
"""All that are in contact have answered, and none of them has (protocol 7.9)."""

_STYLES = {"ready": "green", "booting": "yellow", "no answer": "red", "stopped": "dim"}


def as_json(mesh: str, run_dir: Path | None, views: Mapping[str, RouterView]) -> dict[str, Any]:
    routers = {
        name: {
            "running": view.running,
            "pid": view.pid,
            "amqp": view.amqp,
            "http": view.http,
            "mqtt": view.mqtt,
            "log": view.log,
            "status": view.status,
        }
        for name, view in views.items()
    }
    return {"mesh": mesh, "run_dir": str(run_dir) if run_dir is not None else None, "routers": routers}


def state_of(view: RouterView) -> str:
    if not view.running:
        return "stopped"
    return str(view.status["state"]) if view.status is not None else "no answer"


def headline(mesh: str, views: Collection[RouterView]) -> str:
    ready = sum(state_of(view) == "ready" for view in views)
    publishers = sum(len(view.status["publishers"]) for view in views if view.status)
    subscribers = sum(len(view.status["subscribers"]) for view in views if view.status)
    return (
        f"mesh {mesh}: {ready} of {_count(len(views), 'router')} ready, "
        f"{_count(publishers, 'publisher')}, {_count(subscribers, 'subscriber')}"
    )


def render(mesh: str, views: Mapping[str, RouterView]) -> RenderableType:
    """Everything, the tables of clients only if there are any."""
    parts: list[RenderableType] = [Text(headline(mesh, views.values()), style="bold"), routers_table(views)]
    if where := shown_at(views.values()):
        parts.append(Text(where))
    publishers = list(_links(views, "publishers"))
    subscribers = list(_links(views, "subscribers"))
    if publishers:
        parts += _clients("Publisher", publishers, ("received", "unsettled"), ())
    if subscribers:
        counters = "delivered", "accepted", "unsettled", "queued", "credit"
        parts += _clients("Subscriber", subscribers, counters, ("Credit", "Accepted", "Queued"))
    told = [*waits(views.values()), *untold(views.values()), *disks(views.values())]
    if told:
        parts.append(Text("\n".join(map(printable, told)), style="yellow"))
    return Group(*(piece for part in parts for piece in (part, "")))


def shown_at(views: Iterable[RouterView]) -> str:
    """Where routers show themselves to browsers, and where they speak MQTT; empty if none does."""
    views = list(views)
    http = ", ".join(f"{view.name} at {view.http}" for view in views if view.http)
    mqtt = ", ".join(f"{view.name} at {view.mqtt}" for view in views if view.mqtt)
    return "\n".join([*([f"to be looked at: {http}"] if http else []), *([f"MQTT: {mqtt}"] if mqtt else [])])


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
    """How many other routers of the mesh it is in contact with, and the next hops to those that are not its
    neighbours."""
    assert view.status is not None
    seen, unseen = len(contacts_of(view)), len(unseen_by(view))
    far = [route for route in view.status["routes"] if route["contact"] and route["next_hop"] != route["router"]]
    hops = ", ".join(f"{route['router']} via {route['next_hop']}" for route in far)
    return Text(f"{seen}/{seen + unseen}", style="red" if unseen else "green") + Text(f" {hops}" if hops else "")


def _records(records: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in records.items() if count)


def _links(views: Mapping[str, RouterView], kind: str) -> Iterable[tuple[str, dict[str, Any]]]:
    for name, view in views.items():
        yield from ((name, link) for link in (view.status[kind] if view.status else ()))


def _clients(
    title: str, links: list[tuple[str, dict[str, Any]]], counters: tuple[str, ...], least: tuple[str, ...]
) -> list[RenderableType]:
    """`least`: as `Fitting` has it."""
    table = _table(title, "Address", "Router", "Status")
    for named in table.columns[:2]:
        named.overflow = "fold"
    for counter in counters:
        table.add_column(counter.capitalize(), justify="right")
    for router, link in links[:MOST_ROWS]:
        cells = [_link(link), link["address"], router, link["status"]]
        cells += [str(link[counter]) for counter in counters]
        # Clients choose these names: they must neither be read as markup nor obeyed by the terminal.
        table.add_row(*(Text(printable(cell)) for cell in cells))
    rest = links[MOST_ROWS:]
    if not rest:
        return [Fitting(table, *least)]
    more = f"and {_count(len(rest), f'more {title.lower()}', 's')} (--json lists all)"
    return [Fitting(table, *least), Text(more, style="dim")]


def awaits(views: Iterable[RouterView]) -> bool:
    """Whether any router waits for anybody, be it for a moment."""
    return any(view.status["waits"] or view.status["attaches"]["waiting"] for view in views if view.status is not None)


def waits(views: Iterable[RouterView]) -> Iterable[str]:
    """Who has been waited for longer than a moment, by whom and since when; and who no more."""
    for view in views:
        status = view.status
        if status is None:
            continue
        if status["waiting_for"]:
            yield f"{view.name} withholds acceptances until it has heard from {', '.join(status['waiting_for'])}"
        attaches = status["attaches"]
        if attaches["waiting"] and attaches["since_s"] >= LASTING_S:
            waiting = _count(attaches["waiting"], "attach", "es")
            yield f"{view.name} has {waiting} waiting for {', '.join(attaches['for']) or UNHEARD_OF}"
        for wait in status["waits"]:
            if wait["since_s"] >= LASTING_S:
                yield f"{view.name} waits for {_wait(wait)}"
        for link in status["publishers"]:
            if link["held_for"] and link["held_s"] >= LASTING_S:
                first, *others = link["held_for"]
                held = f"{_link(link)} on {link['address']}, at {format_size(link['bytes'])}, for {first}"
                yield f"{view.name} holds {held}" + (f" and {len(others)} more" if others else "")
        for link in status["lapsed"]:
            away = format_duration(link["since_s"])
            yield f"{view.name} waits no more for {_link(link)} on {link['address']}, out of its reach for {away}"


def _wait(wait: Mapping[str, Any]) -> str:
    records, publishers = _count(wait["records"], "record"), wait["publishers"]
    held = publishers[0] if len(publishers) == 1 else _count(len(publishers), "publisher")
    return f"{wait['for']}: {records} of {held}, for {format_duration(wait['since_s'])} or more"


def untold(views: Iterable[RouterView]) -> list[str]:
    """Who was missed in something and does not know. All routers in contact say the same of it: once is enough."""
    ended = (link for view in views if view.status is not None for link in view.status["untold"])
    return list(dict.fromkeys(f"{_link(one)} on {one['address']} has ended untold: {one['ending']}" for one in ended))


def disks(views: Iterable[RouterView]) -> Iterator[str]:
    """What routers cannot write."""
    for view in views:
        disk = view.status["disk"] if view.status is not None else {}
        missing = f"entries that it lacks: {disk.get('missing', 0)}"
        if disk.get("log"):
            yield f"{view.name} writes no delivery log: {disk['log']}; {missing}"
        elif disk.get("missing"):
            yield f"{view.name} writes its delivery log again; {missing}"
        if disk.get("store"):
            yield f"{view.name} refuses new durable links: {disk['store']}"


def _link(link: Mapping[str, Any]) -> str:
    return f"{link['container']}/{link['link']}"


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{plural if number != 1 else ''}"
