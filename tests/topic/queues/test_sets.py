"""The sets of a mesh: requests at any router, leaders that change, stores that are lost."""

from collections.abc import Sequence
from unittest.mock import patch

import pytest

from tests.topic.queues.cluster import Q, SetCluster
from topic.errors import BreachError
from topic.queues.operations import Declare, Delete, Done, QueueId, QueueSettings, Refused, RefusedFor
from topic.queues.set_map import SetMap, SetPlan, hashed_plans
from topic.queues.state import SetState
from topic.queues.storing import StoreChange, Write
from topic.queues.wire import Leads, Requested, encode
from topic.raft.errors import NotLeaderError, NotReadyError
from topic.raft.life import NO_LIFE, SetLife
from topic.raft.limits import RaftLimits

EU = SetPlan("eu", ("b", "c", "d"), "queue/eu/")


def begun(routers: str = "abc", **options: object) -> SetCluster:
    cluster = SetCluster(routers, **options)  # type: ignore[arg-type]
    cluster.meet_all()
    cluster.settle()
    return cluster


def choose(cluster: SetCluster, ring: str) -> None:
    """An operator has these be the voters."""
    leader = cluster.leader()
    cluster.sets(leader).choose("q0", ring, cluster.now)
    cluster.after(leader)
    cluster.settle()


def voters(cluster: SetCluster, router: str, name: str = "q0") -> tuple[str, ...]:
    """As that router knows them."""
    return next(view.voters for view in cluster.sets(router).overview() if view.name == name)


def names(cluster: SetCluster, router: str) -> list[str]:
    return sorted(queue.name for queue in cluster.sets(router).queues())


@pytest.mark.parametrize("router", "abcd")
def test_a_queue_is_declared_at_any_router(router: str) -> None:
    cluster = begun("abcd")
    answer = cluster.answer(router, Declare("queue/x"))
    assert isinstance(answer, Done)
    assert [names(cluster, each) for each in "abcd"] == [["queue/x"], ["queue/x"], ["queue/x"], []]


def test_a_request_is_answered_when_it_is_decided_and_not_before() -> None:
    cluster = begun()
    leader = cluster.leader()
    number = cluster.ask(leader, Declare("queue/x"))
    cluster.finish(leader)
    assert number not in cluster.hosts[leader].answers
    cluster.settle()
    assert isinstance(cluster.hosts[leader].answers[number], Done)


def test_all_requests_of_a_flush_are_one_write() -> None:
    cluster = begun()
    leader = cluster.leader()
    sets = cluster.sets(leader)
    for number in range(100):
        sets.ask(Declare(f"queue/{number}"), cluster.now)
    cluster.after(leader)
    assert len(cluster.hosts[leader].waiting) == 1
    cluster.settle()
    assert len(cluster.hosts[leader].answers) == 100


def test_a_name_that_no_set_may_have_is_refused() -> None:
    cluster = SetCluster("abcd", [EU])
    number = cluster.ask("a", Declare("queue/us/x"))
    assert cluster.hosts["a"].answers[number] == Refused(
        RefusedFor.NO_SET, 'no set may have a queue "queue/us/x", expected a name that begins with "queue/eu/"'
    )


def test_a_leader_refuses_a_name_that_its_map_gives_to_another_set() -> None:
    cluster = begun("abcd", plans=[EU, *hashed_plans("abcd", 1, 3)])
    stranger = encode("q0", Requested(((5, b"\x93\x00\xaaqueue/eu/x\x80"),)))
    leader = cluster.leader("q0")
    other = next(name for name in "abcd" if name != leader)
    cluster.sets(leader).receive(other, stranger, cluster.now)
    cluster.after(leader)
    channel = cluster.channels[leader, other]
    assert b"is in set eu by the topology of router" in channel[-1][1]


def test_a_request_goes_to_the_next_leader_if_the_first_is_lost() -> None:
    cluster = begun("abcd")
    first = cluster.leader()
    number = cluster.ask("d", Declare("queue/x"))
    cluster.crash(first)
    for other in "abcd":
        if other != first:
            cluster.lose(other, first)
    cluster.settle()
    assert cluster.leader() != first
    assert isinstance(cluster.hosts["d"].answers[number], Done)


