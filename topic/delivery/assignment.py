"""What a delivery of a balanced address has come to where it was offered (protocol 12)."""

from typing import Final

from topic.delivery.outcomes import GIVEN_BACK, DeliveryOutcome, Refusals, refusal
from topic.delivery.record import Record

UNASSIGNED: Final = b""
"""In place of the subscriber that a delivery is for."""
NOT_HAD: Final[Refusals] = (0, 0, 0)
"""An edge's word for a delivery that nobody there has, and nobody has refused."""


def verdict(record: Record) -> Refusals | None:
    """Of the subscribers here: None if one has accepted it, else whether one has rejected it, or the one that it was
    for has given it back, or refused it for itself, which counts as *modified*."""
    if record.taken:
        return None
    if DeliveryOutcome.REJECTED in record.locals.values():
        return (1, 0, 0)
    chosen = next((state for subscriber, state in record.locals.items() if subscriber.name == record.chosen), None)
    return (refusal(DeliveryOutcome(chosen)) if chosen in GIVEN_BACK else None) or NOT_HAD


def concerns(record: Record, subscriber: bytes) -> bool:
    """Whether this subscriber may be one that the delivery is for: of a topic, each is."""
    return record.chosen is None or record.chosen == subscriber


def is_over(record: Record) -> bool:
    """Whether one of many has accepted it, and nobody else is awaited."""
    return record.stream.balanced and record.taken
