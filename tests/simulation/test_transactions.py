"""Transactions on queues, in runs of everything that goes wrong: all or nothing, and once (protocol 14.20)."""

from collections import Counter

import pytest

from tests.simulation.report import attempt, tell
from tests.simulation.world import World

ENDS = "COMMITTED", "ROLLED_BACK", "NOT_IMPLEMENTED", "rolled back as asked", "lost", "in doubt"
SEEDS = (31000006, 31000007, 31000014)


def run(seed: int, *odd: str) -> World:
    world, failure = attempt(seed, odd=("transactions", *odd))
    if failure is not None:
        raise AssertionError(tell(failure, tail=60)) from failure.error
    return world


def test_a_transaction_takes_effect_as_a_whole_or_not_at_all_whatever_fails() -> None:
    seen = sum((run(seed).judge.queues.deals.seen for seed in SEEDS), Counter[str]())
    for end in ENDS:
        assert seen[end], f"no transaction ends so: {end}"


@pytest.mark.parametrize("seed", [31000117])
def test_messages_behind_a_transaction_wait_until_it_is_decided(seed: int) -> None:
    """A consumer was sent a message that was enqueued while the set decided a transaction before it."""
    run(seed)


@pytest.mark.parametrize("seed", [31010020])
def test_who_has_a_message_that_a_transaction_takes_learns_that_it_is_over(seed: int) -> None:
    """The next leader had not published the message again when the set decided the transaction. So the routers that had
    asked about the delivery got no answer, and their consumers kept it."""
    run(seed)


@pytest.mark.parametrize("seed", [31040156])
def test_a_leader_takes_over_a_link_that_a_router_tells_of_late(seed: int) -> None:
    """The leader had been restarted, and began while only routers that had been restarted were in contact. The next
    router told of the egress of a queue without consumers."""
    run(seed)