def test_a_declare_whose_answer_is_lost_with_the_leader_declares_once() -> None:
    """The leader has decided, and dies before it says so."""
    cluster = begun("abcd")
    first = cluster.leader()
    follower = next(name for name in "abc" if name != first)
    number = cluster.ask("d", Declare("queue/x"))
    while not names(cluster, first):
        assert cluster.step()
    index = cluster.sets(first)._replicas["q0"].applied
    assert number not in cluster.hosts["d"].answers
    cluster.crash(first)
    for other in "abcd":
        if other != first:
            cluster.lose(other, first)
    cluster.settle()
    answer = cluster.hosts["d"].answers[number]
    assert isinstance(answer, Done) and answer.id.index == index
    assert names(cluster, follower) == ["queue/x"]


def test_a_leader_that_lost_the_contact_alone_is_asked_again_in_the_next() -> None:
    cluster = begun("abcd")
    leader = cluster.leader()
    number = cluster.ask("d", Declare("queue/x"))
    cluster.cut("d")
    cluster.settle(seconds=1)
    assert number not in cluster.hosts["d"].answers
    cluster.meet_all()
    cluster.settle()
    assert cluster.leader() == leader and isinstance(cluster.hosts["d"].answers[number], Done)


def test_without_a_majority_a_request_is_answered_when_its_time_is_over() -> None:
    cluster = begun("abcd", plans=[SetPlan("q3", ("a", "b", "c"))])
    for router in "bc":
        cluster.crash(router)
    for router in "ad":
        for other in "bc":
            cluster.lose(router, other)
    began = cluster.now
    number = cluster.ask("d", Declare("queue/x"))
    cluster.settle()
    assert cluster.now >= began + 10
    assert cluster.hosts["d"].answers[number] == Refused(
        RefusedFor.NO_ANSWER, "no majority of set q3 answered for 10 s"
    )


def test_a_busy_leader_is_asked_again() -> None:
    cluster = begun(limits=RaftLimits(unstored=50))
    leader = cluster.leader()
    began = cluster.now
    numbers = [cluster.ask(leader, Declare(f"queue/{number}")) for number in range(3)]
    cluster.settle()
    answers = cluster.hosts[leader].answers
    assert all(isinstance(answers[number], Done) for number in numbers)
    assert cluster.now > began


def test_a_leader_that_stays_busy_is_named() -> None:
    cluster = begun(limits=RaftLimits(unstored=50))
    leader = cluster.leader()
    one, two = (name for name in "abc" if name != leader)
    cluster.ask(leader, Declare("queue/x"))
    number = cluster.ask(leader, Declare("queue/y"))
    cluster.settle(hanging=[one, two])
    answer = cluster.hosts[leader].answers[number]
    assert isinstance(answer, Refused) and answer.reason is RefusedFor.NO_ANSWER
    assert "answered for 10 s: " in answer.why and "wait to be written to disk or copied" in answer.why


def test_an_answer_of_a_former_leader_counts_nothing() -> None:
    """It was asked in an earlier term, and another leads."""
    cluster = begun("abcd")
    sets = cluster.sets("d")
    leader = cluster.leader()
    other = next(name for name in "abc" if name != leader)
    number = cluster.ask("d", Declare("queue/x"))
    sets.receive(other, encode("q0", Leads(SetLife(200, "a"), 99, True)), cluster.now)
    cluster.after("d")
    cluster.deliver("d", leader)
    cluster.channels["d", other].clear()
    before = dict(cluster.hosts["d"].answers)
    cluster.settle(seconds=1)
    assert number not in before and number not in cluster.hosts["d"].answers


def test_an_answer_to_an_earlier_process_of_a_router_is_not_given_to_the_next() -> None:
    """Both give their first request the same number."""
    cluster = begun("abcd")
    leader = cluster.leader()
    first = cluster.ask("d", Declare("queue/x"))
    cluster.deliver("d", leader)
    cluster.crash("d")
    for other in "abc":
        cluster.lose(other, "d")
    cluster.start("d")
    cluster.meet("d", leader)
    second = cluster.ask("d", Delete("queue/x", QueueId(SetLife(1, "a"), 1)))
    cluster.settle()
    answer = cluster.hosts["d"].answers[second]
    assert first == second and isinstance(answer, Refused) and answer.reason is RefusedFor.NOT_FOUND


def test_the_number_of_requests_that_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topic.queues.sets.MOST_ASKED", 2)
    cluster = SetCluster()
    numbers = [cluster.ask("a", Declare(f"queue/{number}")) for number in range(3)]
    answer = cluster.hosts["a"].answers[numbers[2]]
    assert isinstance(answer, Refused) and answer.reason is RefusedFor.BUSY
    assert numbers[1] not in cluster.hosts["a"].answers


