"""What the link state and channel layer tells the shell, and what its own parts tell each other.

`Transmit` and `Received` occur once per batch of messages and are therefore named tuples; the others are
rare.
"""

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


@frozen
class ContactLost:
    """What was in flight to and from `router` is forgotten."""

    router: str


@frozen
class Broken:
    """What came from `router` broke the protocol: its contact is lost for that, as the next action says."""

    router: str
    reason: str


@frozen
class Late:
    """`router` owes us something and has nothing under way to us (`Mesh.doubt`): its contact is lost for that, as the
    next action says."""

    router: str
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


Action = Transmit | Received | ContactMade | ContactLost | Broken | Late | Full | Room | Replanned


@frozen
class Reached:
    """Internal: there is now a path to this incarnation of `router`."""

    router: str
    incarnation: int


@frozen
class Unreachable:
    """Internal: there is no path any more, or not to the incarnation there was one to."""

    router: str


@frozen
class Rerouted:
    """Internal: the path changed, so what was under way on the old one may be gone."""

    router: str


Reachability = Reached | Unreachable | Rerouted
