"""The router's end of a client's link: it handles the link's events, and shows its state to the connection.

The end of any node handles the events of its link (`End`). An end at a topic is also an end that the core knows
(`topic.ends`), with a client behind it: of AMQP (`publisher_link` and `subscriber_link`), or of MQTT
(`router.mqtt.ends`).
"""

from collections.abc import Mapping
from typing import Any, Protocol

from router.amqp.batches import Dispositions, PostedMessage, ResumedTransfers, Transfers
from router.amqp.format.codec import Described
from router.amqp.format.errors import NO_TRANSACTIONS, NOT_IMPLEMENTED
from router.amqp.proton.link import Link
from router.edge.signs import EchoedLink, SignsOfLife
from topic.actions import Detach
from topic.ends.end import LinkEnd
from topic.ends.publishing import Known, PublishingEnd
from topic.ends.subscribing import SubscribingEnd
from topic.node import Node


class Wakeable(Protocol):
    def wake(self) -> None: ...


class SeenLink(Protocol):
    """The link of an end, as seen by code that knows ends of AMQP and of MQTT."""

    @property
    def name(self) -> str: ...
    @property
    def ended(self) -> bool: ...
    @property
    def connection(self) -> Any: ...


class WrittenEnd(Protocol):
    """An end whose link may have no more room for output."""

    @property
    def link(self) -> SeenLink: ...
    @property
    def awaits_writing(self) -> bool: ...
    def written(self) -> None: ...


class ClientEnd(LinkEnd):
    """An end at a topic that serves a client."""

    node: Node

    @property
    def link(self) -> SeenLink:
        raise NotImplementedError

    @property
    def awaits_writing(self) -> bool:
        """Whether the link has no more room for output, or nearly so. The connection then calls `written` when it
        writes."""
        return False

    def written(self) -> None:
        """The connection is about to write its output."""


class ClientPublishingEnd(ClientEnd, PublishingEnd[Known]):
    """A publisher's end. The router asks the client for signs of life."""

    signs: SignsOfLife

    @property
    def echoed(self) -> EchoedLink:
        raise NotImplementedError

    def ask(self) -> None:
        self.signs.ask()

    @property
    def answers(self) -> bool:
        return self.signs.answers


class ClientSubscribingEnd(ClientEnd, SubscribingEnd):
    records: Mapping[Any, Any]
    """The deliveries that were sent to the client and are unsettled. The keys are the client's names of the deliveries:
    handles, or packet identifiers."""


class End:
    """An end at any node. It ignores each event for which the subclass has no method."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link

    @property
    def lasts(self) -> bool:
        """Whether the terminus outlives its link."""
        return False

    @property
    def is_there(self) -> bool:
        """Whether this end is still the end of the link."""
        return self.link.context is self and not self.link.ended

    def part(self) -> None:
        """Separate the link from this end."""
        self.link.context = None

    def state(self) -> Mapping[str, int] | None:
        """The flow properties for the client, sent whenever it asks for the flow state; None if there are none."""
        return None

    @property
    def awaits_writing(self) -> bool:
        """Whether the link has no more room for output, or nearly so (`ClientEnd.awaits_writing`)."""
        return False

    def written(self) -> None:
        """The connection is about to write its output (`ClientEnd.written`)."""

    def on_credit(self) -> None: ...
    def on_transfers(self, transfers: Transfers) -> None: ...
    def on_resumed(self, resumed: ResumedTransfers) -> None: ...
    def on_dispositions(self, dispositions: Dispositions) -> None: ...
    def on_posted(self, posted: PostedMessage) -> None:
        """Handle a message within a transaction. Only queues accept it."""
        self.link.connection.expel(self.link, NOT_IMPLEMENTED, NO_TRANSACTIONS)

    def on_echo(self) -> None: ...

    def gone(self, now: float, *, closed: bool) -> None:
        """Handle the end of the link. `closed`: the terminus has ended, too."""


class AddressNode(Protocol):
    """A node to which clients attach by its address."""

    def attach(self, link: Link) -> None:
        """Give the link an end as its context, and answer the attach now or later. Raises `Refusal`."""


class TopicEnd(End, ClientEnd):
    """An end at a topic."""

    def __init__(self, link: Link) -> None:
        End.__init__(self, link)

    @property
    def lasts(self) -> bool:
        return bool(self.lifetime.timeout)

    def answer(
        self,
        properties: dict[str, str | bytes],
        unsettled: Mapping[bytes, int] | None,
        max_message: int | None = None,
        filters: Mapping[str, Described] | None = None,
    ) -> None:
        self.link.answer(
            durable=self.lifetime.durable,
            expiry_policy=self.lifetime.policy,
            timeout=self.lifetime.timeout,
            max_message_size=max_message,
            properties=properties,
            unsettled=unsettled,
            filters=filters,
        )

    def detach(self, action: Detach) -> None:
        self.part()
        self.link.detach(action.condition, action.description)