def test_every_router_knows_who_leads() -> None:
    cluster = begun("abcde", plans=hashed_plans("abcde", 5, 3))
    for name in cluster.map.plans:
        leader = cluster.leader(name)
        known = {view.leader for router in "abcde" for view in cluster.sets(router).overview() if view.name == name}
        assert known == {leader}
    spread = {cluster.leader(name) for name in cluster.map.plans}
    assert spread == set("abcde"), "the first router of each ring leads"


def test_who_leads_no_more_says_so_to_routers_without_a_replica() -> None:
    cluster = begun("abcd")
    leader = cluster.leader()
    for other in "abc":
        if other != leader:
            cluster.lose(leader, other)
    while cluster.step():
        pass
    assert [view.leader for view in cluster.sets("d").overview()] == [""]


def test_an_idle_set_says_nothing() -> None:
    """Trap 21, seen from here: and a set whose leader resigns has one again."""
    cluster = begun("abcd")
    assert cluster.sets("a").deadline() == float("inf")
    leader = cluster.leader()
    cluster.sets(leader)._replicas["q0"].raft.resign(cluster.now)
    cluster.sets(leader)._touched["q0"] = None
    cluster.after(leader)
    cluster.settle()
    assert {view.leader for router in "abcd" for view in cluster.sets(router).overview()} == {cluster.leader()}


def test_leadership_moves_from_a_disk_that_hangs() -> None:
    """Trap 22."""
    cluster = begun("abcd")
    first = cluster.leader()
    number = cluster.ask("d", Declare("queue/x"))
    cluster.settle(hanging=[first])
    assert cluster.leader() != first
    assert isinstance(cluster.hosts["d"].answers[number], Done)


def test_a_router_that_was_replaced_is_a_voter_again_when_it_has_all() -> None:
    """Trap 4: a wiped member does not vote before."""
    cluster = begun(compare_every=10)
    for number in range(35):
        cluster.ask("a", Declare(f"queue/{number}"))
    cluster.settle()
    follower = next(name for name in "abc" if name != cluster.leader())
    cluster.replace_disk(follower)
    for other in "abc":
        if other != follower:
            cluster.lose(other, follower)
    cluster.start(follower)
    cluster.meet_all()
    cluster.settle()
    (view,) = cluster.sets(follower).overview()
    assert view.role == "follower" and len(view.voters) == 3 and view.queues == 35


def test_states_become_snapshots_and_go_to_who_lacks_them() -> None:
    """Trap 24: with what was deleted meanwhile."""
    cluster = begun(compare_every=10)
    leader = cluster.leader()
    away = next(name for name in "abc" if name != leader)
    id_ = cluster.answer(leader, Declare("queue/gone"))
    assert isinstance(id_, Done)
    cluster.cut(away)
    cluster.answer(leader, Delete("queue/gone", id_.id))
    for number in range(40):
        cluster.answer(leader, Declare(f"queue/{number % 5}", QueueSettings(limit_bytes=1)))
    assert cluster.hosts[leader].disk.parts["q0"].snapshot.index >= 30
    cluster.meet_all()
    cluster.settle()
    assert names(cluster, away) == [f"queue/{number}" for number in range(5)]
    assert cluster.hosts[away].disk.parts["q0"].snapshot.index >= 30


def test_a_router_goes_on_with_its_snapshot_and_its_log() -> None:
    """Trap 3: each entry is applied once, whatever the disk had done when the process ended."""
    for kept in range(6):
        cluster = begun(compare_every=10)
        for number in range(25):
            cluster.ask("a", Declare(f"queue/{number % 4}"))
        for _ in range(40):
            cluster.step()
        for router in "abc":
            cluster.crash(router, kept)
        for router in "abc":
            cluster.start(router)
        cluster.meet_all()
        cluster.settle()
        cluster.answer("a", Declare("queue/last"))
        assert len({tuple(names(cluster, router)) for router in "abc"}) == 1


def test_a_snapshot_writes_what_has_changed() -> None:
    """However large the state is."""
    cluster = begun(compare_every=10)
    leader = cluster.leader()
    written: list[int] = []
    store = cluster.hosts[leader].disk
    write = store.write

    def count(changes: Sequence[StoreChange]) -> None:
        written.extend(len(one.changes) for one in changes if isinstance(one, Write) and one.changes is not None)
        write(changes)

    store.write = count  # type: ignore[method-assign]
    for number in range(45):
        cluster.answer(leader, Declare(f"queue/{min(number, 29)}"))
    assert sum(written) == 30 and len(written) >= 3
    part = store.parts["q0"]
    assert part.snapshot.index == 40 and part.rows == dict(cluster.sets(leader)._replicas["q0"].state.rows)


