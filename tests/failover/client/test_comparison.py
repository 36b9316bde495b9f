"""Two unsettled maps and what follows: every row of AMQP's rules, and that nothing accepted is ever sent again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failover.client.state.comparison import (
    NULL,
    RECEIVED,
    TABLE,
    TERMINAL,
    Mine,
    ResumeStep,
    Theirs,
    agreed_state,
    step,
)
from topic.delivery.outcomes import DeliveryOutcome

ACCEPTED, REJECTED = int(DeliveryOutcome.ACCEPTED), int(DeliveryOutcome.REJECTED)

STATES = [NULL, RECEIVED, *sorted(TERMINAL)]
SENDS_THE_MESSAGE = (ResumeStep.NEW, ResumeStep.WHOLE)

states = st.sampled_from(STATES)
maybe = st.none() | states


@pytest.mark.parametrize("undecided", [NULL, RECEIVED])
def test_a_sender_that_knows_no_outcome(undecided: int) -> None:
    assert step(undecided, None) is ResumeStep.NEW
    assert step(undecided, NULL) is ResumeStep.WHOLE
    assert step(undecided, RECEIVED) is ResumeStep.WHOLE
    for outcome in TERMINAL:
        assert step(undecided, outcome) is ResumeStep.STATE
        assert agreed_state(undecided, outcome) == outcome


@pytest.mark.parametrize("outcome", sorted(TERMINAL))
def test_a_sender_that_knows_the_outcome(outcome: int) -> None:
    assert step(outcome, None) is ResumeStep.FORGET
    assert step(outcome, NULL) is ResumeStep.ABORTED
    assert step(outcome, RECEIVED) is ResumeStep.ABORTED
    assert step(outcome, outcome) is ResumeStep.SETTLED
    for other in TERMINAL - {outcome}:
        assert step(outcome, other) is ResumeStep.STATE
        assert agreed_state(outcome, other) == outcome


@pytest.mark.parametrize("theirs", [None, *STATES])
def test_a_sender_that_has_settled(theirs: int | None) -> None:
    assert step(None, theirs) is ResumeStep.IGNORE
    assert step(None, theirs, proven=False) is ResumeStep.IGNORE


@pytest.mark.parametrize("mine", STATES)
def test_what_an_incomplete_map_leaves_out_is_not_known(mine: int) -> None:
    assert step(mine, None, proven=False) is ResumeStep.WAIT
    for theirs in STATES:
        assert step(mine, theirs, proven=False) is step(mine, theirs)


@given(maybe, maybe, st.booleans())
def test_the_table_is_total(mine: int | None, theirs: int | None, proven: bool) -> None:
    assert step(mine, theirs, proven=proven) in ResumeStep


def test_every_pair_that_can_be_is_in_the_table() -> None:
    possible = {(mine, theirs) for mine in Mine for theirs in Theirs if theirs is not Theirs.SAME}
    assert set(TABLE) == possible | {(Mine.DECIDED, Theirs.SAME)}


@given(maybe, maybe, st.booleans())
def test_nothing_accepted_is_ever_sent_again(mine: int | None, theirs: int | None, proven: bool) -> None:
    if step(mine, theirs, proven=proven) in SENDS_THE_MESSAGE:
        assert ACCEPTED not in (mine, theirs)
        assert mine not in TERMINAL and theirs not in TERMINAL


@given(maybe, maybe, st.booleans())
def test_resumed_is_only_what_the_receiver_knows(mine: int | None, theirs: int | None, proven: bool) -> None:
    if step(mine, theirs, proven=proven) in (
        ResumeStep.WHOLE,
        ResumeStep.STATE,
        ResumeStep.SETTLED,
        ResumeStep.ABORTED,
    ):
        assert mine is not None and theirs is not None


def test_a_number_that_is_no_state_is_refused() -> None:
    with pytest.raises(ValueError, match="0x42"):
        step(0x42, None)
    with pytest.raises(ValueError, match="0x42"):
        step(NULL, 0x42)
    with pytest.raises(AssertionError):
        agreed_state(NULL, NULL)


def test_agreement_is_the_sender_s() -> None:
    assert agreed_state(REJECTED, ACCEPTED) == REJECTED
