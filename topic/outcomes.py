"""Final outcomes of subscribers, counted for their publisher (protocol 5, Outcome to P) and named for the log."""

from topic.journal import Outcome as LoggedOutcome
from topic.record import Outcome, Refusals

LOGGED = {outcome: LoggedOutcome[outcome.name] for outcome in Outcome}


def add_refusals(one: Refusals | None, other: Refusals | None) -> Refusals | None:
    if one is None or other is None:
        return one or other
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


def take_refusal(refusals: Refusals | None, outcome: Outcome) -> Refusals | None:
    """One subscriber's final outcome counts no longer."""
    less = refusal(outcome)
    if refusals is None or less is None:
        return refusals
    left = (refusals[0] - less[0], refusals[1] - less[1], refusals[2] - less[2])
    assert min(left) >= 0
    return left if any(left) else None


def refusal(outcome: Outcome) -> Refusals | None:
    """One subscriber's final outcome as a count; None for an acceptance."""
    if outcome is Outcome.ACCEPTED:
        return None
    return (int(outcome is Outcome.REJECTED), int(outcome is Outcome.RELEASED), int(outcome is Outcome.MODIFIED))
