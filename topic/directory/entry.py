"""The values of the directory: the entry of a link, the states of a link, and the audience of an address.

`topic.directory.directory` decides which news to believe.
"""

import enum
import json
from collections.abc import Iterable, Set
from typing import Any, Final

import attrs

from topic.errors import BreachError
from topic.identity import NOWHERE, Epoch, LinkIdentity, link_name


class Role(enum.IntEnum):
    """The client's end of a delivery."""

    PUBLISHER = 0
    SUBSCRIBER = 1


class Status(enum.IntEnum):
    """The states of a link within one epoch, in order; no link goes back. Attaching again is a new epoch."""

    ATTACHED = 0
    BOUND = 1
    """Attached or suspended, and this router agreed to let it expire (8, Expiry): if it is resumed here, it begins
    afresh."""
    CLOSED = 2
    EXPIRED = 3


class Decision(enum.IntEnum):
    """The result of a vote of the routers on a link without a client (8, Expiry and Apart)."""

    NOTHING = 0
    LAPSED = 1
    EXPIRED = 2


TOGETHER: Final = "client-gone"
"""An expiry policy besides the policies of AMQP: when the client has no connection any more, all its links expire
together."""
Session = tuple[str, str]
"""Container-id and user of a client whose links expire together."""


@attrs.frozen(slots=True)
class Lifetime:
    """How long a terminus outlives its link, as granted to its client (AMQP 1.0 3.5.3, 3.5.4; protocol 1)."""

    timeout: int = 0
    """Seconds; with 0 the terminus ends with the link or the router."""
    policy: str = "session-end"
    durable: int = 0
    """1 and 2: every router stores the link on disk, so that it outlives all of them."""


CONFIGURED: Final = Lifetime(timeout=1, policy="configured")
"""The lifetime of a link that the configuration of the mesh lists: the link never ends or lapses. The timeout only says
that the link outlives its router."""
FLEETING: Final = Lifetime()
"""The lifetime that AMQP grants if a client asks for none: the terminus ends with its session."""


@attrs.frozen(slots=True)
class LinkEntry:
    """One link as its home or custodian describes it; the owner is the epoch's router and incarnation."""

    role: Role
    name: bytes
    identity: LinkIdentity
    epoch: Epoch
    generation: bytes = b""
    status: Status = Status.ATTACHED
    lifetime: Lifetime = Lifetime()
    resumed: bool = False
    """Whether the subscriber was attached before, by its map or by the mesh's knowledge: it may need the messages in
    doubt."""
    ending: str = ""
    """If the subscriber has missed an accepted message and its client does not know: the router that decided this, and
    after how long."""
    aware: int = 0
    """Clock of the latest ending that the subscriber's client can have known of at its attach. The router tells the
    client of a later ending (8, Apart)."""

    @property
    def live(self) -> bool:
        return self.status < Status.CLOSED

    @property
    def lasts(self) -> bool:
        """Whether the client may resume the link after its connection, or its router, is gone."""
        return self.live and self.lifetime.timeout > 0

    @property
    def is_configured(self) -> bool:
        """Whether every router knows the link from its configuration (protocol 14.1)."""
        return self.lifetime.policy == CONFIGURED.policy

    @property
    def session(self) -> Session | None:
        """The name of the group of links that expire together, or None."""
        is_of_one = self.lifetime.policy == TOGETHER
        return (self.identity.container, self.identity.user) if is_of_one else None

    @property
    def expired_life(self) -> bool:
        """Whether the mesh ended a publisher's life, a subscriber that has missed an accepted message, or a link of a
        session. The client may not know of the ending, and may come back with its map, or to the remaining links of the
        session."""
        is_missed = self.role is Role.PUBLISHER or self.ending != "" or self.session is not None
        return self.status is Status.EXPIRED and is_missed

    @property
    def is_untold(self) -> bool:
        """Whether the subscriber has missed an accepted message, and its client has to be told. A plain subscriber does
        not count: its router may have died."""
        return self.status is Status.EXPIRED and self.ending != "" and self.lifetime.timeout > 0

    @property
    def outlives_router(self) -> bool:
        """Whether a restarted router has to know the link: a durable link that may come back or must not (3.3), and any
        other link with a timeout whose client has to be told of its ending (8, Apart)."""
        if not self.lifetime.timeout:
            return False
        is_durable = self.lifetime.durable > 0
        return (is_durable and self.live) or (self.expired_life and (is_durable or self.ending != ""))

    @property
    def rank(self) -> tuple[Epoch, Status, bool]:
        """The higher rank is the later. Of the entries of one ending, the last is that its client was told."""
        return self.epoch, self.status, not self.ending

    @property
    def aware_until(self) -> int:
        """Clock of the latest ending that the client knows when it comes back with its map."""
        return self.aware if self.live else self.epoch.hlc

    @property
    def index(self) -> "Index":
        return self.role, self.name

    @property
    def router(self) -> str:
        return self.epoch.router

    @property
    def owner(self) -> "Owner":
        """The home or custodian: a router and its incarnation."""
        return self.epoch[1:]

    def pack(self) -> list[Any]:
        identity = tuple(self.identity.parts().values())
        lifetime = (self.lifetime.timeout, self.lifetime.policy, self.lifetime.durable)
        epoch, status = tuple(self.epoch), int(self.status)
        fields = [int(self.role), identity, epoch, self.generation, status, *lifetime]
        return [*fields, self.resumed, self.ending, self.aware]


