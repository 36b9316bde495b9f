"""Traps that other systems fell into, and rules that a walk seldom meets: each as a scenario (protocol 13)."""

from collections import deque
from random import Random
from typing import Any

import pytest

from tests.topic.raft.cluster import MAPPING, Cluster
from topic.errors import BreachError
from topic.raft import messages as say
from topic.raft.configuration import Configuration, Replica
from topic.raft.errors import BusyError, NotLeaderError, NotReadyError
from topic.raft.life import NO_LIFE, SetLife
from topic.raft.limits import RaftLimits
from topic.raft.log import Entry, RaftLog
from topic.raft.progress import FollowerProgress
from topic.raft.raft import Raft, RaftRole


def led(*routers: str, **settings: Any) -> Cluster:
    """A set that has begun, with these settings of its cluster. The first router leads."""
    cluster = Cluster(routers, **settings)
    cluster.meet_all()
    cluster.settle()
    assert cluster.leaders() == [routers[0]]
    return cluster


def raft(cluster: Cluster, router: str) -> Raft:
    found = cluster.replicas[router].raft
    assert found is not None
    return found


def test_an_old_write_confirms_nothing_that_was_overwritten() -> None:
    log = RaftLog([Entry(1)] * 9)
    log.append([Entry(1)] * 11)
    log.write(1)  # 10 to 20, in term 1
    log.merge(12, [Entry(2)])  # the leader of term 2 has 12 of them
    log.written(1)
    assert log.stable == 12
    log.write(2)
    log.written(2)
    assert log.stable == 13


def test_entries_that_come_back_are_not_stable_by_a_write_before_they_went() -> None:
    log = RaftLog([Entry(1)] * 2)
    log.append([Entry(1)])
    log.write(1)
    log.merge(2, [Entry(2)])
    log.write(2)
    log.merge(2, [Entry(3, b"other"), Entry(3)])
    log.write(3)
    log.written(1)
    assert log.stable == 2
    log.written(3)
    assert log.stable == 4


def test_an_empty_append_decides_nothing_that_was_not_compared() -> None:
    cluster = led("a", "b", "c")
    cluster.propose("a", b"lost1", b"lost2")
    cluster.deliver("a", "b")
    cluster.finish("b")  # b has a tail that nobody else has
    cluster.crash("a")
    cluster.cut("a")
    cluster.cut("b")
    cluster.replicas["c"].disk.crash(0)
    log = raft(cluster, "b").log
    leader = Replica("c", cluster.replicas["c"].disk.store)
    cluster.meet("b", "c")
    cluster.deliver("c", "b")
    me = Replica("b", cluster.replicas["b"].disk.store)
    life = raft(cluster, "b").hard.life
    commit = log.commit
    cluster.do("b", lambda r: r.receive(say.Envelope(life, leader, me, say.Lead(5, commit, 1, 99)), cluster.now))
    assert log.last > commit and log.commit == commit


def test_a_store_that_was_replaced_has_no_vote() -> None:
    cluster = led("a", "b", "c")
    cluster.propose("a", b"x")
    cluster.settle()
    for router in "bc":
        cluster.replace_disk(router)
        cluster.cut(router)
        cluster.start(router)
    cluster.meet_all()
    cluster.settle()
    assert cluster.leaders() == []
    cluster.do("a", lambda r: r.recover(cluster.now))
    cluster.settle()
    assert cluster.leaders() == ["a"]
    assert [entry.data for entry in cluster.replicas["c"].applied if entry.data] == [b"x"]


def test_a_set_does_not_begin_while_one_store_remembers_it() -> None:
    cluster = led("a", "b", "c")
    cluster.crash("c")
    for router in "ab":
        cluster.replace_disk(router)
        cluster.start(router)
    cluster.start("c")
    cluster.meet_all()
    cluster.settle()
    assert cluster.leaders() == []
    assert raft(cluster, "a").hard.life == NO_LIFE


def test_a_set_begins_when_all_have_accepted() -> None:
    cluster = Cluster("abc")
    cluster.meet_all()
    for _ in range(200):
        if not cluster.step_without_time(hanging="c"):
            break
    assert not any(raft(cluster, router).hard.begun for router in "abc")
    cluster.settle()
    assert cluster.leaders() == ["a"]


def test_a_life_is_on_the_disk_before_it_is_told() -> None:
    cluster = Cluster("ab")
    cluster.meet_all()
    while cluster.step_without_time(hanging="ab"):
        pass
    cluster.crash("b")
    cluster.start("b")
    cluster.meet_all()
    cluster.settle(hanging="b")
    assert not raft(cluster, "a").hard.begun


def incomplete() -> Cluster:
    """The store of c was replaced before it had accepted the life of a and b."""
    cluster = Cluster("abc")
    cluster.meet_all()
    while cluster.step_without_time(hanging="c"):
        pass
    cluster.replace_disk("c")
    cluster.cut("c")
    cluster.start("c")
    cluster.meet_all()
    cluster.settle()
    return cluster


def test_an_incomplete_beginning_is_ended_by_an_operator_alone() -> None:
    cluster = incomplete()
    assert cluster.leaders() == []
    cluster.do("a", lambda r: r.begin_anew())
    cluster.settle()
    assert cluster.leaders() == ["a"]


def test_an_operator_who_asks_twice_begins_a_set_once() -> None:
    """A disk has the life of the first request before its router reads the second request."""
    cluster = incomplete()
    cluster.do("a", lambda r: r.begin_anew())
    while cluster.step_without_time(hanging="b"):
        pass
    cluster.do("a", lambda r: r.begin_anew())
    while waiting := [channel for channel in cluster.waiting() if "b" not in channel]:
        cluster.deliver(*waiting[0])
        for router in "ac":
            while cluster.replicas[router].disk.writes:
                cluster.finish(router)
    while cluster.replicas["b"].disk.writes:
        cluster.finish("b")
    cluster.settle()
    assert cluster.leaders() == ["a"]


