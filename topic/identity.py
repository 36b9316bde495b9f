"""Names of links, of publishers' lives and of deliveries (protocol section 2).

Each name is a pure function of the thing that it names, and no table maps a delivery to its name. So every router
computes the same name, before and after a failover.
"""

import hashlib
import re
from binascii import b2a_base64
from typing import Final, NamedTuple

import attrs

INSIDE: Final = "_sets/"
"""The prefix of addresses that no client can attach to, but only sets (protocol 14)."""
CONTAINER: Final = "_sets"
"""The container-id of the sets' own links."""
_OUT: Final = "out"
_DEAD: Final = "dead"

NAME_LENGTH = 12
KEY_LENGTH = 32
GENERATION_LENGTH = 8
COUNTS: Final = 1 << 63
"""The highest value that a clock or a number may have. No router reaches this by counting, and a larger value does not
fit into messages between routers."""
EPOCH_TEXT = re.compile(r"([0-9]{1,20})\.([A-Za-z0-9_.-]+)\.([0-9]{1,20})")
"""Matches the text of an `Epoch`: clock, router and incarnation."""


# Clients name a queue by one address. Inside the mesh, its publishers' links have the address `_sets/SET/in/QUEUE`.
# The links of its consumers have the address `_sets/SET/out/QUEUE`. Outboxes publish to `_sets/SET/dead/QUEUE`.
# The name of a set has no slash, but the name of a queue may have some.


def ingress_address(set_: str, queue: str) -> str:
    """The address to which the publishers of a queue publish."""
    return f"{INSIDE}{set_}/in/{queue}"


def egress_address(set_: str, queue: str) -> str:
    """The address from which the consumers of a queue receive."""
    return f"{INSIDE}{set_}/{_OUT}/{queue}"


def dead_letter_address(set_: str, queue: str) -> str:
    """The address to which the outboxes of sets publish dead letters for the queue."""
    return f"{INSIDE}{set_}/{_DEAD}/{queue}"


def is_ingress(address: str) -> bool:
    """Whether the publishers of a queue, or the outboxes of sets, publish to the address."""
    return address.startswith(INSIDE) and not is_egress(address)


def is_egress(address: str) -> bool:
    """Whether the consumers of a queue receive from the address."""
    parts = address.split("/", 3)
    return address.startswith(INSIDE) and len(parts) == 4 and parts[2] == _OUT


def queue_of(address: str) -> tuple[str, str]:
    """The set and the queue of an address that begins with `INSIDE`."""
    _, set_, _, queue = address.split("/", 3)
    return set_, queue


def shown_address(address: str) -> str:
    """The address of a link in the form that clients use."""
    parts = address.split("/", 3)
    return parts[3] if address.startswith(INSIDE) and len(parts) == 4 else address


@attrs.frozen(slots=True, order=True)
class LinkIdentity:
    """The identity of a client's link: container-id, link name and address (AMQP 1.0 2.6.1, where the mesh is the other
    container). If the client has authenticated, its user is part of the identity. So links of two users are different
    even if they have the same names."""

    container: str
    link: str
    address: str
    user: str = ""

    def parts(self) -> dict[str, str]:
        """The parts of the identity, keyed by their names. The user is there only if it is known."""
        named = {"container": self.container, "link": self.link, "address": self.address}
        return {**named, "user": self.user} if self.user else named

    def shown(self) -> dict[str, str]:
        """The parts of the identity, with the address as the client knows it."""
        return {**self.parts(), "address": shown_address(self.address)}

    def __str__(self) -> str:
        return f"{self.container}/{self.link} on {shown_address(self.address)}"


def ingress_of(set_: str) -> LinkIdentity:
    """The identity of the link by which a set takes messages into its queues (its ingress)."""
    return LinkIdentity(CONTAINER, set_, ingress_address(set_, "#"))


def dead_letter_ingress_of(set_: str) -> LinkIdentity:
    """The identity of the link by which a set takes dead letters into its queues."""
    return LinkIdentity(CONTAINER, set_, dead_letter_address(set_, "#"))


def ingresses_of(set_: str) -> tuple[LinkIdentity, LinkIdentity]:
    """The two links by which a set takes messages into its queues. Every router knows them from its configuration."""
    return ingress_of(set_), dead_letter_ingress_of(set_)


def is_of_sets(container: str) -> bool:
    """Whether a client must not use this container-id, because it is reserved for sets, or would make the client's link
    look like a link of a set."""
    return container == CONTAINER or container.startswith(f"{CONTAINER}/")


def egress_of(set_: str, queue: str) -> LinkIdentity:
    """The identity of the link by which a queue gives messages to its consumers (its egress)."""
    return LinkIdentity(CONTAINER, set_, egress_address(set_, queue))


class Epoch(NamedTuple):
    """The epoch of an attach (protocol 2). Of two attaches of one link, the later has the higher epoch in the whole
    mesh, without ties. Attaches of different links may have the same epoch."""

    hlc: int
    router: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.hlc}.{self.router}.{self.incarnation}"


NOWHERE: Final = Epoch(0, "", 0)
"""The epoch of a link that has never been attached. It is lower than all other epochs."""

_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def _base64url(digest: bytes) -> bytes:
    return b2a_base64(digest, newline=False).translate(_URL_SAFE)


def link_name(identity: LinkIdentity) -> bytes:
    """The name of a link in the mesh: 12 ASCII bytes, with which all delivery keys of a publisher begin.

    The name is made from the parts that the client knows, so the client can compute it, too. No client's link gets the
    name of a set's own link.
    """
    named = identity.parts() if identity.container == CONTAINER else identity.shown()
    parts = (text.encode() for text in named.values())
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return _base64url(hashlib.blake2b(framed, digest_size=9).digest())


def new_generation(epoch: Epoch) -> bytes:
    """The generation (8 bytes) of an attach that begins afresh. No two attaches of a link have the same epoch, so all
    generations of a link differ."""
    return hashlib.blake2b(str(epoch).encode(), digest_size=GENERATION_LENGTH).digest()


class KeyMaker:
    """Makes the delivery keys of one life of a publisher. A key has 12 bytes with the publisher's name, and 20 bytes
    made from the generation and the delivery-tag."""

    __slots__ = ("_prefix", "_seed")

    def __init__(self, publisher: bytes, generation: bytes) -> None:
        assert len(publisher) == NAME_LENGTH
        assert len(generation) == GENERATION_LENGTH
        self._prefix = publisher
        self._seed = hashlib.blake2b(generation, digest_size=15)

    def key(self, tag: bytes) -> bytes:
        """The delivery key (32 ASCII bytes) of the publisher's delivery-tag."""
        digest = self._seed.copy()
        digest.update(tag)
        return self._prefix + _base64url(digest.digest())

    def numbered(self, number: int) -> bytes:
        """The delivery key of a delivery whose tag has been used before (protocol 5, Reused tags). `number` counts
        these deliveries of the life. No tag has this key, because no tag is as long as the text that makes it."""
        return self.key(b"%040d" % number)
