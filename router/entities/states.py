"""The words that reports use for the states of links and deliveries."""

from collections.abc import Collection
from typing import Final

from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import AWAITING_HOME, QUEUED, SENT, WITHHELD, HomeStream, Record, State
from topic.directory.entry import Role
from topic.edge.subscriber import LocalSubscriber

STATES: Final = {State.IN_DOUBT: "in_doubt", State.ACCEPTED: "accepted", State.SETTLED: "settled"}
PLACEHOLDER, UNCONFIRMED = "placeholder", "unconfirmed"
"""The words for records in doubt that no home has confirmed. A placeholder has no message; an unconfirmed record has
its message."""
IN_DOUBT: Final = ("in_doubt", UNCONFIRMED, PLACEHOLDER)
PUBLISHER: Final = ("attaching", "attached", "suspended")
SUBSCRIBER: Final = ("joining", "attached", "suspended")
ROLES: Final = tuple(role.name.lower() for role in Role)
AT_SUBSCRIBER: Final = {QUEUED: "queued", SENT: "sent", WITHHELD: "withheld", AWAITING_HOME: "awaiting home"}


def state_of(record: Record) -> str:
    if record.key in record.stream.unconfirmed:
        return PLACEHOLDER if record.message is None else UNCONFIRMED
    return STATES[record.state]


def publisher_status(stream: HomeStream, waiting: Collection[bytes]) -> str:
    """The state of a publisher's link. `waiting`: the links whose attaches are not answered yet."""
    return "suspended" if stream.link is None else "attaching" if stream.publisher in waiting else "attached"


def subscriber_status(subscriber: LocalSubscriber) -> str:
    return "suspended" if subscriber.link is None else "attached" if subscriber.answered else "joining"


def at_subscriber(state: int) -> str:
    """The state of a delivery at a local subscriber, or its outcome there if it has one."""
    return AT_SUBSCRIBER.get(state) or DeliveryOutcome(state).name.lower()