def configured_subscriber(identity: LinkIdentity) -> LinkEntry:
    """The entry of a subscriber that the configuration lists, before its first attach."""
    return LinkEntry(Role.SUBSCRIBER, link_name(identity), identity, NOWHERE, lifetime=CONFIGURED)


def unpack_entry(fields: list[Any]) -> LinkEntry:
    """The entry of a packed list, whose shape `topic.wire` has checked."""
    role, names, epoch, generation, status, timeout, policy, durable, *subscription = fields
    identity = LinkIdentity(*names)
    epoch, status, lifetime = Epoch(*epoch), Status(status), Lifetime(timeout, policy, durable)
    return LinkEntry(Role(role), link_name(identity), identity, epoch, generation, status, lifetime, *subscription)


def unpack_entries(packed: list[Any]) -> list[LinkEntry]:
    """The entries of one message. Raises BreachError if a link occurs twice."""
    entries = [unpack_entry(fields) for fields in packed]
    check_once(entries)
    return entries


def check_once(entries: list[LinkEntry]) -> None:
    """Check that no link occurs twice: the consequences of a change are drawn from the directory right after it. Raises
    BreachError."""
    if len({entry.index for entry in entries}) < len(entries):
        raise BreachError("one message names the same link twice")


def overtakes(seen: Epoch, known: LinkEntry | None) -> bool:
    """Whether an attach takes a live link from an epoch that its client did not know when it sent the attach: it may be
    late."""
    return known is not None and known.live and seen < known.epoch


@attrs.frozen(slots=True)
class Change:
    """The effect of applying an entry: `old` is None for a link not known before, `new` None for a forgotten one."""

    old: LinkEntry | None
    new: LinkEntry | None

    @property
    def entry(self) -> LinkEntry:
        entry = self.new or self.old
        assert entry is not None
        return entry


NOBODY: dict[bytes, None] = {}
"""No subscribers. Many objects share this dict, so it stays empty."""


@attrs.frozen(slots=True)
class AddressAudience:
    """The audience of a message published to an address now: routers in contact (sorted) and orphans, besides local
    subscribers."""

    routers: tuple[str, ...]
    orphans: tuple[bytes, ...]
    lapsed: dict[bytes, None]
    """Subscribers that the home does not wait for, and whose clients do not know that yet (8, Apart), in order."""
    size: int
    """Number of subscribers, local ones included."""
    detail: str
    """JSON list of their names, for the delivery log."""
    counted_on: tuple[str, ...] = ()
    """Routers out of contact for whose plain subscribers the home waits, sorted (8, Lost router)."""


Index = tuple[Role, bytes]
Owner = tuple[str, int]


def audience_of(
    router: str, members: list[tuple[LinkEntry, bool]], counted_on: Set[str], lapsed: Iterable[bytes]
) -> AddressAudience:
    """The audience at `router`. `members` pairs each subscriber with whether its owner is in contact, or counted on."""
    orphans = tuple(entry.name for entry, is_there in members if not is_there)
    routers = {entry.router for entry, is_there in members if is_there} - {router}
    names = json.dumps([entry.name.decode() for entry, _ in members])
    counts, lapsing = tuple(sorted(counted_on)), dict.fromkeys(lapsed)
    return AddressAudience(tuple(sorted(routers - counted_on)), orphans, lapsing, len(members), names, counts)
