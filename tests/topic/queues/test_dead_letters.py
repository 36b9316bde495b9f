"""Dead letters: what a queue gives to another address, once, whoever leads (protocol 14.11, 14.12)."""

from functools import partial
from typing import Any

import pytest

from tests.failures import MOST_DEATHS
from tests.topic.bench import reader_at
from tests.topic.clients import Reader
from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, QueueBench, with_patches
from tests.topic.queues.test_egress import MODIFIED, REJECTED, RELEASED, at_rest, lasting, plain
from tests.topic.queues.test_ingress import publisher, unsettled
from tests.topic.queues.test_messages import (
    ATTACH,
    ONE,
    asked,
    at,
    declare,
    delete,
    enqueue,
    key,
    propose,
    purge,
    there,
)
from tests.topic.queues.test_state import LIFE
from tests.topic.raft.mutants import Broken, must_notice
from topic.actions import Note
from topic.identity import egress_address
from topic.queues.bodies.message_rows import MessageRows, body_digest
from topic.queues.bound.bindings import DEAD_LETTERS
from topic.queues.leader import ingress
from topic.queues.leader.egress import Egress
from topic.queues.leader.ingress import Ingress
from topic.queues.leader.leaders import LedSet
from topic.queues.leader.letters import MOST_OPEN, PAUSE_S, Letters
from topic.queues.messages import Passed, QueuedMessages
from topic.queues.operations import Configure, Delete, Done, Purge, QueueId, QueueSettings, Retry, encode
from topic.queues.outgoing.outbox import Why
from topic.queues.positions import runs_of
from topic.queues.proposals import Dequeue, Enqueue, Expire, Free, Given, Posted, Reject, Reserve, Settled
from topic.queues.state import SetState, entry
from topic.raft.life import SetLife

DEAD = "queue/dead"
NEWS = "topic/dead"

# the state


def dying(*numbers: int, **settings: Any) -> tuple[SetState, QueueId]:
    """A queue with these messages, and with an address for dead letters."""
    state = SetState()
    queue = declare(state, 1, "queue/1", dead_letter=DEAD, **settings)
    enqueue(state, 2, "queue/1", *numbers)
    propose(state, 3, Settled([key(number) for number in numbers]))
    return state, queue


def outbox(state: SetState, address: str = DEAD) -> list[tuple[bytes, Why]]:
    """What goes to the address."""
    letters, sent = state.messages.outbox.letters, state.messages.sent
    of_digest = {body_digest(text): text for text in (b"%d" % number for number in range(100))}
    return [(of_digest[sent.about(at)[1]], letters[at].sending.why) for at in state.messages.outbox.to(address)]


def test_rejected_message_goes_to_the_outbox() -> None:
    state, queue = dying(1, 2)
    propose(state, 4, Reserve(queue, ONE, [(at(0), at(1))]))
    propose(state, 5, Reject(queue, [(at(1), at(1))]))
    assert there(state, queue) == [b"1"] and outbox(state) == [(b"2", Why.REJECTED)]
    assert outbox(SetState(state.rows)) == outbox(state)
    propose(state, 6, Posted(queue, [(at(0), at(1))], taken=True))
    assert there(state, queue) == [b"1"] and outbox(state) == []
    assert state.messages.passed_of(queue) == Passed(2, dead=1)
    propose(state, 7, Dequeue(queue, [(at(0), at(0))]))
    assert len(state.rows) == 1


def test_without_an_address_what_is_rejected_is_gone() -> None:
    state = SetState()
    queue = declare(state, 1, "queue/1", redeliveries=0)
    enqueue(state, 2, "queue/1", 1, 2)
    propose(state, 3, Reserve(queue, ONE, [(at(0), at(1))]))
    propose(state, 4, Reject(queue, [(at(0), at(0))]))
    propose(state, 5, Free(queue, [(at(1), at(1))], failed=True))
    assert there(state, queue) == [b"2"] and len(state.messages.outbox) == 0
    propose(state, 6, Expire(queue, [(at(1), at(1))]))
    assert state.messages.passed_of(queue) == Passed(2, 1, 1, expired=1)


