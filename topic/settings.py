"""What a topology sets for the topic core of every router."""

from typing import Final

import attrs

DYNAMIC: Final = "_dynamic/"
"""What the addresses of dynamic nodes begin with: each has one subscriber, and is over with it (protocol 12.8)."""

TOPIC, BALANCED, QUEUE = KINDS = ("topic", "balanced", "queue")
"""The kinds of addresses, by the names that a topology file has: each subscriber is given every message; each message
goes to one subscriber (protocol 12); or a replica set has a queue of that name (protocol 13, 14)."""


def is_dynamic(address: str) -> bool:
    return address.startswith(DYNAMIC)


@attrs.frozen(slots=True)
class Settings:
    """What the topology sets; times in seconds."""

    window: int = 1000
    """Deliveries of one publisher that may be unsettled at once."""
    window_bytes: int = 8 << 20
    """The same in bytes of their messages; one delivery in any case."""
    max_message: int = 16 << 10
    """Bytes that a publisher's first message is expected to have: at most."""
    redeliveries: int = 5
    join: float = 2.0
    """How long an attach waits for a router in contact before that is declared lost."""
    boot_wait: float = 10.0
    terminus: float = 300.0
    """The longest timeout that a terminus is granted: nobody comes back later than that."""
    forget: float = 86_400.0
    """How long what is kept for a link is kept while routers are missing that may know better (8, Expiry)."""
    dead: float = 1.0
    """A neighbour that was silent for longer is lost (3.1). `topic.node.boot` hands this to the link state; the topic
    core only logs it."""
    grace: float = 5.0
    """How long homes wait for plain subscribers of a router out of contact (8, Lost router)."""
    settle_delay: float = 0.025
    """How long what routers say of settlements waits for something else to travel with: clients do not wait for it."""
    piece: int = 65_000
    """Bytes of a message in each of the pieces in which it goes ahead of its Forward, if it has more than two."""
    largest: int = 17 << 20
    """Bytes of a message that is taken from another router, at most."""
    kinds: tuple[tuple[str, str], ...] = ()
    """What addresses begin with, and the kind of these addresses, one of `KINDS`. `topic.delivery.kinds` finds the kind
    of an address."""
