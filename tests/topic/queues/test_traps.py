"""Traps that queues of other brokers fell into, each as a scenario (those of sets: `tests/topic/raft/test_traps.py`).

5: one transfer of a publisher is lost in a partition, and later ones are taken (RabbitMQ).
6: a message is reserved for a consumer that does not learn of it before something new is sent (RabbitMQ).
7: the outcome of an earlier delivery of a message counts for a later one (RabbitMQ).
8: in a hand-over all wait for each other: there are messages and credit, and no consumer is served (RabbitMQ).
9: a dead letter comes twice, never, or goes round; its address is full, missing, or the queue itself (RabbitMQ, NATS).
17: a repeated delivery is answered with an error, so its client sends it as a new one (Redpanda):
    `test_a_delivery_keeps_its_first_answer`.
18: a backlog with many gaps is cut without a word (Pulsar).
23: a leader that was deposed answers an echo, or by its map: `test_a_leader_that_was_given_up_answers_nothing`.
26: a queue is full of its own dead letters: `test_a_full_set_takes_its_own_dead_letters`.

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

from functools import partial

import pytest

from tests.topic.bench import pen_at
from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, QueueBench
from tests.topic.queues.test_dead_letters import DyingBench
from tests.topic.queues.test_egress import at_rest, filled, lasting, plain
from tests.topic.queues.test_ingress import publisher
from tests.topic.queues.test_messages import ONE, declare
from tests.topic.queues.test_state import LIFE
from topic.actions import Detach
from topic.delivery.outcomes import DeliveryOutcome
from topic.identity import ingress_address
from topic.queues.positions import Run, position_of
from topic.queues.proposals import Dequeue, Enqueue, Reserve, encode_proposal
from topic.queues.state import SetState, entry

ACCEPTED, REJECTED = DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED
ROUTERS = "abcde"


def test_each_transfer_is_accepted_in_its_order_though_frames_are_lost_and_the_leader_dies() -> None:
    """Trap 5."""
    bench, pen = filled()
    pen.send(b"1")
    bench.hold("e", "a")
    pen.send(b"2")
    bench.part("e", "a")
    bench.let_go()
    pen.send(b"3")
    bench.stop("a")
    pen.send(b"4")
    bench.wait(ELECTED_S)
    pen.send(b"5")
    sent = [b"1", b"2", b"3", b"4", b"5"]
    assert pen.outcomes == dict.fromkeys(sent, ACCEPTED) and bench.messages(bench.leader) == sent


@pytest.mark.parametrize("resumes", [False, True])
def test_an_offer_that_is_lost_is_made_again_though_nothing_new_is_sent(resumes: bool) -> None:
    """Trap 6."""
    bench, pen = filled()
    reader = (lasting if resumes else plain)(bench, "d")
    bench.hold("a", "d")
    pen.send(b"1")
    pen.settle(b"1")
    assert bench.sets("b").state(SET).messages.reserved.count == 1 and bench.under_way("a", "d")
    bench.part("a", "d")
    bench.let_go()
    assert reader.delivered == []
    bench.meet("a", "d")
    bench.wait(10)
    if not resumes:  # its link was ended, and it attaches again
        assert [*map(type, reader.mine(Detach))] == [Detach]
        reader = plain(bench, "d", "t")
    text = b"1" if resumes else b"1 failed 1"
    assert reader.delivered == [text]
    reader.accept(text)
    if resumes:
        reader.answer_echo()
    bench.wait(1)
    assert at_rest(bench)


def test_a_late_outcome_of_a_former_holder_counts_for_nothing() -> None:
    """Trap 7: the former holder is cut off with its router, and accepts there."""
    bench, _ = filled(b"1")
    former = plain(bench, "d")
    for other in "abce":
        bench.part("d", other)
    bench.wait(10)
    holder = plain(bench, "e", "t")
    assert holder.delivered == [b"1 failed 1"]
    former.accept(b"1")
    for other in "abce":
        bench.meet("d", other)
    bench.flow()
    bench.wait(1)
    assert bench.messages("a") == [b"1"] and former.settled_messages != [b"1"]
    holder.accept(b"1 failed 1")
    assert bench.messages("a") == [] and holder.settled_messages == [b"1 failed 1"]


def move(bench: QueueBench, ring: str) -> None:
    """The first of these is to lead."""
    bench.sets(bench.leader).choose(SET, ring, bench.now)
    bench.collect(bench.leader)


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("single_active", [False, True])
def test_a_consumer_with_credit_is_served_whenever_leadership_moves(step: int, single_active: bool) -> None:
    """Trap 8: before the message comes, before it is decided, before it is accepted, and before that is decided."""
    bench = QueueBench(*ROUTERS, declares=False)
    bench.queue = bench.declare(QUEUE, single_active=single_active or None)
    pen, reader, other = publisher(bench, "e"), lasting(bench, "d", credit=1), plain(bench, "e", "t", credit=0)
    for number, ring in enumerate(("bac", "cab", "acb")):
        text = b"%d" % number
        for at, act in enumerate((partial(pen.send, text), partial(reader.accept, text))):
            bench.hanging = {*"abc"}
            if step == 2 * at:
                move(bench, ring)
            act()
            if step == 2 * at + 1:
                move(bench, ring)
            bench.hanging = set()
            bench.wait(ELECTED_S)
        assert bench.leader == ring[0] and reader.settled_messages[-1:] == [text]
        pen.settle(text)
        reader.answer_echo()
        reader.grant(1)
    assert other.delivered == []
    bench.wait(1)
    assert at_rest(bench)


@pytest.mark.parametrize("address", ["queue/missing", "queue/full", "queue/back"])
def test_a_dead_letter_comes_once_whatever_its_address_is(address: str) -> None:
    """Trap 9: a queue that is not there, one that is full, and one whose own dead letters come back. A queue cannot be
    the address of its own dead letters."""
    bench = DyingBench(address)
    if address == "queue/full":
        bench.declare(address, limit_messages=1)
        pen_at(bench, "e", name="q", address=ingress_address(SET, address)).send(b"before")
    elif address == "queue/back":
        bench.declare(address, dead_letter=QUEUE)
    reader = plain(bench, "d", credit=1)
    bench.fill(b"1")
    reader.answer(REJECTED, b"1")
    bench.wait(10)
    assert [one for one in bench.in_dead(address) if one != b"before"] == [b"1 died 1"] and bench.outbox() == []


def test_a_hundred_thousand_gaps_are_kept() -> None:
    """Trap 18: every second message is accepted, and a replica goes on behind a snapshot."""
    state, size, entries = SetState(), 1000, 200
    queue = declare(state, 1, QUEUE)
    for index in range(2, 2 + entries):
        state.apply(index, entry(LIFE, encode_proposal(Enqueue(QUEUE, [], [], [b"x"] * size))))
    held = [(position_of(index, 0), position_of(index, size - 1)) for index in range(2, 2 + entries)]
    state.apply(1000, entry(LIFE, encode_proposal(Reserve(queue, ONE, held))))
    gaps: list[Run] = [(at, at) for first, last in held for at in range(first, last, 2)]
    state.apply(1001, entry(LIFE, encode_proposal(Dequeue(queue, gaps))))
    restored = SetState(state.rows)
    for one in (state, restored):
        assert [*one.messages.of(queue)] == [at + 1 for at, _ in gaps] and one.messages.reserved.count == len(gaps)
    assert restored.rows.digest == state.rows.digest
