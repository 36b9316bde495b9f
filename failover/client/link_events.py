"""Events of a link that a client reports while it works. The user need not react to any."""

from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import frozen

MISSED: Final = "amqp:resource-deleted"
"""The condition with which a router tells a subscriber that messages were accepted without it (protocol 8, Apart)."""


@frozen
class Connected:
    """The link is attached."""

    url: str
    router: str  # its name in the mesh; "" if it has none


@frozen
class Lost:
    """The link is no longer attached. The client looks for a router."""

    reason: str
    condition: str | None = None  # from the router, if it gave one; MISSED, if a subscriber has missed messages


@frozen
class Searching:
    """No known router takes the lost or stored link. The client keeps trying for `left` seconds."""

    reason: str  # why the last router did not take it
    left: float


@frozen
class Resumed:
    """The client has resumed the link with `in_doubt` unsettled deliveries; both ends now clear up their outcomes."""

    in_doubt: int


@frozen
class Abandoned:
    """The router does not know the link's former life: `in_doubt` deliveries stay in doubt for good."""

    in_doubt: int


Event: TypeAlias = Connected | Lost | Searching | Resumed | Abandoned
Listener: TypeAlias = Callable[[Event], None]  # called synchronously: it must not wait
