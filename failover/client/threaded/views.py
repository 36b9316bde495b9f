"""The common part of the clients for asyncio and the clients that block: messages as a program sees them, and clients
with their options."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, Unpack

from failover.client.delivery import Delivery
from failover.client.endpoint import Options
from failover.client.handle import Handle
from failover.client.outcome import Outcome
from failover.client.publisher import Publisher
from failover.client.subscriber import Subscriber
from failover.client.threaded.thread import CallersStore, ClientThread, callers_store
from router.amqp.format.values import OutcomeDetails


class HandleView:
    """A message that a publisher has sent, with the attributes of `Handle`."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @property
    def key(self) -> bytes | None:
        """The name of the delivery in the whole mesh. None if the router belongs to no mesh."""
        return self._handle.key

    @property
    def number(self) -> int:
        """The position of this message among all messages that the link has ever sent. The first one has position 0."""
        return self._handle.number

    @property
    def result(self) -> Outcome | None:
        """The outcome of the delivery. None if it is not known yet."""
        return self._handle.result

    @property
    def detail(self) -> OutcomeDetails:
        """The details of the outcome in AMQP's terms, for example the condition of a rejection."""
        return self._handle.detail


class DeliveryView:
    """A message that the program has to answer exactly once, with the attributes of `Delivery`."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    @property
    def key(self) -> bytes:
        """The name of the delivery in the whole mesh."""
        return self._delivery.key

    @property
    def body(self) -> bytes:
        """The body of the message. Raises AmqpError if the body is neither data nor text, or if the message is of
        another format."""
        return self._delivery.body

    @property
    def properties(self) -> dict[str, Any]:
        """The application properties of the message."""
        return self._delivery.properties

    @property
    def address(self) -> str | None:
        """The address that the message was published to. None unless the subscriber has a pattern."""
        return self._delivery.address

    @property
    def message(self) -> bytes:
        """The encoded message, as its publisher sent it."""
        return self._delivery.message

    @property
    def format(self) -> int:
        """The message-format: 0 for messages of AMQP itself."""
        return self._delivery.format


class PublisherView:
    """A publisher that runs in a thread. It takes the same options as `Publisher`."""

    def __init__(
        self,
        urls: Sequence[str],
        address: str,
        *,
        container: str,
        link: str,
        in_flight: int = 1000,
        resend_in_doubt: bool = False,
        **options: Unpack[Options],
    ) -> None:
        if isinstance(callers_store(options.get("store")), CallersStore):
            raise ValueError("a publisher writes outcomes at any time: its store needs a file, SqliteStore(path)")
        self._client = Publisher(
            urls,
            address,
            container=container,
            link=link,
            in_flight=in_flight,
            resend_in_doubt=resend_in_doubt,
            **self._adapted(options),
        )
        self._thread = ClientThread(self._client)

    def _adapted(self, options: Options) -> Options:
        return options

    @property
    def sent(self) -> int:
        """How many messages `send` has ever taken on this link. With a store, the lives of earlier processes count,
        too."""
        return self._client.sent

    @property
    def alone(self) -> int:
        """How many deliveries routers have accepted although there was no subscriber, as far as routers have reported
        it."""
        return self._client.alone


class SubscriberView:
    """A subscriber that runs in a thread. It takes the same options as `Subscriber`. If its store uses the program's
    database connection, the store is used only in the thread that calls."""

    def __init__(
        self,
        urls: Sequence[str],
        address: str,
        *,
        container: str,
        link: str,
        credit: int = 100,
        settle: Literal["first", "second"] = "second",
        filter: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        options = {**self._adapted(options), "store": callers_store(options.get("store"))}
        self._client = Subscriber(
            urls, address, container=container, link=link, credit=credit, settle=settle, filter=filter, **options
        )
        self._thread = ClientThread(self._client)
        # The messages that interrupted calls have taken. The next calls return them first.
        self._returned: deque[Delivery] = deque()

    def _adapted(self, options: Options) -> Options:
        return options

    async def _next(self) -> Delivery:
        return self._returned.popleft() if self._returned else await anext(self._client)

    async def _here(self, most: int) -> list[Delivery]:
        returned = [self._returned.popleft() for _ in range(min(most, len(self._returned)))]
        return returned + self._client.here(most - len(returned))

    def _return_all(self, deliveries: list[Delivery]) -> None:
        self._returned.extendleft(reversed(deliveries))

    def end(self) -> None:
        """Make the subscription end for good when the block ends, although it has a store."""
        self._client.end()