def test_a_snapshot_stays_while_another_router_is_sent_it() -> None:
    """Else a replica that lacks much would begin with the first piece again and again."""
    cluster = begun(compare_every=10)
    leader = cluster.leader()
    behind = next(name for name in "abc" if name != leader)
    cluster.lose(leader, behind)
    cluster.lose(behind, leader)
    for number in range(20):
        cluster.answer(leader, Declare(f"queue/{number}"))
    disk = cluster.hosts[leader]
    part, index = disk.disk.parts["q0"], disk.disk.parts["q0"].snapshot.index
    assert index == 20
    cluster.meet(leader, behind)
    cluster.meet(behind, leader)
    for number in range(20, 45):
        cluster.ask(leader, Declare(f"queue/{number}"))
        cluster.settle(hanging=behind, seconds=0.0)
    assert len(names(cluster, leader)) == 45 and part.snapshot.index == index
    cluster.settle()
    assert names(cluster, behind) == names(cluster, leader)
    for number in range(45, 55):
        cluster.answer(leader, Declare(f"queue/{number}"))
    assert part.snapshot.index > 40
    found = names(cluster, leader)
    for router in "abc":
        cluster.crash(router)
        cluster.start(router)
    cluster.meet_all()
    cluster.settle()
    assert names(cluster, leader) == names(cluster, behind) == found


def test_a_replica_with_another_state_begins_anew() -> None:
    """Trap 14, noticed."""
    cluster = begun(compare_every=10)
    leader = cluster.leader()
    other = next(name for name in "abc" if name != leader)
    cluster.answer(leader, Declare("queue/x"))
    replica = cluster.sets(other)._replicas["q0"]
    replica.state = SetState()
    cluster.digests.clear()
    store = cluster.hosts[other].disk.parts["q0"].store
    for number in range(10):
        cluster.ask(leader, Declare(f"queue/{number}"))
        cluster.digests.clear()
    while cluster.hosts[other].disk.parts["q0"].store == store:
        cluster.digests.clear()
        assert cluster.step(), "nobody has noticed"
    cluster.digests.clear()
    cluster.settle()
    (view,) = cluster.sets(other).overview()
    assert "differs from the state of the other replicas" in view.why_aside
    assert view.role == "follower" and names(cluster, other) == names(cluster, leader)
    assert [part.store for part in cluster.hosts[other].disk.former] == [store]
    assert any("is set aside" in note for note in cluster.hosts[other].notes)


def test_an_old_write_of_a_store_that_was_set_aside_confirms_nothing() -> None:
    """Trap 1, across stores: numbers of writes begin anew."""
    cluster = begun()
    leader = cluster.leader()
    other = next(name for name in "abc" if name != leader)
    cluster.ask(leader, Declare("queue/x"))
    while not cluster.hosts[other].waiting:
        assert cluster.step(hanging=[other])
    old = cluster.hosts[other].waiting[0]
    cluster.sets(other)._replicas["q0"].raft.set_aside("a test says so")
    cluster.sets(other)._touched["q0"] = None
    cluster.after(other)
    raft = cluster.sets(other)._replicas["q0"].raft
    while not raft.hard.term:
        assert cluster.step(hanging=[other])
    while cluster.hosts[other].waiting[0] is old:
        cluster.finish(other)
    assert raft._storage.hard.term == 0
    cluster.settle()
    assert names(cluster, other) == ["queue/x"]


def test_replicas_that_begin_anew_at_once_hear_of_each_other() -> None:
    """The disk of a is about to have a life, so a answers nothing when b tells it of a new store, and is told no more
    in this contact."""
    cluster = SetCluster("abc")
    cluster.meet_all()
    while not cluster.sets("a")._replicas["q0"].raft.hard.life:
        assert cluster.step(hanging=["a"])
    cluster.settle(hanging=["a"], seconds=0)
    for router in "bac":
        cluster.sets(router).damaged("q0", "a scrub found it")
        cluster.after(router)
        while router == "b" and cluster.channels["b", "a"]:
            cluster.deliver("b", "a")
    cluster.settle()
    assert isinstance(cluster.answer("a", Declare("queue/x")), Done)


