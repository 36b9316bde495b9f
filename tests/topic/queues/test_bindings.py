"""Queues that are bound to topics: what is published to the topic is in the queue when it is accepted, once.

a, b, c   voters of the set; a leads first
d         has no replica
"""

import re
from functools import partial
from typing import Any

import attrs
import pytest

from tests.topic.bench import SETTINGS, pen_at
from tests.topic.clients import Pen
from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, QueueBench
from tests.topic.raft.mutants import Broken, must_notice
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Role
from topic.identity import LinkIdentity, egress_address, egress_of, ingress_of
from topic.queues.bound.bindings import Binding, Bindings, queue_of_binding, set_of_binding
from topic.queues.leader.ingress import Ingress
from topic.queues.leader.leaders import LedSet, SetLeaders
from topic.queues.messages import QueuedMessages
from topic.queues.operations import Answer, Configure, Declare, Delete, Done, Operation, QueueId, QueueSettings, Refused
from topic.queues.state import SetState
from topic.raft.life import SetLife

ACCEPTED, REJECTED = DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED
TOPIC, OTHER, PATTERN = "topic/orders", "topic/eu/x", "topic/eu/*"
ALL = (b"1", b"2", b"3", b"4")


@pytest.mark.parametrize("queue", [QUEUE, "queue", "queue/a on b", "queue/eu/1/2-3"])
@pytest.mark.parametrize("address", [TOPIC, PATTERN, "topic/a on b"])
def test_the_link_of_a_binding_names_its_set_and_its_queue(queue: str, address: str) -> None:
    link = Binding(QueueId(SetLife(7, "a"), 1), QueueId(SetLife(0x66A2F3C1B0001, "a"), 57), address).link(SET, queue)
    assert queue_of_binding(link) == (SET, queue) and set_of_binding(link) == SET


@pytest.mark.parametrize(
    "link", [ingress_of(SET), egress_of(SET, QUEUE), LinkIdentity("client", "q0/queue/1-2", TOPIC)]
)
def test_other_links_are_of_no_binding(link: LinkIdentity) -> None:
    assert queue_of_binding(link) is None and set_of_binding(link) is None


class BoundBench(QueueBench):
    """The queue is bound to these addresses, and d has no replica."""

    def __init__(self, *addresses: str, routers: str = "abcd", **settings: Any) -> None:
        super().__init__(*routers, declares=False)
        answer = self.ask(Declare(QUEUE, QueueSettings(bind=addresses or None, **settings)))
        assert isinstance(answer, Done), answer
        self.queue = answer.id

    def ask(self, operation: Operation) -> Answer:
        at = self.names[0]
        number = self.at(at).node.ask(operation)
        self.collect(at)
        self.flow()
        return self.at(at).answers[number]

    def known(self, router: str) -> list[str]:
        """The addresses of the bindings that the router knows."""
        entries = self.cores[router].directory.entries()
        found = [entry for entry in entries if set_of_binding(entry.identity) and entry.live]
        assert all(entry.role is Role.SUBSCRIBER for entry in found)
        return sorted(entry.identity.address for entry in found)

    def kept(self, router: str) -> int:
        """How many deliveries the set remembers."""
        return sum(map(len, self.sets(router).state(SET).messages.unsettled.values()))


def publisher(bench: QueueBench, router: str, address: str = TOPIC, former: Pen | None = None, **options: Any) -> Pen:
    return pen_at(bench, router, former, address=address, **options)


@pytest.mark.parametrize("router", ["a", "c", "d"])
def test_a_message_to_the_topic_is_in_the_queue_when_it_is_accepted(router: str) -> None:
    bench = BoundBench(TOPIC)
    reader = bench.subscriber("d", "s", address=TOPIC)
    pen = publisher(bench, router)
    pen.send(*ALL)
    assert pen.outcomes == {}, "another subscriber of the topic has not accepted"
    reader.accept(*ALL)
    assert pen.outcomes == dict.fromkeys(ALL, ACCEPTED)
    assert [bench.messages(name) for name in "abc"] == 3 * [[*ALL]]
    pen.settle(*ALL)
    assert [bench.kept(name) for name in "abc"] == [0, 0, 0] and bench.records() == {}
    consumer = bench.subscriber("d", "c", address=egress_address(SET, QUEUE))
    consumer.accept(*ALL)
    assert bench.messages("b") == []


