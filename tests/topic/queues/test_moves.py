"""Leadership of a set moves by itself, and by an operator's word (protocol 13.3)."""

from typing import Any

import pytest

from tests.topic.queues.cluster import SetCluster
from tests.topic.queues.test_sets import begun
from tests.topic.raft.mutants import Broken, must_notice
from topic.queues.moving.moves import RETRY_S, SetMoves
from topic.queues.operations import Declare, Done
from topic.queues.replica import SetReplica
from topic.queues.sets import ReplicaSets
from topic.raft.leadership import Leadership
from topic.raft.limits import RaftLimits
from topic.raft.raft import Raft

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


def times_led(cluster: SetCluster) -> dict[str, int]:
    """How often each router began to lead."""
    return {name: sum("leads it, in" in note for note in host.notes) for name, host in cluster.hosts.items()}


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


def test_a_router_that_is_about_to_stop_hands_its_sets_over_at_once() -> None:
    cluster = begun("abcd", prefer_s=PREFER_S)
    began = cluster.now
    cluster.sets("a").leave(cluster.now)
    cluster.after("a")
    asked = cluster.ask("d", Declare("queue/x"))
    assert [*cluster.sets("a").to_hand_over] == ["q0"]
    while cluster.step():
        pass
    assert cluster.leader() != "a" and cluster.now == began and not cluster.sets("a").to_hand_over
    cluster.settle()
    assert isinstance(cluster.hosts["d"].answers[asked], Done)


def test_no_set_moves_to_a_router_that_is_about_to_stop() -> None:
    """Neither as it is preferred, whether it says so early or late, nor as an operator names it, nor from another
    router that stops."""
    cluster = begun("abcd", prefer_s=PREFER_S)
    cluster.sets("a").leave(cluster.now)
    cluster.after("a")
    go_on(cluster, cluster.now + 3 * PREFER_S)
    leader = cluster.leader()
    cluster.cut(leader, "a")
    cluster.meet_all()
    go_on(cluster, cluster.now + 3 * PREFER_S)
    cluster.sets(leader).choose("q0", "abc", cluster.now)
    cluster.after(leader)
    go_on(cluster, cluster.now + PREFER_S)
    assert cluster.leader() == leader
    cluster.sets(leader).leave(cluster.now)
    cluster.after(leader)
    go_on(cluster, cluster.now + PREFER_S)
    assert cluster.leader() not in ("a", leader)
    assert times_led(cluster) == {"a": 1, "b": 1, "c": 1, "d": 0}


def test_a_router_that_comes_back_is_preferred_again() -> None:
    cluster = begun("abcd", prefer_s=PREFER_S)
    cluster.sets("a").leave(cluster.now)
    cluster.after("a")
    go_on(cluster, cluster.now + 3 * PREFER_S)
    assert cluster.leader() != "a"
    cluster.crash("a")
    cluster.cut("a")
    go_on(cluster, come_back(cluster) + 5)
    assert cluster.leader() == "a"


def test_if_the_whole_mesh_stops_no_set_moves() -> None:
    cluster = begun("abcd")
    for router in "abcd":
        cluster.sets(router).leave(cluster.now, all_stop=True)
        cluster.after(router)
        assert not cluster.sets(router).to_hand_over
        while cluster.step():
            pass
    cluster.settle()
    assert cluster.leader() == "a"
    assert times_led(cluster) == {"a": 1, "b": 0, "c": 0, "d": 0}


def test_a_leader_that_hears_late_that_it_may_hand_over_does() -> None:
    """As it is about to stop, no other router can lead. Then one comes."""
    cluster = begun("abcd", prefer_s=PREFER_S)
    for router in "bca":
        cluster.sets(router).leave(cluster.now)
        cluster.after(router)
        cluster.settle()
    assert cluster.leader() == "a" and not cluster.sets("a").to_hand_over
    cluster.crash("b")
    cluster.cut("b")
    cluster.start("b")
    cluster.meet_all()
    go_on(cluster, cluster.now + 1)
    assert cluster.leader() == "b"


def test_a_router_that_is_about_to_stop_tries_again() -> None:
    """The disks of the others do not take what comes just as one of them is to lead."""
    cluster = begun("abcd", prefer_s=PREFER_S)
    cluster.ask("d", Declare("queue/x"))
    go_on(cluster, cluster.now, hanging=["b", "c"])
    cluster.sets("a").leave(cluster.now)
    cluster.after("a")
    go_on(cluster, cluster.now + 2, hanging=["b", "c"])
    assert cluster.leader() == "a"
    go_on(cluster, cluster.now + RETRY_S + 1)
    assert cluster.leader() != "a"


def test_a_router_that_is_about_to_stop_stands_last() -> None:
    cluster = begun("abcd", prefer_s=PREFER_S)
    cluster.sets("b").leave(cluster.now)
    cluster.after("b")
    cluster.settle()
    cluster.crash("a")
    cluster.cut("a")
    cluster.settle()
    assert times_led(cluster) == {"a": 1, "b": 0, "c": 1, "d": 0}, "router b is earlier in the ring"


def test_a_router_whose_store_is_replaced_is_still_about_to_stop() -> None:
    cluster = begun("abcd", prefer_s=PREFER_S)
    cluster.sets("a").leave(cluster.now)
    cluster.after("a")
    cluster.settle()
    cluster.sets("a").damaged("q0", "a scrub found it")
    cluster.after("a")
    go_on(cluster, cluster.now + 3 * PREFER_S)
    assert cluster.leader() != "a" and times_led(cluster)["a"] == 1


BROKEN: list[Broken] = [
    (SetMoves, "follow", "now + self._prefer_s", "now",
     test_the_preferred_voter_leads_again_when_it_has_been_there_for_a_while),
    (SetMoves, "follow", "self.deadline = math.inf", "pass", test_a_lost_contact_begins_the_time_anew),
    (ReplicaSets, "choose", "self._moves[name].order()", "pass",
     test_the_voter_that_an_operator_names_leads_at_once),
    (SetMoves, "take", "False, now, math.inf", "False, now, now + 1e6", test_a_move_that_fails_is_tried_again),
    (SetMoves, "target", "if self._leaves", "if False",
     test_a_router_that_is_about_to_stop_hands_its_sets_over_at_once),
    (SetMoves, "target", "not self._stays", "True", test_if_the_whole_mesh_stops_no_set_moves),
    (SetMoves, "follow", "is_urgent = self._leaves or", "is_urgent =",
     test_a_leader_that_hears_late_that_it_may_hand_over_does),
    (SetMoves, "follow", "self._tried_at + RETRY_S", "math.inf", test_a_router_that_is_about_to_stop_tries_again),
    (Leadership, "successors", " and not told.leaves", "", test_no_set_moves_to_a_router_that_is_about_to_stop),
    (Raft, "leave", "self._greet()", "pass", test_no_set_moves_to_a_router_that_is_about_to_stop),
    (Raft, "_first_wait", "self.leaves * self._limits.dead", "0", test_a_router_that_is_about_to_stop_stands_last),
    (SetReplica, "_begin", "self.raft.leaves = self._leaves", "pass",
     test_a_router_whose_store_is_replaced_is_still_about_to_stop),
    (Leadership, "successor_at", "log.size(stored, log.last) < self._limits.window", "True",
     test_a_voter_that_lacks_much_does_not_lead),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