def test_a_replica_that_is_about_to_begin_anew_hears_of_who_comes() -> None:
    """The router is busy: it makes contacts, and is told of stores, before it begins anew."""
    cluster = begun()
    cluster.cut("c")

    def after(router: str) -> None:
        if router != "c":
            SetCluster.after(cluster, router)

    with patch.object(cluster, "after", after):
        cluster.sets("c").damaged("q0", "a scrub found it")
        for other in "ab":
            cluster.meet(other, "c")
            while cluster.channels[other, "c"]:
                cluster.deliver(other, "c")
    cluster.after("c")
    cluster.settle()
    (view,) = cluster.sets("c").overview()
    assert view.role == "follower" and set(view.voters) == {"a", "b", "c"}


def test_a_topology_that_maps_names_otherwise_is_refused() -> None:
    """Trap 27: by a store that has begun, with a reason; and by the other routers."""
    cluster = begun()
    cluster.crash("a")
    changed = SetMap([SetPlan("q0", Q.voters), SetPlan("q1", Q.voters)])
    cluster.hosts["a"].disk.parts |= cluster.new_store.parts(["q1"])
    with pytest.raises(ValueError, match=r"set q0: the configuration assigns queues to replica sets otherwise"):
        cluster.start("a", changed)


def test_a_router_with_other_sets_is_ignored_and_named() -> None:
    cluster = begun("abc")
    cluster.crash("c")
    for other in "ab":
        cluster.lose(other, "c")
    disk = cluster.hosts["c"].disk
    disk.parts = cluster.new_store.parts(["q0", "q1"])
    cluster.start("c", SetMap([SetPlan("q0", Q.voters), SetPlan("q1", Q.voters)]))
    cluster.meet_all()
    cluster.settle()
    assert any("has a set q1 in its topology, expected one of q0" in note for note in cluster.hosts["a"].notes)
    assert any("router c has another map of queues to sets" in note for note in cluster.hosts["a"].notes)
    assert isinstance(cluster.answer("a", Declare("queue/x")), Done)


def test_an_old_disk_that_is_put_back_is_set_aside() -> None:
    """Trap 27: it lacks what it had acknowledged, or has what went; nobody counts it before it has all."""
    cluster = begun()
    leader = cluster.leader()
    other = next(name for name in "abc" if name != leader)
    third = next(name for name in "abc" if name not in (leader, other))
    old = cluster.hosts[other].disk.copy()
    cluster.answer(leader, Declare("queue/x"))
    cluster.crash(other)
    cluster.hosts[other].disk = old
    for name in (leader, third):
        cluster.lose(name, other)
    cluster.start(other)
    cluster.meet_all()
    cluster.settle()
    (view,) = cluster.sets(other).overview()
    assert "has lost entries that it had acknowledged" in view.why_aside
    assert view.role == "follower" and names(cluster, other) == ["queue/x"]


def test_a_recovered_set_refuses_the_stores_of_its_former_life() -> None:
    """Trap 27: `recover` while old voters return."""
    cluster = begun()
    first = cluster.answer("a", Declare("queue/x"))
    assert isinstance(first, Done)
    for router in "abc":
        cluster.crash(router)
    cluster.start("c")
    cluster.settle(seconds=3)
    cluster.sets("c").recover("q0", cluster.now)
    cluster.after("c")
    cluster.settle()
    for router in "ab":
        cluster.start(router)
    cluster.meet_all()
    cluster.settle()
    assert cluster.leader() == "c" and [names(cluster, router) for router in "abc"] == 3 * [["queue/x"]]
    second = cluster.answer("a", Declare("queue/y"))
    assert isinstance(second, Done) and second.id.life > first.id.life
    for router in "ab":
        (view,) = cluster.sets(router).overview()
        has_met = view.why_aside == "router c has another life of the set, and that life has begun"
        assert has_met or view.why_aside.endswith("tells of a later life of the set")


def test_an_operator_sees_how_far_each_replica_is() -> None:
    cluster = begun("abcd")
    leader = cluster.leader()
    away = next(name for name in "abc" if name != leader)
    assert cluster.sets(leader).overview()[0].may_stop == ("a", "b", "c")
    cluster.cut(away)
    cluster.answer("d", Declare("queue/x"))
    (view,) = cluster.sets(leader).overview()
    assert (view.role, view.leader, view.voters, view.queues) == ("leader", leader, ("a", "b", "c"), 1)
    assert view.behind[away] == 1 and sum(view.behind.values()) == 1
    assert view.may_stop == (away,)
    assert list(view.away) == [away] and 0 < view.away[away] <= cluster.now
    assert [view.role for view in cluster.sets("d").overview()] == ["proxy"]