@pytest.mark.parametrize("most", [0, 2, None])
def test_message_that_failed_too_often_goes_to_the_outbox(most: int | None) -> None:
    state, queue = dying(1, **({"redeliveries": most} if most is not None else {}))
    for time in range(21 if most is None else most + 1):
        assert there(state, queue) == [b"1"]
        for failed in (False, True):
            propose(state, 4 + 4 * time, Reserve(queue, ONE, [(at(0), at(0))]))
            propose(state, 5 + 4 * time + 2 * failed, Free(queue, [(at(0), at(0))], failed=failed))
    assert there(state, queue) == [] and outbox(state) == [(b"1", Why.REDELIVERIES)]


def test_expired_message_without_a_consumer_goes_to_the_outbox() -> None:
    state = SetState()
    queue = declare(state, 1, "queue/1", dead_letter=DEAD)
    given = asked("queue/1", 1, 2)
    propose(state, 2, Enqueue("queue/1", given.keys, given.given, given.messages, [7, 7]))
    propose(state, 3, Reserve(queue, ONE, [(at(0), at(0))]))
    propose(state, 4, Expire(queue, [(at(0), at(1))]))
    assert there(state, queue) == [b"1"] and outbox(state) == [(b"2", Why.EXPIRED)]
    assert state.messages.passed_of(queue) == Passed(2) and [*state.messages.expiring] == [at(0)]
    assert [*SetState(state.rows).messages.expiring] == [at(0)]


def test_refused_dead_letter_stays_and_is_counted() -> None:
    state, queue = dying(1)
    propose(state, 4, Reject(queue, [(at(0), at(0))]))
    propose(state, 5, Posted(queue, [(at(0), at(0))], taken=False))
    assert outbox(state) == [(b"1", Why.REJECTED)] and state.messages.returns(at(0)).times == 1
    for late in (Free(queue, [(at(0), at(0))], failed=True), Dequeue(queue, [(at(0), at(0))])):
        propose(state, 6, late)
        propose(state, 7, Reserve(queue, ONE, [(at(0), at(0))]))
    propose(state, 8, Posted(QueueId(SetLife(9, "a"), 9), [(at(0), at(0))], taken=True))
    assert outbox(state) == [(b"1", Why.REJECTED)] and state.messages.returns(at(0)).times == 1


def test_messages_in_the_outbox_go_with_their_queue_or_a_purge() -> None:
    state, queue = dying(1, 2, 3)
    propose(state, 4, Reject(queue, [(at(0), at(2))]))
    assert state.messages.last_of(queue) == at(2) and state.messages.size == 3
    assert purge(state, 5, queue, at(1)) == 2 and outbox(state) == [(b"3", Why.REJECTED)]
    delete(state, 6, "queue/1", queue)
    assert len(state.rows) == 0 and state.messages.size == 0


def test_message_purged_at_a_consumer_is_no_dead_letter() -> None:
    state, queue = dying(1, 2)
    propose(state, 4, Reserve(queue, ONE, [(at(0), at(1))]))
    purge(state, 5, queue, at(0))
    propose(state, 6, Reject(queue, [(at(0), at(1))]))
    assert outbox(state) == [(b"2", Why.REJECTED)] and state.messages.passed_of(queue) == Passed(2, purged=1)


def letters_of(*numbers: int) -> Enqueue:
    given = [Given(ATTACH, number, 1) for number in numbers]
    keys, texts = [key(one) for one in numbers], [b"%d" % one for one in numbers]
    return Enqueue("queue/1", keys, given, texts, binding=DEAD_LETTERS)


