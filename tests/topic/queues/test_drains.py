"""Consumers of a queue that drain: each gets what there is before its credit is taken back (protocol 12.9, 14.15).

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

from functools import partial

import pytest

from tests.topic.clients import Reader
from tests.topic.queues.bench import ELECTED_S, SET, QueueBench
from tests.topic.queues.test_bodies import ALL, answer, hold_reads, without_bodies
from tests.topic.queues.test_bodies import filled as filled_disk
from tests.topic.queues.test_egress import at_rest, filled, plain, purge
from tests.topic.raft.mutants import Broken, must_notice
from topic.actions import Drained
from topic.delivery.kinds import EgressKind
from topic.delivery.outcomes import DeliveryOutcome
from topic.edge.drains import BUSY_S, SILENT_S
from topic.queues.leader.egress import Egress
from topic.queues.messages import QueuedMessages
from topic.queues.replica import SetReplica


def drain(reader: Reader, credit: int) -> None:
    """Give credit, and drain."""
    topic = reader.bench.tick(reader.router)
    topic.credit(reader.end, credit)
    topic.drain(reader.end)
    reader.bench.flow()


def drained(reader: Reader) -> list[int]:
    """How many messages were left, as of each answer."""
    return [action.left for action in reader.mine(Drained)]


def is_answered_last(reader: Reader) -> bool:
    """The answer came behind all deliveries."""
    last = [action for action in reader.bench.actions[reader.router] if getattr(action, "link", None) is reader][-1]
    return isinstance(last, Drained)


@pytest.mark.parametrize("router", ["a", "b", "d"])
def test_a_consumer_that_drains_gets_what_the_queue_has(router: str) -> None:
    bench, _ = filled(b"1", b"2", b"3")
    reader = plain(bench, router, credit=0)
    drain(reader, 10)
    assert reader.delivered == [b"1", b"2", b"3"] and drained(reader) == [0] and is_answered_last(reader)


@pytest.mark.parametrize("router", ["a", "d"])
def test_messages_beyond_the_credit_stay_and_are_counted(router: str) -> None:
    bench, _ = filled(b"1", b"2", b"3")
    reader = plain(bench, router, credit=0)
    drain(reader, 1)
    assert reader.delivered == [b"1"] and len(drained(reader)) == 1
    drain(reader, 1)
    assert reader.delivered == [b"1", b"2"] and len(drained(reader)) == 2


@pytest.mark.parametrize("router", ["a", "d"])
def test_an_empty_queue_answers_at_once(router: str) -> None:
    bench, _ = filled()
    reader = plain(bench, router, credit=0)
    now = bench.now
    drain(reader, 10)
    assert drained(reader) == [0] and bench.now == now


@pytest.mark.parametrize("router", ["a", "d"])
def test_the_answer_waits_until_the_reservation_is_decided(router: str) -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, router, credit=0)
    bench.hanging |= {*"abc"}
    drain(reader, 10)
    assert reader.delivered == [] and drained(reader) == []
    bench.wait(1)  # longer than a leader may say nothing
    assert drained(reader) == []
    bench.hanging.clear()
    bench.flow()
    assert reader.delivered == [b"1"] and drained(reader) == [0] and is_answered_last(reader)


@pytest.mark.parametrize("router", ["a", "d"])
def test_a_leader_whose_disks_hang_is_not_awaited_for_ever(router: str) -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, router, credit=0)
    bench.hanging |= {*"abc"}
    drain(reader, 10)
    bench.wait(int(BUSY_S) + 1)
    assert reader.delivered == [] and drained(reader) == [0]


def test_a_leader_that_says_nothing_is_awaited_for_a_moment() -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, "d", credit=0)
    bench.hold("a", "d")
    drain(reader, 10)
    assert drained(reader) == []
    bench.now += SILENT_S
    bench._time("d")
    bench.flow()
    assert drained(reader) == [0]


@pytest.mark.parametrize("router", ["b", "d"])
def test_a_drain_is_answered_when_the_leader_dies(router: str) -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, router, credit=0)
    bench.hanging |= {*"abc"}
    drain(reader, 10)
    now = bench.now
    bench.stop("a")
    assert drained(reader) == [0] and bench.now == now


def test_a_drain_is_answered_at_once_while_nobody_leads() -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, "d", credit=0)
    for name in "ab":
        bench.stop(name)
    bench.wait(ELECTED_S)
    assert bench.leaders() == []
    now = bench.now
    drain(reader, 10)
    assert drained(reader) == [0] and bench.now == now


@pytest.mark.parametrize("router", ["a", "d"])
def test_a_drain_is_answered_when_leadership_moves(router: str) -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, router, credit=0)
    with pytest.MonkeyPatch.context() as busy:
        busy.setattr(SetReplica, "propose", lambda self, proposals: None)
        drain(reader, 10)
        assert drained(reader) == []
    raft = bench.sets("a")._replicas[SET].raft
    [to] = [member for member in raft.log.configuration.members if member.router == "b"]
    raft.hand_over(to, bench.now)
    bench.sets("a")._touched[SET] = None
    bench.collect("a")
    bench.wait(1)
    assert bench.leader == "b" and len(drained(reader)) == 1


@pytest.mark.parametrize("router", ["a", "d"])
@pytest.mark.parametrize("hanging", ["", "b"])
def test_a_drain_is_answered_soon_while_leadership_moves(router: str, hanging: str) -> None:
    """Also if the next leader's disk hangs, so that the move takes a second."""
    bench, _ = filled(b"1", b"2", b"3")
    reader = plain(bench, router, credit=0)
    bench.hanging |= {*hanging}
    plain(bench, "e", "other", credit=1)
    raft = bench.sets("a")._replicas[SET].raft
    [to] = [member for member in raft.log.configuration.members if member.router == "b"]
    raft.hand_over(to, bench.now)
    bench.sets("a")._touched[SET] = None
    now = bench.now
    drain(reader, 10)
    while not drained(reader):
        bench.now += 0.01
        bench._time(router)
        bench.flow()
        assert bench.now - now <= 0.1, "the drain is not answered"
    assert hanging == "" or bench.leader == "a"


