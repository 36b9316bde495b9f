"""Our end of a client's link: what happens to it, and what its connection has to do with it.

An end of whatever node hears what comes on its link (`End`). One at a topic is also an end that the core knows
(`topic.ends`), of a client: of AMQP (`publisher_link` and `subscriber_link`), or of MQTT (`router.mqtt.ends`).
"""

from collections.abc import Mapping
from typing import Any, Protocol

from router.amqp.batches import Dispositions, ResumedTransfers, Transfers
from router.amqp.format.codec import Described
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
    """The link of an end, as seen by those who know ends of AMQP and of MQTT."""

    @property
    def name(self) -> str: ...
    @property
    def ended(self) -> bool: ...
    @property
    def connection(self) -> Any: ...


class ClientEnd(LinkEnd):
    """An end at a topic behind which there is a client."""

    node: Node

    @property
    def link(self) -> SeenLink:
        raise NotImplementedError

    @property
    def awaits_writing(self) -> bool:
        """Whether the link is full, or soon: it is to hear when something is written."""
        return False

    def written(self) -> None:
        """What the connection held is about to be written."""


class ClientPublishingEnd(ClientEnd, PublishingEnd[Known]):
    """A client that publishes is asked for signs of life."""

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
    """What it was sent, and has not settled, by what it knows that by."""


class End:
    """Of any node: what happens on its link. It leaves out of account whatever it does not say otherwise."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link

    @property
    def lasts(self) -> bool:
        """Whether the terminus outlives the link."""
        return False

    @property
    def is_there(self) -> bool:
        """Whether the link still has this end."""
        return self.link.context is self and not self.link.ended

    def part(self) -> None:
        """The link has no use for this end any more: it knows it no longer."""
        self.link.context = None

    def state(self) -> Mapping[str, int] | None:
        """What the client is told of its link whenever it asks for the flow state."""
        return None

    def on_credit(self) -> None: ...
    def on_transfers(self, transfers: Transfers) -> None: ...
    def on_resumed(self, resumed: ResumedTransfers) -> None: ...
    def on_dispositions(self, dispositions: Dispositions) -> None: ...
    def on_echo(self) -> None: ...

    def gone(self, now: float, *, closed: bool) -> None:
        """The link is over; `closed`: the terminus too."""


class AddressNode(Protocol):
    """What clients attach to, by its address."""

    def attach(self, link: Link) -> None:
        """Give the link an end for its context, and answer it, now or later; or raise `Refusal`."""


class TopicEnd(End, ClientEnd):
    """Of a topic."""

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
