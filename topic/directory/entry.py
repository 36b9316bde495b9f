"""The values in the directory: the entry of a link, the states of a link, and the audience of an address.

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
    """Whether the client of a link publishes or subscribes."""

    PUBLISHER = 0
    SUBSCRIBER = 1


class Status(enum.IntEnum):
    """The states of a link within one epoch. A link never returns to an earlier state; a new attach is a new epoch."""

    ATTACHED = 0
    BOUND = 1
    """The link is attached or suspended, and this router has agreed to let it expire (8, Expiry). If its client resumes
    it here, the link begins afresh."""
    CLOSED = 2
    EXPIRED = 3


class Decision(enum.IntEnum):
    """The result of a vote of the routers on a link without a client (8, Expiry and Apart)."""

    NOTHING = 0
    LAPSED = 1
    EXPIRED = 2


TOGETHER: Final = "client-gone"
"""A policy of expiry that AMQP does not have: when the client has no connection any more, all its links expire
together."""
Session = tuple[str, str]
"""The container-id and the user of a client whose links expire together."""


@attrs.frozen(slots=True)
class Lifetime:
    """How long a terminus outlives its link, as the router has granted it to the client (AMQP 1.0 3.5.3, 3.5.4;
    protocol 1)."""

    timeout: int = 0
    """The timeout in seconds. With 0, the terminus ends with its link or its router."""
    policy: str = "session-end"
    durable: int = 0
    """The terminus durability of AMQP. With 1 or 2, every router stores the link on disk, so that the link outlives all
    routers."""


CONFIGURED: Final = Lifetime(timeout=1, policy="configured")
"""The lifetime of a link that the configuration of the mesh lists. Such a link never ends and never lapses. Its timeout
only marks that the link outlives its router."""
FLEETING: Final = Lifetime()
"""The lifetime of AMQP for a client that asks for none: the terminus ends with its session."""


@attrs.frozen(slots=True)
class LinkEntry:
    """The entry of a link in a section, as its home or custodian (the owner) has written it. The epoch names the owner:
    the router and its incarnation."""

    role: Role
    name: bytes
    identity: LinkIdentity
    epoch: Epoch
    generation: bytes = b""
    status: Status = Status.ATTACHED
    lifetime: Lifetime = Lifetime()
    resumed: bool = False
    """Whether the subscriber was attached before, according to its map or to the routers. If so, it may need the
    messages in doubt."""
    ending: str = ""
    """If a subscriber has missed an accepted message, and its client has not been told yet: the text for the client.
    Otherwise empty. The text names the router that decided to end the link, and the time for which the subscriber had
    been away."""
    aware: int = 0
    """The clock of the latest ending of the subscriber's link that the client can have known when the client attached.
    The router tells the client of any later ending (8, Apart)."""
    options: int = 0
    """The options of a subscription, as its client's protocol packs them. The mesh hands them to the client's next
    router, and does not read them."""

    @property
    def live(self) -> bool:
        return self.status < Status.CLOSED

    @property
    def lasts(self) -> bool:
        """Whether the client may resume the link after its connection, or its router, is gone."""
        return self.live and self.lifetime.timeout > 0

    @property
    def is_configured(self) -> bool:
        """Whether the configuration lists the link, so that every router knows it (protocol 14.1)."""
        return self.lifetime.policy == CONFIGURED.policy

    @property
    def session(self) -> Session | None:
        """The name of the group of links that expire together; None if the link belongs to no group."""
        is_of_one = self.lifetime.policy == TOGETHER
        return (self.identity.container, self.identity.user) if is_of_one else None

    @property
    def expired_life(self) -> bool:
        """Whether a life has ended to which the client may still come back, because it may not know of the ending. This
        can be a publisher's life, a subscriber that has missed an accepted message, or a link of a session. The client
        may then attach with its map, or use the remaining links of the session."""
        is_missed = self.role is Role.PUBLISHER or self.ending != "" or self.session is not None
        return self.status is Status.EXPIRED and is_missed

    @property
    def is_untold(self) -> bool:
        """Whether the subscriber has missed an accepted message and its client has yet to be told. A plain subscriber
        does not count, because it may have missed the message when its router died."""
        return self.status is Status.EXPIRED and self.ending != "" and self.lifetime.timeout > 0

    @property
    def outlives_router(self) -> bool:
        """Whether a restarted router has to know the link. It has to know a durable link that may come back, or that
        must not come back (3.3). It also has to know any other link with a timeout, if the client has to be told of the
        link's ending (8, Apart)."""
        if not self.lifetime.timeout:
            return False
        is_durable = self.lifetime.durable > 0
        return (is_durable and self.live) or (self.expired_life and (is_durable or self.ending != ""))

    @property
    def rank(self) -> tuple[Epoch, Status, bool]:
        """The key by which the entries of one link are ordered. Of two entries, the one with the higher rank is later.
        An ended link has first an entry with an `ending`, until the client knows of the ending, and then an entry
        without it."""
        return self.epoch, self.status, not self.ending

    @property
    def aware_until(self) -> int:
        """The clock of the latest ending that the client will know when the client comes back with its map."""
        return self.aware if self.live else self.epoch.hlc

    @property
    def index(self) -> "Index":
        return self.role, self.name

    @property
    def router(self) -> str:
        return self.epoch.router

    @property
    def owner(self) -> "Owner":
        """The home or custodian of the link, as a router and its incarnation."""
        return self.epoch[1:]

    def pack(self) -> list[Any]:
        identity = tuple(self.identity.parts().values())
        lifetime = (self.lifetime.timeout, self.lifetime.policy, self.lifetime.durable)
        epoch, status = tuple(self.epoch), int(self.status)
        fields = [int(self.role), identity, epoch, self.generation, status, *lifetime]
        return [*fields, self.resumed, self.ending, self.aware, *([self.options] if self.options else ())]


