"""Outcomes of deliveries, as clients are told them and as their log has them."""

from enum import StrEnum

from router.amqp.format.values import ACCEPTED, MODIFIED, REJECTED, RELEASED
from topic.journal import LoggedOutcome


class Outcome(StrEnum):
    """What became of a delivery."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RELEASED = "released"
    MODIFIED = "modified"
    UNKNOWN = "unknown"  # settled without saying
    IN_DOUBT = "in doubt"  # no router knows any more, and it will not be sent again: perhaps delivered, perhaps not


OF_STATE = {
    ACCEPTED: Outcome.ACCEPTED,
    REJECTED: Outcome.REJECTED,
    RELEASED: Outcome.RELEASED,
    MODIFIED: Outcome.MODIFIED,
}
STATE_OF = {outcome: state for state, outcome in OF_STATE.items()}
LOGGED = {
    Outcome.ACCEPTED: LoggedOutcome.ACCEPTED,
    Outcome.REJECTED: LoggedOutcome.REJECTED,
    Outcome.RELEASED: LoggedOutcome.RELEASED,
    Outcome.MODIFIED: LoggedOutcome.MODIFIED,
    Outcome.UNKNOWN: LoggedOutcome.NONE,
    Outcome.IN_DOUBT: LoggedOutcome.NONE,
}
