"""Turns events into sentences. The command `events` and the console show the same words."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from router.events.kind import EventKind

Fields = Mapping[str, Any]


def sentence(event: Fields) -> str:
    """The sentence for an event of `RecentEvents`. If this version of the program does not know the event's kind, the
    sentence is the text that the event carries. The sentence may contain text of strangers, which is not escaped."""
    try:
        said = _SENTENCES[EventKind(str(event.get("kind")))]
    except ValueError:
        return str(event.get("text") or event.get("kind"))
    return said(event)


def _link(event: Fields) -> str:
    user = f" of user {event['user']}" if event.get("user") else ""
    return f"{event.get('role')} {event.get('container')}/{event.get('link')} on {event.get('address')}{user}"


def _why(event: Fields) -> str:
    return f": {event['why']}" if event.get("why") else ""


def _origin(event: Fields) -> str:
    return str(event.get("origin") or "a client")


def _stolen(event: Fields) -> str:
    return f"{_link(event)} " + (f"went to router {event['peer']}" if event.get("peer") else "attached again")


def _refused(event: Fields) -> str:
    if "link" not in event:
        return f"refused {_origin(event)}{_why(event)}"
    return f"{_link(event)} refused, {_origin(event)}: {event.get('condition')}{_why(event)}"


_SENTENCES: Final[Mapping[EventKind, Callable[[Fields], str]]] = {
    EventKind.BOOT: lambda event: "started",
    EventKind.DRAINING: lambda event: "moves its clients to other routers",
    EventKind.STOPPING: lambda event: "stops",
    EventKind.PLAN: lambda event: f"has a new plan with routers {', '.join(event.get('routers', ()))}",
    EventKind.NEIGHBOUR_UP: lambda event: f"link to router {event.get('neighbour')} is up",
    EventKind.NEIGHBOUR_DOWN: lambda event: f"link to router {event.get('neighbour')} is down{_why(event)}",
    EventKind.CONTACT: lambda event: f"is in contact with router {event.get('peer')}",
    EventKind.CONTACT_LOST: lambda event: f"lost contact with router {event.get('peer')}{_why(event)}",
    EventKind.MOVED: lambda event: f"{_link(event)} moves here from router {event.get('former')}",
    EventKind.ATTACHED: lambda event: f"{_link(event)} attached",
    EventKind.SUSPENDED: lambda event: f"{_link(event)} lost its connection and may come back",
    EventKind.DETACHED: lambda event: f"{_link(event)} left",
    EventKind.STOLEN: _stolen,
    EventKind.EXPIRED: lambda event: f"{_link(event)} expired{_why(event)}",
    EventKind.FENCED: lambda event: (
        f"dropped deliveries from router {event.get('peer')}, a former home of {_link(event)}"
    ),
    EventKind.LIMIT: lambda event: f"limit {event.get('limit')} exceeded by {_origin(event)}{_why(event)}",
    EventKind.REFUSED: _refused,
    EventKind.ENDED: lambda event: f"connection of {_origin(event)} ended{_why(event)}",
    EventKind.CLOSED: lambda event: (
        f"connection of {event.get('container') or _origin(event)} closed at the request of an operator"
    ),
    EventKind.FORGOTTEN: lambda event: f"{_link(event)} was ended at the request of an operator",
    EventKind.LEADING: lambda event: f"leads replica set {event.get('set')}, in term {event.get('term')}",
    EventKind.NOT_LEADING: lambda event: f"leads replica set {event.get('set')} no more",
    EventKind.LEADERLESS: lambda event: f"replica set {event.get('set')} has no leader{_why(event)}",
    EventKind.ASIDE: lambda event: f"set its store of replica set {event.get('set')} aside{_why(event)}",
    EventKind.SET_CHANGED: lambda event: f"replica set {event.get('set')}: an operator {event.get('what')}",
    EventKind.WARNING: lambda event: str(event.get("text")),
}
