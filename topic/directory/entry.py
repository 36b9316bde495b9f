"""What the directory is made of: one entry per link, what can become of it, and the audience of an address.

These are values. Who believes what is `topic.directory.directory`'s business.
"""

import enum
import json
from collections.abc import Iterable, Set
from typing import Any, Final

import attrs

from topic.errors import BreachError
from topic.identity import NOWHERE, Epoch, LinkIdentity, link_name


class Role(enum.IntEnum):
    """Which end of a delivery the client is."""

    PUBLISHER = 0
    SUBSCRIBER = 1


class Status(enum.IntEnum):
    """A link only moves forward through these within one epoch. Attaching again is a new epoch."""

    ATTACHED = 0
    BOUND = 1
    """Attached or suspended, and we agreed to let it expire (8, Expiry): resumed here, it begins afresh."""
    CLOSED = 2
    EXPIRED = 3


class Decision(enum.IntEnum):
    """What routers agree on about a link that has no client (8, Expiry and Apart)."""

    NOTHING = 0
    LAPSED = 1
    EXPIRED = 2


TOGETHER: Final = "client-gone"
"""An expiry policy, beside those of AMQP: the links of a client expire together, when it has none any more."""
Session = tuple[str, str]
"""Container-id and user of a client whose links do."""


@attrs.frozen(slots=True)
class Lifetime:
    """How long a terminus outlives its link, as granted to its client (AMQP 1.0 3.5.3, 3.5.4; protocol 1)."""

    timeout: int = 0
    """Seconds; 0 expires it with the loss of link or router."""
    policy: str = "session-end"
    durable: int = 0
    """1 and 2: every router remembers the link on disk, so that it outlives all of them."""


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
    """A subscriber that was attached before, by its map or by our knowledge: it may be owed what is in doubt."""
    ending: str = ""
    """A subscriber that something was accepted without, and that has not been told: by whom, and after how long."""
    aware: int = 0
    """Clock of the latest ending that a subscriber can have known of as it attached: of a later one it has to be told
    (8, Apart)."""

    @property
    def live(self) -> bool:
        return self.status < Status.CLOSED

    @property
    def lasts(self) -> bool:
        """Whether its client may come back to it when its connection, or its router, is gone."""
        return self.live and self.lifetime.timeout > 0

    @property
    def is_configured(self) -> bool:
        """Whether every router knows the link from its configuration (protocol 14.1)."""
        return self.lifetime.policy == CONFIGURED.policy

    @property
    def session(self) -> Session | None:
        """Of links that expire together."""
        is_of_one = self.lifetime.policy == TOGETHER
        return (self.identity.container, self.identity.user) if is_of_one else None

    @property
    def expired_life(self) -> bool:
        """Whether a publisher's life, a subscriber that something was accepted without, or a link of a session ended
        without its client's word: the client may not know, and come back with its map, or to what is left of it."""
        is_missed = self.role is Role.PUBLISHER or self.ending != "" or self.session is not None
        return self.status is Status.EXPIRED and is_missed

    @property
    def is_untold(self) -> bool:
        """Whether something was accepted without this subscriber, and its client has to be told. Plain ones may be of a
        router that has died."""
        return self.status is Status.EXPIRED and self.ending != "" and self.lifetime.timeout > 0

    @property
    def outlives_router(self) -> bool:
        """Whether a router that starts again is to know it: a durable link that may come back, or is not to (3.3), and
        any other with a timeout that is to be told of its end (8, Apart)."""
        if not self.lifetime.timeout:
            return False
        is_durable = self.lifetime.durable > 0
        return (is_durable and self.live) or (self.expired_life and (is_durable or self.ending != ""))

    @property
    def rank(self) -> tuple[Epoch, Status, bool]:
        """The higher is the later. Of one ending, that its client was told of it comes last."""
        return self.epoch, self.status, not self.ending

    @property
    def aware_until(self) -> int:
        """Clock of the latest ending that the client has heard of when it comes back with its map."""
        return self.aware if self.live else self.epoch.hlc

    @property
    def index(self) -> "Index":
        return self.role, self.name

    @property
    def router(self) -> str:
        return self.epoch.router

    @property
    def owner(self) -> "Owner":
        """The home or custodian: a router, and which incarnation of it."""
        return self.epoch[1:]

    def pack(self) -> list[Any]:
        identity = tuple(self.identity.parts().values())
        lifetime = (self.lifetime.timeout, self.lifetime.policy, self.lifetime.durable)
        epoch, status = tuple(self.epoch), int(self.status)
        fields = [int(self.role), identity, epoch, self.generation, status, *lifetime]
        return [*fields, self.resumed, self.ending, self.aware]