def test_a_router_that_speaks_for_another_loses_its_contact() -> None:
    cluster = begun("abc")
    leader = cluster.leader()
    one, two = (name for name in "abc" if name != leader)
    cluster.ask(leader, Declare("queue/x"))
    _, payload = cluster.channels[leader, one][0]
    with pytest.raises(BreachError, match=f"a message of router {leader}"):
        cluster.sets(one).receive(two, payload, cluster.now)


def test_what_is_no_operation_loses_the_contact() -> None:
    cluster = begun("abc")
    leader = cluster.leader()
    with pytest.raises(BreachError, match="no msgpack"):
        cluster.sets(leader).receive("a", encode("q0", Requested(((1, b"\xc1"),))), cluster.now)


def test_an_id_is_never_used_again() -> None:
    """Trap 4."""
    cluster = begun()
    first = cluster.answer("a", Declare("queue/x"))
    assert isinstance(first, Done)
    assert cluster.answer("b", Delete("queue/x", first.id)) == first
    gone = cluster.answer("c", Delete("queue/x", first.id))
    assert isinstance(gone, Refused) and gone.reason is RefusedFor.NOT_FOUND
    second = cluster.answer("a", Declare("queue/x"))
    assert isinstance(second, Done) and second.id > first.id > QueueId(NO_LIFE, 0)


def test_one_old_queue_does_not_keep_the_log() -> None:
    """Trap 12."""
    cluster = begun(compare_every=10)
    cluster.answer("a", Declare("queue/old"))
    for number in range(150):
        made = cluster.answer("a", Declare("queue/x"))
        assert isinstance(made, Done)
        cluster.answer("a", Delete("queue/x", made.id))
        assert all(len(cluster.hosts[router].disk.parts["q0"].entries) < 40 for router in "abc"), number
    assert names(cluster, "c") == ["queue/old"]


def test_an_entry_that_is_no_operation_ends_no_replica() -> None:
    """Trap 13: it is decided like any other, and changes nothing."""
    cluster = begun(compare_every=4)
    leader = cluster.leader()
    cluster.answer(leader, Declare("queue/x"))
    for data in (b"\x00", b"\xff" * 30, bytes(8) + b"\x93\x00\xa1x\x81\xa1y\x01", bytes(8) + b"\xdd\xff\xff\xff\xff"):
        cluster.sets(leader)._replicas["q0"].raft.propose([data])
        cluster.sets(leader)._touched["q0"] = None
        cluster.after(leader)
    cluster.settle()
    cluster.answer("b", Declare("queue/y"))
    assert [names(cluster, router) for router in "abc"] == 3 * [["queue/x", "queue/y"]]
    assert not any(cluster.hosts[router].disk.former for router in "abc")


@pytest.mark.parametrize("kept", range(4))
def test_a_power_cut_of_one_and_pauses_of_the_others_lose_nothing(kept: int) -> None:
    """Trap 15: what is answered is on the disks of a majority, and not in their memories."""
    cluster = begun()
    leader = cluster.leader()
    one, two = (name for name in "abc" if name != leader)
    number = cluster.ask(leader, Declare("queue/x"))
    while number not in cluster.hosts[leader].answers:
        assert cluster.step(hanging=[two])
    cluster.crash(one, kept)
    for name in (leader, two):
        cluster.lose(name, one)
    cluster.start(one)
    cluster.meet(one, two)
    cluster.cut(leader)
    cluster.settle()
    assert names(cluster, one) == names(cluster, two) == ["queue/x"]
    cluster.meet_all()
    cluster.cut(one)
    cluster.settle()
    assert names(cluster, leader) == names(cluster, two) == ["queue/x"]


def test_a_set_moves_to_other_voters_under_a_partition() -> None:
    """Trap 16: one of the former is away meanwhile, and each of the others starts again."""
    cluster = begun("abcd")
    made = cluster.answer("d", Declare("queue/x"))
    cluster.cut("a")
    cluster.settle()
    choose(cluster, "bcd")
    for router in "dcb":
        cluster.crash(router)
        for other in "abcd":
            cluster.lose(other, router)
        cluster.start(router)
        for other in "bcd":
            if other != router:
                cluster.meet(router, other)
        cluster.settle()
    assert isinstance(made, Done) and cluster.answer("b", Declare("queue/x")) == made
    cluster.meet_all()
    cluster.settle()
    assert {frozenset(voters(cluster, router)) for router in "bcd"} == {frozenset("bcd")}
    assert cluster.answer("a", Declare("queue/x")) == made