def test_a_pattern_binds_all_topics_that_it_covers_in_order() -> None:
    bench = BoundBench(PATTERN)
    pens = [publisher(bench, "d", f"topic/eu/{name}", name=name) for name in "xy"]
    pens[0].send(b"1")
    pens[1].send(b"2")
    pens[0].send(b"3")
    publisher(bench, "d", "topic/us/x", name="z").send(b"4")
    assert bench.messages("b") == [b"1", b"2", b"3"]


def test_nothing_is_accepted_while_the_set_has_no_majority() -> None:
    bench = BoundBench(TOPIC)
    pen = publisher(bench, "d")
    bench.hanging |= {"b", "c"}
    pen.send(b"1")
    assert pen.outcomes == {}
    bench.stop("a")
    bench.stop("b")
    bench.wait(2 * ELECTED_S)
    assert pen.outcomes == {}, "nor while nobody leads"
    bench.hanging.clear()
    bench.start("b", 2)
    bench.wait(ELECTED_S + 15)
    assert pen.outcomes == {b"1": ACCEPTED} and bench.messages("b") == [b"1"]


def test_homes_wait_for_a_binding_that_only_their_disks_know() -> None:
    """All routers die, and the one that comes back has no replica."""
    bench = BoundBench(TOPIC)
    store = bench.stations["d"].store
    for name in "abcd":
        bench.stop(name)
    bench.names = ("d",)
    bench.boot("d", 2, store)
    bench.wait(400)
    pen = publisher(bench, "d")
    pen.send(b"1")
    bench.wait(400)
    assert bench.known("d") == [TOPIC] and pen.outcomes == {}


@pytest.mark.parametrize("at", ["b", "d"])
def test_the_next_leader_goes_on(at: str) -> None:
    bench = BoundBench(TOPIC)
    pen = publisher(bench, at)
    pen.send(b"1", b"2")
    pen.settle(b"1")
    bench.hanging |= {"b", "c"}
    pen.send(b"3")
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), ACCEPTED)
    bench.stop("a")
    bench.hanging.clear()
    bench.wait(ELECTED_S)
    pen.send(b"4")
    assert pen.outcomes == dict.fromkeys(ALL, ACCEPTED)
    assert bench.messages(bench.leader) == [*ALL]
    pen.settle(b"2", b"3", b"4")
    bench.wait(2)
    assert bench.kept(bench.leader) == 0 and bench.records() == {}


def test_a_publisher_resumes_after_its_router_and_leader_is_killed() -> None:
    bench = BoundBench(TOPIC)
    pen = publisher(bench, "a")
    pen.send(b"1", b"2")
    bench.hanging |= {"b", "c"}
    pen.send(b"3")
    bench.stop("a")
    bench.hanging.clear()
    bench.wait(ELECTED_S)
    again = publisher(bench, "d", former=pen, unsettled=dict.fromkeys(ALL[:3], 0))
    again.send(b"1", b"2", b"3", b"4")
    bench.wait(2)
    assert again.outcomes == dict.fromkeys(ALL, ACCEPTED)
    assert bench.messages(bench.leader) == [*ALL]


def test_two_bindings_of_one_queue_give_one_copy() -> None:
    """Also if a leader dies between, and the queues of one set have a copy each."""
    bench = BoundBench(PATTERN, OTHER)
    second = bench.ask(Declare("queue/2", QueueSettings(bind=(PATTERN,))))
    assert isinstance(second, Done)
    pen = publisher(bench, "d", OTHER)
    pen.send(b"1", b"2")
    bench.stop("a")
    bench.wait(ELECTED_S)
    pen.send(b"3")
    assert pen.outcomes == dict.fromkeys(ALL[:3], ACCEPTED)
    messages = bench.sets(bench.leader).state(SET).messages
    assert [*messages.of(bench.queue).values()] == [*messages.of(second.id).values()] == [b"1", b"2", b"3"]
    pen.settle(b"1", b"2", b"3")
    bench.wait(2)
    assert bench.kept(bench.leader) == 0


