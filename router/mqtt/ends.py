"""Our end of what is for the mesh one link of an MQTT client: a topic that it publishes to, or is subscribed to.

It stands on the same base as an end of AMQP (`router.edge.ends.ClientEnd`), and is its own link. What the client knows
of a delivery is an identifier of 16 bits, which the session keeps.
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
"""Of one for what it publishes at QoS 1: that link settles first, and has an order of its own (MQTT 5 4.6)."""
LASTING: Final = LINK, LINK_QOS_1
OVERHEAD: Final = 256
"""Bytes of what is kept beside a message, about: it may have none itself."""


class EndHost(Protocol):
    """The session, as its ends see it."""

    client: str
    user: str
    timeout: int
    """Seconds for which the session outlives its connection; 0: it does not."""
    connection: MqttConnection | None
    """None while the client is away."""
    was_left: bool
    """The router had said goodbye before the client was gone: what the core has asked since then was not done."""
    waiting_bytes: int
    """Of messages that the client has sent, and no link has taken yet, each with `OVERHEAD`."""

    def lifetime(self, durable: int) -> Lifetime:
        """Of what is attached now."""

    def lost(self, action: Detach) -> None:
        """The core has detached an end."""


class Absent:
    """In the place of the connection of a client that has gone."""

    can_prove = False

    def measure(self) -> None: ...
    def wake(self) -> None: ...
    def prove(self, told: Callable[[], None]) -> None: ...


ABSENT: Final = Absent()


def living(known: Collection[LinkEntry]) -> dict[Index, Epoch]:
    """The live ones of these links, each with its attach."""
    return {entry.index: entry.epoch for entry in known if entry.live}


def is_over(known: Collection[LinkEntry]) -> bool:
    """Whether the session of the client with these links has expired, or may have by now, or has missed something.
    The one that was attached last expires first (protocol 8), so that it tells; what ended before that was of a former
    session."""
    last = max(known, key=lambda entry: entry.epoch, default=None)
    if last is None or not last.live or any(entry.ending for entry in known):
        return last is not None
    return any(entry.status is Status.BOUND and entry.owner == last.owner for entry in known)


def elsewhere(known: Iterable[LinkEntry], here: Iterable["MqttEnd"]) -> list[LinkEntry]:
    """Of the client's live links those that are none of these ends, or of one that has not begun here."""
    ours = {end.index for end in here if end.epoch is not None}
    return [entry for entry in known if entry.live and entry.index not in ours]


def are_whole(known: Iterable[LinkEntry], here: Collection["MqttEnd"]) -> bool:
    """Whether nothing that is under way at these ends is elsewhere: none of them was since, nor has the client
    subscribed there since it came here. What it publishes elsewhere has nothing under way here."""
    came = min((end.epoch for end in here if end.epoch is not None), default=NOWHERE)
    since = [entry for entry in elsewhere(known, here) if entry.role is Role.SUBSCRIBER and entry.epoch > came]
    return all(end.is_current for end in here) and not since


class MqttEnd(ClientEnd):
    """Of either kind. It is its own link."""

    host: EndHost
    _awaited: tuple[MqttConnection | Absent, Callable[[], None]] | None = None

    @property
    def name(self) -> str:
        return self.identity.link

    @property
    def topic(self) -> str:
        """The topic, as the client names it."""
        return shown_address(self.identity.address)

    @property
    def link(self) -> "MqttEnd":
        return self

    @property
    def is_there(self) -> bool:
        return self.epoch is not None and not self.ended

    @property
    def allowance(self) -> Allowance | None:
        """Of the client's connection, for what it publishes."""
        account = self.host.connection.account if self.host.connection is not None else None
        return account if isinstance(account, Allowance) else None

    @property
    def connection(self) -> "MqttConnection | Absent":
        """While it has not ended."""
        return self.host.connection or ABSENT

    @property
    def ended(self) -> bool:
        connection = self.host.connection
        return self.is_detached or connection is None or connection.is_over

    @property
    def echoed(self) -> "MqttEnd":
        return self

    def echo(self) -> None:
        """No client answers any: its machine does."""

    def when_certain(self, then: Callable[[], None]) -> None:
        """Call it when it is certain that the client is here; at once where the kernel does not tell."""
        if self.connection.can_prove:
            self._awaited = self.connection, then
            self.connection.prove(self._certain)
        else:
            then()

    def _certain(self) -> None:
        (connection, then), self._awaited = self._awaited or (None, None), None
        if then is not None and self.connection is connection:  # else it is over, and the client's next one is asked
            then()

    def gone(self, now: float, *, closed: bool) -> None:
        """The connection is over; `closed`: the session too."""
        raise NotImplementedError

    def detach(self, action: Detach) -> None:
        self.host.lost(action)


def identity_at(host: EndHost, name: str, address: str) -> LinkIdentity:
    """Of a client's link of this name."""
    return LinkIdentity(host.client, name, address, host.user)
