"""The outcomes of deliveries, as clients report and log them."""

from enum import StrEnum

from router.amqp.format.values import ACCEPTED, MODIFIED, REJECTED, RELEASED
from topic.journal import LoggedOutcome


class Outcome(StrEnum):
    """The knowledge of a client about the end of a delivery."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RELEASED = "released"
    MODIFIED = "modified"
    UNKNOWN = "unknown"  # the router settled the delivery without an outcome
    IN_DOUBT = "in doubt"  # no router knows the outcome, and the client does not send the message again


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