def test_an_operator_asks_again_when_another_store_is_lost() -> None:
    cluster = incomplete()
    cluster.do("a", lambda r: r.begin_anew())
    while cluster.step_without_time(hanging="b"):
        pass
    cluster.replace_disk("b")
    cluster.cut("b")
    cluster.start("b")
    cluster.meet_all()
    cluster.settle()
    assert cluster.leaders() == []
    cluster.do("a", lambda r: r.begin_anew())
    cluster.settle()
    assert len(cluster.leaders()) == 1


def test_an_operator_asks_again_when_a_store_has_a_later_life() -> None:
    """It has that by the request of another operator, and its router was killed before it had proposed the life."""
    cluster = incomplete()
    cluster.do("a", lambda r: r.begin_anew())
    while cluster.step_without_time(hanging="b"):
        pass
    cluster.do("c", lambda r: r._accept(r._new_life(), r.log.configuration, anew=True))
    cluster.finish("c")
    cluster.crash("c")
    cluster.cut("c")
    cluster.start("c")
    cluster.meet_all()
    cluster.settle()
    assert cluster.leaders() == []
    cluster.do("a", lambda r: r.begin_anew())
    cluster.settle()
    assert cluster.leaders() == ["a"]


def test_an_earlier_life_is_void() -> None:
    """An old disk is put back, and `recover` runs while the former voters return."""
    cluster = led("a", "b", "c")
    cluster.propose("a", b"x")
    cluster.settle()
    cluster.crash("b")
    cluster.crash("c")
    cluster.cut("a")
    cluster.settle()
    cluster.do("a", lambda r: r.recover(cluster.now))
    cluster.settle()
    stores = [cluster.replicas[router].disk.store for router in "bc"]
    cluster.start("b")
    cluster.start("c")
    cluster.meet("b", "c")
    cluster.settle()
    assert len(cluster.leaders()) == 2, "the former life goes on where the new one is not known"
    cluster.meet_all()
    cluster.settle()
    assert cluster.leaders() == ["a"]
    assert not {cluster.replicas[router].disk.store for router in "bc"} & set(stores), "the former stores are set aside"


def test_a_store_without_an_entry_is_not_recovered() -> None:
    """It has taken the life of a leader, and nothing else: as the only voter it would have an empty set."""
    cluster = led("a", "b", "c")
    cluster.replace_disk("c")
    cluster.start("c")
    cluster.meet_all()
    while not raft(cluster, "c").hard.life:
        assert cluster.step_without_time()
    cluster.cut("c")
    assert not raft(cluster, "c").log.last
    with pytest.raises(NotLeaderError, match="has never been part of the set"):
        raft(cluster, "c").recover(cluster.now)


def with_a_life_and_no_entry() -> Cluster:
    """The disks of a and b are lost just after c has taken the life of their leader, and nothing else."""
    cluster = led("a", "b", "c")
    cluster.replace_disk("c")
    cluster.start("c")
    cluster.meet_all()
    while not raft(cluster, "c").hard.life:
        assert cluster.step_without_time()
    for router in "ab":
        cluster.replace_disk(router)
        cluster.cut(router)
    cluster.start("a")
    cluster.start("b")
    cluster.meet_all()
    cluster.settle()
    return cluster


def test_a_set_begins_anew_although_a_store_has_a_life_and_no_entry() -> None:
    cluster = with_a_life_and_no_entry()
    assert cluster.leaders() == []
    with pytest.raises(NotReadyError, match="it has begun at router c"):
        raft(cluster, "a").begin_anew()
    cluster.do("c", lambda r: r.begin_anew())
    cluster.settle()
    assert cluster.leaders() == ["a"] and members(cluster, "a") == ("abc", "")


def test_a_store_without_an_entry_is_a_learner_again_if_its_leader_comes_back() -> None:
    """An operator wrongly took all other stores for lost."""
    cluster = led("a", "b", "c")
    cluster.propose("a", b"x")
    cluster.replace_disk("c")
    cluster.start("c")
    cluster.meet_all()
    while not raft(cluster, "c").hard.life:
        assert cluster.step_without_time()
    with pytest.raises(NotReadyError, match="it has begun"):
        raft(cluster, "c").begin_anew()
    cluster.cut("c")
    cluster.do("c", lambda r: r.begin_anew())
    cluster.meet_all()
    cluster.settle()
    assert members(cluster, cluster.leaders()[0]) == ("abc", "")
    assert raft(cluster, "c").log.last == raft(cluster, cluster.leaders()[0]).log.last


def test_two_requests_may_leave_one_store_from_which_an_operator_recovers_the_set() -> None:
    """The life of the first request is in effect at a. Router b has not heard of that when c has lost its store."""
    cluster = incomplete()
    cluster.do("a", lambda r: r.begin_anew())
    cluster.deliver("a", "b")
    while not raft(cluster, "a").hard.begun:
        for channel in cluster.waiting():
            if channel[1] != "b":
                cluster.deliver(*channel)
        for router in "abc":
            while cluster.replicas[router].disk.writes:
                cluster.finish(router)
    cluster.replace_disk("c")
    cluster.cut("c")
    cluster.start("c")
    cluster.meet("b", "c")
    while cluster.channels["c", "b"]:
        cluster.deliver("c", "b")
    first, second = raft(cluster, "a").hard, raft(cluster, "b").hard
    assert first.begun and first.life == second.life and not second.begun
    cluster.do("b", lambda r: r.begin_anew())
    while not raft(cluster, "c").hard.life:
        cluster.deliver("b", "c")
    cluster.finish("c")
    cluster.meet("a", "c")
    stores = [cluster.replicas[router].disk.store for router in "bc"]
    cluster.settle()
    assert not {cluster.replicas[router].disk.store for router in "bc"} & set(stores), "these stores are void"
    assert cluster.leaders() == [] and raft(cluster, "a").hard.begun
    cluster.do("a", lambda r: r.recover(cluster.now))
    cluster.settle()
    assert cluster.leaders() == ["a"] and members(cluster, "a") == ("abc", "")