def test_a_router_that_joins_is_a_proxy_of_the_sets_that_have_begun() -> None:
    """By the plan of four routers, other routers have the hashed sets than by that of three."""
    cluster = begun("abcd", plans=hashed_plans("abc", 3, 3), names="abc")
    for router in "abc":
        cluster.sets(router).follow("abcd")
        cluster.after(router)
    cluster.start("d", cluster.map.among("abcd"))
    cluster.meet_all()
    for router in "abc":  # and each reads the plan as it starts again
        cluster.crash(router)
        for other in "abcd":
            cluster.lose(other, router)
        cluster.start(router, cluster.map.among("abcd"))
        cluster.meet_all()
        cluster.settle()
    for name in cluster.map.plans:
        assert frozenset(voters(cluster, cluster.leader(name), name)) == frozenset("abc")
    assert {view.role for view in cluster.sets("d").overview()} == {"proxy"}
    assert all(view.ring == () for view in cluster.sets("d").overview())
    assert isinstance(cluster.answer("d", Declare("queue/x")), Done)


def test_a_set_that_has_not_begun_begins_with_the_routers_of_the_plan() -> None:
    """Router c has never started. The mesh gets d, of which only the plan tells the others."""
    cluster = begun("abcd", plans=hashed_plans("abc", 2, 3), names="ab")
    assert not any(view.life for view in cluster.sets("a").overview())
    for router in "ab":
        cluster.sets(router).follow("abd")
        cluster.after(router)
    cluster.routers = tuple("abd")
    cluster.start("d", cluster.map.among("abd"))
    cluster.meet_all()
    cluster.settle()
    assert {frozenset(voters(cluster, "d", name)) for name in cluster.map.plans} == {frozenset("abd")}


@pytest.mark.parametrize(
    ("ring", "why"),
    [("", "the voters are none"), ("aa", "each once"), ("abz", 'there is no router "z", expected some of a, b, c, d')],
)
def test_voters_that_cannot_be_are_refused(ring: str, why: str) -> None:
    cluster = begun("abcd")
    with pytest.raises(ValueError, match=why):
        cluster.sets(cluster.leader()).choose("q0", ring, cluster.now)


def test_a_leader_tells_since_when_a_learner_learns() -> None:
    cluster = begun("abcd")
    leader = cluster.leader()
    ring = [leader, next(name for name in "abc" if name != leader), "d"]
    cluster.sets(leader).choose("q0", ring, cluster.now)
    cluster.after(leader)
    while not cluster.sets(leader).overview()[0].learners:
        assert cluster.step()
    began = cluster.now
    cluster.cut("d")
    cluster.settle(seconds=3)
    (view,) = cluster.sets(leader).overview()
    assert (view.learners, view.learning) == (("d",), {"d": began}) and cluster.now > began
    assert list(view.away) == ["d"]


def test_voters_that_are_chosen_again_are_no_change() -> None:
    cluster = begun("abcd")
    choose(cluster, "abd")
    choose(cluster, "abd")
    assert frozenset(voters(cluster, cluster.leader())) == frozenset("abd")


def test_a_router_that_stops_hands_its_sets_over() -> None:
    """No time has passed until another router leads, and none of the requests is lost."""
    cluster = begun("abcd")
    first, began = cluster.leader(), cluster.now
    numbers = [cluster.ask("d", Declare("queue/x"))]
    cluster.sets(first).leave(cluster.now)
    cluster.after(first)
    numbers.append(cluster.ask(first, Declare("queue/y")))
    while cluster.step():
        pass
    assert cluster.leader() != first and cluster.now == began and not cluster.sets(first).led
    cluster.settle()
    assert isinstance(cluster.hosts["d"].answers[numbers[0]], Done)
    assert isinstance(cluster.hosts[first].answers[numbers[1]], Done)


def test_routers_tell_who_leads_and_when_nobody_has_for_long() -> None:
    cluster = begun("abcd")
    first = cluster.leader()
    assert cluster.hosts[first].notes == ["set q0: this router leads it, in term 1"]
    others = [name for name in "abc" if name != first]
    cluster.cut(first)
    cluster.cut(*others)
    cluster.settle(seconds=9.0)
    assert cluster.hosts[first].notes[1:] == ["set q0: this router leads it no more"]
    assert not cluster.hosts[others[0]].notes
    cluster.settle(seconds=30.0)
    nobody = "set q0: no router has led it for 10 s"
    missing = ", ".join(name for name in "abc" if name != others[0])
    why = f"this router reaches 1 of its 3 voters, not {missing}"
    assert cluster.hosts[others[0]].notes == [f"{nobody}: {why}"], "it is told once"
    assert cluster.hosts["d"].notes == [nobody], "a router without a replica does not know why"
    cluster.meet_all()
    cluster.settle()
    cluster.cut(cluster.leader())
    cluster.cut(*others)
    cluster.settle()
    assert [note.startswith(nobody) for note in cluster.hosts["d"].notes] == [True, True]


