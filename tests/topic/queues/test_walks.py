"""A fixed set of random walks of a queue; more with `python -m tests.topic.queues.walks`."""

import pytest

from tests.topic.queues.walks import Walk, attempt, tell
from tests.topic.raft.mutants import Mutant
from topic.delivery.kinds import EgressKind
from topic.edge.delivery import EdgeDelivery
from topic.home.balancing import Balancing
from topic.queues.leader.egress import Egress
from topic.queues.leader.ingress import Ingress
from topic.queues.leader.leaders import LedSet
from topic.queues.leader.letters import Letters
from topic.queues.messages import QueuedMessages

SEEDS = 40
MOST = 40
"""Seeds in which a broken rule is noticed."""


def play(seed: int) -> Walk:
    walk, error = attempt(seed, verbose=True)
    if error is not None:
        raise AssertionError("\n".join((*walk.trace[-40:], tell(seed, error)))) from error
    return walk


def test_what_is_promised_of_a_queue_holds_whatever_fails() -> None:
    walks = [play(seed) for seed in range(SEEDS)]
    assert sum(len(walk.judge.messages) for walk in walks) > 10 * SEEDS
    lines = [line for walk in walks for line in walk.trace]
    for happens in (
        "stops", "starts", "has lost", "in contact", "hands over", "the voters are to be", "disks hang", "is held",
        "is asked to delete", "is asked to declare", "is asked to purge", "closes its link", "is gone", "again",
        "settles", "ACCEPTED", "has failed", "REJECTED", "RELEASED", "MODIFIED", "for good", "is resumed",
        "is restated", "in its outbox", " died 1",
    ):  # fmt: skip
        assert any(happens in line for line in lines), f"no walk has: {happens}"


def test_the_same_seed_is_the_same_walk() -> None:
    assert play(1).trace == play(1).trace


@pytest.mark.parametrize(
    ("owner", "method", "old", "new", "pinned"),
    [
        (
            Egress,
            "_wanted",
            "Reserve(self.queue, consumer, self._runs(records))",
            "Reserve(self.queue, consumer, [])",
            3,
        ),
        (
            Egress,
            "send_outcomes",
            "(self._rejected if is_rejected else self._over).extend(records)",
            "self.node.topic.settle(self.stream, records)",
            2,
        ),
        (Balancing, "ask_holders", "self._home.seek_all(theirs, name)", "pass", 8),
        (EgressKind, "counts_again", "True", "False", 4),
        (QueuedMessages, "_came_back", "before.failed + failed", "before.failed + 1", 3),
        (QueuedMessages, "_came_back", "before.failed + failed", "before.failed", 2),
        (EdgeDelivery, "end", "failed=failed", "failed=False", 7),
        (Egress, "_ended", "heappush(self._free, position)", "pass", 3),
        (Ingress, "attach_as_leader", "dict.fromkeys(unsettled, 0)", "{}", 5),
        (Ingress, "forget", "self._over.update", "len", 3),
        (
            Letters,
            "send_outcomes",
            "(self._taken if is_taken else self._refused).append(record)",
            "self._refused.append(record)",
            0,
        ),
        (LedSet, "_look_into_outbox", "letters.outbox_changed()", "pass", 0),
        (LedSet, "_next_clock", "term_clock(*self.since, self._attaches)", "self._attaches", 5),
    ],
)
def test_a_rule_that_is_broken_is_noticed(owner: type, method: str, old: str, new: str, pinned: int) -> None:
    """The pinned seed notices the rule soonest. When it does not any more, another one does."""
    with Mutant(owner, method, old, new, old, "").applied():
        assert any(attempt(seed)[1] is not None for seed in (pinned, *range(MOST)))
