"""Messages whose time is over leave their queue, unless a consumer has them (protocol 14.9)."""

from functools import partial

import pytest

from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, QueueBench, QueueStation
from tests.topic.queues.test_egress import ACCEPTED, RELEASED, at_rest, filled, lasting, plain, reserved
from tests.topic.queues.test_ingress import publisher
from tests.topic.queues.test_messages import OTHER, asked, at, declare, holders, key, propose, there
from tests.topic.queues.test_messages import filled as filled_state
from tests.topic.raft.mutants import Broken, must_notice
from topic.queues.bodies.message_rows import MessageRows
from topic.queues.leader.egress import Egress
from topic.queues.leader.expiry import AGAIN_MS, SPARE, ExpiryTimes
from topic.queues.leader.leaders import LedSet
from topic.queues.messages import Passed, QueuedMessages
from topic.queues.positions import position_of
from topic.queues.proposals import Enqueue, Expire, Free, Reserve, Settled
from topic.queues.state import SetState

# the state


def test_expired_message_without_a_consumer_leaves_the_queue() -> None:
    state, queue = filled_state(1, 2)
    propose(state, 3, Reserve(queue, OTHER, [(at(0), at(0))]))
    propose(state, 4, Expire(queue, [(at(0), at(1))]))
    assert there(state, queue) == [b"1"] and state.messages.passed_of(queue) == Passed(2, expired=1)
    propose(state, 5, Free(queue, [(at(0), at(0))], failed=False))
    assert there(state, queue) == [b"1"] and holders(state, queue) == [None], "the leader proposes it again"
    propose(state, 6, Expire(queue, [(at(0), at(0))]))
    assert there(state, queue) == []
    propose(state, 7, Settled([key(1), key(2)]))
    assert len(state.rows) == 1


@pytest.mark.parametrize("has_keys", [False, True])
def test_the_state_keeps_when_the_time_of_a_message_is_over(has_keys: bool) -> None:
    state = SetState()
    queue = declare(state, 1, "queue/1")
    given = asked("queue/1", 1, 2)
    keys, runs = (given.keys, given.given) if has_keys else ([], [])
    propose(state, 3, Enqueue("queue/1", keys, runs, given.messages, [0, 77]))
    propose(state, 4, Settled([key(1), key(2)]))
    times = {position_of(3, 1): (queue, 77)}
    assert state.messages.expiring == SetState([*state.rows]).messages.expiring == times
    propose(state, 5, Expire(queue, [(position_of(3, 0), position_of(3, 1))]))
    assert state.messages.expiring == {} and len(state.rows) == 1


def test_times_of_messages_that_are_gone_are_forgotten_in_the_end() -> None:
    state = SetState()
    queue = declare(state, 1, "queue/1")
    times = ExpiryTimes(state.messages)
    for index in range(3, 4 * SPARE):
        propose(state, index, Enqueue("queue/1", (), (), [b"1"], [10**6]))
        times.add([position_of(index, 0)])
        state.messages.dequeue(queue, [(position_of(index, 0), position_of(index, 0))])
        assert len(times._times) <= SPARE + 2
    assert times.take(10**7) == {}


# the leader


def test_a_message_leaves_its_queue_when_its_time_is_over() -> None:
    bench, pen = filled(b"1!3", b"2", b"3!5")
    bench.wait(2)
    assert bench.messages("b") == [b"1!3", b"2", b"3!5"]
    bench.wait(2)
    assert bench.messages("b") == [b"2", b"3!5"]
    bench.wait(2)
    assert bench.messages("b") == [b"2"]
    pen.send(b"4!1")
    pen.settle(b"4!1")
    bench.wait(2)
    assert bench.messages("b") == [b"2"] and pen.outcomes[b"4!1"] is ACCEPTED


def test_a_message_that_a_consumer_has_stays_and_goes_when_it_comes_back() -> None:
    bench, _ = filled(b"1!3", b"2!3")
    reader = plain(bench, "d")
    other = plain(bench, "e", "t")
    assert reader.delivered + other.delivered == [b"1!3", b"2!3"]
    [holder] = [one for one in (reader, other) if one.delivered]
    bench.wait(5)
    assert bench.messages("b") == [b"1!3", b"2!3"]
    holder.accept(b"1!3")
    holder.answer(RELEASED, b"2!3")
    bench.wait(1)
    assert len(reader.delivered + other.delivered) == 2 and at_rest(bench)


def test_a_message_that_is_over_is_offered_to_nobody() -> None:
    """Its consumer comes before the leader has looked."""
    bench, _ = filled(b"1!3")
    bench.wall_us += 10_000_000
    reader = plain(bench, "d")
    assert reader.delivered == []
    bench.wait(1)
    assert at_rest(bench)


def test_a_message_that_is_over_before_it_is_decided_is_offered_to_nobody() -> None:
    """Its consumer waits, and is chosen as the message comes."""
    bench, pen = filled()
    reader = plain(bench, "d", credit=10)
    bench.flow()
    pen.send(b"1!0", b"2!9", b"3")
    bench.flow()
    assert reader.delivered == [b"2!9", b"3"]
    reader.accept(b"2!9", b"3")
    pen.settle(b"1!0", b"2!9", b"3")
    bench.wait(1)
    assert at_rest(bench)