def test_a_store_without_a_life_takes_no_earlier_one_than_a_router_in_contact_has() -> None:
    """Operators have recovered a, and then c, each alone. These do not see each other, and b sees both. What a says
    arrives sooner than what c says, and that before b has caught up. So b would take the life of a, be set aside for
    the one of c, be made a learner by both, and so on without end."""
    cluster = led("a", "b", "c")
    cluster.cut("a")
    cluster.cut("b")
    for router in "ac":
        cluster.do(router, lambda r: r.recover(cluster.now))
        cluster.settle()
    earlier = raft(cluster, "a").hard.life
    cluster.meet("a", "b")
    cluster.meet("b", "c")
    while waiting := sorted(cluster.waiting(), reverse=raft(cluster, "b").hard.life == earlier):
        greets = [pair for pair in waiting if isinstance(cluster.channels[pair][0][1].body, say.Greeting)]
        cluster.deliver(*(greets or waiting)[0])
        for router in "abc":
            while cluster.replicas[router].disk.writes:
                cluster.finish(router)
        assert cluster.replicas["b"].disk.store <= b"b3", "b is set aside again and again"
    cluster.settle()
    assert cluster.leaders() == ["c"] and raft(cluster, "b").leader == raft(cluster, "c").me


def test_two_lives_may_begin_at_one_clock() -> None:
    """Operators recover a and c, which do not see each other, in one microsecond."""
    cluster = led("a", "b", "c")
    cluster.cut("a")
    cluster.cut("b")
    for router in "ac":
        raft(cluster, router)._read_clock = lambda: 200
        cluster.do(router, lambda r: r.recover(cluster.now))
        cluster.settle()
        cluster.do(router, lambda r: r.propose([r.me.store]))
        cluster.settle()
    cluster.meet("a", "c")
    cluster.settle()
    assert "a: set aside, router c has another life of the set, and that life has begun" in cluster.said
    cluster.meet_all()
    cluster.settle()
    assert cluster.leaders() == ["c"] and raft(cluster, "a").hard.life == SetLife(200, "c")


def test_the_leader_of_an_earlier_life_is_told_of_a_later_one() -> None:
    """Router b has no life. It refuses the one of a, as it sees c, which has a later one and does not lead at present.
    Would a not be told, it would go on to decide entries that are void, and wait for the answer of b for ever."""
    cluster = led("a", "b", "c")
    cluster.cut("a")
    cluster.cut("b")
    for router in "ac":
        cluster.do(router, lambda r: r.recover(cluster.now))
        cluster.settle()
    cluster.do("c", lambda r: r.resign(cluster.now))
    for router in "ca":
        cluster.meet("b", router)
        while cluster.step_without_time():
            pass
    assert "a: set aside, router b tells of a later life of the set" in cluster.said
    assert not cluster.leaders() and raft(cluster, "b").hard.life == NO_LIFE
    cluster.settle()
    assert cluster.leaders() == ["c"]


def test_another_map_of_names_gets_no_answer() -> None:
    cluster = led("a", "b", "c")
    stranger = Replica("b", cluster.replicas["b"].disk.store)
    cluster.cut("b")
    cluster.do("a", lambda r: r.connect("b", cluster.now))
    me = raft(cluster, "a").me
    life, term = raft(cluster, "a").hard.life, raft(cluster, "a").hard.term
    bodies: list[say.Body] = [say.Greeting(True, ("a", "b", "c"), b"another map"), say.Vote(term + 1, 99, term)]
    for body in bodies:
        raft(cluster, "a").receive(say.Envelope(life, stranger, me, body), cluster.now)
    assert raft(cluster, "a").hard.term == term
    with pytest.raises(ValueError, match="restore the former assignment"):
        disk = cluster.replicas["c"].disk
        Raft(
            Replica("c", disk.store),
            "abc",
            "abc",
            b"other",
            disk.content,
            RaftLimits(),
            lambda: 0.5,
            lambda: 1,
            0.0,
        )


def test_a_message_for_an_earlier_store_is_void() -> None:
    cluster = led("a", "b", "c")
    me, sender = raft(cluster, "b").me, raft(cluster, "c").me
    former = Replica("b", b"former")
    hard = raft(cluster, "b").hard
    vote = say.Envelope(hard.life, sender, former, say.Vote(hard.term + 1, 99, hard.term))
    cluster.do("b", lambda r: r.receive(vote, cluster.now))
    assert raft(cluster, "b").hard == hard and raft(cluster, "b").me == me


def test_a_learner_that_was_promoted_votes_before_it_knows() -> None:
    cluster = led("a", "b", "c", "d", ring="abc")
    cluster.crash("c")
    cluster.cut("c")
    d = raft(cluster, "d").me
    present = raft(cluster, "a").log.configuration
    cluster.set_ring("abcd")
    for _ in range(10_000):
        if d in raft(cluster, "a").log.configuration.voters:
            break
        assert cluster.step_without_time()
    assert d not in present.voters and d not in raft(cluster, "d").log.configuration.voters
    while cluster.channels["a", "b"]:
        cluster.deliver("a", "b")
    cluster.crash("a")
    cluster.cut("a")
    cluster.start("c")
    cluster.meet_all()
    cluster.settle()
    assert len(cluster.leaders()) == 1, "b, c and d are a majority of a, b, c and d"


