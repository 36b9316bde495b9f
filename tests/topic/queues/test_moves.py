"""Leadership of a set moves by itself, and by an operator's word (protocol 13.3)."""

from typing import Any

import pytest

from tests.topic.clients import Pen, Reader
from tests.topic.queues.bench import QueueBench
from tests.topic.queues.cluster import SetCluster
from tests.topic.queues.test_egress import ADDRESS
from tests.topic.queues.test_ingress import publisher
from tests.topic.queues.test_sets import begun
from tests.topic.raft.mutants import Broken, must_notice
from topic.home.balancing import Balancing
from topic.queues.leader.leaders import LedSet
from topic.queues.moving.moves import MOST_PAUSE_S, PAUSE_S, RETRY_S, SEEN_S, SetMoves
from topic.queues.moving.policy import FOLLOW, SHARE, MovePolicy
from topic.queues.operations import Declare, Done
from topic.queues.replica import SetReplica
from topic.queues.set_map import SetPlan
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


def with_policy(kind: str, hold_s: float = 10.0) -> SetCluster:
    return begun("abcd", plans=[SetPlan("q0", ("a", "b", "c"), policy=MovePolicy(kind, hold_s))], prefer_s=PREFER_S)


def see(cluster: SetCluster, consumers: str, seconds: float) -> None:
    """Time passes. Each second the leader looks where its consumers are: a letter for each."""
    for _ in range(int(seconds)):
        leader, end = cluster.leader(), cluster.now + 1
        cluster.sets(leader).see("q0", consumers, cluster.now)
        cluster.after(leader)
        go_on(cluster, end)
        cluster.now = max(cluster.now, end)


def test_a_set_follows_its_consumers_after_a_pause() -> None:
    cluster = with_policy(FOLLOW)
    see(cluster, "cbc", 2)
    assert cluster.leader() == "c", "router a has led for long, and router c has more of them"
    see(cluster, "b", PAUSE_S - 5)
    assert cluster.leader() == "c"
    see(cluster, "b", 10)
    assert cluster.leader() == "b"
    see(cluster, "b", 5 * PREFER_S)
    assert times_led(cluster) == {"a": 1, "b": 1, "c": 1, "d": 0}, "it is where they are, whoever is preferred"


def test_a_set_stays_while_it_has_a_consumer_at_its_leader() -> None:
    cluster = with_policy(FOLLOW)
    see(cluster, "bba", 3 * PAUSE_S)
    for consumers in 10 * ("bb", "bb", "bba"):  # it is without credit for a moment
        see(cluster, consumers, 2)
    assert times_led(cluster) == {"a": 1, "b": 0, "c": 0, "d": 0}


def test_a_set_does_not_follow_consumers_to_a_router_without_a_vote_or_that_is_about_to_stop() -> None:
    cluster = with_policy(FOLLOW)
    cluster.sets("b").leave(cluster.now)
    cluster.after("b")
    see(cluster, "bd", 3 * PAUSE_S)
    assert times_led(cluster) == {"a": 1, "b": 0, "c": 0, "d": 0}
    see(cluster, "bbdc", 5)
    assert cluster.leader() == "c"


def test_the_pause_doubles_each_time_that_a_set_comes_back() -> None:
    cluster = with_policy(FOLLOW)
    stays: list[float] = []
    for _ in range(6):
        leader, began = cluster.leader(), cluster.now
        while cluster.leader() == leader:
            see(cluster, "b" if leader == "a" else "a", 1)
        stays.append(cluster.now - began)
    _, *pauses = stays  # router a had led for long
    expected = [1, 2, 2, 4, 4]
    assert all(abs(pause - times * PAUSE_S) < 4 for pause, times in zip(pauses, expected, strict=True)), stays


def test_a_set_that_comes_back_late_may_soon_move_again() -> None:
    cluster = with_policy(FOLLOW)
    see(cluster, "b", PAUSE_S + 5)
    see(cluster, "b", MOST_PAUSE_S)
    see(cluster, "a", SEEN_S + 5)
    assert cluster.leader() == "a"
    see(cluster, "b", PAUSE_S + 5)
    assert cluster.leader() == "b"


def test_the_lead_is_shared_in_turn_among_routers_with_consumers() -> None:
    cluster = with_policy(SHARE, 5.0)
    turns = ""
    for _ in range(60):
        see(cluster, "abcd", 1)
        turns += cluster.leader() if not turns.endswith(cluster.leader()) else ""
    assert turns.startswith("bcabcabc") and len(turns) <= 60 / 5 + 2
    while cluster.leader() != "b":
        see(cluster, "ab", 1)
    see(cluster, "bd", SEEN_S + 1)
    led = times_led(cluster)
    see(cluster, "bd", 60)
    assert times_led(cluster) == led or sum(times_led(cluster).values()) <= sum(led.values()) + 1


def test_a_shared_set_without_consumers_stays() -> None:
    cluster = with_policy(SHARE, 1.0)
    see(cluster, "d", 60)
    assert times_led(cluster) == {"a": 1, "b": 0, "c": 0, "d": 0}


