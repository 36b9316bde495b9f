"""Final outcomes: of one subscriber, counted for the publisher (protocol 5, Outcome to P), and as the delivery log has
them."""

import enum
from typing import Final

from topic.journal import LoggedOutcome


class DeliveryOutcome(enum.IntEnum):
    """Terminal delivery states, by their AMQP descriptor codes (AMQP 1.0 messaging 3.4)."""

    ACCEPTED = 0x24
    REJECTED = 0x25
    RELEASED = 0x26
    MODIFIED = 0x27


TERMINAL = frozenset(DeliveryOutcome)
GIVEN_BACK = (DeliveryOutcome.RELEASED, DeliveryOutcome.MODIFIED)
LOGGED = {outcome: LoggedOutcome[outcome.name] for outcome in DeliveryOutcome}
Refusals = tuple[int, int, int, int]
"""Subscribers that rejected, released and modified; and deliveries to them that failed, because the subscriber said so
(delivery-failed) or has gone without an outcome."""
NOT_HAD: Final[Refusals] = (0, 0, 0, 0)
"""Balanced addresses: no subscriber has the delivery, and none has refused it."""
GONE: Final[Refusals] = (0, 0, 0, 1)
"""Balanced addresses: the subscriber that was chosen for the delivery has gone without an outcome."""

MOST_ANNOTATIONS: Final = 4096
"""Most bytes of the annotations that a consumer adds to a message that it gives back."""


def add_refusals(one: Refusals | None, other: Refusals | None) -> Refusals | None:
    """The sum of two counts."""
    if one is None or other is None:
        return one or other
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3])


def take_refusal(refusals: Refusals | None, outcome: DeliveryOutcome) -> Refusals | None:
    """The count without one subscriber's outcome, which was not *accepted*."""
    less = refusal(outcome)
    assert refusals is not None and less is not None
    left = (refusals[0] - less[0], refusals[1] - less[1], refusals[2] - less[2])
    assert min(left) >= 0
    return (*left, refusals[3]) if any(left) else None


def refusal(outcome: DeliveryOutcome, *, failed: bool = False) -> Refusals | None:
    """One subscriber's final outcome as a count; None for an acceptance."""
    if outcome is DeliveryOutcome.ACCEPTED:
        return None
    return (
        int(outcome is DeliveryOutcome.REJECTED),
        int(outcome is DeliveryOutcome.RELEASED),
        int(outcome is DeliveryOutcome.MODIFIED),
        int(failed),
    )
