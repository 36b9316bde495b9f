"""The client's end of a link, by the specification (AMQP 1.0 2.6, 2.7, 3.4)."""

from collections import deque
from typing import TYPE_CHECKING, Any

from attrs import define, field

from tests.fuzz.odd.ledger import Message, Subscription

if TYPE_CHECKING:
    from tests.fuzz.odd.connection import OddConnection
    from tests.fuzz.odd.features import Draw
    from tests.fuzz.odd.session import Session

MOD = 2**32


def ahead(number: int, base: int) -> int:
    """How far a serial number is ahead of another (RFC 1982); negative: behind it."""
    return (number - base + MOD // 2) % MOD - MOD // 2


@define(eq=False, repr=False)
class Link:
    session: "Session"
    name: str
    receives: bool
    handle: int
    address: str
    """Of its node; empty: the anonymous terminus, or that of a dynamic source until it is known."""
    modes: tuple[int, int]
    """Asked for: sender's, receiver's."""
    timeout: int = 0
    """Seconds for which the router waits for us: those asked for, or its most."""
    former: "Kept | None" = None
    """What this attach resumes."""
    heir: "Link | None" = None
    """The attach on the same session that continues this one: what is under way to this one comes to it."""
    dynamic: bool = False
    continues: bool = False
    """A former one on the same session."""
    epoch: str | None = None
    generation: bytes | None = None
    refusable: bool = False
    """AMQP lets a router refuse it, by name."""
    their_handle: int | None = None
    answered: bool = False
    refused: bool = False
    """Answered without a terminus: a detach is to follow."""
    detached: bool = False
    """By us; `gone`: by the router."""
    closed: bool = False
    gone: bool = False
    stolen: bool = False
    """Another attach has taken its place."""
    owes_flow: str = ""
    """Why the router owes one, since it has read our question."""
    asked: bool = False
    """The router has asked for a flow."""

    def __repr__(self) -> str:
        return f"{self.session.client.name}/{self.name} ({'from' if self.receives else 'to'} {self.address})"

    @property
    def usable(self) -> bool:
        """Both ends are attached, for all we know."""
        return self.answered and not (self.refused or self.stolen or self.detached or self.gone or self.session.ended)


@define(eq=False)
class Container:
    """A client beyond one connection."""

    name: str
    draw: "Draw"
    kept: list["Kept"] = field(factory=list)
    single: list[tuple[str, bool]] = field(factory=list)
    """Names of links in one direction, and whether that is ours."""
    connections: list["OddConnection"] = field(factory=list)
    """Those that are not lost."""
    connected: int = 0
    links: int = 0
    """So many names of links, and marks of messages, are used."""
    marks: int = 0


@define(eq=False)
class Kept:
    """Of a link that is detached, and is to be attached again: what its client keeps."""

    link: Link
    until: float
    """When the router gives it up."""
    unsettled: dict[bytes, "Sent | Received"]
    """In order."""
    named: set[bytes] = field(factory=set)
    """By the router's map as well, and not resumed yet."""


@define(eq=False, repr=False)
class Sent:
    """A delivery of ours."""

    id: int
    tag: bytes
    message: Message
    link: "Sender"
    first: bool
    """In receiver settle mode first, whoever asked for it."""
    outcome: str = ""
    settles: bool = False
    """Its transfer says that it is settled."""
    settled: bool = False
    """By us."""
    told_settled: bool = False
    known: bool = False
    """The router has read its first frame."""


@define(eq=False, repr=False)
class Sender(Link):
    count: int = 0
    initial: int = 0
    credit: int = 0
    number: int = 0
    pieces: deque[dict[str, Any]] = field(factory=deque)
    """Frames of a delivery that are still to be sent."""
    under_way: Sent | None = None
    max_message: int = 0
    life: "Sender | None" = None
    """The first attach of its life; None: this one."""
    resuming: deque["Sent"] = field(factory=deque)
    """What is to be transferred again before anything new."""

    @property
    def first(self) -> "Sender":
        return self.life or self


@define(eq=False, repr=False)
class Received:
    id: int
    tag: bytes
    link: "Receiver"
    message: Message
    settled: bool = False
    """By us, or by the router."""
    outcome: str = ""


@define(eq=False, repr=False)
class Receiver(Link):
    count: int | None = None
    """The router's delivery-count; None until its attach."""
    initial: int = 0
    room: int = 0
    """Deliveries that the router may still send, by the latest flow that it has read."""
    lenient: int = 0
    """The same by the flows that it has read in one piece with that."""
    draining: bool = False
    """By the latest flow that the router has read; `may_drain`: by one of those that it has read in one piece."""
    may_drain: bool = False
    owes_drain: bool = False
    """The router owes a flow that says so."""
    stated: int = 0
    """Credit as we have said it last, at this delivery-count, and whether we drain."""
    stated_at: int = 0
    drains: bool = False
    parts: bytes = b""
    partial: dict[str, Any] | None = None
    """The first frame of a delivery that is not whole yet."""
    tags: dict[bytes, Received] = field(factory=dict)
    """Unsettled."""
    subscription: Subscription | None = None
    max_message: int = 0
    default_outcome: str = ""
    """The router's, of what is settled without an outcome."""