def test_an_operator_moves_a_set_that_follows_its_consumers() -> None:
    cluster = with_policy(FOLLOW)
    see(cluster, "a", 5)
    cluster.sets("a").choose("q0", "bac", cluster.now)
    cluster.after("a")
    go_on(cluster, cluster.now + 1)
    assert cluster.leader() == "b"
    see(cluster, "a", PAUSE_S + 5)
    assert cluster.leader() == "a", "the policy goes on"


def test_an_operator_moves_a_set_to_the_router_that_leads_it() -> None:
    cluster = with_policy(FOLLOW)
    cluster.sets("a").choose("q0", "abc", cluster.now)
    cluster.after("a")
    see(cluster, "b", PAUSE_S + 5)
    assert cluster.leader() == "b", "the policy goes on"


# where consumers are


def followed() -> tuple[QueueBench, Reader, Pen]:
    """A queue of which one message is in the hands of a consumer at router b, which has no more credit."""
    bench = QueueBench("a", "b", "c", policy=MovePolicy(FOLLOW))
    pen = publisher(bench, "c")
    reader = bench.subscriber("b", "s", address=ADDRESS, credit=1)
    pen.send(b"1")
    pen.settle(b"1")
    assert reader.delivered == [b"1"] and bench.leader == "a"
    return bench, reader, pen


def test_a_set_follows_a_consumer_with_a_delivery_and_one_with_credit() -> None:
    bench, reader, pen = followed()
    bench.wait(int(PAUSE_S))
    assert bench.leader == "b", "it has a delivery"
    reader.accept(b"1")
    other = bench.subscriber("c", "t", address=ADDRESS, credit=1)
    bench.wait(int(PAUSE_S + SEEN_S))
    assert bench.leader == "c", "this one has credit, and the other one nothing"
    pen.send(b"2")
    assert other.delivered == [b"2"]


def test_a_consumer_with_a_delivery_keeps_a_set_at_its_leader() -> None:
    bench, _, _ = followed()
    bench.wait(int(PAUSE_S))
    bench.subscriber("c", "t", address=ADDRESS, credit=1)
    bench.wait(int(3 * PAUSE_S))
    assert bench.leader == "b"


BROKEN: list[Broken] = [
    (SetMoves, "follow", "led.ring[:1] == (self._router,)", "False",
     test_an_operator_moves_a_set_to_the_router_that_leads_it),
    (Balancing, "busy", "stream.having() | ", "", test_a_consumer_with_a_delivery_keeps_a_set_at_its_leader),
    (Balancing, "busy", "{entry.name for entry, _ in self._able(stream)}", "set()",
     test_a_set_follows_a_consumer_with_a_delivery_and_one_with_credit),
    (LedSet, "watch", "now + WATCH_S", "now + 1e9", test_a_set_follows_a_consumer_with_a_delivery_and_one_with_credit),
    (SetMoves, "_due", "self._pause if", "0 if", test_a_set_follows_its_consumers_after_a_pause),
    (SetMoves, "_wanted", "-self._seen[router][1]", "router", test_a_set_follows_its_consumers_after_a_pause),
    (SetMoves, "target", " or self.policy.kind == PREFER", " or True", test_a_set_follows_its_consumers_after_a_pause),
    (SetMoves, "_wanted", "here not in self._seen", "True", test_a_set_stays_while_it_has_a_consumer_at_its_leader),
    (SetMoves, "see", "now - SEEN_S", "now - 1", test_a_set_stays_while_it_has_a_consumer_at_its_leader),
    (SetMoves, "_begin", "2 * self._pause", "PAUSE_S", test_the_pause_doubles_each_time_that_a_set_comes_back),
    (SetMoves, "_begin", "comes_back = now - self._moved_at < MOST_PAUSE_S", "comes_back = self._moved_at > 0",
     test_a_set_that_comes_back_late_may_soon_move_again),
    (SetMoves, "_due", "else self.policy.hold_s", "else 60",
     test_the_lead_is_shared_in_turn_among_routers_with_consumers),
    (SetMoves, "_wanted", "key=lambda router: router < here", "key=lambda router: 0",
     test_the_lead_is_shared_in_turn_among_routers_with_consumers),
    (SetMoves, "target", "self._is_ordered or ", "",
     test_an_operator_moves_a_set_that_follows_its_consumers),
    (SetMoves, "_due", "now + self._prefer_s", "now",
     test_the_preferred_voter_leads_again_when_it_has_been_there_for_a_while),
    (SetMoves, "follow", "self.deadline = math.inf", "pass", test_a_lost_contact_begins_the_time_anew),
    (ReplicaSets, "choose", "self._moves[name].order()", "pass",
     test_the_voter_that_an_operator_names_leads_at_once),
    (SetMoves, "take", "now, now, math.inf", "now, now, now + 1e6", test_a_move_that_fails_is_tried_again),
    (SetMoves, "target", "if self._leaves", "if False",
     test_a_router_that_is_about_to_stop_hands_its_sets_over_at_once),
    (SetMoves, "target", "not self._stays", "True", test_if_the_whole_mesh_stops_no_set_moves),
    (SetMoves, "_is_urgent", "self._leaves or ", "",
     test_a_leader_that_hears_late_that_it_may_hand_over_does),
    (SetMoves, "_due", "self._tried_at + RETRY_S", "math.inf", test_a_router_that_is_about_to_stop_tries_again),
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