def configured_subscriber(identity: LinkIdentity) -> LinkEntry:
    """The entry of a subscriber that the configuration lists, before anybody has attached it."""
    return LinkEntry(Role.SUBSCRIBER, link_name(identity), identity, NOWHERE, lifetime=CONFIGURED)


def unpack_entry(fields: list[Any]) -> LinkEntry:
    """The entry of one packed list, of the shape that `topic.wire` has checked."""
    role, names, epoch, generation, status, timeout, policy, durable, *subscription = fields
    identity = LinkIdentity(*names)
    epoch, status, lifetime = Epoch(*epoch), Status(status), Lifetime(timeout, policy, durable)
    return LinkEntry(Role(role), link_name(identity), identity, epoch, generation, status, lifetime, *subscription)


def unpack_entries(packed: list[Any]) -> list[LinkEntry]:
    """What is told at once. Raises BreachError."""
    entries = [unpack_entry(fields) for fields in packed]
    check_once(entries)
    return entries


def check_once(entries: list[LinkEntry]) -> None:
    """A list has a link once, as it is now: what follows from a change finds the directory as that has left it. Raises
    BreachError."""
    if len({entry.index for entry in entries}) < len(entries):
        raise BreachError("one message names the same link twice")


def overtakes(seen: Epoch, known: LinkEntry | None) -> bool:
    """Whether an attach takes a live link from one that its client had not heard of as it sent it: it may be late."""
    return known is not None and known.live and seen < known.epoch


@attrs.frozen(slots=True)
class Change:
    """What applying an entry did: `old` is None for a link not known before, `new` None for one forgotten."""

    old: LinkEntry | None
    new: LinkEntry | None

    @property
    def entry(self) -> LinkEntry:
        entry = self.new or self.old
        assert entry is not None
        return entry


NOBODY: dict[bytes, None] = {}
"""Nothing is ever put into it."""


@attrs.frozen(slots=True)
class AddressAudience:
    """Who gets what is published to an address now: routers in contact (sorted) and orphans, besides the locals."""

    routers: tuple[str, ...]
    orphans: tuple[bytes, ...]
    lapsed: dict[bytes, None]
    """Subscribers that nobody waits for any more, and that have not been told (8, Apart), in order."""
    size: int
    """How many subscribers are meant, local ones included."""
    detail: str
    """JSON list of their names, for the delivery log."""
    counted_on: tuple[str, ...] = ()
    """Routers out of contact whose plain subscribers are waited for, sorted (8, Lost router)."""


Index = tuple[Role, bytes]
Owner = tuple[str, int]


def audience_of(
    router: str, members: list[tuple[LinkEntry, bool]], counted_on: Set[str], lapsed: Iterable[bytes]
) -> AddressAudience:
    """The audience at `router`: its `members`, and whether the owner of each is in contact, or counted on."""
    orphans = tuple(entry.name for entry, is_there in members if not is_there)
    routers = {entry.router for entry, is_there in members if is_there} - {router}
    names = json.dumps([entry.name.decode() for entry, _ in members])
    counts, lapsing = tuple(sorted(counted_on)), dict.fromkeys(lapsed)
    return AddressAudience(tuple(sorted(routers - counted_on)), orphans, lapsing, len(members), names, counts)
