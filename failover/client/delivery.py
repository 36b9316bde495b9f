"""A delivery to a subscriber: the message, and the user's one answer to it."""

from collections.abc import Awaitable, Callable
from typing import Any

from failover.client.outcome import Outcome
from router.amqp.format.message import annotation_of, application_properties, body_of, content_of, format_of
from router.amqp.format.values import NO_STATE
from router.amqp.format.values import Handle as EngineHandle
from router.amqp.proton.link import Link
from topic.properties import ADDRESS


class Delivery:
    """One message: `key` is its delivery-tag, its name in the whole mesh. To be answered once.

    An answer returns when it is durable in the subscriber's store. It reaches the router over the link of that time or
    a later one. The attributes from `answered` on are the subscriber's.
    """

    __slots__ = ("_answer", "_message", "answered", "condition", "description", "handle", "key", "link", "state")

    def __init__(self, answer: "Callable[[Delivery, Outcome], Awaitable[None]]", key: bytes, message: bytes) -> None:
        self.key = key
        self._message = message  # in an envelope, if it is of another format than 0
        self.answered = False  # by the user
        self.state = NO_STATE  # as the unsettled map says it: the answer, once it is durable
        self.condition = ""  # of a rejection
        self.description = ""
        self.handle: EngineHandle = None  # on the link that is attached, while it is unsettled there
        self.link: Link | None = None  # that it was transferred on and took credit of, not given back yet
        self._answer = answer

    @property
    def message(self) -> bytes:
        """As it was transferred."""
        return content_of(self._message)

    @property
    def format(self) -> int:
        """The message-format: 0 is AMQP's own (AMQP 1.0 3.2), others are other standards'."""
        return format_of(self._message)

    @property
    def body(self) -> bytes:
        """Raises AmqpError if the message has neither data nor text for a body, or is of another format."""
        return body_of(self._message)

    @property
    def properties(self) -> dict[str, Any]:
        return application_properties(self._message)

    @property
    def address(self) -> str | None:
        """That it was published to, for a subscriber of a pattern. Raises AmqpError on what is no message."""
        address = annotation_of(self._message, ADDRESS)
        return address if isinstance(address, str) else None

    async def accept(self) -> None:
        """It is processed, for good. Raises StateError if that cannot be kept, ConnectionError if the subscriber has
        given up: then it may come again."""
        await self._answer(self, Outcome.ACCEPTED)

    async def reject(self, condition: str = "amqp:not-allowed", description: str = "") -> None:
        """It is not to be had here, and not to come again; its publisher is told so. Raises as `accept` does."""
        self.condition, self.description = condition, description
        await self._answer(self, Outcome.REJECTED)

    async def release(self) -> None:
        """Have it delivered again, to this subscriber, later."""
        await self._answer(self, Outcome.RELEASED)
