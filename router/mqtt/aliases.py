"""The topic aliases of one connection, in both directions (MQTT 5 3.3.2.3.4). They end with the connection."""

from typing import Final

from attrs import evolve

from router.edge.attach import LONGEST_ADDRESS
from router.mqtt.format.fields import text
from router.mqtt.format.packets import PublishPacket
from router.mqtt.format.values import MqttError, Reason

MOST_ALIASES: Final = 64
"""The highest number of topic aliases in each direction."""
ALIAS: Final = "topic-alias"
SHORTEST: Final = 8
"""The router uses an alias only for a topic of at least this number of bytes. An alias saves few bytes, or none, for a
shorter topic: a PUBLISH with an alias has an empty topic, and a property with the alias."""
NO_TOPIC: Final = text("")


class ReceivedAliases:
    """The topics to which a client has given aliases."""

    def __init__(self) -> None:
        self._topics: dict[int, str] = {}

    def named(self, packet: PublishPacket) -> PublishPacket:
        """The packet with its topic in place of its alias. Raises MqttError if the alias is too high, or unknown."""
        found = dict(packet.properties)
        alias = found.pop(ALIAS)
        if not 0 < alias <= MOST_ALIASES:
            raise MqttError(Reason.BAD_ALIAS, f"the client used the topic alias {alias}, expected 1 to {MOST_ALIASES}")
        if packet.topic:
            # Keep only this much of a topic, which bounds the memory.
            # A topic that is cut is too long, so each use of its alias is refused.
            self._topics[alias] = packet.topic[: LONGEST_ADDRESS + 1]
        elif alias not in self._topics:
            raise MqttError(Reason.PROTOCOL_ERROR, f"the client used the topic alias {alias} before it gave its topic")
        return evolve(packet, topic=packet.topic or self._topics[alias], properties=found)


class SentAliases:
    """The aliases that the router uses for a client: one for each of the first topics that it sends."""

    def __init__(self, most: int) -> None:
        """`most`: the *topic alias maximum* of the client's CONNECT."""
        self._most = min(most, MOST_ALIASES)
        self._aliases: dict[bytes, int] = {}

    def alias_of(self, topic: bytes) -> int:
        """The alias of this encoded topic; 0 if the topic gets none. The client may not know the alias yet."""
        if len(topic) - len(NO_TOPIC) < SHORTEST:
            return 0
        return self._aliases.get(topic) or (len(self._aliases) + 1 if len(self._aliases) < self._most else 0)

    def shown(self, topic: bytes) -> bytes:
        """The encoded topic for a PUBLISH that has the topic's alias. It is empty if the client knows the alias."""
        return NO_TOPIC if topic in self._aliases else topic

    def was_sent(self, topic: bytes, alias: int) -> None:
        """The client has received this alias together with its topic."""
        self._aliases[topic] = alias
