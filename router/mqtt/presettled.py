"""A topic to which an MQTT client publishes at QoS 0: a publisher's link whose deliveries are presettled.

The link ends with its connection. Each link has a new name. So no other router knows an earlier life of the link
(`router.mqtt.publisher`), and the link need not wait for the proof that the client is here.

When the client disconnects, the router still transfers the messages that it has received. If the client comes back to
this router meanwhile, the router transfers these messages before the client's new ones."""

from collections import deque
from math import inf
from typing import Any, Final

from router.edge.ends import ClientPublishingEnd
from router.edge.signs import SignsOfLife
from router.mqtt.ends import OVERHEAD, EndHost, MqttEnd, identity_at
from topic.actions import AnswerPublisher, Detach
from topic.directory.entry import Lifetime
from topic.home.ttl import OVER
from topic.identity import link_name
from topic.node import Node

LINK_QOS_0: Final = "mqtt-qos0"
"""The beginning of the link's name. Links for QoS 0 have names of their own, because messages of QoS 0 have an order of
their own (MQTT 5 4.6)."""


def _name(host: EndHost, node: Node, address: str) -> str:
    """A link name that is new: no other router uses it, and no end of this router that still transfers messages of a
    client that has gone."""
    name = first = f"{LINK_QOS_0}-{node.name}"
    while known := node.topic.directory.publisher(link_name(identity_at(host, name, address))):
        if not known.live:
            break
        name = f"{first}-{known.epoch.hlc}"
    return name


class PresettledPublisher(MqttEnd, ClientPublishingEnd[Any]):
    def __init__(self, host: EndHost, node: Node, address: str) -> None:
        identity = identity_at(host, _name(host, node, address), address)
        ClientPublishingEnd.__init__(self, node, identity, Lifetime(), settles_first=False)
        self.host = host
        self.lingers = False
        """Whether the client has gone, and its messages are still to be transferred."""
        self.signs = SignsOfLife(self, answers=False)
        self._waiting: deque[tuple[bytes, float]] = deque()
        """The messages to be transferred. Each has the time at which it expires."""
        self._credit = self._count = 0

    @property
    def is_idle(self) -> bool:
        """Whether none of the client's messages waits."""
        return not self._waiting

    @property
    def ended(self) -> bool:
        return super().ended and not (self.lingers and not self.is_detached)

    # The client's session calls the methods from here on.

    def take(self, message: bytes, until: float) -> None:
        """Add a message, which `go_on` will transfer."""
        self._waiting.append((message, until))
        self.host.waiting_bytes += OVERHEAD + len(message)

    def go_on(self) -> None:
        """Transfer as many messages as the credit allows, and perform the core's actions."""
        if self.ended:
            return
        if self.epoch is None:
            now = self.node.now()
            self.attach(self.claim(None), now, self.allowance)
            self.node.perform()
        while self._waiting and self._credit > 0:
            self._transfer([self._waiting.popleft() for _ in range(min(self._credit, len(self._waiting)))])
        if self.lingers and not self._waiting:
            self._leave()

    def _transfer(self, batch: list[tuple[bytes, float]]) -> None:
        self._credit -= len(batch)
        tags = [(self._count + number).to_bytes(8, "big") for number in range(len(batch))]
        self._count += len(batch)
        messages, now = [message for message, _ in batch], self.node.now()
        self.host.waiting_bytes -= sum(map(len, messages)) + OVERHEAD * len(messages)
        is_timed = any(until < inf for _, until in batch)
        left = [until if until > now else OVER for _, until in batch] if is_timed else None
        self.node.topic.publish(self.stream, tags, messages, presettled=True, until=left)
        self.node.perform()

    def gone(self, now: float, *, closed: bool) -> None:
        """The client has gone. Its messages are still transferred, unless the core has detached the link meanwhile."""
        is_attached = self.epoch is not None and not self.is_detached
        self.lingers = is_attached and bool(self._waiting) and not self.host.was_left
        if not self.lingers:
            self._leave()

    def comes_back(self) -> bool:
        """The client has come back, in the same session. Returns whether messages still wait."""
        lingered, self.lingers = self.lingers, False
        return lingered

    def _leave(self) -> None:
        self.lingers = False
        self.host.waiting_bytes -= sum(OVERHEAD + len(message) for message, _ in self._waiting)
        self._waiting.clear()
        self.leave(self.node.now(), closed=True)
        self.node.perform()

    # The core calls the methods from here on.

    def begin(self, action: AnswerPublisher) -> None:
        self._credit = action.credit
        self.node.later(self.go_on)

    def grant(self, count: int) -> None:
        self._credit += count
        self.node.later(self.go_on)

    def detach(self, action: Detach) -> None:
        if self.lingers:
            self._leave()
        else:
            super().detach(action)
