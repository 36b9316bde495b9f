"""The settings of the topology for the topic core of every router."""

from typing import Final

import attrs

DYNAMIC: Final = "_dynamic/"
"""Prefix of the addresses of dynamic nodes; each has one subscriber, and ends with it (protocol 12.8)."""

TOPIC, BALANCED, QUEUE = KINDS = ("topic", "balanced", "queue")
"""The kinds of addresses, by their names in a topology file: each subscriber gets every message; one subscriber gets
each message (protocol 12); or a replica set stores a queue of that name (protocol 13, 14)."""


def is_dynamic(address: str) -> bool:
    return address.startswith(DYNAMIC)


@attrs.frozen(slots=True)
class Settings:
    """The settings. Times are in seconds."""

    window: int = 1000
    """Deliveries of one publisher that may be unsettled at once."""
    window_bytes: int = 8 << 20
    """Bytes of messages of one publisher that may be unsettled at once. One delivery is always allowed."""
    max_message: int = 16 << 10
    """Most bytes that the router expects a publisher's first message to have."""
    redeliveries: int = 5
    join: float = 2.0
    """How long an attach waits for a router in contact before this router declares it lost."""
    boot_wait: float = 10.0
    terminus: float = 300.0
    """The longest timeout that the mesh grants a terminus. No client comes back later than that."""
    forget: float = 86_400.0
    """How long routers keep what they store for a link while routers that may know more are missing (8, Expiry)."""
    dead: float = 1.0
    """A neighbour that is silent for longer is lost (3.1). `topic.node.boot` gives this to the link state; the topic
    core only logs it."""
    grace: float = 5.0
    """How long homes wait for plain subscribers of a router out of contact (8, Lost router)."""
    settle_delay: float = 0.025
    """How long settlements wait for another message of the router to travel with. Clients do not wait for them."""
    piece: int = 65_000
    """Bytes of each piece of a message. A message of more than two pieces goes in pieces, ahead of its Forward."""
    largest: int = 17 << 20
    """Most bytes of a message that a router accepts from another router."""
    kinds: tuple[tuple[str, str], ...] = ()
    """Pairs of a prefix of addresses and the kind of these addresses, one of `KINDS`. `topic.delivery.kinds` finds the
    kind of an address."""
