"""A delivery to a subscriber: the message, and the single answer that the subscriber's user gives to it."""

from collections.abc import Awaitable, Callable
from typing import Any

from failover.client.outcome import Outcome
from router.amqp.format.message import annotation_of, application_properties, body_of, content_of, format_of
from router.amqp.format.values import NO_STATE
from router.amqp.format.values import Handle as EngineHandle
from router.amqp.proton.link import Link
from topic.properties import ADDRESS


class Delivery:
    """One message, which the user has to answer once. `key` is its delivery-tag, and its name in the whole mesh.

    The methods that answer return when the answer is durable in the subscriber's store. The answer reaches the router
    over the current link or a later one. The attributes from `answered` on belong to the subscriber.
    """

    __slots__ = ("_answer", "_message", "answered", "condition", "description", "handle", "key", "link", "state")

    def __init__(self, answer: "Callable[[Delivery, Outcome], Awaitable[None]]", key: bytes, message: bytes) -> None:
        self.key = key
        self._message = message  # the message's bytes, in an envelope if the message-format is not 0
        self.answered = False  # whether the user has answered the message
        self.state = NO_STATE  # the delivery's state in the unsettled map; NO_STATE until the answer is durable
        self.condition = ""  # the condition in AMQP's terms, if the user has rejected the message
        self.description = ""
        # The number by which the engine knows this delivery on the attached link, while it is unsettled there.
        self.handle: EngineHandle = None
        # The link that transferred this delivery. Set to None when the subscriber has sent the answer on this link.
        self.link: Link | None = None
        self._answer = answer

    @property
    def message(self) -> bytes:
        """The encoded message, as its publisher sent it."""
        return content_of(self._message)

    @property
    def format(self) -> int:
        """The message-format: 0 for messages of AMQP itself (AMQP 1.0 3.2); other standards define other formats."""
        return format_of(self._message)

    @property
    def body(self) -> bytes:
        """The body of the message. Raises AmqpError if the body is neither data nor text, or if the message is of
        another format."""
        return body_of(self._message)

    @property
    def properties(self) -> dict[str, Any]:
        return application_properties(self._message)

    @property
    def address(self) -> str | None:
        """The address that the message was published to. None unless the subscriber has a pattern. Raises AmqpError if
        the message is malformed."""
        address = annotation_of(self._message, ADDRESS)
        return address if isinstance(address, str) else None

    async def accept(self) -> None:
        """State that the message is processed. Raises StateError if the store cannot keep the answer. Raises
        ConnectionError if the subscriber has given up; then the message may come again."""
        await self._answer(self, Outcome.ACCEPTED)

    async def reject(self, condition: str = "amqp:not-allowed", description: str = "") -> None:
        """Refuse the message for good: it does not come again, and its publisher reads the rejection. Raises as
        `accept` does."""
        self.condition, self.description = condition, description
        await self._answer(self, Outcome.REJECTED)

    async def release(self) -> None:
        """Let the router deliver the message to this subscriber again later."""
        await self._answer(self, Outcome.RELEASED)

    async def fail(self) -> None:
        """State that the message could not be processed: *modified* with *delivery-failed*. It comes again later, to
        this subscriber or another one, and counts as failed."""
        await self._answer(self, Outcome.MODIFIED)