def test_an_idle_set_sends_nothing_and_has_a_leader_again_when_one_resigns() -> None:
    cluster = led("a", "b", "c")
    assert not any(cluster.channels.values())
    term = raft(cluster, "a").hard.term
    cluster.do("a", lambda r: r.resign(cluster.now))
    cluster.settle()
    assert len(cluster.leaders()) == 1 and raft(cluster, cluster.leaders()[0]).hard.term > term


def test_a_leader_of_an_earlier_term_is_told_so() -> None:
    """It has its contact with b anew, and nothing to say: b follows another one, that a cannot see."""
    cluster = led("a", "b", "c")
    cluster.lose("b", "a")
    cluster.lose("c", "a")
    cluster.settle()
    assert set(cluster.leaders()) == {"a", "b"}, "a does not know yet that its contacts have ended"
    cluster.meet("a", "c")
    cluster.settle()
    assert cluster.leaders() == ["b"]


def test_leadership_moves_from_a_disk_that_hangs() -> None:
    cluster = led("a", "b", "c")
    cluster.propose("a", b"x")
    cluster.settle(hanging="a")
    assert cluster.leaders() in (["b"], ["c"])


def test_a_replica_whose_disk_hangs_does_not_stand() -> None:
    cluster = led("a", "b", "c")
    cluster.propose("a", b"x")
    cluster.deliver("a", "b")
    cluster.cut("b")
    cluster.now += cluster.limits.dead
    cluster.tick("b")
    assert raft(cluster, "b").role is RaftRole.FOLLOWER
    cluster.finish("b")
    cluster.tick("b")
    assert raft(cluster, "b").role is RaftRole.PRE_CANDIDATE


def test_a_transfer_that_fails_ends_and_the_leader_goes_on() -> None:
    cluster = led("a", "b", "c")
    cluster.hand_over("a", "b")
    with pytest.raises(BusyError):
        cluster.propose("a", b"x")
    cluster.channels["a", "b"].clear()
    cluster.settle()
    cluster.propose("a", b"x")
    cluster.settle()
    assert cluster.replicas["c"].applied[-1].data == b"x"


def test_a_transfer_waits_until_the_other_has_all() -> None:
    cluster = led("a", "b", "c", limits=RaftLimits(window=1))
    cluster.propose("a", b"x")
    cluster.propose("a", b"y")
    cluster.propose("a", b"z")
    cluster.hand_over("a", "b")
    cluster.settle()
    assert cluster.leaders() == ["b"]
    assert [entry.data for entry in raft(cluster, "b").log.entries(1, 99)][-4:] == [b"x", b"y", b"z", b""]


def test_a_transfer_ends_if_the_next_leader_is_about_to_stop() -> None:
    cluster = led("a", "b", "c")
    cluster.propose("a", b"x")
    cluster.hand_over("a", "b")
    cluster.do("b", lambda r: r.leave())
    cluster.settle(seconds=0)
    assert cluster.leaders() == ["a"]
    cluster.propose("a", b"y")


def test_a_router_that_cannot_see_the_leader_disturbs_nobody() -> None:
    """a leads, and sees b alone; c sees b alone, too, and has no leader."""
    cluster = led("a", "b", "c")
    cluster.cut("a", "c")
    term = raft(cluster, "a").hard.term
    cluster.settle(seconds=60.0)
    assert cluster.leaders() == ["a"] and raft(cluster, "a").hard.term == term


def test_a_log_that_lacks_what_is_decided_does_not_win() -> None:
    cluster = led("a", "b", "c")
    cluster.cut("c")
    cluster.settle()
    cluster.propose("a", b"x")
    cluster.settle()
    cluster.crash("a")
    cluster.cut("a")
    cluster.meet("b", "c")
    while cluster.waiting():
        cluster.deliver(*cluster.waiting()[0])
    c = raft(cluster, "c")
    cluster.do("c", lambda r: r._stand(cluster.now))  # as if a majority had granted its pre-vote before
    cluster.settle()
    assert cluster.leaders() == ["b"] and c.role is RaftRole.FOLLOWER


def test_a_log_that_lacks_what_is_decided_begins_no_term() -> None:
    cluster = led("a", "b", "c")
    cluster.cut("c")
    cluster.propose("a", b"x")
    cluster.settle()
    cluster.crash("a")
    cluster.cut("a")
    cluster.meet("b", "c")
    while cluster.step_without_time():
        pass
    term = raft(cluster, "b").hard.term
    cluster.tick("c")
    while cluster.step_without_time():
        pass
    assert raft(cluster, "b").hard.term == raft(cluster, "c").hard.term == term


def test_a_term_is_on_the_disk_before_an_acknowledgement_in_it() -> None:
    """Otherwise the follower forgets it, and obeys the leader of an earlier one."""
    cluster = led("a", "b", "c")
    b, c = raft(cluster, "b"), raft(cluster, "c")
    lead = say.Lead(b.hard.term + 1, b.log.last, b.log.last_term, 1)
    cluster.do("b", lambda r: r.receive(say.Envelope(b.hard.life, c.me, b.me, lead), cluster.now))
    assert not cluster.channels["b", "c"]
    cluster.finish("b")
    assert [type(envelope.body) for _, envelope in cluster.channels["b", "c"]] == [say.Stored]


