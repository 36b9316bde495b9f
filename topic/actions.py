"""The actions that the topic core asks of its shell. The shell takes them from `Topic.out` and performs them in order.
One action stands for a whole batch of deliveries, so that the core makes no action for each message."""

import enum
from collections.abc import Sequence
from typing import Any

import attrs

from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.delivery.room import Drain
from topic.identity import Epoch

STOLEN = "amqp:link:stolen"
LOCKED = "amqp:resource-locked"
EXPIRED = "amqp:resource-deleted"
EXCEEDED = "amqp:resource-limit-exceeded"
DELETED = "the queue is deleted"
"""The text that a consumer gets when its link ends because its queue is deleted."""
ENDINGS = (EXPIRED, LOCKED)
"""The conditions of a detach that ends a subscriber's link. The client's answer to the detach shows that the client
knows of the ending."""
EXCLUSIVE = "the queue is exclusive, and another consumer has it"
"""The text that a consumer gets when its link ends because the queue is exclusive and already has a consumer."""


def condition_of(ending: str) -> str:
    """The condition of the detach that carries `ending` (`LinkEntry.ending`) to a subscriber."""
    return LOCKED if ending == EXCLUSIVE else EXPIRED


@attrs.frozen(slots=True)
class AnswerPublisher:
    """Answer the attach of a publisher and grant it `credit` deliveries."""

    link: Any
    epoch: Epoch
    generation: bytes
    credit: int
    unsettled: dict[bytes, int] | None
    """The unsettled map of this router, keyed by delivery-tag; None for a null map."""


@attrs.frozen(slots=True)
class AnswerSubscriber:
    """Answer the attach of a subscriber, which all routers in contact have joined (protocol 6.7)."""

    link: Any
    epoch: Epoch
    unsettled: dict[bytes, int] | None
    """The unsettled map of this router, keyed by delivery key; None for a null map."""


@attrs.frozen(slots=True)
class Detach:
    """Detach a link with this error condition. The core has already forgotten the link."""

    link: Any
    condition: str
    description: str


@attrs.frozen(slots=True)
class Deliver:
    """Transfer the messages of these records to the subscriber, in this order. Presettled records are transferred as
    settled."""

    link: Any
    records: list[Record]


@attrs.frozen(slots=True)
class Redeliver:
    """Settle the released delivery and transfer it again. `attempts`: how often the router had transferred it before
    (protocol 5, Redelivery)."""

    link: Any
    record: Record
    attempts: int


@attrs.frozen(slots=True)
class Resume:
    """Resume a delivery: transfer it with resume=true (protocol 6.8).

    If `state` is 0, the transfer has the payload; otherwise it has this state and no payload. `settled`: the publisher
    has settled the delivery meanwhile. The transfer is then settled, and also aborted if `state` is 0. This action may
    come long after the answer to the attach, because the delivery waits for its home.
    """

    link: Any
    record: Record
    state: int
    settled: bool


@attrs.frozen(slots=True)
class Drained:
    """End the drain of a subscriber, which has got all messages for it: give back the credit that is left (AMQP 1.0
    2.6.7)."""

    link: Any
    left: int
    """The approximate number of messages that the subscriber's homes still have."""


@attrs.frozen(slots=True)
class SettleSubscriber:
    """Settle these deliveries at the subscriber, because their publisher has settled them."""

    link: Any
    records: list[Record]


@attrs.frozen(slots=True)
class Echo:
    """Send the client a flow with echo=true. A subscriber's answer shows that it has read everything that was written
    before. A publisher's answer shows that it still uses this connection."""

    link: Any


class Cause(enum.Enum):
    """The reason for which the home rejects a delivery."""

    REFUSED = "by subscribers"
    EXPIRED = "its time was over before anybody had it (protocol 5, Time to live)"
    FULL = "by a queue that has no room for it (protocol 14.3)"
    GONE = "its address is that of a dynamic node that is over (protocol 12.8)"


