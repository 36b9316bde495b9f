"""Leadership of a set moves to the preferred voter, and to the one that an operator names (protocol 13.3)."""

from typing import Any

import pytest

from tests.topic.queues.cluster import SetCluster
from tests.topic.queues.test_sets import begun
from tests.topic.raft.mutants import Broken, must_notice
from topic.queues.operations import Declare, Done
from topic.queues.sets import ReplicaSets
from topic.raft.leadership import Leadership
from topic.raft.limits import RaftLimits

PREFER_S = 60.0


def without_preferred(limits: RaftLimits | None = None) -> SetCluster:
    """Router a, which is preferred, was away: another router leads."""
    cluster = begun("abcd", prefer_s=PREFER_S, limits=limits)
    assert cluster.leader() == "a"
    cluster.crash("a")
    cluster.cut("a")
    cluster.settle()
    assert cluster.leader() != "a"
    return cluster


def come_back(cluster: SetCluster) -> float:
    """Returns when the preferred voter leads again, about."""
    cluster.start("a")
    cluster.meet_all()
    return cluster.now + PREFER_S


def go_on(cluster: SetCluster, until: float, **options: Any) -> None:
    cluster.settle(seconds=until - cluster.now, **options)


def test_the_preferred_voter_leads_again_when_it_has_been_there_for_a_while() -> None:
    cluster = without_preferred()
    due = come_back(cluster)
    go_on(cluster, due - 5)
    assert cluster.leader() != "a"
    go_on(cluster, due + 5)
    assert cluster.leader() == "a"
    asked = cluster.ask("d", Declare("queue/x"))
    cluster.settle()
    assert isinstance(cluster.hosts["d"].answers[asked], Done)


def test_a_lost_contact_begins_the_time_anew() -> None:
    cluster = without_preferred()
    due = come_back(cluster)
    go_on(cluster, due - 10)
    cluster.cut("a", cluster.leader())
    cluster.meet_all()
    due = cluster.now + PREFER_S
    go_on(cluster, due - 5)
    assert cluster.leader() != "a"
    go_on(cluster, due + 5)
    assert cluster.leader() == "a"


def test_a_voter_that_lacks_much_does_not_lead() -> None:
    """Its disk hangs, so the leader does not wait for it. It leads when it has all, and a while later."""
    cluster = without_preferred(RaftLimits(window=100))
    due = come_back(cluster)
    for number in range(20):
        cluster.ask("d", Declare(f"queue/{number}"))
    go_on(cluster, due + 0.3, hanging=["a"])
    asked = cluster.ask("d", Declare("queue/x"))
    go_on(cluster, due + 0.6, hanging=["a"])
    assert cluster.leader() != "a" and isinstance(cluster.hosts["d"].answers[asked], Done)
    go_on(cluster, cluster.now + PREFER_S + 5)
    assert cluster.leader() == "a"


def test_the_voter_that_an_operator_names_leads_at_once() -> None:
    cluster = begun("abcd", prefer_s=PREFER_S)
    for first in ("bac", "bac", "cba"):
        leader = cluster.leader()
        cluster.sets(leader).choose("q0", first, cluster.now)
        cluster.after(leader)
        go_on(cluster, cluster.now + 1)
        assert cluster.leader() == first[0]
    go_on(cluster, cluster.now + 2 * PREFER_S)
    assert cluster.leader() == "c"


def test_a_move_that_fails_is_tried_again() -> None:
    """The disk of the preferred voter does not take what comes just as it is to lead."""
    cluster = without_preferred()
    due = come_back(cluster)
    leader = cluster.leader()
    go_on(cluster, due - 1)
    cluster.ask("d", Declare("queue/x"))
    go_on(cluster, due + 5, hanging=["a"])
    assert cluster.leader() == leader
    go_on(cluster, due + PREFER_S + 5)
    assert cluster.leader() == "a"


BROKEN: list[Broken] = [
    (ReplicaSets, "_flush", "now + self._prefer_s", "now",
     test_the_preferred_voter_leads_again_when_it_has_been_there_for_a_while),
    (ReplicaSets, "_flush", "self._moves_at.pop(name, None)", "pass", test_a_lost_contact_begins_the_time_anew),
    (ReplicaSets, "choose", "self._moves_at[name] = now", "pass",
     test_the_voter_that_an_operator_names_leads_at_once),
    (ReplicaSets, "_hand_to_preferred", "now + self._prefer_s", "float('inf')", test_a_move_that_fails_is_tried_again),
    (Leadership, "preferred", "log.size(stored, log.last) < self._limits.window", "True",
     test_a_voter_that_lacks_much_does_not_lead),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
