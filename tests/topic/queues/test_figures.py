"""What is counted and measured of queues: it changes nothing, and the age of a message is at least what is told."""

from random import Random

import pytest

from tests.topic.queues.bench import ELECTED_S, SET, QueueBench
from tests.topic.queues.test_egress import MODIFIED, filled, plain
from tests.topic.queues.test_messages import ONE, OTHER, asked, at, delete, enqueue, key, propose
from tests.topic.queues.test_messages import filled as filled_state
from topic.node import Node
from topic.queues.leader.ages import EVERY_S, FINE, MOST, DecidedTimes
from topic.queues.leader.leaders import LedSet
from topic.queues.messages import Passed
from topic.queues.operations import QueueId
from topic.queues.positions import position_of
from topic.queues.proposals import Dequeue, Enqueue, Free, Reserve, Settled
from topic.queues.state import SetState
from topic.raft.life import SetLife


def figures(state: SetState, queue: QueueId) -> tuple[int, int, Passed]:
    messages = state.messages
    assert messages.count == sum(len(messages.of(one.id)) for one in state)
    assert messages.reserved.count == sum(messages.reserved_of(one.id) for one in state)
    return len(messages.of(queue)), messages.reserved_of(queue), messages.passed_of(queue)


def test_what_passes_through_a_queue_is_counted() -> None:
    state, queue = filled_state(1, 2, 3, 4)
    assert figures(state, queue) == (4, 0, Passed(4, 0, 0))
    enqueue(state, 3, "queue/1", 4, 5)
    assert figures(state, queue) == (5, 0, Passed(5, 0, 0)), "one of them comes again"
    propose(state, 4, Reserve(queue, ONE, [(at(0), at(2))]))
    assert figures(state, queue) == (5, 3, Passed(5, 0, 0))
    propose(state, 5, Reserve(queue, OTHER, [(at(2), at(3))]))
    assert figures(state, queue) == (5, 4, Passed(5, 0, 0)), "the first consumer has not had one"
    propose(state, 6, Free(queue, [(at(1), at(1)), (position_of(3, 1), position_of(3, 1))], failed=True))
    assert figures(state, queue) == (5, 3, Passed(5, 0, 1)), "nobody had the last one"
    propose(state, 7, Dequeue(queue, [(at(0), at(1))]))
    assert figures(state, queue) == (3, 2, Passed(5, 2, 1))
    propose(state, 8, Dequeue(queue, [(at(0), at(1))]))
    assert figures(state, queue) == (3, 2, Passed(5, 2, 1)), "what is gone goes once"
    assert state.messages.first_of(queue) == state.messages.first() == at(2)


def test_messages_that_are_full_or_of_nobody_are_not_counted() -> None:
    state, queue = filled_state(1)
    nobody = QueueId(SetLife(1, "a"), 99)
    propose(state, 3, Reserve(nobody, ONE, [(at(0), at(0))]))
    propose(state, 4, Free(nobody, [(at(0), at(0))], failed=True))
    propose(state, 5, Dequeue(nobody, [(at(0), at(0))]))
    assert figures(state, queue) == (1, 0, Passed(1, 0, 0))
    assert figures(state, nobody) == (0, 0, Passed())
    propose(state, 6, Enqueue("queue/1", (), (), [b"2", b"3"]))
    assert figures(state, queue) == (3, 0, Passed(3, 0, 0)), "without keys, too"


def test_a_queue_that_is_deleted_has_no_figures_and_its_set_keeps_its_own() -> None:
    state, queue = filled_state(1, 2)
    propose(state, 3, Reserve(queue, ONE, [(at(0), at(0))]))
    delete(state, 4, "queue/1", queue)
    assert figures(state, queue) == (0, 0, Passed())
    assert state.messages.passed == Passed(2, 0, 0) and state.messages.first() is None
    assert not state.messages._passed and not state.messages._reserved
    propose(state, 5, Settled([key(1), key(2)]))
    state.messages.count_anew()
    assert state.messages.passed == Passed()


