"""Outcomes as the delivery log names them."""

from topic.journal import Outcome as LoggedOutcome
from topic.record import Outcome

LOGGED = {outcome: LoggedOutcome[outcome.name] for outcome in Outcome}
