"""What the link state and channel layer tells the shell, and what its own parts tell each other.

`Transmit` and `Received` occur once per batch of messages and are therefore named tuples; the others are
rare.
"""

from enum import Enum
from typing import Literal, NamedTuple

from attrs import frozen

from linkstate.plan.plan import Plan

LINKSTATE: Literal["linkstate"] = "linkstate"
CHANNEL: Literal["channel"] = "channel"


class Transmit(NamedTuple):
    """Send `body` to a neighbour on one of the two lanes; bodies to one neighbour and lane may be joined."""

    neighbour: str
    lane: Literal["linkstate", "channel"]
    body: bytes


class Received(NamedTuple):
    """The next payload of the channel from `router`: in order, once, within the present contact."""

    router: str
    payload: bytes


@frozen
class ContactMade:
    """`router`, in this incarnation of it, can be sent to; its channel starts empty in both directions."""

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
    """Two other routers report that the link between them is down."""
    RESTARTED = "restarted"
    """The router runs in another incarnation."""
    REMOVED = "removed"
    """The plan does not list the router, or the link, any more."""
    OTHER_END = "other-end"
    """The router lost the contact before this one did."""
    LATE = "late"
    """The router owes this one an answer, and has nothing under way (`Mesh.doubt`)."""
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
    """As much is under way to `router` as may be: what can wait does, until there is room or the contact is lost."""

    router: str


@frozen
class Room:
    """`router` has acknowledged some of that."""

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
    """Internal: there is no path any more, or not to the incarnation there was one to."""

    router: str
    cause: Loss
    reason: str


@frozen
class Rerouted:
    """Internal: the path changed, so what was under way on the old one may be gone."""

    router: str


Reachability = Reached | Unreachable | Rerouted