@pytest.mark.parametrize("router", ["a", "d"])
def test_draining_consumer_gets_again_what_it_has_just_released(router: str) -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, router, credit=1)
    topic = bench.tick(router)
    topic.outcomes(reader.end, [reader.handed[0][0]], DeliveryOutcome.RELEASED)
    topic.credit(reader.end, 5)
    topic.drain(reader.end)
    bench.flow()
    assert reader.delivered == [b"1", b"1"] and drained(reader) == [0] and is_answered_last(reader)


@without_bodies
def test_a_drain_waits_for_bodies_that_are_on_the_disk() -> None:
    bench, _ = filled_disk(*ALL)
    held = hold_reads(bench, "a")
    reader = plain(bench, "d", credit=0)
    drain(reader, 100)
    assert reader.delivered == [] and drained(reader) == []
    while held:
        answer(bench, "a", held.pop())
    assert reader.delivered == ALL and drained(reader) == [0] and is_answered_last(reader)


@pytest.mark.parametrize("router", ["a", "d"])
def test_a_drain_waits_until_the_link_takes_more_bytes(router: str) -> None:
    large = [bytes([48 + n]) * 100_000 for n in range(4)]
    bench, _ = filled(*large)
    reader = plain(bench, router, credit=0)
    drain(reader, 10)
    assert len(reader.delivered) < 4 and drained(reader) == []
    for _ in large:
        bench.wait(5)
        bench.tick(router).room(reader.end, 256 * 1024)
        bench.flow()
    assert reader.delivered == large and drained(reader) == [0] and is_answered_last(reader)


@pytest.mark.parametrize("router", ["a", "d"])
def test_a_consumer_without_a_message_does_not_wait_for_others(router: str) -> None:
    """One has all messages and answers none. Another one drains."""
    bench, _ = filled(b"1", b"2")
    other, reader = plain(bench, "e", "other"), plain(bench, router, credit=0)
    drain(reader, 10)
    assert other.delivered == [b"1", b"2"] and drained(reader) == [0]


def test_a_queue_that_nobody_has_declared_answers() -> None:
    bench = QueueBench(*"abcde", declares=False)
    reader = plain(bench, "d", credit=0)
    drain(reader, 10)
    assert drained(reader) == [0]


def test_nothing_is_kept_of_a_drain() -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, "d", credit=0)
    bench.hold("a", "d")
    drain(reader, 10)
    reader.close()
    bench.wait(1)
    assert bench.cores["d"].edge.drains._draining == {}
    [egress] = bench.at("a").node.led[SET].egresses.values()
    assert egress._draining == {}


@pytest.mark.parametrize("router", ["a", "d"])
def test_a_consumer_that_drains_and_closes_in_one_write_is_forgotten(router: str) -> None:
    """The home is to answer when the consumer has ended. There are messages that its credit does not reach."""
    bench, _ = filled(b"1", b"2", b"3")
    reader = plain(bench, router, credit=0)
    topic = bench.tick(router)
    for _ in range(2):
        topic.credit(reader.end, 1)
        topic.drain(reader.end)
    reader.close()
    bench.wait(1)
    other = plain(bench, "e", "other")
    assert other.delivered == [b"1", b"2", b"3"] and drained(reader) == []


