"""Temporary queues: a source or a target without an address that asks for a queue (AMQP 1.0 3.5.3, 3.5.4; protocol
14.21).

    client ── attach ─▶ TemporaryAttach ── Declare ─▶ set      set ── decided ─▶ the link is attached to the queue

The attach is answered when a majority has declared the queue. The queue has a name that nobody can guess. When the link
ends, the router tells the set so.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from router.amqp.format.codec import Described
from router.amqp.format.errors import INVALID_FIELD, NOT_IMPLEMENTED, RESOURCE_LIMIT
from router.amqp.format.values import DELETE_ON_CLOSE, EXPIRE_LINK, LIFETIME_POLICY, Terminus
from router.amqp.proton.link import Link
from router.edge.attach import Refusal, address_of
from router.edge.ends import End, TopicEnd
from router.edge.publisher_link import PublisherLink
from router.edge.subscriber_link import SubscriberLink
from topic.actions import Declared, LinkAction
from topic.delivery.kinds import NAMED
from topic.node import Node
from topic.queues.operations import (
    TEMPORARY,
    Configure,
    Declare,
    Delete,
    Done,
    QueueSettings,
    Refused,
    Temporary,
)

CAPABILITIES: Final = ("queue", "temporary-queue")
"""The capabilities by which a client asks for a queue: of AMQP's brokers, and of JMS clients."""
POLICIES: Final = {
    Temporary.CLOSE: (DELETE_ON_CLOSE, "amqp:delete-on-close:list"),
    Temporary.NO_LINKS: (0x2C, "amqp:delete-on-no-links:list"),
    Temporary.NO_MESSAGES: (0x2D, "amqp:delete-on-no-messages:list"),
    Temporary.NO_LINKS_OR_MESSAGES: (0x2E, "amqp:delete-on-no-links-or-messages:list"),
}
"""The descriptors of each lifetime policy."""


def is_temporary_queue(link: Link) -> bool:
    """Whether the client asks for a queue of its own."""
    asked = _terminus_of(link)
    return (
        asked is not None
        and asked.dynamic
        and not address_of(link)
        and any(map(asked.capabilities.__contains__, CAPABILITIES))
    )


def _terminus_of(link: Link) -> Terminus | None:
    return link.remote_source if link.is_sender else link.remote_target


def policy_of(link: Link) -> Temporary:
    """The lifetime policy that the client asks for; delete-on-close if it asks for none. Raises `Refusal`."""
    asked = _terminus_of(link)
    value = asked.node_properties.get(LIFETIME_POLICY) if asked is not None else None
    if value is None:
        return Temporary.CLOSE
    descriptor = value.descriptor if isinstance(value, Described) else None
    for policy, known in POLICIES.items():
        if descriptor in known:
            return policy
    raise Refusal(INVALID_FIELD, f"{LIFETIME_POLICY}: expected delete-on-close or another policy of AMQP")


@attrs.frozen
class TemporaryQueue:
    """A queue that was declared for a client."""

    name: str
    settings: QueueSettings
    done: Done


class TemporaryAttach(End):
    """The end of a link whose queue is not declared yet."""

    __slots__ = ("_attach", "_name", "_settings", "node")

    def __init__(self, link: Link, node: Node, attach: Callable[[Link, TemporaryQueue], None]) -> None:
        """`attach` attaches the link to its queue. Raises `Refusal` if no queue can be declared."""
        super().__init__(link)
        self.node = node
        self._attach = attach
        directory = node.topic.directory
        holder = f"{directory.router} {directory.incarnation}"
        self._settings = QueueSettings(temporary=str(policy_of(link)), held_by=holder)
        self._name = new_name(node)

    def begin(self) -> None:
        self.node.declare(self, Declare(self._name, self._settings))

    def perform(self, action: LinkAction) -> None:
        assert isinstance(action, Declared)
        if isinstance(action.answer, Refused):
            self.part()
            self.link.refuse(RESOURCE_LIMIT, f"no temporary queue: {action.answer.why}")
            return
        try:
            self._attach(self.link, TemporaryQueue(self._name, self._settings, action.answer))
            self.link.forget_map()
        except Refusal as refusal:
            forsake(self.node, action)
            self.part()
            self.link.refuse(refusal.condition, str(refusal))


def forsake(node: Node, action: Declared) -> None:
    """Delete a queue that was declared for a client that is gone: nobody knows its name. A queue that several clients
    share (14.22) ends by itself."""
    if isinstance(action.answer, Done) and isinstance(action.link, TemporaryAttach):
        node.follow(Delete(action.name, action.answer.id))


def new_name(node: Node) -> str:
    """A name for a queue that no client can guess. Raises `Refusal` if no set may have such a queue."""
    prefixes = [prefix for prefix, kind in node.topic.settings.kinds if NAMED[kind].in_sets]
    for prefix in prefixes:
        name = f"{prefix}{TEMPORARY}{node.name}/{secrets.token_urlsafe(15)}"
        if node.sets is not None and node.sets.set_map.plan_of(name) is not None:
            return name
    raise Refusal(
        NOT_IMPLEMENTED, "no replica set of this mesh may have a temporary queue: expected sets without prefix"
    )


class TemporaryEnd(TopicEnd):
    """The end of a link that has created a queue."""

    node: Node
    queue: TemporaryQueue

    def answer(
        self,
        properties: dict[str, str | bytes],
        unsettled: Mapping[bytes, int] | None,
        max_message: int | None = None,
        filters: Mapping[str, Described] | None = None,
    ) -> None:
        policy, _ = POLICIES[Temporary(self.queue.settings.temporary or Temporary.CLOSE)]
        self.link.answer(
            expiry_policy=EXPIRE_LINK,
            max_message_size=max_message,
            properties=properties,
            address=self.queue.name,
            policy=policy,
        )

    def gone(self, now: float, *, closed: bool) -> None:
        super().gone(now, closed=closed)
        name, done, settings = self.queue.name, self.queue.done, self.queue.settings
        if settings.temporary == Temporary.CLOSE:
            self.node.follow(Delete(name, done.id))
        else:
            self.node.follow(Configure(name, done.id, done.version, attrs.evolve(settings, held_by=None)))


class TemporarySubscriber(TemporaryEnd, SubscriberLink):
    def __init__(self, queue: TemporaryQueue, *args: Any) -> None:
        super().__init__(*args)
        self.queue = queue


class TemporaryPublisher(TemporaryEnd, PublisherLink):
    def __init__(self, queue: TemporaryQueue, *args: Any) -> None:
        super().__init__(*args)
        self.queue = queue