@pytest.mark.parametrize("left", [PATTERN, OTHER])
def test_one_of_two_bindings_goes(left: str) -> None:
    """Each has its answers, also to what came by the other one first, and to what its home has read no answer to."""
    bench = BoundBench(PATTERN, OTHER)
    pen = publisher(bench, "d", OTHER)
    bench.hold("a", "d")
    pen.send(b"1")
    bench.bind(QUEUE, left)
    bench.stop("a")
    bench.let_go()
    bench.wait(ELECTED_S)
    pen.send(b"2")
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), ACCEPTED) and bench.messages("b") == [b"1", b"2"]


def test_a_queue_is_bound_and_unbound() -> None:
    bench = BoundBench()
    pen = publisher(bench, "d")
    pen.send(b"1")
    bench.bind(QUEUE, TOPIC, PATTERN)
    pen.send(b"2")
    bench.bind(QUEUE, PATTERN)
    pen.send(b"3")
    bench.bind(QUEUE, TOPIC)
    pen.send(b"4")
    assert pen.outcomes == dict.fromkeys(ALL, ACCEPTED) and bench.messages("b") == [b"2", b"4"]
    assert [bench.known(name) for name in "abcd"] == 4 * [[TOPIC]]


def test_what_waits_for_the_majority_is_freed_as_the_queue_is_unbound() -> None:
    bench = BoundBench(TOPIC)
    consumer = bench.subscriber("d", "c", address=egress_address(SET, QUEUE))
    pen = publisher(bench, "d")
    queue = bench.sets("a").state(SET).get(QUEUE)
    assert queue is not None
    bench.hanging |= {"b", "c"}
    number = bench.at("a").node.ask(Configure(QUEUE, queue.id, queue.version, QueueSettings()))
    bench.collect("a")
    pen.send(b"1")
    assert pen.outcomes == {} and number not in bench.at("a").answers
    bench.hanging.clear()
    bench.flow()
    assert pen.outcomes == {b"1": ACCEPTED} and consumer.delivered == [] and bench.messages("b") == []
    publisher(bench, "d", former=pen).send(b"2")
    assert bench.kept("b") == 0


def test_a_binding_that_is_made_anew_has_none_of_the_old_answers() -> None:
    """Both are decided at once, and the leader dies before the home has read that it has answered a message."""
    bench = BoundBench(TOPIC)
    pen = publisher(bench, "d")
    bench.hold("a", "d")
    pen.send(b"1")
    queue = bench.sets("a").state(SET).get(QUEUE)
    assert queue is not None
    unbound = QueueId(queue.id.life, bench.sets("a")._replicas[SET].raft.log.last + 1)
    for version, addresses in ((queue.version, None), (unbound, (TOPIC,))):
        bench.at("a").node.ask(Configure(QUEUE, queue.id, version, QueueSettings(bind=addresses)))
    bench.flow()
    assert bench.kept("b") == 0 and bench.known("b") == [TOPIC]
    bench.stop("a")
    bench.let_go()
    bench.wait(ELECTED_S)
    pen.send(b"2")
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), ACCEPTED) and bench.messages("b") == [b"1", b"2"]


def test_a_new_binding_gets_nothing_that_was_published_before() -> None:
    bench = BoundBench()
    reader = bench.subscriber("d", "s", address=TOPIC)
    pen = publisher(bench, "d")
    pen.send(b"1")
    bench.bind(QUEUE, TOPIC)
    reader.accept(b"1")
    pen.settle(b"1")
    pen.send(b"2")
    reader.accept(b"2")
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), ACCEPTED) and bench.messages("b") == [b"2"]