def test_messages_that_wait_for_a_consumer_expire_too() -> None:
    """The consumer has taken its credit back before the reservation was decided."""
    bench, _ = filled(b"1!3")
    bench.hanging |= {"b", "c"}
    reader = plain(bench, "a", credit=1)
    reader.grant(0)
    bench.hanging.clear()
    bench.flow()
    assert bench.records()["a"] == 1 and reserved(bench) == 1
    bench.wait(5)
    assert at_rest(bench)


def test_expired_message_that_comes_back_leaves_the_queue_without_a_consumer() -> None:
    bench, _ = filled(b"1!3")
    reader = plain(bench, "d")
    bench.wait(5)
    reader.close()
    assert bench.messages("b") == [b"1!3"]
    bench.wait(2)
    assert at_rest(bench)


def test_the_next_leader_goes_on_with_the_times() -> None:
    bench, _ = filled(b"1!9", b"2!9")
    reader = lasting(bench, "d", credit=1)
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert bench.messages("b") == [b"1!9", b"2!9"]
    bench.wait(6)
    assert bench.messages("b") == [b"1!9"]
    reader.accept(b"1!9")
    assert bench.messages("b") == []


def test_a_queue_may_limit_the_time() -> None:
    bench = QueueBench(*"abcde", declares=False)
    bench.queue = bench.declare(QUEUE, ttl_ms=4000)
    pen = publisher(bench, "e")
    pen.send(b"1", b"2!2", b"3!9")
    bench.wait(3)
    assert bench.messages("b") == [b"1", b"3!9"]
    bench.wait(2)
    assert bench.messages("b") == []


def test_a_message_whose_end_no_majority_decides_stays() -> None:
    bench, _ = filled(b"1!3")
    for other in "bc":
        bench.part("a", other)
    bench.wait(20, "a")
    assert bench.messages("a") == [b"1!3"]
    for other in "bc":
        bench.meet("a", other)
    bench.wait(ELECTED_S + 2 * AGAIN_MS // 1000)
    assert bench.messages(bench.leader) == []
    assert bench.sets(bench.leader).state(SET).messages.passed_of(bench.queue).expired == 1


# rules broken on purpose

BROKEN: list[Broken] = [
    (QueuedMessages, "_free", "if not self.reserved.has(position)", "",
     test_expired_message_without_a_consumer_leaves_the_queue),
    (QueuedMessages, "expire", "MessageEnd.EXPIRED", "MessageEnd.PURGED",
     test_expired_message_without_a_consumer_leaves_the_queue),
    (MessageRows, "_about", "(*parts, ends) if ends else parts", "parts",
     partial(test_the_state_keeps_when_the_time_of_a_message_is_over, True)),
    (MessageRows, "delete", "self.expiring.pop(position, None)", "pass",
     partial(test_the_state_keeps_when_the_time_of_a_message_is_over, True)),
    (ExpiryTimes, "add", "self._find()", "pass", test_times_of_messages_that_are_gone_are_forgotten_in_the_end),
    (ExpiryTimes, "take", "heappush(self._times, (now_ms + AGAIN_MS, position))", "pass",
     test_expired_message_that_comes_back_leaves_the_queue_without_a_consumer),
    (LedSet, "_enqueued", "self._expiry.add(answer.positions)", "pass",
     test_a_message_leaves_its_queue_when_its_time_is_over),
    (LedSet, "follow", "self.look_at = min(self.look_at, self._next_look(now))", "pass",
     test_a_message_leaves_its_queue_when_its_time_is_over),
    (LedSet, "expire", "self.look_at = self._next_look(now)", "self.look_at = math.inf",
     test_a_message_leaves_its_queue_when_its_time_is_over),
    (LedSet, "timed", "min(ms, most)", "ms", test_a_queue_may_limit_the_time),
    (LedSet, "_count_taken_out", "passed.expired, ", "", test_messages_that_wait_for_a_consumer_expire_too),
    (Egress, "_consumers", "self._sort_out_expired()", "pass", test_a_message_that_is_over_is_offered_to_nobody),
    (Egress, "expect", "if end}", "if not end}",
     test_a_message_that_is_over_before_it_is_decided_is_offered_to_nobody),
    (Egress, "_end_of", "self._ends.get(position, inf)", "inf",
     test_a_message_that_is_over_before_it_is_decided_is_offered_to_nobody),
    (Egress, "_wanted", "if self._for_nobody:", "if False:", test_messages_that_wait_for_a_consumer_expire_too),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])


@pytest.mark.parametrize("router", ["a", "d"])
def test_a_consumer_is_told_what_is_left_of_the_time_of_its_message(
    router: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueueStation, "aged", lambda self, message, left_ms: message + b" %d" % round(left_ms, -3))
    bench, _ = filled(b"1!30", b"2")
    bench.wait(10)
    reader = plain(bench, router)
    assert reader.delivered == [b"1!30 20000", b"2"]
    bench.wait(5)
    reader.answer(RELEASED, b"1!30 20000")
    assert reader.delivered[2:] == [b"1!30 15000"]
    assert bench.messages("b") == [b"1!30", b"2"], "the queue has it as it was sent"
