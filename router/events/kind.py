"""The kinds of events, and how a line of the router's log says that it tells of one.

A line of the log is for people; what it tells of is the same, for programs: its kind, and fields by name. So who logs
something says both at once, with `extra=event(...)`. Never here: where events go (`router.management.recent_events`).
"""

from enum import StrEnum
from typing import Any, Final

EVENT: Final = "event"
"""The attribute of a log record that has its event: a kind, and fields."""


class EventKind(StrEnum):
    """The fields are those of docs/management.md."""

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
    """Whatever else the log warns of."""


def event(kind: EventKind, **fields: Any) -> dict[str, Any]:
    """The `extra` of a line of the log that tells of this."""
    return {EVENT: (kind, fields)}
