"""What the client edge keeps of each link: the engine's link, the core's token, and the deliveries in between.

A delivery is known to the engine by a handle and to the core by a record. Each end of a link translates, for as long as
the delivery is unsettled there; nothing is decided here.
"""

from collections.abc import Sequence

from router.amqp.handler import SND_SETTLED, Handle
from router.amqp.link import Link
from router.signs import SignsOfLife
from topic.directory import Lifetime
from topic.node import Node
from topic.record import Record, Stream
from topic.subscriber import Subscriber


class PublisherLink:
    """A link that we receive from, and its deliveries that are not settled."""

    __slots__ = ("_node", "handles", "lifetime", "link", "records", "signs", "stream")

    def __init__(self, link: Link, lifetime: Lifetime, node: Node) -> None:
        self.link = link
        self.lifetime = lifetime  # granted
        self.stream: Stream
        self.signs = SignsOfLife(link, self._alive)
        self._node = node
        self.handles: dict[Record, Handle] = {}
        self.records: dict[Handle, Record] = {}

    def _alive(self, answered: bool) -> None:
        """The client was there when it was last asked."""
        if self.link.context is self:
            self._node.now()
            self._node.topic.alive(self.stream)
            self._node.perform()


class SubscriberLink:
    """A link that we send to, and its deliveries that are not settled."""

    __slots__ = ("handles", "lifetime", "link", "records", "sends_settled", "subscriber")

    def __init__(self, link: Link, lifetime: Lifetime) -> None:
        self.link = link
        self.lifetime = lifetime  # granted
        self.subscriber: Subscriber
        self.sends_settled = link.remote_snd_settle_mode == SND_SETTLED
        self.handles: dict[Record, Handle] = {}
        self.records: dict[Handle, Record] = {}

    def settle(self, records: Sequence[Record]) -> None:
        """Settle those of the records that are still unsettled on this link."""
        take = self.handles.pop
        handles = [handle for record in records if (handle := take(record, None)) is not None]
        for handle in handles:
            del self.records[handle]
        self.link.settle_many(handles)


class StatusLink:
    """A link from `$status`: a message with the router's status for every credit."""

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = 0
