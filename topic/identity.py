"""Names of links, of their lives and of deliveries (protocol section 2).

Everything here is a pure function of what it names: no table maps a delivery to its name, so every router computes the
same one before and after a failover.
"""

import hashlib
import re
from binascii import b2a_base64
from typing import Final, NamedTuple

import attrs

INSIDE: Final = "_sets/"
"""The beginning of the addresses that only the sets of the mesh have links to (protocol 14)."""
CONTAINER: Final = "_sets"
"""The container-id of the sets' own links."""
_OUT: Final = "out"
_DEAD: Final = "dead"

NAME_LENGTH = 12
KEY_LENGTH = 32
GENERATION_LENGTH = 8
COUNTS: Final = 1 << 63
"""No clock and no number gets there by counting. What is above could not be said to others, nor one more than it."""
EPOCH_TEXT = re.compile(r"([0-9]{1,20})\.([A-Za-z0-9_-]+)\.([0-9]{1,20})")
"""An `Epoch` as text: its clock, then router and incarnation."""


# Clients name a queue by one address. In the mesh, the links of its publishers and of its consumers have two others,
# `_sets/SET/in/QUEUE` and `_sets/SET/out/QUEUE`. The outboxes of sets publish to `_sets/SET/dead/QUEUE`. The name of a
# set has no slash.


def ingress_address(set_: str, queue: str) -> str:
    """The address to which the publishers of a queue publish."""
    return f"{INSIDE}{set_}/in/{queue}"


def egress_address(set_: str, queue: str) -> str:
    """The address from which the consumers of a queue receive."""
    return f"{INSIDE}{set_}/{_OUT}/{queue}"


def dead_letter_address(set_: str, queue: str) -> str:
    """The address to which the outboxes of sets publish what goes to the queue."""
    return f"{INSIDE}{set_}/{_DEAD}/{queue}"


def is_ingress(address: str) -> bool:
    """Whether publishers of a queue, or the outboxes of sets, publish to the address."""
    return address.startswith(INSIDE) and not is_egress(address)


def is_egress(address: str) -> bool:
    """Whether consumers of a queue receive from the address."""
    parts = address.split("/", 3)
    return address.startswith(INSIDE) and len(parts) == 4 and parts[2] == _OUT


def queue_of(address: str) -> tuple[str, str]:
    """The set and the queue that one of these addresses names."""
    _, set_, _, queue = address.split("/", 3)
    return set_, queue


def shown_address(address: str) -> str:
    """The address of a link, as clients name it."""
    parts = address.split("/", 3)
    return parts[3] if address.startswith(INSIDE) and len(parts) == 4 else address


@attrs.frozen(slots=True, order=True)
class LinkIdentity:
    """A link of a client: (container-id, link name, address); AMQP 1.0 2.6.1 with the mesh as the other container. One
    of a user that has proven who he is belongs to him: another user's of the same names is another link."""

    container: str
    link: str
    address: str
    user: str = ""

    def parts(self) -> dict[str, str]:
        """By name; the user only if there is one."""
        named = {"container": self.container, "link": self.link, "address": self.address}
        return {**named, "user": self.user} if self.user else named

    def shown(self) -> dict[str, str]:
        """The parts, as the client names them."""
        return {**self.parts(), "address": shown_address(self.address)}

    def __str__(self) -> str:
        return f"{self.container}/{self.link} on {shown_address(self.address)}"


def ingress_of(set_: str) -> LinkIdentity:
    """The link of the ingress of a set."""
    return LinkIdentity(CONTAINER, set_, ingress_address(set_, "#"))


def dead_letter_ingress_of(set_: str) -> LinkIdentity:
    """The link of the ingress of dead letters of a set."""
    return LinkIdentity(CONTAINER, set_, dead_letter_address(set_, "#"))


def ingresses_of(set_: str) -> tuple[LinkIdentity, LinkIdentity]:
    """The links of a set that take messages into its queues: every router knows them."""
    return ingress_of(set_), dead_letter_ingress_of(set_)


def is_of_sets(container: str) -> bool:
    """Whether no client may have this container-id: sets have it, or a link of it would read like one of theirs."""
    return container == CONTAINER or container.startswith(f"{CONTAINER}/")


def egress_of(set_: str, queue: str) -> LinkIdentity:
    """The link of the egress of a queue."""
    return LinkIdentity(CONTAINER, set_, egress_address(set_, queue))


class Epoch(NamedTuple):
    """The age of an attach; the later attach of a link has the higher epoch, mesh-wide and without ties. Attaches of
    two links may have the same epoch."""

    hlc: int
    router: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.hlc}.{self.router}.{self.incarnation}"


NOWHERE: Final = Epoch(0, "", 0)
"""Before any attach."""

_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def _base64url(digest: bytes) -> bytes:
    return b2a_base64(digest, newline=False).translate(_URL_SAFE)


def link_name(identity: LinkIdentity) -> bytes:
    """The 12 ASCII bytes that stand for a link identity inside the mesh and open the keys of a publisher. A client
    computes the same ones, so they are made from what it names. No client has those of a set's own link."""
    named = identity.parts() if identity.container == CONTAINER else identity.shown()
    parts = (text.encode() for text in named.values())
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return _base64url(hashlib.blake2b(framed, digest_size=9).digest())


def new_generation(epoch: Epoch) -> bytes:
    """A generation (8 bytes) for a fresh attach; epochs of a link have no ties, so its generations differ."""
    return hashlib.blake2b(str(epoch).encode(), digest_size=GENERATION_LENGTH).digest()


class KeyMaker:
    """Delivery keys of one life of a publisher: 12 bytes publisher name + 20 bytes of (generation, tag)."""

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