def test_a_message_of_an_earlier_life_is_void() -> None:
    cluster = led("a", "b", "c")
    a, b = raft(cluster, "a"), raft(cluster, "b")
    hard = a.hard
    vote = say.Envelope(SetLife(hard.life.clock - 1, "a"), b.me, a.me, say.Vote(hard.term + 1, 99, hard.term))
    cluster.do("a", lambda r: r.receive(vote, cluster.now))
    assert a.hard == hard and a.role is RaftRole.LEADER


def test_a_learner_does_not_stand() -> None:
    cluster = led("a", "b", "c", "d", ring="abc")
    cluster.set_ring("abcd")
    cluster.settle(hanging="d", seconds=0.5)
    cluster.finish("d")
    cluster.cut("d")
    d = raft(cluster, "d")
    assert d.hard.begun and d.me not in d.log.configuration.voters
    cluster.tick("d")
    assert d.role is RaftRole.FOLLOWER and d.leader is None


def test_only_the_entry_that_was_asked_about_is_an_answer() -> None:
    log, progress = RaftLog([Entry(1)] * 9), FollowerProgress(9, 0.0)
    progress.ask(log, 5, 1)
    progress.learn(agreed=3, stored=3)
    assert progress.next_append(log, 1, 1 << 20, is_due=True) is None
    progress.learn(agreed=5, stored=3)
    append = progress.next_append(log, 1, 1 << 20, is_due=True)
    assert append is not None and append.previous == 5


def test_a_store_accepts_one_life_for_ever() -> None:
    cluster = Cluster("abc")
    cluster.meet_all()
    while cluster.step_without_time(hanging="c"):
        pass
    b = raft(cluster, "b")
    accepted = b.hard
    proposal = say.Envelope(
        SetLife(999, "a"), raft(cluster, "a").me, b.me, say.Propose(b.log.configuration, anew=False)
    )
    cluster.do("b", lambda r: r.receive(proposal, cluster.now))
    assert accepted.life and b.hard == accepted


def test_entries_of_an_earlier_term_are_decided_with_one_of_this_term() -> None:
    """Raft, figure 3.7: a majority has an entry of an earlier term, and another leader may still replace it."""
    cluster = led("a", "b", "c")
    cluster.propose("a", b"x")
    cluster.finish("a")
    cluster.deliver("a", "b")
    cluster.finish("b")
    cluster.cut("a")
    a = raft(cluster, "a")
    cluster.meet("a", "c")
    before = a.log.commit
    cluster.do("a", lambda r: r.tick(r.deadline))
    while a.role is not RaftRole.LEADER:
        assert cluster.step_without_time(hanging="b")
    x = a.log.last - 1
    assert a.leadership is not None
    a.leadership.progress[raft(cluster, "c").me].stored = x
    cluster.do("a", lambda _: None)
    assert a.log.term(x) < a.hard.term and a.log.commit == before


def test_members_change_behind_an_entry_of_the_term() -> None:
    """Ongaro, 2015: a leader that has decided nothing of its own may not know of the last change."""
    cluster = led("a", "b", "c", "d", ring="abc")
    cluster.do("a", lambda r: r.resign(cluster.now))
    while not cluster.leaders():
        if not cluster.step_without_time():
            due = cluster.next_deadline()
            assert due is not None
            cluster.tick(due[1])
    leader = raft(cluster, cluster.leaders()[0])
    with pytest.raises(BusyError):
        leader.configure(leader.log.configuration.with_learner(raft(cluster, "d").me), cluster.now)


def test_a_learner_has_all_that_is_decided_before_it_votes() -> None:
    cluster = led("a", "b", "c", "d", ring="abc")
    cluster.cut("d")
    cluster.set_ring("abcd")
    cluster.meet_all()
    cluster.settle(hanging="d")
    learners = raft(cluster, "a").log.configuration.learners
    assert [member.router for member in learners] == ["d"]


def test_a_configuration_goes_with_its_entry() -> None:
    log = RaftLog([Entry(0, MAPPING, Configuration((Replica("a", b"1"),)))])
    log.append([Entry(1, configuration=Configuration((Replica("b", b"2"),)))])
    log.merge(1, [Entry(2)])
    assert log.configuration.voters == (Replica("a", b"1"),) and log.configured_at == 1


def test_a_disk_that_lost_what_it_had_acknowledged_is_set_aside() -> None:
    cluster = led("a", "b", "c")
    cluster.propose("a", b"x", b"y")
    cluster.settle()
    disk = cluster.replicas["c"].disk
    former = disk.store
    cluster.crash("c")
    cluster.cut("c")
    del disk.entries[-1:]
    cluster.start("c")
    cluster.meet_all()
    cluster.settle()
    assert cluster.replicas["c"].disk.store != former
    assert cluster.replicas["c"].applied == cluster.replicas["a"].applied


def test_what_waits_for_the_disks_is_bounded() -> None:
    cluster = led("a", "b", "c", limits=RaftLimits(unstored=1000))
    with pytest.raises(BusyError, match="bytes wait to be written to disk"):
        for _ in range(100):
            cluster.propose("a", b"x" * 100)
    assert raft(cluster, "a").log.size(0, raft(cluster, "a").log.last) < 1500
    cluster.settle()
    cluster.propose("a", b"x")


def test_what_is_on_its_way_to_a_follower_is_bounded() -> None:
    cluster = led("a", "b", "c", limits=RaftLimits(window=1000))
    for _ in range(100):
        cluster.propose("a", b"x" * 100)
    sent = sum(
        entry.size for _, e in cluster.channels["a", "b"] if isinstance(e.body, say.Append) for entry in e.body.entries
    )
    assert sent < 1500
    cluster.settle()
    assert len(cluster.replicas["b"].applied) == len(cluster.replicas["a"].applied)