def configured_subscriber(identity: LinkIdentity) -> LinkEntry:
    """The entry, before the first attach, of a subscriber that the configuration lists."""
    return LinkEntry(Role.SUBSCRIBER, link_name(identity), identity, NOWHERE, lifetime=CONFIGURED)


def unpack_entry(fields: list[Any]) -> LinkEntry:
    """Make an entry from its packed form, a list whose shape `topic.wire` has checked."""
    role, names, epoch, generation, status, timeout, policy, durable, *subscription = fields
    identity = LinkIdentity(*names)
    epoch, status, lifetime = Epoch(*epoch), Status(status), Lifetime(timeout, policy, durable)
    return LinkEntry(Role(role), link_name(identity), identity, epoch, generation, status, lifetime, *subscription)


def unpack_entries(packed: list[Any]) -> list[LinkEntry]:
    """Make the entries of one message from their packed form. Raises BreachError if a link occurs twice."""
    entries = [unpack_entry(fields) for fields in packed]
    check_once(entries)
    return entries


def check_once(entries: list[LinkEntry]) -> None:
    """Raise BreachError if a link occurs twice. The router acts on each change after it has applied the whole message,
    so it would misread a second change of the same link."""
    if len({entry.index for entry in entries}) < len(entries):
        raise BreachError("one message names the same link twice")


def overtakes(seen: Epoch, known: LinkEntry | None) -> bool:
    """Whether an attach may be late: the link is live in an epoch that its client did not know when it sent the
    attach."""
    return known is not None and known.live and seen < known.epoch


@attrs.frozen(slots=True)
class Change:
    """A change of one link in the directory. `old` is None if the link was unknown, `new` is None if it is now
    forgotten."""

    old: LinkEntry | None
    new: LinkEntry | None

    @property
    def entry(self) -> LinkEntry:
        entry = self.new or self.old
        assert entry is not None
        return entry


NOBODY: dict[bytes, None] = {}
"""The empty set of subscribers. Many objects share this dict, so it must stay empty."""


@attrs.frozen(slots=True)
class AddressAudience:
    """The audience of a message that is published to an address now. `routers`: the routers in contact with
    subscribers, sorted, without this router. `orphans`: the names of the subscribers whose routers are not in
    contact."""

    routers: tuple[str, ...]
    orphans: tuple[bytes, ...]
    lapsed: dict[bytes, None]
    """The subscribers for which the home does not wait, in order. Their clients do not know this yet (8, Apart)."""
    size: int
    """The number of subscribers in the audience, including local ones."""
    detail: str
    """The names of the subscribers as a JSON list, for the delivery log."""
    counted_on: tuple[str, ...] = ()
    """The routers out of contact for whose plain subscribers the home still waits, sorted (8, Lost router)."""


Index = tuple[Role, bytes]
Owner = tuple[str, int]


def audience_of(
    router: str, members: list[tuple[LinkEntry, bool]], counted_on: Set[str], lapsed: Iterable[bytes]
) -> AddressAudience:
    """The audience as `router` sees it. `members` has each subscriber, and True if the subscriber's owner is in contact
    or the home still waits for the owner (`counted_on`)."""
    orphans = tuple(entry.name for entry, is_there in members if not is_there)
    routers = {entry.router for entry, is_there in members if is_there} - {router}
    names = json.dumps([entry.name.decode() for entry, _ in members])
    counts, lapsing = tuple(sorted(counted_on)), dict.fromkeys(lapsed)
    return AddressAudience(tuple(sorted(routers - counted_on)), orphans, lapsing, len(members), names, counts)
