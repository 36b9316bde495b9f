"""The settings in the topology file that the topic core of every router needs."""

from collections.abc import Mapping
from typing import Final

import attrs

from topic.identity import INSIDE

DYNAMIC: Final = "_dynamic/"
"""The prefix of addresses of dynamic nodes. Such an address has one subscriber, and ends with it (protocol 12.8)."""

TOPIC, BALANCED, CLOSEST, QUEUE = KINDS = ("topic", "balanced", "closest", "queue")
"""The kinds of addresses, named as in a topology file. At a topic, each subscriber gets every message. At a balanced
address, one subscriber gets each message (protocol 12); at a closest address, the nearest one that has room (12.10). At
a queue, a replica set stores the messages (protocol 13, 14)."""
OF_THE_MESH: Final = (DYNAMIC, INSIDE, "_topo/", "$")
"""The beginnings of addresses that only the mesh itself makes."""


def is_under(address: str, prefixes: tuple[str, ...]) -> bool:
    """Whether the address begins with one of these prefixes of a topology. The empty prefix stands for all addresses
    except the mesh's own."""
    return address.startswith(prefixes) and (
        not address.startswith(OF_THE_MESH) or address.startswith(tuple(filter(None, prefixes)))
    )


def is_dynamic(address: str) -> bool:
    return address.startswith(DYNAMIC)


DAY_S: Final = 86_400.0
MOST_FACTOR: Final = 100
"""The highest factor that a `BackOff` may have."""


@attrs.frozen(slots=True)
class BackOff:
    """The rests of a delivery that subscribers give back again and again (protocol 12.11, 14.17). All times are in
    seconds."""

    after: float
    """The rest after the delivery has come back for the first time."""
    factor: int = 1
    """The factor by which each further rest is longer than the rest before."""
    most: float = DAY_S
    """The longest rest of a delivery."""

    def pause(self, times: int) -> float:
        """The rest of a delivery that has come back this many times. 0 if it has not come back."""
        if not times:
            return 0.0
        pause = self.after
        for _ in range(times - 1):
            if pause >= self.most or self.factor == 1:
                break
            pause *= self.factor
        return min(pause, self.most)


@attrs.frozen(slots=True)
class Settings:
    """The settings of the topic core. All times are in seconds."""

    window: int = 1000
    """The highest number of unsettled deliveries of one publisher."""
    window_bytes: int = 8 << 20
    """The highest number of bytes of one publisher's unsettled messages. One delivery is always allowed."""
    max_message: int = 16 << 10
    """The highest number of bytes of a message, and of a transaction's messages. The first credit of a publisher
    assumes messages of this size."""
    redeliveries: int = 5
    join: float = 2.0
    """The seconds for which an attach waits for a router in contact, before this router declares the contact lost."""
    boot_wait: float = 10.0
    terminus: float = 300.0
    """The longest timeout that the mesh grants a terminus. No client comes back later than that."""
    forget: float = 86_400.0
    """The seconds for which routers keep the state of a link while routers that may know more are missing (8,
    Expiry)."""
    dead: float = 1.0
    """The seconds of silence after which a neighbour is lost (3.1). `topic.node.boot` gives this value to the link
    state; the topic core only logs it."""
    grace: float = 5.0
    """The seconds for which homes wait for the plain subscribers of a router out of contact (8, Lost router)."""
    settle_delay: float = 0.025
    """The seconds for which a settlement may wait for another message of the router, to leave together with it. No
    client waits for this."""
    piece: int = 65_000
    """The bytes of one piece of a message. A message longer than two pieces is sent in pieces, ahead of its Forward."""
    largest: int = 17 << 20
    """The largest message, in bytes, that a router accepts from another router."""
    kinds: tuple[tuple[str, str], ...] = ()
    """Pairs of an address prefix and the kind of the addresses with this prefix, one of `KINDS`. `topic.delivery.kinds`
    finds the kind of an address."""
    pauses: Mapping[str, BackOff] = attrs.Factory(dict)
    """Maps a prefix of the topology to the rests of deliveries to its addresses. A delivery rests when a subscriber
    gives it back (protocol 12.11). A prefix without an entry has no rests."""