def test_what_is_counted_is_no_part_of_the_state() -> None:
    state, queue = filled_state(1, 2)
    propose(state, 3, Reserve(queue, ONE, [(at(0), at(0))]))
    again = SetState(state.rows)
    assert figures(again, queue) == (2, 1, Passed())
    assert again.rows.digest == state.rows.digest
    assert propose(again, 4, asked("queue/1", 1)) == propose(state, 4, asked("queue/1", 1))


# ages


def test_an_age_is_the_time_since_the_entry_was_seen_to_be_decided() -> None:
    times = DecidedTimes(10, 100.0)
    assert times.age_s(position_of(10, 5), 103.0) == 3.0, "it was there when the router began to lead"
    times.mark(12, 103.0)
    times.mark(13, 103.5)
    times.mark(14, 110.0)
    assert [times.age_s(position_of(index, 0), 111.0) for index in (9, 11, 12, 13, 14, 15)] == [11, 8, 8, 7.5, 1, 0]


def test_a_message_is_dated_too_late_by_a_second_at_most_while_there_are_many() -> None:
    times = DecidedTimes(0, 0.0)
    for index in range(1, 501):
        times.mark(index, index / 100)
    assert len(times) <= 5 / EVERY_S * 2 + 2
    for index in range(1, 501):
        assert 5 - index / 100 - EVERY_S <= times.age_s(position_of(index, 0), 5.0) <= 5 - index / 100


@pytest.mark.parametrize("seed", range(5))
def test_marks_are_bounded_and_ages_stay_as_fine_as_is_promised(seed: int) -> None:
    """Weeks of a set that is used by fits and starts."""
    random, times, now = Random(seed), DecidedTimes(0, 0.0), 0.0
    decided = [0.0]
    while now < 2e6:
        pause = random.choice((0.3, 1.0, 5.0, 300.0))
        for _ in range(random.randrange(100)):
            now += random.random() * pause
            times.mark(len(decided), now)
            decided.append(now)
        now += random.choice((0, 20_000))
        assert len(times) <= MOST
    assert len(decided) > 5 * MOST, "marks were forgotten"
    for index in range(0, len(decided), 17):
        age, told = now - decided[index], times.age_s(position_of(index, 0), now)
        assert told <= age + 1e-6 and age <= told + EVERY_S + told / FINE + 1e-6, (index, age, told)


# at a leader


def led(bench: QueueBench) -> LedSet:
    node = bench.at(bench.leader).node
    assert isinstance(node, Node)
    return node.led[SET]


def passed(bench: QueueBench) -> Passed:
    return bench.sets(bench.leader).state(SET).messages.passed_of(bench.queue)


def test_a_leader_tells_how_old_messages_are_and_what_has_passed() -> None:
    bench, pen = filled(b"1")
    bench.wait(20)
    pen.send(b"2")
    bench.wait(5)
    assert 24.9 <= led(bench).oldest_s(bench.queue, bench.now) <= 26
    assert led(bench).oldest_s(None, bench.now) == led(bench).oldest_s(bench.queue, bench.now)
    reader = plain(bench, "d")
    reader.accept(b"1")
    assert 4.9 <= led(bench).oldest_s(bench.queue, bench.now) <= 6
    assert passed(bench) == Passed(2, 1, 0)
    reader.accept(b"2")
    assert led(bench).oldest_s(bench.queue, bench.now) == led(bench).oldest_s(None, bench.now) == 0
    assert "b" not in bench.leaders() and not bench.at("b").node.led, "others lead nothing, and tell nothing"


def test_a_message_that_a_consumer_gives_back_is_counted() -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, "d")
    reader.answer(MODIFIED, b"1")
    assert passed(bench) == Passed(1, 0, 1)
    reader.accept(b"1")
    assert passed(bench) == Passed(1, 1, 1)


def test_the_next_leader_knows_no_more_than_since_when_it_leads() -> None:
    bench, pen = filled(b"1", b"2")
    reader = plain(bench, "d")
    reader.accept(b"1")
    bench.wait(100)
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert passed(bench) == Passed()
    since = led(bench).oldest_s(bench.queue, bench.now)
    assert 0 < since <= ELECTED_S
    pen.send(b"3")
    reader.accept(b"2")
    reader.accept(b"3")
    assert led(bench).oldest_s(None, bench.now) == 0 and passed(bench) == Passed(1, 2, 0)