def test_followers_are_told_what_is_decided_with_the_next_entries_or_soon() -> None:
    cluster = led("a", "b", "c", limits=RaftLimits(told=0.05))
    leader, follower = raft(cluster, "a"), raft(cluster, "b")
    before = follower.log.last
    for count in (1, 2):
        cluster.propose("a", b"x")
        while cluster.step_without_time():
            pass
        assert (leader.log.commit, follower.log.commit) == (before + count, before + count - 1)
    began = cluster.now
    cluster.settle()
    assert follower.log.commit == leader.log.commit and 0 < cluster.now - began < 0.1


def test_only_a_leader_decides() -> None:
    cluster = led("a", "b", "c")
    with pytest.raises(NotLeaderError) as refused:
        cluster.propose("b", b"x")
    assert refused.value.leader == raft(cluster, "a").me
    with pytest.raises(NotLeaderError, match="leads this set"):
        raft(cluster, "b").recover(cluster.now)
    with pytest.raises(ValueError, match="expected another voter that this router can reach"):
        raft(cluster, "a").hand_over(Replica("a", b""), cluster.now)


def test_voters_change_one_at_a_time() -> None:
    cluster = led("a", "b", "c", "d", ring="abc")
    present = raft(cluster, "a").log.configuration
    with pytest.raises(ValueError, match="more than one voter"):
        raft(cluster, "a").configure(Configuration(present.voters[:1]), cluster.now)
    cluster.do("a", lambda r: r.configure(present.without(present.voters[2]), cluster.now))
    with pytest.raises(BusyError):
        raft(cluster, "a").configure(present, cluster.now)


@pytest.mark.parametrize(
    "body",
    [
        say.Append(9, 99, 1, (), 0),
        say.Append(9, 0, 0, (Entry(9),), 0),
    ],
    ids=["behind an entry that is not there", "over entries that are decided"],
)
def test_a_leader_that_breaks_the_protocol_loses_its_contact(body: say.Append) -> None:
    cluster = led("a", "b", "c")
    me, sender = raft(cluster, "b").me, raft(cluster, "c").me
    envelope = say.Envelope(raft(cluster, "b").hard.life, sender, me, body)
    with pytest.raises(BreachError, match="router c"):
        raft(cluster, "b").receive(envelope, cluster.now)


def test_a_follower_that_acknowledges_more_than_there_is_loses_its_contact() -> None:
    cluster = led("a", "b", "c")
    a, b = raft(cluster, "a"), raft(cluster, "b")
    with pytest.raises(BreachError, match="router b"):
        a.receive(say.Envelope(a.hard.life, b.me, a.me, say.Stored(a.hard.term, 99, 99)), cluster.now)


def test_a_former_leader_is_told_of_a_later_term() -> None:
    """a hands over to b, and loses its contact with b; c votes for b, and stays in contact with a."""
    cluster = led("a", "b", "c")
    cluster.hand_over("a", "b")
    cluster.deliver("a", "b")
    cluster.cut("a", "b")
    cluster.settle()
    assert cluster.leaders() == ["b"]


def test_a_candidate_counts_only_votes_of_voters_in_contact() -> None:
    cluster = led("a", "b", "c")
    cluster.crash("a")
    cluster.cut("a")
    cluster.tick("b")
    while cluster.replicas["b"].raft.role is not RaftRole.CANDIDATE:  # type: ignore[union-attr]
        assert cluster.step_without_time()
    cluster.channels["c", "b"].clear()
    b, c = raft(cluster, "b"), raft(cluster, "c")
    granted = say.Envelope(b.hard.life, c.me, b.me, say.Voted(b.hard.term))
    cluster.do("b", lambda r: r.receive(granted, cluster.now))
    cluster.cut("b", "c")
    cluster.finish("b")
    assert b.role is RaftRole.CANDIDATE, "it would lead without a majority in contact"


def test_a_router_that_was_a_member_learns_that_its_leader_has_resigned() -> None:
    """The change that took it out is not decided, and it has a vote again."""
    cluster = led("a", "b", "c", "d", ring="abcd")
    cluster.cut("b")
    configuration = raft(cluster, "a").log.configuration
    b, d = raft(cluster, "b").me, raft(cluster, "d")
    cluster.do("a", lambda r: r.configure(configuration.without(d.me), cluster.now))
    assert b in configuration.voters and d.leader == raft(cluster, "a").me
    cluster.do("a", lambda r: r.resign(cluster.now))
    while cluster.channels["a", "d"]:
        cluster.deliver("a", "d")
    assert d.leader is None


def test_two_files_do_not_begin_a_set_twice() -> None:
    """a alone is to be the voter by the file of a, b alone by that of b."""
    cluster = Cluster("abc", ring="a")
    cluster.do("b", lambda r: r.follow_ring("b"))
    cluster.meet_all()
    cluster.settle()
    assert not any(raft(cluster, router).hard.life for router in "abc")
    assert any("other voters" in said for said in cluster.said)
    cluster.do("b", lambda r: r.follow_ring("a"))
    cluster.settle()
    assert cluster.leaders() == ["a"]


def test_another_file_changes_no_voters_of_a_set_that_has_begun() -> None:
    """The mesh has got router d, and all routers start again with the file that has it: by that d is to be a voter."""
    cluster = led("a", "b", "c", "d", ring="abc")
    cluster.ring = ("b", "c", "d")
    for router in "abcd":
        cluster.crash(router)
        cluster.start(router)
    cluster.meet_all()
    cluster.settle()
    members = raft(cluster, cluster.leaders()[0]).log.configuration
    assert [voter.router for voter in members.voters] == ["a", "b", "c"] and not members.learners


def changes(cluster: Cluster, leader: str) -> list[Configuration]:
    """The configurations in the leader's log."""
    log = raft(cluster, leader).log
    return [entry.configuration for entry in log.entries(1, log.last) if entry.configuration is not None]


