"""The actions of the link-state and channel layer for the shell, and the events between its own parts.

`Transmit` and `Received` occur once per batch of messages and are therefore named tuples; the others are rare.
"""

from enum import Enum
from typing import Literal, NamedTuple

from attrs import frozen

from linkstate.plan.plan import Plan

LINKSTATE: Literal["linkstate"] = "linkstate"
CHANNEL: Literal["channel"] = "channel"


class Transmit(NamedTuple):
    """Send `body` to a neighbour on one of the two lanes. The shell may join bodies for one neighbour and lane."""

    neighbour: str
    lane: Literal["linkstate", "channel"]
    body: bytes


class Received(NamedTuple):
    """The next payload of the channel from `router`: in order, once, within the present contact."""

    router: str
    payload: bytes


@frozen
class ContactMade:
    """The shell may send to `router`, in this incarnation; its channel starts empty in both directions."""

    router: str
    incarnation: int


class Loss(Enum):
    """The kinds of reasons for which a link or a contact is lost."""

    SILENT = "silent"
    """Nothing came from a neighbour for `dead` seconds."""
    UNHEARD = "unheard"
    """A neighbour hears nothing from this router."""
    CLOSED = "closed"
    """The connection to a neighbour ended."""
    NO_PATH = "no-path"
    """Some link on the path is down, or no path is left."""
    RESTARTED = "restarted"
    """The router runs in another incarnation."""
    REMOVED = "removed"
    """The plan does not list the router, or the link, any more."""
    OTHER_END = "other-end"
    """The router lost the contact before this one did."""
    LATE = "late"
    """The router owes this one an answer, and had sent nothing when it acknowledged a question (`Mesh.doubt`)."""
    BROKEN = "broken"
    """The router broke the protocol."""


@frozen
class ContactLost:
    """The contact with `router` is over; all that was in flight is forgotten. `reason` is a sentence for the log."""

    router: str
    cause: Loss
    reason: str


@frozen
class Full:
    """The budget of the channel to `router` is used up. Payloads that can wait do so until `Room` or `ContactLost`."""

    router: str


@frozen
class Room:
    """`router` has acknowledged enough of its channel: it takes payloads again."""

    router: str


@frozen
class Replanned:
    """The plan of the mesh has changed (protocol 11)."""

    plan: Plan


Action = Transmit | Received | ContactMade | ContactLost | Full | Room | Replanned


@frozen
class Reached:
    """Internal: there is now a path to this incarnation of `router`."""

    router: str
    incarnation: int


@frozen
class Unreachable:
    """Internal: there is no path any more, or the router runs in another incarnation."""

    router: str
    cause: Loss
    reason: str


@frozen
class Rerouted:
    """Internal: the path changed, so the frames under way on the old one may be lost."""

    router: str


Reachability = Reached | Unreachable | Rerouted