def test_dead_letters_are_taken_whatever_the_limit_and_count() -> None:
    state = SetState()
    queue = declare(state, 1, "queue/1", limit_messages=1)
    enqueue(state, 2, "queue/1", 1)
    propose(state, 3, letters_of(1, 2))
    assert enqueue(state, 4, "queue/1", 4) == {0}
    assert there(state, queue) == [b"1", b"1", b"2"], "their keys are others"
    propose(state, 5, letters_of(1))
    assert len(there(state, queue)) == 3
    propose(state, 6, Settled([key(1), key(2)], DEAD_LETTERS))
    assert state.messages.unsettled == {b"": [key(1), key(4)]}


def test_a_queue_is_declared_by_its_first_dead_letter() -> None:
    state = SetState()
    propose(state, 1, letters_of(1))
    known = state.get("queue/1")
    assert known is not None and there(state, known.id) == [b"1"]
    delete(state, 2, "queue/1", known.id)
    propose(state, 3, letters_of(1))
    assert state.get("queue/1") is None, "it was answered before"


def test_a_retry_takes_what_nobody_has() -> None:
    state, queue = dying(1, 2, 3)
    propose(state, 4, Reserve(queue, ONE, [(at(0), at(0))]))
    operation = Retry("queue/1", queue, "queue/other", ((at(0), at(1)),))
    done = state.apply(5, entry(LIFE, encode(operation)))
    assert isinstance(done, Done) and done.count == 1
    assert there(state, queue) == [b"1", b"3"] and outbox(state, "queue/other") == [(b"2", Why.RETRIED)]
    again = state.apply(6, entry(LIFE, encode(operation)))
    assert isinstance(again, Done) and again.count == 0


# the leader


class DyingBench(QueueBench):
    """A queue with an address for dead letters."""

    def __init__(self, address: str = DEAD, **settings: Any) -> None:
        super().__init__(*"abcde", declares=False)
        self.queue = self.declare(QUEUE, dead_letter=address, **settings)
        self.pen = publisher(self, "e")

    @property
    def open(self) -> int:
        """Dead letters that are under way."""
        return sum(len(one.open) for one in self.at(self.leader).node.led[SET].letters.values())

    def fill(self, *messages: bytes) -> None:
        self.pen.send(*messages)
        self.pen.settle(*messages)

    def in_dead(self, name: str = DEAD) -> list[bytes]:
        """What the queue of dead letters has."""
        state = self.sets(self.leader).state(SET)
        queue = state.get(name)
        return [*state.messages.of(queue.id).kept.values()] if queue is not None else []

    def outbox(self) -> list[bytes]:
        return [*map(self.texts.__getitem__, self.sets(self.leader).state(SET).messages.outbox.letters)]

    @property
    def rows(self) -> set[int]:
        return {len(self.sets(name).state(SET).rows) for name in self.names if name in "abc"}

    def is_at_rest(self, queues: int) -> bool:
        """Nothing is kept but so many queues."""
        return self.rows == {queues} and self.records() == {} and unsettled(self, self.leader) == []


def outbox_of(bench: DyingBench, router: str) -> int:
    return len(bench.sets(router).state(SET).messages.outbox)


def rejected(*messages: bytes, address: str = DEAD, **settings: Any) -> tuple[DyingBench, Reader]:
    """A consumer has rejected the messages."""
    bench = DyingBench(address, **settings)
    reader = plain(bench, "d")
    bench.fill(*messages)
    reader.answer(REJECTED, *messages)
    return bench, reader


def consumer_of(bench: QueueBench, name: str, router: str = "e", **options: Any) -> Reader:
    return bench.subscriber(router, "dead", address=egress_address(SET, name), **options)


def test_rejected_message_comes_to_the_queue_of_dead_letters() -> None:
    bench, reader = rejected(b"1", b"2")
    assert bench.in_dead() == [b"1 died 1", b"2 died 1"]
    assert reader.settled_messages == [b"1", b"2"] and bench.outbox() == []
    assert bench.sets("a").state(SET).messages.passed_of(bench.queue).dead == 2
    consumer_of(bench, DEAD).accept(b"1 died 1", b"2 died 1")
    bench.wait(1)
    assert bench.is_at_rest(2)