def reserved(bench: QueueBench) -> int:
    return bench.sets(bench.leader).state(SET).messages.reserved.count


def set_aside(router: str) -> tuple[QueueBench, Reader]:
    """The queue agrees to a consumer that takes nothing any more: it was answered before that."""
    bench, _ = filled(b"1")
    reader = plain(bench, router, credit=0)
    bench.hanging |= {*"abc"}
    drain(reader, 10)
    bench.wait(int(BUSY_S) + 1)
    assert drained(reader) == [0]
    return bench, reader


def decide(bench: QueueBench) -> None:
    bench.hanging.clear()
    bench.flow()


@pytest.mark.parametrize("router", ["a", "d"])
def test_messages_that_wait_for_an_ended_consumer_are_kept_for_nobody(router: str) -> None:
    bench, reader = set_aside(router)
    reader.grant(0)  # as the link does when the drain is answered
    decide(bench)
    assert reader.delivered == [] and reserved(bench) == 1
    reader.close()
    assert reserved(bench) == 0 and purge(bench) == 1
    bench.wait(1)
    assert at_rest(bench)


@pytest.mark.parametrize("router", ["a", "d"])
@pytest.mark.parametrize("drains", [False, True])
def test_messages_reserved_for_an_ended_consumer_are_kept_for_nobody(router: str, drains: bool) -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, router, credit=0)
    bench.hanging |= {*"abc"}
    if drains:
        drain(reader, 10)
    else:
        reader.grant(10)
    reader.close()
    decide(bench)
    assert reader.delivered == [] and reserved(bench) == 0 and purge(bench) == 1
    bench.wait(1)
    assert at_rest(bench)


def test_messages_that_wait_for_a_consumer_ended_behind_a_cut_are_kept_for_nobody() -> None:
    bench, reader = set_aside("d")
    reader.grant(0)
    decide(bench)
    bench.part("a", "d")
    reader.close()
    bench.wait(1)
    bench.meet("a", "d")
    bench.flow()
    assert reserved(bench) == 0 and purge(bench) == 1
    bench.wait(1)
    assert at_rest(bench)


@pytest.mark.parametrize("goes", ["its leader", "nobody"])
def test_messages_kept_in_vain_have_not_come_back(goes: str) -> None:
    """It has the key that it had, whoever leads, and nobody has failed with it."""
    bench, reader = set_aside("d")
    reader.grant(0)
    decide(bench)
    reader.close()
    if goes == "its leader":
        bench.stop("a")
        bench.wait(ELECTED_S)
    state = bench.sets(bench.leader).state(SET)
    [position] = state.messages.of(bench.queue)
    assert state.messages.returns(position).times == 0
    other = plain(bench, "e", "other")
    assert other.delivered == [b"1"]
    other.accept(b"1")
    bench.wait(1)
    assert at_rest(bench)


def test_messages_that_wait_for_an_ended_consumer_can_go_to_its_successor() -> None:
    """The next consumer is chosen before the state has heard of the end."""
    bench, reader = set_aside("d")
    reader.grant(0)
    decide(bench)
    bench.hanging |= {*"abc"}
    reader.close()
    other = plain(bench, "e", "other")
    decide(bench)
    assert other.delivered == [b"1"] and reserved(bench) == 1
    other.accept(b"1")
    bench.wait(1)
    assert at_rest(bench)


BROKEN: list[Broken] = [
    (Egress, "forget_refusals", "self._ended_with.add(subscriber)", "pass",
     partial(test_messages_that_wait_for_an_ended_consumer_are_kept_for_nobody, "d")),
    (Egress, "_wanted", "kept := self._kept_in_vain()", "kept := []",
     partial(test_messages_that_wait_for_an_ended_consumer_are_kept_for_nobody, "a")),
    (Egress, "_answer_drains", "self._log.hands_over or ", "",
     partial(test_a_drain_is_answered_soon_while_leadership_moves, "d", "b")),
    (EgressKind, "decide", "home.balancing.tell(stream)", "pass",
     test_messages_that_wait_for_a_consumer_ended_behind_a_cut_are_kept_for_nobody),
    (QueuedMessages, "unreserve", "-self.reserved.free(positions)", "0",
     partial(test_messages_that_wait_for_an_ended_consumer_are_kept_for_nobody, "a")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
