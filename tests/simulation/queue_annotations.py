"""The judge of annotations that consumers add when they modify messages of queues (protocol 14.6, AMQP 1.0 3.4.5).

1. A message that comes back has its earlier annotations, and those that the consumer which had it has added.
2. If the consumer's router has read the outcome, none of these is missing. Limit: the outcome is lost with the router,
   or with the link, as the map of the next attach has only the state.
3. The next consumer gets exactly these annotations. So does the address of a dead letter.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

import attrs

from tests.failures import added, alive
from topic.identity import link_name

if TYPE_CHECKING:
    from tests.simulation.queue_judge import Queues
    from tests.simulation.subscriber_link import SubscriberLink

END = b";"


def annotation(consumer: str, number: int) -> bytes:
    """The annotations that a consumer adds. They name the consumer."""
    return b"%s.%d%s" % (consumer.encode(), number, END)


@attrs.frozen
class Said:
    """An outcome with which a consumer gives a message back, as its router has read it."""

    annotations: bytes
    link: "SubscriberLink"
    incarnation: int
    """The incarnation of the router."""


class Annotations:
    def __init__(self, queues: "Queues") -> None:
        self._queues = queues
        self._all: dict[bytes, bytes] = {}
        """Keyed by message, as it was published: the annotations of all consumers, also on its dead letters."""
        self._said: dict[tuple[str, bytes, bytes], list[Said]] = {}
        """Keyed by queue, message and name of a consumer: the outcomes that may count for the next `Free`."""
        self._there: dict[tuple[str, bytes], tuple[bytes, bytes]] = {}
        """Keyed by queue and message: the message's annotations according to the log. The first part came with it to
        the queue.
        """

    def gives_back(self, link: "SubscriberLink", queue: str, text: bytes, annotations: bytes) -> None:
        """The router of a consumer reads that the consumer gives a message back."""
        root, name = alive(text)[0], link_name(link.client.identity)
        self._all[root] = self._all.get(root, b"") + annotations
        self._said.setdefault((queue, text, name), []).append(Said(annotations, link, link.router.incarnation))

    def enqueued(
        self, set_: str, queue: str, text: bytes, annotations: bytes, former: Collection[tuple[str, bytes]]
    ) -> None:
        """A message is in a queue. If there are `former` messages (queue and text), it was one of them."""
        self._there[queue, text] = annotations, b""
        if not self._is_loose(queue, text):
            expected = {self._has(*one) for one in former} or {b""}
            label = f"{text.decode()} comes to {queue} with {annotations!r}, not {expected}"
            self._queues.check_of_set(set_, annotations in expected, f"14.11 annotations: {label}")

    def freed(self, set_: str, queue: str, text: bytes, consumer: bytes, annotations: bytes) -> None:
        """A message comes back from a consumer. `annotations`: all that it got in this queue; empty if they do not
        change."""
        (first, before), said = self._there[queue, text], self._said.pop((queue, text, consumer), [])
        label = f"{text.decode()} comes back to {queue} with {annotations!r}, and had {before!r}"
        is_right = self._is_loose(queue, text)
        if annotations:
            self._there[queue, text] = first, annotations
            is_right |= any(annotations == before + one.annotations for one in said)
        else:
            is_right |= not said or not said[-1].annotations or self._may_be_lost(said[-1])
        self._queues.check_of_set(set_, is_right, f"14.6 annotations: {label}: {[one.annotations for one in said]}")

    def _may_be_lost(self, said: "Said") -> bool:
        link, router = said.link, said.link.router
        is_there = router.alive and router.incarnation == said.incarnation
        is_in_use = link.client.link is link and not link.ended
        return not (is_there and is_in_use) or self._queues.consumers[link.client.name].is_in_doubt

    def transferred(self, set_: str, link: "SubscriberLink", queue: str, text: bytes, message: bytes) -> None:
        """A router transfers a message to a consumer."""
        found, there = added(message), self._has(queue, text)
        is_right = found == there
        if self._is_loose(queue, text):
            known = self._all.get(alive(text)[0], b"").split(END)
            is_right = {*found.split(END)} <= {*known, b""}
        label = f"{text.decode()} comes to {link} with {found!r}"
        self._queues.check_of_set(set_, is_right, f"14.6 annotations: {label}, not {there!r}")

    def _has(self, queue: str, text: bytes) -> bytes:
        return b"".join(self._there.get((queue, text), ()))

    def _is_loose(self, queue: str, text: bytes) -> bool:
        """Whether several consumers may have this message, or an earlier delivery of it."""
        message = self._queues.rules[queue].messages[text]
        return message.is_loose or message.may_be_gone
