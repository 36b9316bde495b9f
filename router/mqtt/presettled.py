"""A topic that an MQTT client publishes to at QoS 0: a publisher's link whose deliveries are settled as they are sent.

It ends with its connection, has a name of its own, and no life for others to know of (`router.mqtt.publisher`): so it
waits for no proof that the client is here. What has come before the client was gone is transferred after that; if the
client is back at this router meanwhile, before what it publishes then.
"""

from collections import deque
from math import inf
from typing import Final

from router.edge.signs import SignsOfLife
from router.mqtt.ends import OVERHEAD, EndHost, MqttEnd
from topic.actions import AnswerPublisher, Credit, Detach, Echo, LinkAction
from topic.delivery.record import Stream
from topic.directory.entry import Role
from topic.home.ttl import OVER
from topic.identity import NOWHERE, Epoch, LinkIdentity, link_name
from topic.node import Node

LINK_QOS_0: Final = "mqtt-qos0"
"""How its name begins: what is published at QoS 0 has an order of its own (MQTT 5 4.6)."""


def _name(host: EndHost, node: Node, address: str) -> str:
    """One that no other router uses, and no end that lingers here."""
    name = first = f"{LINK_QOS_0}-{node.name}"
    while known := node.topic.directory.publisher(link_name(LinkIdentity(host.client, name, address, host.user))):
        if not known.live:
            break
        name = f"{first}-{known.epoch.hlc}"
    return name


class PresettledPublisher(MqttEnd):
    role = Role.PUBLISHER

    def __init__(self, host: EndHost, node: Node, address: str) -> None:
        super().__init__(host, node, address, _name(host, node, address))
        self.lingers = False
        """Its client has gone, and has left something that is still to be done."""
        self.signs = SignsOfLife(self, answers=False)
        self.stream: Stream | None = None
        self._waiting: deque[tuple[bytes, float]] = deque()
        """What is not transferred yet: each with when its time is over."""
        self._credit = self._count = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the client's is under way."""
        return not self._waiting

    @property
    def ended(self) -> bool:
        return super().ended and not (self.lingers and not self.is_detached)

    @property
    def epoch(self) -> Epoch | None:
        return self.stream.epoch if self.stream is not None else None

    # what the client does

    def take(self, message: bytes, until: float) -> None:
        """It goes on with `go_on`."""
        self._waiting.append((message, until))
        self.host.waiting_bytes += OVERHEAD + len(message)

    def go_on(self) -> None:
        """Transfer what may be. What comes of it is performed."""
        if self.ended:
            return
        if self.stream is None:
            known, now = self.known(), self.node.now()
            seen = known.epoch if known is not None else NOWHERE
            self.stream = self.node.topic.attach_publisher(
                self.identity, self, now, seen=seen, allowance=self.allowance
            )  # fmt: skip
            self.node.perform()
        while self._waiting and self._credit > 0:
            self._transfer([self._waiting.popleft() for _ in range(min(self._credit, len(self._waiting)))])
        if self.lingers and not self._waiting:
            self._leave()

    def _transfer(self, batch: list[tuple[bytes, float]]) -> None:
        assert self.stream is not None
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
        """What waits is transferred yet, unless the core has asked for something that was not done."""
        is_attached = self.stream is not None and not self.is_detached
        self.lingers = is_attached and bool(self._waiting) and not self.host.was_left
        if not self.lingers:
            self._leave()

    def comes_back(self) -> bool:
        """The client has, in the same session. Whether something waits still."""
        lingered, self.lingers = self.lingers, False
        return lingered

    def _leave(self) -> None:
        self.lingers = False
        self.host.waiting_bytes -= sum(OVERHEAD + len(message) for message, _ in self._waiting)
        self._waiting.clear()
        if self.stream is not None and not self.is_detached:
            self.node.topic.detach_publisher(self.stream, self.node.now())
            self.node.perform()

    # what the core asks

    def perform(self, action: LinkAction) -> None:
        match action:
            case Credit():
                self._credit += action.count
                self.node.later(self.go_on)
            case AnswerPublisher():
                self._credit = action.credit
                self.node.later(self.go_on)
            case Echo():
                self.signs.ask()
            case Detach() if self.lingers:
                self.is_detached = True
                self._leave()
            case Detach():
                self.detach(action)
            case _:
                raise AssertionError(f"of what is not settled: {action}")

    def alive(self, answered: bool) -> None:
        if not self.ended and self.stream is not None:
            self.node.now()
            self.node.topic.alive(self.stream, answered=answered)
            self.node.perform()
