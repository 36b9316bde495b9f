"""What a client is told about its link while it works: connections come and go, and nothing need be done about it."""

from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import frozen

MISSED: Final = "amqp:resource-deleted"
"""The condition by which a subscriber is told that messages were accepted without it (protocol 8, Apart)."""


@frozen
class Connected:
    """The link is attached."""

    url: str
    router: str  # its name in the mesh; "" if it has none


@frozen
class Lost:
    """The link is not attached any more. The client looks for a router."""

    reason: str
    condition: str | None = None  # AMQP's, if a router named one; of a subscriber that has missed something, MISSED


@frozen
class Searching:
    """No router that is known has taken a link that was lost, or kept: they are tried again, for so many seconds."""

    reason: str  # why the last one has not
    left: float


@frozen
class Resumed:
    """The link was resumed with so many deliveries whose outcome was in doubt; they are being cleared up."""

    in_doubt: int


@frozen
class Abandoned:
    """The router does not know the link's former life: so many deliveries stay in doubt for good."""

    in_doubt: int


Event: TypeAlias = Connected | Lost | Searching | Resumed | Abandoned
Listener: TypeAlias = Callable[[Event], None]  # called synchronously: it must not wait