def test_message_that_fails_too_often_is_a_dead_letter() -> None:
    bench = DyingBench(redeliveries=2)
    reader = plain(bench, "d")
    bench.fill(b"1")
    for failures in range(3):
        text = b"1 failed %d" % failures if failures else b"1"
        assert reader.delivered[-1] == text and bench.in_dead() == []
        reader.answer(MODIFIED, text, failed=True)
    assert bench.in_dead() == [b"1 died 1"] and len(reader.delivered) == 3


def test_a_dead_letter_has_what_consumers_have_added() -> None:
    bench = DyingBench(redeliveries=0)
    reader = plain(bench, "d")
    bench.fill(b"1")
    reader.answer(MODIFIED, b"1", annotations=b"x")
    reader.answer(MODIFIED, b"1 with x", failed=True, annotations=b"y")
    assert bench.in_dead() == [b"1 with xy died 1"]


@pytest.mark.parametrize("router", ["a", "d"])
def test_a_dead_letter_has_the_error_of_the_consumer_that_has_rejected_it(router: str) -> None:
    """It is that of each message. The next leader has it, too."""
    bench = DyingBench()
    reader = plain(bench, router)
    bench.fill(b"1", b"2", b"3")
    reader.answer(MODIFIED, b"1", annotations=b"x")
    bench.hanging |= {"b", "c"}
    reader.answer(REJECTED, b"1 with x", annotations=b"y")
    reader.answer(REJECTED, b"2", annotations=b"z")
    reader.answer(REJECTED, b"3")
    bench.hanging.clear()
    bench.stop("a") if router == "d" else bench.flow()
    bench.wait(ELECTED_S)
    assert bench.in_dead() == [b"1 with xy died 1", b"2 with z died 1", b"3 died 1"]


def test_without_an_address_nobody_keeps_an_error() -> None:
    bench = QueueBench(*"abcde")
    pen = publisher(bench, "e")
    pen.send(b"1")
    pen.settle(b"1")
    plain(bench, "d").answer(REJECTED, b"1", annotations=b"x")
    bench.wait(1)
    assert at_rest(bench)


def test_released_message_is_no_dead_letter() -> None:
    bench = DyingBench(redeliveries=0)
    reader = plain(bench, "d")
    bench.fill(b"1")
    for _ in range(3):
        reader.answer(RELEASED, b"1")
    assert bench.in_dead() == [] and reader.delivered == [b"1"] * 4


def test_expired_message_is_a_dead_letter_and_lives_on() -> None:
    bench = DyingBench()
    bench.fill(b"1!3")
    bench.wait(5)
    assert bench.messages("b") == [] and bench.in_dead() == [b"1!3 died 1"]
    bench.wait(10)
    assert bench.in_dead() == [b"1!3 died 1"]


def test_expired_message_that_waits_for_a_consumer_is_withdrawn_from_home() -> None:
    bench = DyingBench()
    bench.fill(b"1!3")
    bench.hanging |= {"b", "c"}
    reader = plain(bench, "a", credit=1)
    reader.grant(0)
    bench.hanging.clear()
    bench.flow()
    bench.wait(5)
    assert bench.in_dead() == [b"1!3 died 1"] and reader.delivered == []
    consumer_of(bench, DEAD).accept(b"1!3 died 1")
    reader.close()
    bench.wait(1)
    assert bench.is_at_rest(2)


def test_a_topic_takes_dead_letters_if_somebody_is_there() -> None:
    bench, _ = rejected(b"1", address=NEWS)
    bench.wait(PAUSE_S + 1)
    assert bench.outbox() == [b"1"]
    reader = bench.subscriber("e", "news", address=NEWS)
    bench.wait(2 * PAUSE_S + 1)
    assert reader.delivered == [b"1 died 1"] and bench.outbox() == [b"1"]
    reader.accept(b"1 died 1")
    bench.wait(1)
    assert bench.outbox() == [] and bench.is_at_rest(1)


