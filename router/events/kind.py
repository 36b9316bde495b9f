"""The kinds of events, and how a log call attaches an event to its line.

A line of the log is for people. An event has the same news for programs: a kind, and named fields. One log call writes
the line and, by `extra=event(...)`, attaches the event. `router.management.recent_events` keeps the events.
"""

from enum import StrEnum
from typing import Any, Final

EVENT: Final = "event"
"""The name of the attribute by which a log record carries its event: a kind, and fields."""


class EventKind(StrEnum):
    """The kind of an event. docs/management.md lists its fields."""

    BOOT = "boot"
    DRAINING = "draining"
    STOPPING = "stopping"
    PLAN = "plan"
    NEIGHBOUR_UP = "neighbour-up"
    NEIGHBOUR_DOWN = "neighbour-down"
    CONTACT = "contact"
    CONTACT_LOST = "contact-lost"
    MOVED = "moved"
    ATTACHED = "attached"
    SUSPENDED = "suspended"
    DETACHED = "detached"
    STOLEN = "stolen"
    EXPIRED = "expired"
    FENCED = "fenced"
    LIMIT = "limit"
    REFUSED = "refused"
    ENDED = "connection-ended"
    CLOSED = "closed-by-management"
    FORGOTTEN = "forgotten"
    LEADING = "leading"
    NOT_LEADING = "not-leading"
    LEADERLESS = "leaderless"
    ASIDE = "store-aside"
    SET_CHANGED = "set-changed"
    WARNING = "warning"
    """A warning of the log that has no other kind."""


def event(kind: EventKind, **fields: Any) -> dict[str, Any]:
    """The argument `extra` of a log call that carries this event."""
    return {EVENT: (kind, fields)}