def test_a_set_that_does_not_begin_is_told() -> None:
    cluster = SetCluster("abc")
    cluster.meet("a", "b")
    cluster.settle()
    assert cluster.hosts["a"].notes == ["set q0: no router has led it for 10 s: it has not begun"]


def test_a_set_that_cannot_begin_says_what_is_missing() -> None:
    cluster = SetCluster("abcd")
    with pytest.raises(NotReadyError, match="router d is not to be a voter, expected one of a, b, c"):
        cluster.sets("d").begin_anew("q0")
    cluster.meet("a", "b")
    cluster.settle()
    with pytest.raises(NotReadyError, match="router c is not in contact, or"):
        cluster.sets("a").begin_anew("q0")
    cluster.sets("c")._replicas["q0"].raft.follow_ring("bac")
    cluster.after("c")
    cluster.meet("a", "c")
    cluster.settle()
    with pytest.raises(NotReadyError, match="the voters are a, b, c here, and b, a, c at router c"):
        cluster.sets("a").begin_anew("q0")
    with pytest.raises(NotReadyError, match="it has begun"):
        begun().sets("a").begin_anew("q0")


def test_an_operator_begins_a_set_while_a_proxy_is_away() -> None:
    cluster = SetCluster("abcd")
    for one, two in ("ab", "ac", "bc"):
        cluster.meet(one, two)
    cluster.settle()
    assert not any(view.life for view in cluster.sets("a").overview())
    cluster.sets("b").begin_anew("q0")
    cluster.after("b")
    cluster.settle()
    assert isinstance(cluster.answer("a", Declare("queue/x")), Done)


def test_a_set_begins_though_its_first_disk_hangs_while_contacts_come_and_go() -> None:
    """The others take no proposal from a store that they have not heard of, and it is told when the disk has that."""
    cluster = SetCluster("abc")
    cluster.meet_all()
    while not cluster.hosts["a"].waiting:
        assert cluster.step(hanging="a")
    cluster.cut("a")
    cluster.meet_all()
    cluster.settle(hanging="a", seconds=1)
    assert not any(view.life for view in cluster.sets("b").overview())
    cluster.settle()
    assert isinstance(cluster.answer("b", Declare("queue/x")), Done)


def test_an_operator_begins_a_set_though_the_disk_hangs() -> None:
    cluster = SetCluster("abc")
    cluster.meet_all()
    cluster.settle(hanging="a", seconds=1)
    cluster.cut("a")
    cluster.meet_all()
    cluster.settle(hanging="a", seconds=1)
    cluster.sets("a").begin_anew("q0")
    cluster.after("a")
    cluster.settle(hanging="a", seconds=1)
    cluster.settle()
    assert isinstance(cluster.answer("b", Declare("queue/x")), Done)


def test_a_router_that_nobody_can_follow_stops_without_waiting() -> None:
    cluster = begun("a", plans=[SetPlan("q0", ("a",))])
    cluster.sets("a").leave(cluster.now)
    assert cluster.sets("a").led == {"q0"} and not cluster.sets("a").to_hand_over


def test_only_a_leader_changes_the_voters() -> None:
    cluster = begun()
    other = next(name for name in "abc" if name != cluster.leader())
    with pytest.raises(NotLeaderError):
        cluster.sets(other).choose("q0", "ab", cluster.now)


def test_an_operator_begins_a_set_of_which_a_store_was_lost_on_the_way() -> None:
    """It was replaced before it had accepted the life that the others have."""
    cluster = SetCluster("abc")
    cluster.meet_all()
    while not cluster.sets("a")._replicas["q0"].raft.hard.life:
        assert cluster.step()
    cluster.replace_disk("c")
    for other in "ab":
        cluster.lose(other, "c")
    cluster.start("c")
    cluster.meet_all()
    number = cluster.ask("b", Declare("queue/x"))
    cluster.settle()
    answer = cluster.hosts["b"].answers[number]
    assert isinstance(answer, Refused) and answer.reason is RefusedFor.NO_ANSWER
    cluster.sets("a").begin_anew("q0")
    cluster.after("a")
    cluster.settle()
    assert isinstance(cluster.answer("b", Declare("queue/x")), Done)