def test_refused_dead_letter_is_sent_again_after_a_pause() -> None:
    bench, _ = rejected(b"1", b"2", address=NEWS)
    reader = bench.subscriber("e", "news", address=NEWS)
    bench.wait(PAUSE_S + 1)
    assert reader.delivered == [b"1 died 1", b"2 died 1"]
    reader.answer(REJECTED, b"1 died 1")
    reader.accept(b"2 died 1")
    bench.wait(PAUSE_S)
    assert bench.outbox() == [b"1"] and len(reader.delivered) == 2
    bench.wait(2 * PAUSE_S)
    assert reader.delivered[2:] == [b"1 died 1"]
    reader.accept(b"1 died 1")
    bench.wait(1)
    assert bench.outbox() == [] and bench.is_at_rest(1)


@pytest.mark.parametrize("hanging", ["", "ac", "bc"])
@pytest.mark.parametrize("address", [DEAD, NEWS])
def test_a_dead_letter_comes_once_if_the_leader_dies(address: str, hanging: str) -> None:
    """It dies before, or after, others have stored what it has proposed."""
    bench = DyingBench(address)
    reader, dead = lasting(bench, "d"), lasting_of(bench, address)
    bench.fill(b"1")
    bench.hanging |= {*hanging}
    reader.answer(REJECTED, b"1")
    bench.stop("a")
    bench.hanging.clear()
    bench.wait(ELECTED_S)
    assert dead.delivered == [b"1 died 1"]
    dead.accept(b"1 died 1")
    bench.wait(2 * PAUSE_S + 1)
    assert dead.delivered == [b"1 died 1"] and bench.outbox() == []
    assert bench.rows == {2 if address == DEAD else 1}


def lasting_of(bench: QueueBench, address: str, router: str = "e") -> Reader:
    inside = egress_address(SET, address) if address == DEAD else address
    return reader_at(bench, router, "dead", address=inside)


def test_a_dead_letter_that_a_majority_has_not_seen_published_comes_once() -> None:
    """The address has taken it, and the leader dies before others know."""
    bench = DyingBench(NEWS)
    reader, dead = lasting(bench, "d"), lasting_of(bench, NEWS)
    bench.fill(b"1")
    reader.answer(REJECTED, b"1")
    bench.hold("a", "b")
    bench.hold("a", "c")
    dead.accept(b"1 died 1")
    assert bench.outbox() == [b"1"] and dead.settled_messages == []
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert dead.delivered == [b"1 died 1"] and bench.outbox() == [] and dead.settled_messages == [b"1 died 1"]
    bench.wait(1)
    assert bench.rows == {1}


def test_next_leader_settles_dead_letters_that_were_taken() -> None:
    """The outbox is empty when it begins to lead: it attaches the link all the same."""
    bench = DyingBench(NEWS)
    reader, dead = lasting(bench, "d"), lasting_of(bench, NEWS)
    bench.fill(b"1")
    reader.answer(REJECTED, b"1")
    bench.hold("a", "e")
    bench.hold("a", "d")
    dead.accept(b"1 died 1")
    assert bench.outbox() == [] and dead.settled_messages == []
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert dead.settled_messages == [b"1 died 1"]
    bench.wait(1)
    assert bench.rows == {1}


def test_a_retry_goes_back_and_forth_with_times_to_live() -> None:
    """work → retry (ttl) → work, until it was a dead letter too often."""
    bench = DyingBench("queue/retry")
    bench.declare("queue/retry", dead_letter=QUEUE, ttl_ms=1000)
    reader = plain(bench, "d")
    bench.fill(b"1")
    for deaths in range(0, MOST_DEATHS, 2):
        text = b"1 died %d" % deaths if deaths else b"1"
        assert reader.delivered[-1] == text
        reader.answer(REJECTED, text)
        bench.wait(3)
    text = b"1 died %d" % MOST_DEATHS
    assert reader.delivered[-1] == text
    reader.answer(REJECTED, text)
    bench.wait(3)
    assert bench.outbox() == [text] and len(reader.delivered) == MOST_DEATHS // 2 + 1
    assert any(isinstance(one, Note) and "too often" in one.text for one in bench.actions["a"])


