"""The router's end of one link of an MQTT client: a topic that the client publishes to or subscribes to.

Like an AMQP end it is a `router.edge.ends.ClientEnd`, and it is its own link. The client names a delivery by a packet
identifier of 16 bits, which the session keeps.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from router.edge.ends import ClientEnd
from router.mqtt.connection import MqttConnection
from topic.actions import Detach
from topic.delivery.allowance import Allowance
from topic.directory.entry import Index, Lifetime, LinkEntry, Role, Status
from topic.identity import NOWHERE, Epoch, LinkIdentity, shown_address

LINK: Final = "mqtt"
"""The name of a client's link to a topic."""
LINK_QOS_1: Final = "mqtt-qos1"
"""The name of the link for messages of QoS 1. It is a link of its own, because its end here settles first, and because
messages of QoS 1 have an order of their own (MQTT 5 4.6)."""
LASTING: Final = LINK, LINK_QOS_1
OVERHEAD: Final = 256
"""About how many bytes of memory a message takes besides its content. The content may be empty."""


class EndHost(Protocol):
    """The session, as its ends see it."""

    client: str
    user: str
    timeout: int
    """The seconds for which the session outlives its connection; 0: not at all."""
    connection: MqttConnection | None
    """The client's connection; None while the client is away."""
    was_left: bool
    """Whether the router had begun to end the connection before the client went. From that moment on, the router
    performs no actions of the core for the client."""
    waiting_bytes: int
    """The bytes of the messages that the client has sent and that no link has transferred yet, with `OVERHEAD` for each
    message."""

    def lifetime(self, durable: int) -> Lifetime:
        """The lifetime that a link gets when it is attached now."""

    def link_detached(self, action: Detach) -> None:
        """The core has detached an end."""


class Absent:
    """Replaces the connection of a client that has gone."""

    can_prove = False

    def measure(self) -> None: ...
    def wake(self) -> None: ...
    def prove(self, told: Callable[[], None]) -> None: ...


ABSENT: Final = Absent()


def living(known: Collection[LinkEntry]) -> dict[Index, Epoch]:
    """Maps each live link among these to the epoch of its attach."""
    return {entry.index: entry.epoch for entry in known if entry.live}


def is_over(known: Collection[LinkEntry]) -> bool:
    """Whether the session with these links has expired, may have expired by now, or has missed messages. The link with
    the latest attach decides: when a session expires, this link expires first (protocol 8). So a link that has ended
    while this one lives was left over from a former session."""
    last = max(known, key=lambda entry: entry.epoch, default=None)
    if last is None or not last.live or any(entry.ending for entry in known):
        return last is not None
    return any(entry.status is Status.BOUND and entry.owner == last.owner for entry in known)


def elsewhere(known: Iterable[LinkEntry], here: Iterable["MqttEnd"]) -> list[LinkEntry]:
    """The client's live links that are attached by none of these ends."""
    ours = {end.index for end in here if end.epoch is not None}
    return [entry for entry in known if entry.live and entry.index not in ours]


def are_whole(known: Iterable[LinkEntry], here: Collection["MqttEnd"]) -> bool:
    """Whether this router still has everything that is in progress at these ends. It lacks something if a later attach
    elsewhere has superseded one of the ends, or if the client has subscribed elsewhere since it came here. A publisher
    elsewhere does not matter, because none of its messages are in progress here."""
    came = min((end.epoch for end in here if end.epoch is not None), default=NOWHERE)
    since = [entry for entry in elsewhere(known, here) if entry.role is Role.SUBSCRIBER and entry.epoch > came]
    return all(end.is_current for end in here) and not since


class MqttEnd(ClientEnd):
    """The end of a publisher or of a subscriber. It is its own link."""

    host: EndHost
    _awaited: tuple[MqttConnection | Absent, Callable[[], None]] | None = None

    @property
    def name(self) -> str:
        return self.identity.link

    @property
    def topic(self) -> str:
        """The topic of this link, as the client names it."""
        return shown_address(self.identity.address)

    @property
    def link(self) -> "MqttEnd":
        return self

    @property
    def is_there(self) -> bool:
        return self.epoch is not None and not self.ended

    @property
    def allowance(self) -> Allowance | None:
        """The limit of the client's connection for messages that the client publishes."""
        account = self.host.connection.account if self.host.connection is not None else None
        return account if isinstance(account, Allowance) else None

    @property
    def connection(self) -> "MqttConnection | Absent":
        """The client's connection; `ABSENT` while the client is away."""
        return self.host.connection or ABSENT

    @property
    def ended(self) -> bool:
        connection = self.host.connection
        return self.is_detached or connection is None or connection.is_over

    @property
    def echoed(self) -> "MqttEnd":
        return self

    def echo(self) -> None:
        """Do nothing, because an MQTT client has no packet that answers an echo. `when_certain` asks the kernel of the
        client's machine instead."""

    def when_certain(self, then: Callable[[], None]) -> None:
        """Call `then` when it is certain that the client is here. If the kernel cannot prove this, call `then` at
        once."""
        if self.connection.can_prove:
            self._awaited = self.connection, then
            self.connection.prove(self._certain)
        else:
            then()

    def _certain(self) -> None:
        (connection, then), self._awaited = self._awaited or (None, None), None
        # A proof for an earlier connection does not count: it does not show that the client is here now.
        if then is not None and self.connection is connection:
            then()

    def gone(self, now: float, *, closed: bool) -> None:
        """The connection is over. If `closed`, the session is over, too."""
        raise NotImplementedError

    def detach(self, action: Detach) -> None:
        self.host.link_detached(action)


def identity_at(host: EndHost, name: str, address: str) -> LinkIdentity:
    """The identity of the client's link with this name to this address."""
    return LinkIdentity(host.client, name, address, host.user)
