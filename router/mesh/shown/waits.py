"""Shows the waits of routers for clients or other routers (docs/status.md), as sentences for people.

Each wait is shown once. A home that waits for another router waits for the answer of this router's subscribers. The
other router may report the same wait, and then names the subscriber. In this case only the wait for the subscriber is
shown."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import frozen

from router.mesh.quantities import format_duration, format_size
from router.mesh.status import RouterView

LASTING_S: Final = 1.0
"""Only waits of at least this many seconds are shown, because a mesh under load always waits for some subscriber for
milliseconds."""
UNHEARD_OF: Final = "a router that knows the client's last attach"
"""Takes the place of the awaited routers, if all routers in contact have answered and none of them knows this attach
(protocol 7.9)."""
AWAY: Final = ", which is away"

Status = Mapping[str, Any]


@frozen
class Wait:
    """A wait in a router's report. If the router waits for another router, and the other router reports that it waits
    for a subscriber in turn, `publishers` lacks the publishers of the other report."""

    router: str
    awaited: str
    publishers: list[str]
    """The publishers of the deliveries that wait."""
    records: int
    since_s: float


def lasting(statuses: Iterable[Status]) -> Iterator[Wait]:
    """Yield the waits of a second or more, from the reports of routers that have answered."""
    statuses = list(statuses)
    named = {(status["router"], publisher) for status in statuses for publisher in _named_at(status)}
    for status in statuses:
        for wait in status["waits"]:
            role, _, router = wait["for"].partition(" ")
            publishers = [one for one in wait["publishers"] if role != "router" or (router, one) not in named]
            if wait["since_s"] >= LASTING_S and (publishers or not wait["publishers"]):
                yield Wait(status["router"], wait["for"], publishers, wait["records"], wait["since_s"])


def _named_at(status: Status) -> Iterator[str]:
    """The publishers in waits of this router for a subscriber. Waits of less than a second are left out."""
    for wait in status["waits"]:
        if wait["since_s"] >= LASTING_S and not wait["for"].startswith("router "):
            yield from wait["publishers"]


def awaits(views: Iterable[RouterView]) -> bool:
    """Whether any router waits for anything, even for a moment."""
    return any(view.status["waits"] or view.status["attaches"]["waiting"] for view in views if view.status is not None)


def waits(views: Iterable[RouterView]) -> Iterator[str]:
    """Yield sentences: the waits of a second or more, publishers without credit, and lapsed subscribers."""
    statuses = [view.status for view in views if view.status is not None]
    found = list(lasting(statuses))
    for status in statuses:
        name = status["router"]
        if status["waiting_for"]:
            yield f"{name} accepts no messages until it has heard from {', '.join(status['waiting_for'])}"
        attaches = status["attaches"]
        if attaches["waiting"] and attaches["since_s"] >= LASTING_S:
            waiting = counted(attaches["waiting"], "attach", "es")
            yield f"{name} has {waiting} waiting for {', '.join(attaches['for']) or UNHEARD_OF}"
        for wait in found:
            if wait.router == name:
                yield f"{name} waits for {_said(wait, status)}"
        yield from _held(status, found)
        for link in status["lapsed"]:
            gone = format_duration(link["since_s"])
            whom = f"{link_name(link)} on {link['address']}"
            yield f"{name} no longer waits for {whom}, which has been out of reach for {gone}"


def _held(status: Status, found: list[Wait]) -> Iterator[str]:
    """Yield sentences for publishers without credit, with the clients or routers that cause this."""
    for link in status["publishers"]:
        if not link["held_for"] or link["held_s"] < LASTING_S:
            continue
        publisher = f"{link_name(link)} on {link['address']}"
        names: dict[str, None] = {}
        for name in link["held_for"]:
            beyond = [
                wait.awaited
                for wait in found
                if name == f"router {wait.router}" and publisher in wait.publishers and wait.awaited != name
            ]
            names |= dict.fromkeys(beyond or [name])
        first, *others = names
        more = f" and {len(others)} more" if others else ""
        unsettled = f"{publisher}, which has {format_size(link['bytes'])} unsettled"
        yield f"{status['router']} gives no credit to {unsettled}, and waits for {first}{more}"


def _said(wait: Wait, status: Status) -> str:
    held = wait.publishers[0] if len(wait.publishers) == 1 else counted(len(wait.publishers), "publisher")
    deliveries = "delivery" if wait.records == 1 else "deliveries"
    since = format_duration(wait.since_s)
    return f"{shown_name(wait.awaited, status)}: {wait.records} {deliveries} of {held}, for {since} or more"


def shown_name(awaited: str, status: Status) -> str:
    """The name of an awaited client or router, for people. An orphan is shown as a subscriber, because it is one whose
    router is not in contact. An absent client is marked as away."""
    role, _, name = awaited.partition(" ")
    return f"{f'subscriber {name}' if role == 'orphan' else awaited}{_away(role, name, status)}"


def _away(role: str, name: str, status: Status) -> str:
    """The text about a link whose client is away: the link, and how long the router still waits for the client. A
    router of another version may not report this time."""
    links = (
        status.get("orphans", ()) if role == "orphan" else status.get("subscribers", ()) if role == "subscriber" else ()
    )
    for one in links:
        if name == f"{link_name(one)} on {one['address']}":
            if role == "subscriber" and one["status"] != "suspended":
                return ""
            limit = one.get("timeout_s")
            return f"{AWAY}, until its timeout of {format_duration(limit)} is over" if limit else AWAY
    return AWAY if role == "orphan" else ""


def link_name(link: Mapping[str, Any]) -> str:
    return f"{link['container']}/{link['link']}"


def counted(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{plural if number != 1 else ''}"
