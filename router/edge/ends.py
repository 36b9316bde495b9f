"""Our end of a client's link: what happens to it, and what the topic core asks of it.

An end of whatever node hears what comes on its link; those of topics also do what the core asks (`topic.actions`). A
delivery is known to the engine by a handle and to the core by a record: an end translates, for as long as the delivery
is unsettled there, and decides nothing. `publisher_link` and `subscriber_link` are the two kinds.
"""

from collections.abc import Collection, Mapping
from typing import Any, Protocol, runtime_checkable

from router.amqp.batches import Dispositions, ResumedTransfers, Transfers
from router.amqp.format.codec import Described
from router.amqp.proton.link import Link
from router.edge.attach import AttachRequest
from topic.actions import Detach, LinkAction
from topic.delivery.record import Stream
from topic.directory.entry import LinkEntry, Role
from topic.edge.subscriber import LocalSubscriber
from topic.identity import Epoch, LinkIdentity
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


class CoreEnd(Protocol):
    """An end at a topic, of AMQP or of MQTT, as far as the core has it do something."""

    @property
    def link(self) -> SeenLink: ...
    @property
    def identity(self) -> LinkIdentity: ...
    @property
    def awaits_writing(self) -> bool: ...
    def written(self) -> None: ...
    def perform(self, action: LinkAction) -> None: ...


@runtime_checkable
class PublishingEnd(CoreEnd, Protocol):
    @property
    def stream(self) -> Stream: ...


class SubscribingEnd(CoreEnd, Protocol):
    @property
    def subscriber(self) -> LocalSubscriber: ...
    @property
    def records(self) -> Collection[Any]: ...


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
        self.link.context = self.link.tells = None

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


class TopicEnd(End):
    """Of a topic."""

    __slots__ = ("lifetime", "node")

    def __init__(self, link: Link, request: AttachRequest, node: Node) -> None:
        super().__init__(link)
        self.lifetime = request.lifetime  # granted
        self.node = node

    @property
    def lasts(self) -> bool:
        return bool(self.lifetime.timeout)

    @property
    def identity(self) -> LinkIdentity:
        raise NotImplementedError

    @property
    def epoch(self) -> Epoch:
        raise NotImplementedError

    @property
    def awaits_writing(self) -> bool:
        """Whether the link is full, or soon: it is to hear when something is written."""
        return False

    def written(self) -> None:
        """What the engine held is about to be written, as far as the peer's session has room for it."""

    def perform(self, action: LinkAction) -> None:
        """Do what the core asks."""
        raise NotImplementedError

    def answer(
        self,
        properties: dict[str, str | bytes],
        unsettled: dict[bytes, int] | None,
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


class Nobody:
    """In the place of an end: what the core asks of it is left out of account."""

    ended = True

    @property
    def link(self) -> "Nobody":
        return self


def end_link(node: Node, entry: LinkEntry) -> None:
    """Close it in its client's place, wherever that was: the link is attached here, later than everywhere, and closed.
    A client that is attached out of sight is told that its link was stolen."""
    topic, nobody = node.topic, Nobody()
    link, now, seen, lifetime = entry.identity, node.now(), entry.epoch, entry.lifetime
    if entry.role is Role.SUBSCRIBER:
        subscriber = topic.attach_subscriber(link, nobody, now, seen=seen, lifetime=lifetime)
        topic.detach_subscriber(subscriber, nobody, now)
    else:
        topic.detach_publisher(topic.attach_publisher(link, nobody, now, seen=seen, lifetime=lifetime), now)
    node.perform()