def test_a_deleted_queue_is_bound_to_nothing() -> None:
    bench = BoundBench(TOPIC)
    pen = publisher(bench, "d")
    pen.send(b"1")
    assert isinstance(bench.ask(Delete(QUEUE, bench.queue)), Done)
    assert [bench.known(name) for name in "abcd"] == [[], [], [], []]
    pen.send(b"2")
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), ACCEPTED)
    assert not [*bench.sets("b").state(SET).rows]


def test_the_next_leader_ends_the_link_of_a_binding_that_is_gone() -> None:
    """The leader that decided so dies before it has told that to anybody."""
    bench = BoundBench(TOPIC)
    pen = publisher(bench, "d")
    for other in "bcd":
        bench.hold("a", other)
    queue = bench.sets("a").state(SET).get(QUEUE)
    assert queue is not None
    bench.at("a").node.ask(Configure(QUEUE, queue.id, queue.version, QueueSettings()))
    bench.collect("a")
    while bench.at("a").write():
        pass
    while bench.under_way("a", "b"):
        bench.step("a", "b")
    while bench.at("b").write():
        pass
    bench.stop("a")
    bench.let_go()
    bench.wait(2 * ELECTED_S)
    assert not bench.sets(bench.leader).state(SET).bindings
    pen.send(b"1")
    assert pen.outcomes == {b"1": ACCEPTED} and bench.known("d") == []


def test_a_link_that_a_returning_router_tells_of_is_ended() -> None:
    """d was away while the queue was unbound, and all others have been restarted since, so nobody remembers the end."""
    bench = BoundBench(TOPIC, routers="abcde")
    bench.part_from_all("d")
    bench.bind(QUEUE)
    bench.restart_all_but("d")
    assert bench.known("d") == [TOPIC]
    bench.meet_again("d")
    assert [bench.known(name) for name in "abcde"] == 5 * [[]]


def test_the_time_of_a_message_ends_in_a_bound_queue() -> None:
    bench = BoundBench(TOPIC, ttl_ms=2000)
    pen = publisher(bench, "d")
    pen.send(b"1")
    state = bench.sets("b").state(SET)
    assert [*state.messages.unsettled] == [binding.key for binding in state.bindings]
    assert bench.messages("b") == [b"1"] and len(state.messages.expiring) == 1
    pen.settle(b"1")
    assert bench.kept("b") == 0


def test_a_full_queue_refuses_for_all() -> None:
    bench = BoundBench(TOPIC, limit_messages=1)
    pen = publisher(bench, "d")
    pen.send(b"1", b"2")
    assert pen.outcomes == {b"1": ACCEPTED, b"2": REJECTED} and bench.messages("b") == [b"1"]


def test_settled_messages_are_enqueued_and_nothing_is_remembered() -> None:
    bench = BoundBench(TOPIC)
    publisher(bench, "c").send(b"1", presettled=True)
    assert bench.messages("a") == [b"1"] and bench.kept("a") == 0


