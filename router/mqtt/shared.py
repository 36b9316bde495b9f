"""Shared subscriptions, `$share/GROUP/FILTER` (MQTT 5 4.8.2; protocol 14.22).

The members of a group consume from one queue, which is bound to the filter. The queue is a temporary queue without a
holder: its first member declares it, and its set deletes it when it has no more consumers. All routers make the same
name of the queue from group and filter. The name tells a router to which the session of a member moves what the member
has subscribed to.
"""

import logging
from typing import Final

from router.edge.attach import Refusal
from router.edge.queue_address import address_inside
from router.mqtt.format.fields import text
from router.mqtt.format.packets import SubscriptionOptions
from router.mqtt.format.values import Reason
from router.mqtt.subscriber import PLAIN, MqttSubscriber, SendingHost
from router.mqtt.translation import address_in
from topic.actions import DELETED, Declared, Detach, LinkAction
from topic.delivery.kinds import NAMED
from topic.delivery.record import Record
from topic.directory.addresses import is_pattern
from topic.node import Node
from topic.queues.operations import TEMPORARY, Declare, Done, QueueSettings, Refused, RefusedFor, Temporary

log = logging.getLogger("oncemesh.mqtt")

SHARE: Final = "$share/"
GROUPS: Final = f"{TEMPORARY}share/"
"""The part of a queue's name before the group and the filter."""
ESCAPES: Final = {"%": "%25", "+": "%2B", "#": "%23", "*": "%2A"}
"""The characters of a filter that the name of a queue has in another form, because the name is no pattern."""
CREDIT: Final = 100
"""The highest number of messages that one member of a group has and has not answered. Further messages are for the
other members."""
REASONS: Final = {RefusedFor.TOO_MANY: Reason.QUOTA, RefusedFor.NO_ANSWER: Reason.UNSPECIFIED}
"""The reason codes for refused declarations; *implementation specific error* for all others."""


def topic_filter_of(name: str) -> str | None:
    """The topic filter of a shared subscription; None if the name is malformed."""
    group, _, asked = name.removeprefix(SHARE).partition("/")
    return asked if group and asked and not {"+", "#"} & {*group} else None


def is_shared(name: str) -> bool:
    return name.startswith(SHARE)


def queue_for(node: Node, name: str) -> str | None:
    """The queue of the group with this subscription, which is well-formed; None if no set of the mesh may have the
    queue."""
    group, _, asked = name.removeprefix(SHARE).partition("/")
    escaped = "/".join("".join(ESCAPES.get(char, char) for char in part) for part in (group, asked))
    for prefix, kind in node.topic.settings.kinds:
        queue = f"{prefix}{GROUPS}{escaped}"
        if NAMED[kind].in_sets and node.sets is not None and node.sets.set_map.plan_of(queue) is not None:
            return queue
    return None


def subscription_of(queue: str) -> str | None:
    """The inverse of `queue_for`: the shared subscription; None if the queue is not for a group."""
    _, found, escaped = queue.partition(GROUPS)
    for char, form in reversed(ESCAPES.items()):
        escaped = escaped.replace(form, char)
    return SHARE + escaped if found else None


def address_for(node: Node, name: str) -> str:
    """The address in the mesh for a client's subscription. Raises `Refusal` if a group's queue cannot have its
    name."""
    queue = queue_for(node, name) if is_shared(name) else None
    return address_inside(node, queue, receives=True) if queue is not None else name


def subscriber_for(
    host: SendingHost, node: Node, name: str, qos: int, options: SubscriptionOptions, *, is_known: bool = False
) -> MqttSubscriber:
    """The end of a client's new subscription. `is_known`: the client has the subscription at another router."""
    if is_shared(name):
        return SharedSubscriber(host, node, name, qos, options, is_declared=is_known)
    return MqttSubscriber(host, node, name, qos, options)


class SharedSubscriber(MqttSubscriber):
    """A member of a group."""

    most_unanswered = most_unwritten = CREDIT

    def __init__(
        self,
        host: SendingHost,
        node: Node,
        name: str,
        qos: int,
        options: SubscriptionOptions = PLAIN,
        *,
        is_declared: bool = False,
    ) -> None:
        """`is_declared`: the group has its queue already."""
        super().__init__(host, node, address_for(node, name), qos, options)
        self.subscription = name
        self._filter = topic_filter_of(name) or ""
        self._topic = None if is_pattern(self._filter) else text(self._filter)
        self._is_declared = is_declared
        self._resumes = False

    def another(self, qos: int, options: SubscriptionOptions) -> "SharedSubscriber":
        return SharedSubscriber(self.host, self.node, self.subscription, qos, options, is_declared=self._is_declared)

    def address_of(self, record: Record) -> str:
        return address_in(record.message or b"")

    def subscribe(self, *, resumes: bool) -> None:
        self._resumes = resumes
        if self._is_declared:
            super().subscribe(resumes=resumes)
        else:
            settings = QueueSettings(bind=(self._filter,), temporary=str(Temporary.NO_LINKS))
            self.node.declare(self, Declare(self.topic, settings))
            self.node.perform()

    def perform(self, action: LinkAction) -> None:
        if isinstance(action, Declared):
            self._declared(action)
        else:
            super().perform(action)

    def _declared(self, action: Declared) -> None:
        if isinstance(action.answer, Done):
            self._is_declared = True
            super().subscribe(resumes=self._resumes)
        elif isinstance(action.answer, Refused):
            log.warning("%s: no queue for %r: %s", self.host, self.subscription, action.answer.why)
            self.host.refused(self, REASONS.get(action.answer.reason, Reason.IMPLEMENTATION))

    def gone(self, now: float, *, closed: bool) -> None:
        if not self._is_declared:
            # The client has no SUBACK, so it does not count on this subscription.
            self.is_detached = True
            self.host.refused(self, Reason.UNSPECIFIED)
        super().gone(now, closed=closed)

    def detach(self, action: Detach) -> None:
        """The queue may be deleted, because the last member has just gone, before the mesh knows of this member. The
        member then declares it once more."""
        if action.description == DELETED and not self.is_answered:
            self._is_declared = self.is_detached = False
            self.subscribe(resumes=False)
        else:
            super().detach(action)


def missing_sets(node: Node, name: str) -> str:
    """Why the mesh cannot have the queue of this group; empty if it can."""
    try:
        if queue_for(node, name) is None:
            return "no replica set of this mesh may have the queue of the group: expected sets without prefix"
        address_for(node, name)
    except Refusal as refusal:
        return str(refusal)
    return ""
