"""What the topic core asks of the shell that drives it; drained from `Topic.out` in order.

One action stands for a batch of deliveries: nothing here is made per message.
"""

import enum
from typing import Any

import attrs

from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.identity import Epoch

STOLEN = "amqp:link:stolen"
EXPIRED = "amqp:resource-deleted"
EXCEEDED = "amqp:resource-limit-exceeded"


@attrs.frozen(slots=True)
class AnswerPublisher:
    """Answer the attach of a publisher and grant it `credit` deliveries."""

    link: Any
    epoch: Epoch
    generation: bytes
    credit: int
    unsettled: dict[bytes, int] | None
    """Our map, by tag; None for a null one."""


@attrs.frozen(slots=True)
class AnswerSubscriber:
    """Answer the attach of a subscriber: all routers in contact have joined it (protocol 6.7)."""

    link: Any
    epoch: Epoch
    unsettled: dict[bytes, int] | None
    """Our map, by delivery key; None for a null one."""


@attrs.frozen(slots=True)
class Detach:
    """Detach a link with this error condition; the core has already forgotten it."""

    link: Any
    condition: str
    description: str


@attrs.frozen(slots=True)
class Deliver:
    """Transfer these to the subscriber, in this order; presettled records are sent settled."""

    link: Any
    records: list[Record]


@attrs.frozen(slots=True)
class Redeliver:
    """Settle the released delivery and transfer it anew. `attempts`: how often it was transferred before (protocol 5,
    Redelivery)."""

    link: Any
    record: Record
    attempts: int


@attrs.frozen(slots=True)
class Resume:
    """Transfer with resume=true: with its payload if `state` is 0, else with that state and without; `settled` if the
    publisher has settled it meanwhile (and aborted, if the payload would be due). It may come long after the answer to
    the attach: what the map named waits for its home."""

    link: Any
    record: Record
    state: int
    settled: bool


@attrs.frozen(slots=True)
class SettleSubscriber:
    """Settle these at the subscriber: their publisher has settled them."""

    link: Any
    records: list[Record]


@attrs.frozen(slots=True)
class Echo:
    """Ask the client for a sign (flow with echo=true): a subscriber, that it has read what was written so far; a
    publisher, that it is still here."""

    link: Any


class Cause(enum.Enum):
    """Why a delivery is rejected."""

    REFUSED = "by subscribers"
    EXPIRED = "its time was over before anybody had it (protocol 5, Time to live)"
    FULL = "by a queue that has no room for it (protocol 14.3)"
    GONE = "its address is that of a dynamic node that is over (protocol 12.8)"


@attrs.frozen(slots=True)
class AnswerDeliveries:
    """Send this outcome of these deliveries to their publisher; `settle` if its link settles first. `alone` of them had
    nobody for an audience (protocol 5, Nobody). `cause`: of a rejection."""

    link: Any
    records: list[Record]
    outcome: DeliveryOutcome
    description: str
    settle: bool
    alone: int
    cause: Cause


@attrs.frozen(slots=True)
class Credit:
    """Grant the publisher `count` more deliveries."""

    link: Any
    count: int


@attrs.frozen(slots=True)
class Chosen:
    """Home has chosen this subscriber for these deliveries of a queue. Once the queue has them reserved for the
    subscriber, `Topic.reserved` lets them go on (protocol 14.5)."""

    link: Any
    subscriber: bytes
    """Its name."""
    records: list[Record]


@attrs.frozen(slots=True)
class Forget:
    """A subscriber of a queue has ended, or has begun afresh. So it may be offered what it has refused for itself."""

    link: Any
    subscriber: bytes
    """Its name."""


@attrs.frozen(slots=True)
class Wanted:
    """Subscribers of a queue take more deliveries: `Topic.wanted` says how many."""

    link: Any


@attrs.frozen(slots=True)
class Doubt:
    """Declare the router lost, unless something of it is on its way: it has not answered an attach within `join`."""

    router: str
    reason: str


@attrs.frozen(slots=True)
class Consumes:
    """A subscriber has attached to the address of the consumers of a queue (protocol 14.5)."""

    address: str


@attrs.frozen(slots=True)
class Note:
    """Something the operator should read in the router's log."""

    text: str


LinkAction = (
    AnswerPublisher
    | AnswerSubscriber
    | Detach
    | Deliver
    | Redeliver
    | Resume
    | Echo
    | SettleSubscriber
    | AnswerDeliveries
    | Credit
    | Chosen
    | Forget
    | Wanted
)
"""What is done on a client's link."""

Action = LinkAction | Doubt | Consumes | Note