@attrs.frozen(slots=True)
class AnswerDeliveries:
    """Send the publisher this outcome of its deliveries.

    `settle`: the publisher's link has receiver settle mode first, so the router settles them, too. `alone`: how many of
    the deliveries had an empty audience (protocol 5, Nobody). `cause`: why they are rejected.
    """

    link: Any
    records: list[Record]
    outcome: DeliveryOutcome
    description: str
    settle: bool
    alone: int
    cause: Cause


@attrs.frozen(slots=True)
class Credit:
    """Grant the publisher credit for `count` more deliveries."""

    link: Any
    count: int


@attrs.frozen(slots=True)
class Chosen:
    """The home has chosen this consumer for these deliveries of a queue. When the queue has reserved them for the
    consumer, the shell calls `Topic.reserved`, and the home offers them (protocol 14.5)."""

    link: Any
    subscriber: bytes
    """The name of the link of the chosen consumer."""
    records: list[Record]


@attrs.frozen(slots=True)
class Forget:
    """A consumer of a queue has ended, or has begun afresh. The home may again offer this consumer the messages that
    the consumer had refused for itself."""

    link: Any
    subscriber: bytes
    """The name of the consumer's link."""


@attrs.frozen(slots=True)
class Wanted:
    """The consumers of a queue have room for more deliveries (`Topic.demand` says for how many), or deliveries wait
    again for consumers."""

    link: Any


@attrs.frozen(slots=True)
class Doubt:
    """A router has not answered an attach within `join` seconds. Declare the contact with this router lost, unless data
    from it are under way."""

    router: str
    reason: str


@attrs.frozen(slots=True)
class Consumes:
    """A subscriber has attached to the address of the consumers of a queue (protocol 14.5)."""

    address: str


@attrs.frozen(slots=True)
class ConsumerDrains:
    """A consumer of a queue drains. When the queue has given the consumer all its messages, the leader of the queue's
    set calls `Topic.given` (protocol 14.15)."""

    address: str
    """The address of the consumers of the queue (protocol 14.5)."""
    asked: Drain


@attrs.frozen(slots=True)
class Browsed:
    """The answer to a client that browses a queue (protocol 14.16)."""

    link: Any
    messages: Sequence[tuple[int, bytes]] | None
    """The next messages of the queue, with their positions; None if no router has answered."""
    next: int
    """The position from which the next page of messages begins."""


class TransactionEnd(enum.Enum):
    """How a transaction has ended (protocol 14.20)."""

    COMMITTED = "all of it is carried out"
    ROLLED_BACK = "nothing of it is carried out"
    TIMED_OUT = "the same: it has lasted too long"
    TOO_LARGE = "the same: it has more than one transaction may have"
    NOT_IMPLEMENTED = "the same: it has something that no transaction may have"


@attrs.frozen(slots=True)
class Discharged:
    """A client has discharged its transaction, and the transaction has ended."""

    link: Any
    """The link of the client to its coordinator, over which the client has discharged the transaction."""
    transaction: bytes
    end: TransactionEnd
    why: str
    """The reason for which the mesh has rolled the transaction back although the client wanted to commit it."""


@attrs.frozen(slots=True)
class RetirementsOver:
    """The transaction of which these outcomes of a subscriber are a part has ended. If it is committed, the outcomes
    take effect now; otherwise they never do."""

    link: Any
    outcomes: Sequence[Any]
    """The outcomes in the form in which the link's end has added them to the transaction."""
    committed: bool


@attrs.frozen(slots=True)
class Declared:
    """The answer to a client for which a queue was declared (protocol 14.21)."""

    link: Any
    name: str
    """The name of the declared queue."""
    answer: Any
    """The answer to the declaration, a `topic.queues.operations.Answer`."""


@attrs.frozen(slots=True)
class Note:
    """Write a line for the operator into the router's log."""

    text: str


LinkAction = (
    AnswerPublisher
    | AnswerSubscriber
    | Detach
    | Deliver
    | Redeliver
    | Resume
    | Drained
    | Echo
    | SettleSubscriber
    | AnswerDeliveries
    | Credit
    | Chosen
    | Forget
    | Wanted
    | Browsed
    | Discharged
    | RetirementsOver
    | Declared
)
"""All actions that the end of a client's link performs."""

Action = LinkAction | Doubt | Consumes | ConsumerDrains | Note
