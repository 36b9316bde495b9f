"""The actions that link state and channels ask of the shell, and the events between their own parts.

`Transmit` and `Received` occur once for each batch of messages, so they are named tuples, which are faster. The others
are rare.
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
    """The next payload of the channel from `router`. Payloads come in order, each once, and only within the present
    contact."""

    router: str
    payload: bytes


@frozen
class ContactMade:
    """A contact with this incarnation of `router` has begun, so the shell may send to it. The channel is empty in both
    directions."""

    router: str
    incarnation: int


class Loss(Enum):
    """The causes for which a link or a contact can be lost."""

    SILENT = "silent"
    """The neighbour sent nothing for `dead` seconds."""
    UNHEARD = "unheard"
    """The neighbour receives nothing from this router."""
    CLOSED = "closed"
    """The connection to the neighbour ended."""
    NO_PATH = "no-path"
    """A link on the path is down, or there is no path any more."""
    RESTARTED = "restarted"
    """The router runs in another incarnation."""
    REMOVED = "removed"
    """The plan no longer lists the router, or the link to it."""
    OTHER_END = "other-end"
    """The other router lost the contact before this one did."""
    LATE = "late"
    """The other router owed an answer. It acknowledged a later question, and had sent no answer by then
    (`Mesh.doubt`)."""
    BROKEN = "broken"
    """The other router broke the protocol."""


@frozen
class ContactLost:
    """The contact with `router` is over, and all data under way are forgotten. `reason`: a sentence for the log."""

    router: str
    cause: Loss
    reason: str


@frozen
class Full:
    """The budget of the channel to `router` is used up. Payloads that can wait have to wait until `Room` or
    `ContactLost`."""

    router: str


@frozen
class Room:
    """The channel to `router` takes payloads again, because the router has acknowledged enough."""

    router: str


@frozen
class Replanned:
    """The plan of the mesh has changed (protocol 11)."""

    plan: Plan


Action = Transmit | Received | ContactMade | ContactLost | Full | Room | Replanned


@frozen
class Reached:
    """There is now a path to this incarnation of `router`. Only modules of this folder see this action."""

    router: str
    incarnation: int


@frozen
class Unreachable:
    """There is no path to `router` any more, or the router runs in another incarnation. Only modules of this folder see
    this action."""

    router: str
    cause: Loss
    reason: str


@frozen
class Rerouted:
    """The path to `router` has changed, so the frames under way on the former path may be lost. Only modules of this
    folder see this action."""

    router: str


Reachability = Reached | Unreachable | Rerouted