def test_a_full_set_takes_its_own_dead_letters() -> None:
    with_patches(full_sets)


def full_sets(patch: pytest.MonkeyPatch) -> None:
    """The set is full of messages that are over: they go to another queue of it, and publishers wait."""
    patch.setattr(ingress, "FULL", 30)
    patch.setattr(ingress, "FULL_OF_LETTERS", 15)
    bench = DyingBench()
    bench.fill(*(b"%d!2" % number for number in range(10, 18)))
    assert len(bench.messages("b")) == 8
    bench.wait(4)
    assert bench.messages("b") == [] and len(bench.in_dead()) < 8
    for _ in range(8):
        dead = consumer_of(bench, DEAD)
        dead.accept(*(text or b"" for text in dead.delivered))
        dead.close()
        bench.wait(1)
    assert bench.outbox() == [] and bench.in_dead() == []


def test_a_set_with_too_many_messages_takes_its_own_dead_letters() -> None:
    with_patches(too_many_messages)


def too_many_messages(patch: pytest.MonkeyPatch) -> None:
    """The set has as many messages as it may have. All are over: they go to another queue of it, and publishers
    wait."""
    patch.setattr(ingress, "FULL_COUNT", 6)
    patch.setattr(ingress, "FULL_COUNT_OF_LETTERS", 4)
    bench = DyingBench()
    texts = [b"%d!2" % number for number in range(10, 18)]
    bench.fill(*texts)
    bench.pen.send(b"more")
    bench.wait(4)
    assert bench.messages("b") == [] and bench.outbox() == []
    assert bench.in_dead() == [text + b" died 1" for text in texts]
    assert b"more" not in bench.pen.outcomes
    consumer_of(bench, DEAD).accept(*bench.in_dead())
    bench.wait(1)
    assert bench.messages("b") == [b"more"]


def test_messages_in_the_outbox_count() -> None:
    with_patches(full_outboxes)


def full_outboxes(patch: pytest.MonkeyPatch) -> None:
    """No queue has a message, and the set is full of dead letters that nobody takes."""
    patch.setattr(ingress, "FULL_COUNT", 3)
    bench, _ = rejected(b"1", b"2", b"3", address=NEWS)
    messages = bench.sets("a").state(SET).messages
    assert (messages.count, messages.total, len(messages.outbox)) == (0, 3, 3)
    bench.pen.send(b"4")
    bench.wait(1)
    assert b"4" not in bench.pen.outcomes and bench.messages("a") == []
    assert any(isinstance(one, Note) and "outbox have 3 messages" in one.text for one in bench.actions["a"])
    news = bench.subscriber("e", "news", address=NEWS)
    bench.wait(2 * PAUSE_S + 1)
    news.accept(*(text or b"" for text in news.delivered))
    bench.wait(1)
    assert messages.total == 1 and bench.messages("a") == [b"4"]


def test_so_many_dead_letters_are_under_way_at_most() -> None:
    bench = DyingBench(NEWS)
    reader = bench.subscriber("e", "news", address=NEWS, credit=0)
    texts = [b"%d!2" % number for number in range(2 * MOST_OPEN)]
    for first in range(0, len(texts), 10):
        bench.fill(*texts[first : first + 10])
    bench.wait(3)
    assert bench.open == MOST_OPEN and len(bench.outbox()) == 2 * MOST_OPEN
    while bench.outbox():
        reader.grant(50)
        left = [text or b"" for text in reader.delivered if text not in reader.settled_messages]
        reader.accept(*left)
    assert reader.delivered == [text + b" died 1" for text in texts]