@pytest.mark.parametrize("limit", ["FULL", "FULL_COUNT"])
def test_a_set_that_is_full_takes_more_when_there_is_room(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(f"topic.queues.leader.ingress.{limit}", 3)
    bench = BoundBench(TOPIC)
    pen = publisher(bench, "d")
    for message in ALL:
        pen.send(message)
    full = len(bench.messages("a"))
    assert full < len(ALL) and len(pen.outcomes) == full
    consumer = bench.subscriber("d", "c", address=egress_address(SET, QUEUE))
    for message in ALL:
        consumer.accept(message)
    assert pen.outcomes == dict.fromkeys(ALL, ACCEPTED)


@pytest.mark.parametrize(
    ("bind", "why"),
    [
        ([], "expected 1 to 16 addresses"),
        ("topic/x", "expected 1 to 16 addresses"),
        (["topic/x"] * 17, "expected 1 to 16 addresses"),
        ([7], "expected the address of a topic"),
        ([""], "expected the address of a topic"),
        (["x" * 256], "expected the address of a topic"),
        (["_sets/q0/in/queue/1"], "an address inside a replica set, expected a topic"),
        (["topic/#/x"], 'expected "#" as the last word only'),
    ],
)
def test_an_address_that_no_queue_can_be_bound_to_is_named(bind: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        QueueSettings.of({"bind": bind})


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("work/x", "which is of kind balanced, expected a topic"),
        ("queue/2", "which is of kind queue, expected a topic"),
        ("queue/*", "which is of kind queue, expected a topic"),
        ("_dynamic/x", "expected an address of topic/…"),
        ("#", "expected an address of topic/…"),
    ],
)
def test_a_queue_is_bound_to_topics_alone(address: str, why: str) -> None:
    kinds = ("topic/", "topic"), ("work/", "balanced"), ("queue/", "queue")
    bench = QueueBench("a", voters="a", settings=attrs.evolve(SETTINGS, kinds=kinds))
    for operation in (
        Declare("queue/2", QueueSettings(bind=(TOPIC, address))),
        Configure(QUEUE, bench.queue, bench.queue, QueueSettings(bind=(address,))),
    ):
        with pytest.raises(ValueError, match=f'bound to "{re.escape(address)}", {why}'):
            bench.at("a").node.ask(operation)
    bench.bind(QUEUE, TOPIC)


def test_a_set_has_as_many_bindings_as_it_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topic.queues.state.MOST_BINDINGS", 2)
    bench = BoundBench(TOPIC, PATTERN)
    refused = bench.ask(Declare("queue/2", QueueSettings(bind=(TOPIC,))))
    assert isinstance(refused, Refused) and "bindings" in refused.why
    bench.bind(QUEUE, TOPIC, OTHER)
    bench.bind(QUEUE, PATTERN)
    other = bench.ask(Declare("queue/2", QueueSettings(bind=(TOPIC,))))
    assert isinstance(other, Done)
    more = bench.ask(Configure("queue/2", other.id, other.version, QueueSettings(bind=(OTHER, TOPIC))))
    assert isinstance(more, Refused) and "bindings" in more.why


# rules broken on purpose

BROKEN: list[Broken] = [
    (LedSet, "_bind", "unsettled.get(binding.key, ())", "()", partial(test_the_next_leader_goes_on, "d")),
    (Ingress, "attach_as_leader", "None if is_new else", "", test_a_new_binding_gets_nothing_that_was_published_before),
    (LedSet, "take_over", "self._end_unbound()", "pass", test_the_next_leader_ends_the_link_of_a_binding_that_is_gone),
    (SetLeaders, "follow", "if is_told_more", "if False", test_a_link_that_a_returning_router_tells_of_is_ended),
    (Ingress, "__init__", "BOUND if queue else CONFIGURED", "CONFIGURED",
     test_homes_wait_for_a_binding_that_only_their_disks_know),
    (SetState, "_bind", "self.messages.forget(over.key)", "pass",
     test_a_binding_that_is_made_anew_has_none_of_the_old_answers),
    (SetState, "_enqueue_bound", "if one != binding", "if False", test_two_bindings_of_one_queue_give_one_copy),
    (SetState, "_enqueue_bound", "binding is None or", "False or",
     test_what_waits_for_the_majority_is_freed_as_the_queue_is_unbound),
    (QueuedMessages, "enqueue", "self._answers.get(asked.binding + key)", "self._answers.get(key)",
     partial(test_the_next_leader_goes_on, "d")),
    (QueuedMessages, "enqueue", "or known is not own", "", partial(test_one_of_two_bindings_goes, PATTERN)),
    (Bindings, "bind", "Binding(queue, since, address)", "Binding(queue, queue, address)",
     test_a_binding_that_is_made_anew_has_none_of_the_old_answers),
    (Ingress, "_propose", "_runs(kept), messages, binding=self._binding", "_runs(kept), messages",
     test_two_bindings_of_one_queue_give_one_copy),
    (Ingress, "_propose", "Settled([*self._over], self._binding)", "Settled([*self._over])",
     partial(test_the_next_leader_goes_on, "d")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