def members(cluster: Cluster, leader: str) -> tuple[str, str]:
    """The routers of the voters and of the learners."""
    configuration = raft(cluster, leader).log.configuration
    return tuple("".join(one.router for one in some) for some in (configuration.voters, configuration.learners))  # type: ignore[return-value]


def test_an_asynchronous_copy_has_everything_and_no_vote() -> None:
    cluster = led("a", "b", "c", "d", ring="abc")
    cluster.do("a", lambda r: r.choose("abc", cluster.now, "d"))
    cluster.settle()
    cluster.propose("a", b"x")
    cluster.settle()
    a, d = raft(cluster, "a"), raft(cluster, "d")
    assert members(cluster, "a") == ("abc", "d") and d.log.commit == a.log.commit == a.log.last
    assert len(changes(cluster, "a")) == 3, "the copy stays"
    cluster.crash("a")
    cluster.crash("b")
    cluster.settle()
    assert cluster.leaders() == [], "a copy is no part of a majority"


def test_a_voter_becomes_an_asynchronous_copy_in_one_step() -> None:
    """The leader is one of the voters that do."""
    cluster = led("a", "b", "c")
    cluster.do("a", lambda r: r.choose("c", cluster.now, "ab"))
    cluster.settle()
    assert cluster.leaders() == ["c"] and members(cluster, "c") == ("c", "ba")
    assert all(len(change.members) == 3 for change in changes(cluster, "c")), "nobody leaves on the way"


def test_a_set_is_recovered_from_an_asynchronous_copy() -> None:
    """All voters have lost their disks."""
    cluster = led("a", "b", "c", "d", ring="abc")
    cluster.do("a", lambda r: r.choose("abc", cluster.now, "d"))
    cluster.propose("a", b"x")
    cluster.settle()
    for router in "abc":
        cluster.replace_disk(router)
        cluster.start(router)
    cluster.meet_all()
    cluster.settle()
    assert not cluster.leaders()
    cluster.do("d", lambda r: r.recover(cluster.now))
    cluster.settle()
    (leader,) = cluster.leaders()
    assert leader in "abc" and members(cluster, leader)[1] == "d"
    assert {*members(cluster, leader)[0]} == {*"abc"}
    log = raft(cluster, leader).log
    assert b"x" in [entry.data for entry in log.entries(1, log.last)]


def test_a_set_that_was_recovered_gets_the_voters_that_it_is_to_have() -> None:
    """An operator had chosen d in the place of c. Then all but d lose their stores."""
    cluster = led("a", "b", "c", "d", ring="abc")
    cluster.set_ring("abd")
    cluster.settle()
    for router in "abc":
        cluster.replace_disk(router)
        cluster.start(router)
    cluster.meet_all()
    cluster.settle()
    assert not cluster.leaders()
    cluster.do("d", lambda r: r.recover(cluster.now))
    cluster.settle()
    voters = raft(cluster, "d").log.configuration.voters
    assert sorted(voter.router for voter in voters) == ["a", "b", "d"]


def test_a_set_does_not_begin_while_a_router_may_have_it() -> None:
    """A set of b alone is to be one of a alone, and a does not see b."""
    cluster = led("b", "a", "c", ring="b")
    cluster.propose("b", b"x")
    cluster.settle()
    cluster.cut("b")
    cluster.set_ring("a")
    cluster.settle()
    assert cluster.leaders() == ["b"]
    cluster.meet_all()
    cluster.settle()
    assert cluster.leaders() == ["a"] and cluster.replicas["a"].applied[2].data == b"x"


def test_a_router_is_told_of_a_life_when_it_is_on_the_disk() -> None:
    """It would take the store for one that is empty, and begin the set, too."""
    cluster = Cluster("ab", ring="a")
    cluster.meet_all()
    for _ in range(200):
        if not cluster.step_without_time(hanging="a"):
            break
    assert raft(cluster, "a").hard.life and not cluster.replicas["a"].disk.hard.life
    cluster.set_ring("b")
    cluster.settle(hanging="a")
    assert not raft(cluster, "b").hard.life
    cluster.settle()
    assert len(cluster.leaders()) == 1


def test_a_learner_that_keeps_pace_becomes_a_voter_under_load() -> None:
    """At no instant the learner has all that is decided (Raft, 4.2.1)."""
    progress = FollowerProgress(10, 0.0)
    assert not progress.is_caught_up(15, 1.0, 0.5), "it has less than there was as it came"
    progress.stored = 10
    assert not progress.is_caught_up(30, 9.0, 0.5), "that took long, so there is another round"
    progress.stored = 29
    assert not progress.is_caught_up(35, 9.2, 0.5)
    progress.stored = 30
    assert progress.is_caught_up(35, 9.4, 0.5)


def test_a_learner_that_has_all_is_caught_up_however_long_it_took() -> None:
    progress = FollowerProgress(10, 0.0)
    progress.stored = 10
    assert progress.is_caught_up(10, 9.0, 0.5)


def test_a_voter_that_takes_itself_out_stands_until_that_is_decided() -> None:
    """It alone has that entry: it does not vote for the other one, whose log is older, and the other one needs it."""
    cluster = led("a", "b")
    present, a = raft(cluster, "a").log.configuration, raft(cluster, "a")
    cluster.set_ring("b")
    while a.me in a.log.configuration.voters:
        assert cluster.step_without_time()
    cluster.cut("a")
    cluster.meet_all()
    cluster.settle()
    assert cluster.leaders() == ["b"] and raft(cluster, "b").log.configuration.voters == present.voters[1:]


