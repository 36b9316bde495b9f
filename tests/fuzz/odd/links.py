"""The client's end of a link, according to the specification (AMQP 1.0 2.6, 2.7, 3.4)."""

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
    """How far a serial number is ahead of another one (RFC 1982). Negative if it is behind."""
    return (number - base + MOD // 2) % MOD - MOD // 2


@define(eq=False, repr=False)
class Link:
    session: "Session"
    name: str
    receives: bool
    handle: int
    address: str
    """The address of its node. Empty: the anonymous terminus, or a dynamic source whose address is not known yet."""
    modes: tuple[int, int]
    """The settle modes that we ask for: sender's, receiver's."""
    timeout: int = 0
    """Seconds for which the router waits for us: what we ask for, or the router's maximum."""
    former: "Kept | None" = None
    """The former link that this attach resumes."""
    heir: "Link | None" = None
    """The attach on the same session that continues this one, and gets the frames under way to it."""
    dynamic: bool = False
    continues: bool = False
    """Whether it continues a former link on the same session."""
    epoch: str | None = None
    generation: bytes | None = None
    refusable: bool = False
    """Whether a router may refuse it, as its address belongs to a dynamic node."""
    their_handle: int | None = None
    answered: bool = False
    refused: bool = False
    """It was answered without a terminus: a detach has to follow."""
    detached: bool = False
    """We have detached it. `gone`: the router has."""
    closed: bool = False
    gone: bool = False
    stolen: bool = False
    """Another attach has taken its place."""
    owes_flow: str = ""
    """Why the router owes a flow, since it has read our question."""
    asked: bool = False
    """The router has asked for a flow."""

    def __repr__(self) -> str:
        return f"{self.session.client.name}/{self.name} ({'from' if self.receives else 'to'} {self.address})"

    @property
    def usable(self) -> bool:
        """Whether both ends are attached, as far as we know."""
        return self.answered and not (self.refused or self.stolen or self.detached or self.gone or self.session.ended)


@define(eq=False)
class Container:
    """A client over several connections."""

    name: str
    draw: "Draw"
    kept: list["Kept"] = field(factory=list)
    single: list[tuple[str, bool]] = field(factory=list)
    """(name, direction) of links that exist in one direction only. The direction is whether we receive."""
    connections: list["OddConnection"] = field(factory=list)
    """The connections that are not lost."""
    connected: int = 0
    links: int = 0
    """The number of used names of links and marks of messages."""
    marks: int = 0


@define(eq=False)
class Kept:
    """What a client keeps of a detached link that it is to attach again."""

    link: Link
    until: float
    """When the router gives the link up."""
    unsettled: dict[bytes, "Sent | Received"]
    """In order."""
    named: set[bytes] = field(factory=set)
    """Keys that are in the router's map as well, and not resumed yet."""


@define(eq=False, repr=False)
class Sent:
    """A delivery that we send."""

    id: int
    tag: bytes
    message: Message
    link: "Sender"
    first: bool
    """Whether the link is in receiver settle mode first."""
    outcome: str = ""
    settles: bool = False
    """Whether its transfer is settled."""
    settled: bool = False
    """Whether we have settled it."""
    told_settled: bool = False
    known: bool = False
    """Whether the router has read its first frame."""


@define(eq=False, repr=False)
class Sender(Link):
    count: int = 0
    initial: int = 0
    credit: int = 0
    number: int = 0
    pieces: deque[dict[str, Any]] = field(factory=deque)
    """The frames of a delivery that are still to be sent."""
    under_way: Sent | None = None
    max_message: int = 0
    life: "Sender | None" = None
    """The first attach of its life. None: this one."""
    resuming: deque["Sent"] = field(factory=deque)
    """Deliveries to transfer again before new ones."""

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
    """Whether we or the router have settled it."""
    outcome: str = ""


@define(eq=False, repr=False)
class Receiver(Link):
    count: int | None = None
    """The router's delivery-count. None before its attach."""
    initial: int = 0
    room: int = 0
    """The number of deliveries that the router may still send, by the latest flow that it has read."""
    lenient: int = 0
    """The same by the other flows that it has read in one piece with that one."""
    draining: bool = False
    """Whether we drain, by the latest flow that the router has read. `may_drain`: by any flow of the same piece."""
    may_drain: bool = False
    owes_drain: bool = False
    """Whether the router owes a flow that reports the drain."""
    stated: int = 0
    """Our latest credit, the delivery-count at which we sent it, and whether we drain."""
    stated_at: int = 0
    drains: bool = False
    parts: bytes = b""
    partial: dict[str, Any] | None = None
    """The first frame of a delivery that is not complete yet."""
    tags: dict[bytes, Received] = field(factory=dict)
    """Keyed by tag: unsettled deliveries."""
    subscription: Subscription | None = None
    max_message: int = 0
    default_outcome: str = ""
    """The router's default outcome, for deliveries settled without one."""
