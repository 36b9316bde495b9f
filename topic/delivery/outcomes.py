"""The final outcomes of deliveries: the outcome of one subscriber, the count of several for the publisher (protocol 5,
Outcome to P), and the form that the delivery log has."""

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
"""Four counts about one delivery: the subscribers that rejected it, the ones that released it, the ones that modified
it, and the attempts that failed. An attempt fails if the subscriber says so (delivery-failed), or goes away without an
outcome."""
NOT_HAD: Final[Refusals] = (0, 0, 0, 0)
"""The refusals of a delivery of a balanced address that no subscriber has, and none has refused."""
GONE: Final[Refusals] = (0, 0, 0, 1)
"""The refusals of a delivery of a balanced address whose chosen subscriber has gone without an outcome."""

MOST_ANNOTATIONS: Final = 4096
"""The highest number of bytes of the annotations that a consumer adds to a message when it gives the message back."""


def add_refusals(one: Refusals | None, other: Refusals | None) -> Refusals | None:
    """The sum of two refusal counts; None stands for no refusals."""
    if one is None or other is None:
        return one or other
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3])


def take_refusal(refusals: Refusals | None, outcome: DeliveryOutcome) -> Refusals | None:
    """The refusal count without one subscriber's outcome, which was an outcome other than *accepted*."""
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