def test_a_candidate_counts_its_own_vote_when_its_disk_has_it() -> None:
    cluster = led("a")
    a = raft(cluster, "a")
    cluster.propose("a", b"x")
    cluster.do("a", lambda r: r.resign(cluster.now))
    cluster.tick("a")
    cluster.finish("a")
    assert a.role is RaftRole.CANDIDATE, "that was the write of the entry"
    cluster.finish("a")
    assert cluster.leaders() == ["a"]


def test_members_change_while_a_majority_of_the_new_voters_is_in_contact() -> None:
    """The learner has caught up, and its contact has ended: with its vote, one of two voters would lead."""
    cluster = led("a", "b", ring="a")
    cluster.set_ring("ab")
    a, b = raft(cluster, "a"), raft(cluster, "b")
    for _ in range(1000):
        if cluster.channels["b", "a"] and isinstance(cluster.channels["b", "a"][0][1].body, say.Stored):
            stored = cluster.channels["b", "a"][0][1].body
            if stored.index == a.log.last:
                break
        assert cluster.step_without_time()
    a.receive(cluster.channels["b", "a"].popleft()[1], cluster.now)
    cluster.cut("a", "b")
    assert a.log.configuration.learners == (b.me,) and cluster.leaders() == ["a"]
    with pytest.raises(BusyError, match="this router reaches only 1 of the 2 new voters"):
        a.configure(a.log.configuration.promoting(b.me), cluster.now)


def test_a_leader_whose_followers_replace_their_stores_in_a_contact_resigns() -> None:
    """A router sets its store aside, and begins anew: the contact goes on."""
    cluster = led("a", "b", "c")
    for router in "bc":
        anew = say.Envelope(
            NO_LIFE, Replica(router, b"another"), Replica("a", b""), say.Greeting(False, ("a", "b", "c"), MAPPING)
        )
        cluster.do("a", lambda r, anew=anew: r.receive(anew, cluster.now))  # type: ignore[misc]
    assert raft(cluster, "a").leader is None
    said = [one.body for _, one in cluster.channels["a", "b"] if one.sender.router == "a"]
    assert any(isinstance(body, say.Greeting) for body in said), "the new store hears of the others"


def test_an_acknowledgement_that_waits_for_the_disk_does_not_come_after_a_later_one() -> None:
    """An entry of a, and that c leads in a later term, come to b together, and are one write."""
    cluster = led("a", "b", "c")
    b, c = raft(cluster, "b"), raft(cluster, "c")
    cluster.propose("a", b"x")
    _, append = cluster.channels["a", "b"].popleft()
    assert isinstance(append.body, say.Append)
    b.receive(append, cluster.now)
    leads = say.Lead(b.hard.term + 1, b.log.last, b.log.last_term, b.log.commit)
    cluster.do("b", lambda r: r.receive(say.Envelope(b.hard.life, c.me, b.me, leads), cluster.now))
    cluster.finish("b")
    told = [one.body.index for _, one in cluster.channels["b", "c"] if isinstance(one.body, say.Stored)]
    assert told == [b.log.last]


def test_a_leader_that_is_elected_late_may_lack_what_a_later_one_has_decided() -> None:
    """The vote for b is on its way when its voter a stands itself, in the next term. Then it arrives."""
    cluster = led("a", "b", "c")
    cluster.do("a", lambda r: r.resign(cluster.now))
    while cluster.step_without_time():
        pass
    cluster.tick("b")
    for sender, receiver in (("b", "a"), ("a", "b"), ("b", "a")):  # asks for a pre-vote, has it, asks for a vote
        cluster.deliver(sender, receiver)
        for router in "ab":
            while cluster.replicas[router].disk.writes:
                cluster.finish(router)
    cluster.tick("a")
    while ("a", "c") in cluster.waiting() or ("c", "a") in cluster.waiting() or cluster.replicas["c"].disk.writes:
        for pair in {("a", "c"), ("c", "a")}.intersection(cluster.waiting()):
            cluster.deliver(*pair)
        for router in "ac":
            while cluster.replicas[router].disk.writes:
                cluster.finish(router)
    decided = raft(cluster, "a").log.commit
    cluster.deliver("a", "b")
    assert cluster.leaders() == ["a", "b"]
    assert raft(cluster, "b").hard.term < raft(cluster, "a").hard.term
    assert raft(cluster, "b").log.entries(decided, decided) != raft(cluster, "a").log.entries(decided, decided)
    cluster.settle()
    assert len(cluster.leaders()) == 1


def test_a_leader_is_elected_over_links_that_are_slower_than_timers() -> None:
    """A message takes longer than a voter's first timer. Two voters stand again and again in each other's way, unless
    each lost election makes them wait longer."""
    for seed in range(20):
        rng = Random(seed)
        cluster = led("a", "b", "c", draw=rng.random)
        cluster.crash("a")
        cluster.cut("a")
        end, due = cluster.now + 60.0, dict[tuple[str, str], deque[float]]()
        while not cluster.leaders():
            for name in "bc":
                while cluster.replicas[name].disk.writes:
                    cluster.finish(name)
            for channel in cluster.waiting():
                times = due.setdefault(
                    channel, deque([0.0])
                )  # when messages arrive, that of the latest one before them
                while len(times) <= len(cluster.channels[channel]):
                    times.append(max(times[-1], cluster.now + rng.uniform(0.6, 0.9)))
            arrival = min(cluster.waiting(), key=lambda channel: due[channel][1], default=None)
            timer = cluster.next_deadline()
            if arrival is not None and (timer is None or due[arrival][1] <= timer[0]):
                due[arrival].popleft()
                cluster.now = due[arrival][0]
                cluster.deliver(*arrival)
            else:
                assert timer is not None
                cluster.tick(timer[1])
            assert cluster.now < end, f"seed {seed}: no replica leads after 60 s"
