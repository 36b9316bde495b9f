"""The events of a link that a client reports to its user while it works. The user may ignore all of them."""

from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import frozen

MISSED: Final = "amqp:resource-deleted"
"""The condition with which a router tells a subscriber that messages were accepted without it (protocol 8, Apart)."""


@frozen
class Connected:
    """The link is attached at a router now."""

    url: str
    router: str  # the router's name in the mesh; empty if it has none


@frozen
class Lost:
    """The link is no longer attached. The client looks for a router."""

    reason: str
    # The condition that the router gave, if it gave any. It is MISSED if a subscriber has missed messages.
    condition: str | None = None


@frozen
class Searching:
    """The link was lost, or is from an earlier process, and no known router takes it. The client keeps trying for
    `left` seconds."""

    reason: str  # why the last router did not take the link
    left: float


@frozen
class Resumed:
    """The client has resumed the link, which has `in_doubt` unsettled deliveries. Both ends now find out the outcomes
    of these."""

    in_doubt: int


@frozen
class Abandoned:
    """The router does not know the former life of the link, so `in_doubt` deliveries stay in doubt for good."""

    in_doubt: int


Event: TypeAlias = Connected | Lost | Searching | Resumed | Abandoned
Listener: TypeAlias = Callable[[Event], None]  # called synchronously by the client, so it must not wait