@pytest.mark.parametrize("deletes", [False, True])
def test_an_operator_ends_what_no_address_takes(deletes: bool) -> None:
    bench, reader = rejected(b"1", address=NEWS)
    news = bench.subscriber("e", "news", address=NEWS)
    bench.wait(PAUSE_S + 1)
    assert news.delivered == [b"1 died 1"]
    last = bench.sets("a").state(SET).messages.last_of(bench.queue)
    assert last is not None
    bench.at("a").node.ask(Delete(QUEUE, bench.queue) if deletes else Purge(QUEUE, bench.queue, last))
    bench.collect("a")
    bench.flow()
    assert bench.outbox() == [] and news.settled_messages == [b"1 died 1"]
    reader.close()
    bench.wait(4 * PAUSE_S)
    assert len(news.delivered) == 1 and bench.is_at_rest(0 if deletes else 1)


def test_an_operator_ends_what_the_next_leader_is_about_to_publish() -> None:
    """Its link for the address is not answered yet, as a router has not acknowledged that."""
    bench, _ = rejected(b"1", address=NEWS)
    news = lasting_of(bench, NEWS, "e")
    bench.wait(PAUSE_S + 1)
    assert news.delivered == [b"1 died 1"]
    bench.stop("a")
    bench.hold("e", "b")
    while not bench.leaders():
        bench.wait(1)
    last = bench.sets("b").state(SET).messages.last_of(bench.queue)
    assert last is not None
    bench.at("b").node.ask(Purge(QUEUE, bench.queue, last))
    bench.collect("b")
    bench.flow()
    assert bench.outbox() == [] and bench.leaders() == ["b"]
    bench.let_go()
    assert news.delivered == news.settled_messages == [b"1 died 1"]
    news.answer_echo()
    assert bench.records() == {}


def test_dead_letters_go_back_where_they_came_from() -> None:
    bench, reader = rejected(b"1", b"2")
    state = bench.sets("a").state(SET)
    dead = state.get(DEAD)
    assert dead is not None
    runs = tuple(runs_of(state.messages.of(dead.id)))
    number = bench.at("b").node.ask(Retry(DEAD, dead.id, QUEUE, runs))
    bench.collect("b")
    bench.flow()
    answer = bench.at("b").answers[number]
    assert isinstance(answer, Done) and answer.count == 2
    assert bench.in_dead() == [] and reader.delivered[2:] == [b"1 died 1", b"2 died 1"]
    reader.accept(b"1 died 1", b"2 died 1")
    bench.wait(1)
    assert bench.is_at_rest(2)


def test_a_former_leader_publishes_no_dead_letter() -> None:
    bench = DyingBench(NEWS)
    news = lasting_of(bench, NEWS, "e")
    reader = plain(bench, "a", "t")
    bench.fill(b"1")
    for other in "bc":
        bench.part("a", other)
    reader.answer(REJECTED, b"1")
    bench.wait(ELECTED_S, *"bcde")
    assert news.delivered == [] and outbox_of(bench, "b") == 0


def test_settings_that_no_queue_can_have() -> None:
    bench = QueueBench(*"abc")
    node = bench.at("a").node
    for address, why in (
        (QUEUE, "which is the queue itself"),
        ("topic/*", "a pattern"),
        ("_sets/q0/in/queue/1", "inside a replica set"),
        ("_dynamic/7", "goes with its client"),
        ("", "1 to 255 bytes"),
        (7, "1 to 255 bytes"),
    ):
        with pytest.raises(ValueError, match=why):
            node.ask(Configure(QUEUE, bench.queue, bench.queue, QueueSettings.of({"dead_letter": address})))
    for number in (-1, "3", True):
        with pytest.raises(ValueError, match="expected a number from 0"):
            QueueSettings.of({"redeliveries": number})


# rules broken on purpose

BROKEN: list[Broken] = [
    (SetState, "_carry_out", "if proposal.binding:", "if False:",
     test_dead_letters_are_taken_whatever_the_limit_and_count),
    (QueuedMessages, "has_answered", "asked.binding + key", "key", test_a_queue_is_declared_by_its_first_dead_letter),
    (QueuedMessages, "free", "> settings.most_failed", ">= settings.most_failed",
     partial(test_message_that_failed_too_often_goes_to_the_outbox, 2)),
    (QueuedMessages, "reject", "self._not_purged(queue, self._there(queue, runs))", "self._there(queue, runs)",
     test_message_purged_at_a_consumer_is_no_dead_letter),
    (QueuedMessages, "published", "and letters[at].queue == queue", "", test_refused_dead_letter_stays_and_is_counted),
    (QueuedMessages, "retry", "self._free(queue, runs)", "self._there(queue, runs)",
     test_a_retry_takes_what_nobody_has),
    (QueuedMessages, "purge", "if at <= position]", "]", test_messages_in_the_outbox_go_with_their_queue_or_a_purge),
    (MessageRows, "send", "self.expiring.pop(position, (queue, 0))", "self.expiring[position]",
     test_expired_message_without_a_consumer_goes_to_the_outbox),
    (Letters, "send_outcomes", "and not is_for_nobody", "", test_a_topic_takes_dead_letters_if_somebody_is_there),
    (Letters, "send_outcomes", "(self._taken if is_taken else self._refused).append(record)",
     "self.node.topic.settle(self.stream, [record])", test_rejected_message_comes_to_the_queue_of_dead_letters),
    (Letters, "_publish", "self.node.topic.abort(self.stream, tag)", "pass",
     test_an_operator_ends_what_the_next_leader_is_about_to_publish),
    (Letters, "attach_as_leader", " if doubts else {}", " if not doubts else {}",
     test_a_dead_letter_that_a_majority_has_not_seen_published_comes_once),
    (Letters, "attach_as_leader", "self._come(life", "self._come(clock",
     test_a_dead_letter_that_a_majority_has_not_seen_published_comes_once),
    (LedSet, "take_over", "self._take_over_letters()", "pass", test_next_leader_settles_dead_letters_that_were_taken),
    (LedSet, "timed", "if not is_dead else None", "", test_expired_message_is_a_dead_letter_and_lives_on),
    (LedSet, "_count_taken_out", "state.messages.sendings", "0",
     test_rejected_message_comes_to_the_queue_of_dead_letters),
    (LedSet, "_take_more", "(self.dead_letters, *self.bound.values())", "self.bound.values()",
     test_a_full_set_takes_its_own_dead_letters),
    (Ingress, "_most", "self._binding == DEAD_LETTERS", "False",
     test_a_full_set_takes_its_own_dead_letters),
    (Ingress, "_most_messages", "self._binding == DEAD_LETTERS", "False",
     test_a_set_with_too_many_messages_takes_its_own_dead_letters),
    (Ingress, "is_at_its_limit", "self._messages.total", "self._messages.count", test_messages_in_the_outbox_count),
    (Letters, "outbox_changed", "self._withdraw(", "len(", partial(test_an_operator_ends_what_no_address_takes, True)),
    (Letters, "_ended", "heappush(self._paused, (self.node.now() + pause, position))", "pass",
     test_refused_dead_letter_is_sent_again_after_a_pause),
    (Letters, "_ended", "pause = min(", "pause = 0 and min(", test_refused_dead_letter_is_sent_again_after_a_pause),
    (Egress, "_rejects", ", added), Proposed", "), Proposed",
     partial(test_a_dead_letter_has_the_error_of_the_consumer_that_has_rejected_it, "d")),
    (QueuedMessages, "reject", "annotations=annotations[position]", "annotations=b''",
     partial(test_a_dead_letter_has_the_error_of_the_consumer_that_has_rejected_it, "a")),
    (Letters, "_publish", "count < MOST_OPEN and ", "", test_so_many_dead_letters_are_under_way_at_most),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
