"""Publishers of a queue, through the ingress of its set: a message is accepted when a majority has it, and once.

a, b, c   voters of the set; a leads first
d         has no replica
"""

from functools import partial
from typing import Any

import pytest

from tests.topic.bench import pen_at
from tests.topic.clients import Pen, key_of
from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, QueueBench, with_patches
from tests.topic.queues.test_messages import (
    test_a_delivery_keeps_its_first_answer,
    test_a_key_is_of_another_delivery_later_on_the_same_attach,
)
from tests.topic.raft.mutants import Broken, must_notice
from topic.delivery.outcomes import DeliveryOutcome
from topic.identity import egress_address, ingress_address
from topic.queues.bodies.message_rows import MessageRows
from topic.queues.leader.ingress import TERM_BITS, Ingress, term_clock, term_with
from topic.queues.leader.leaders import LedSet
from topic.queues.messages import DeliveryAnswer, QueuedMessages
from topic.queues.replica import SetReplica
from topic.queues.state import SetState
from topic.raft.life import SetLife
from topic.raft.raft import Raft

ACCEPTED, REJECTED = DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED
ADDRESS = ingress_address(SET, QUEUE)
ALL = (b"1", b"2", b"3", b"4")


def publisher(bench: QueueBench, router: str, former: Pen | None = None, **options: Any) -> Pen:
    return pen_at(bench, router, former, address=ADDRESS, **options)


def unsettled(bench: QueueBench, router: str) -> list[bytes]:
    return bench.sets(router).state(SET).messages.unsettled.get(b"", [])


@pytest.mark.parametrize("router", ["a", "c", "d"])
def test_a_message_is_in_the_queue_at_all_replicas_when_it_is_accepted(router: str) -> None:
    bench = QueueBench(*"abcd")
    pen = publisher(bench, router)
    pen.send(*ALL)
    assert pen.outcomes == dict.fromkeys(ALL, ACCEPTED)
    for name in "abc":
        assert bench.messages(name) == [*ALL]
    pen.settle(*ALL)
    assert [unsettled(bench, name) for name in "abc"] == [[], [], []] and bench.records() == {}


def test_nothing_is_accepted_without_a_majority() -> None:
    bench = QueueBench(*"abc")
    pen = publisher(bench, "a")
    for other in "bc":
        bench.part("a", other)
    pen.send(b"1")
    bench.wait(20, "a")
    assert pen.outcomes == {}
    for other in "bc":
        bench.meet("a", other)
    bench.flow()
    bench.wait(ELECTED_S)
    assert pen.outcomes == {b"1": ACCEPTED}
    assert [bench.messages(name) for name in "abc"] == [[b"1"]] * 3


def test_nothing_is_accepted_before_it_is_on_the_disks_of_a_majority() -> None:
    bench = QueueBench(*"abc")
    pen = publisher(bench, "a")
    bench.hanging |= {"b", "c"}
    pen.send(b"1")
    assert pen.outcomes == {}
    bench.hanging.discard("b")
    bench.flow()
    assert pen.outcomes == {b"1": ACCEPTED}


@pytest.mark.parametrize("at", ["b", "d"])
def test_the_next_leader_goes_on(at: str) -> None:
    bench = QueueBench(*"abcd")
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
    assert unsettled(bench, bench.leader) == [] and bench.records() == {}


def test_all_routers_may_die_at_once() -> None:
    bench = QueueBench(*"abc")
    pen = publisher(bench, "a")
    pen.send(b"1", b"2")
    for name in "abc":
        bench.stop(name)
    for name in "abc":
        bench.start(name, 2)
    bench.wait(ELECTED_S + 15)
    assert bench.messages("a") == [b"1", b"2"]
    again = publisher(bench, "c", pen, unsettled={b"2": 0, b"3": 0})
    again.send(b"2", b"3")
    bench.wait(2)
    assert again.outcomes == {b"2": ACCEPTED, b"3": ACCEPTED}
    assert bench.messages(bench.leader) == [b"1", b"2", b"3"], "what came again is not enqueued again"


def test_a_tag_is_used_again_at_a_later_leader() -> None:
    bench = QueueBench(*"abcd")
    pen = publisher(bench, "d")
    pen.send(b"old", tags=[b"t"])
    pen.settle(b"old")
    bench.stop("a")
    bench.wait(ELECTED_S)
    pen.send(b"new", tags=[b"t"])
    assert bench.messages(bench.leader) == [b"old", b"new"]


def test_a_tag_is_used_again_while_no_leader_can_read_of_that() -> None:
    """The leader dies before it has the settlement on another disk than its own."""
    bench = QueueBench(*"abcd")
    pen = publisher(bench, "d")
    pen.send(b"old", tags=[b"t"])
    for other in "bc":
        bench.hold("a", other)
    pen.settle(b"old")
    pen.send(b"new", tags=[b"t"])
    bench.stop("a")
    bench.let_go()
    bench.wait(ELECTED_S)
    assert pen.outcomes == {b"t": ACCEPTED}
    assert [bench.messages(name) for name in "bc"] == 2 * [[b"old", b"new"]]
    pen.settle(b"new")
    bench.wait(2)
    assert unsettled(bench, "b") == [] and bench.records() == {}


def test_a_leader_that_was_given_up_answers_nothing() -> None:
    """Trap 23: it does not know it, it has contact with a home that does not know it either, and it has answered a
    delivery of the same key before."""
    bench = QueueBench(*"abcde")
    pen = publisher(bench, "e")
    pen.send(b"old", tags=[b"t"])
    for other in "bce":  # these notice that they have lost the leader, and it does not
        bench.lose(other, "a")
        bench.part("d", other)
    bench.wait(ELECTED_S, "b", "c", "e")
    assert sorted(bench.leaders()) in (["a", "b"], ["a", "c"])
    pen.settle(b"old")
    bench.wait(1, "b", "c", "e")
    again = publisher(bench, "d", pen, unsettled={})
    again.send(b"new", tags=[b"t"])
    bench.wait(10, "a", "d")
    assert again.outcomes == {}
    for other in "bce":
        bench.part("a", other)
        bench.meet("a", other)
        bench.meet("d", other)
    bench.flow()
    bench.wait(ELECTED_S)
    assert again.outcomes == {b"t": ACCEPTED}
    assert [bench.messages(name) for name in "abc"] == 3 * [[b"old", b"new"]]


def test_a_leader_that_was_given_up_answers_nothing_by_its_map() -> None:
    """Its map has a key that nobody could tell it anything of, and under which another message is in doubt now."""
    bench = QueueBench(*"abcde")
    pen = publisher(bench, "e")
    pen.send(b"old", tags=[b"t"])
    bench.part("b", "e")
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert bench.leader == "b"
    bench.lose("c", "b")
    for other in "ce":
        bench.part("d", other)
    bench.names = (*bench.names, "a")
    bench.boot("a", 2)
    for other in "ce":
        bench.meet("a", other)
    bench.wait(ELECTED_S, "a", "c", "e")
    assert sorted(bench.leaders()) in (["a", "b"], ["b", "c"])
    pen.settle(b"old")
    bench.wait(1, "a", "c", "e")
    again = publisher(bench, "d", pen, unsettled={b"t": 0})
    again.send(b"new", tags=[b"t"])
    bench.wait(10, "b", "d")
    assert again.outcomes == {}
    for other in "ace":
        bench.part("b", other)
        bench.meet("b", other)
        bench.meet("d", other)
    bench.flow()
    bench.wait(ELECTED_S)
    assert again.outcomes == {b"t": ACCEPTED}
    assert [bench.messages(name) for name in "abc"] == 3 * [[b"old", b"new"]]


def test_a_router_that_leads_again_knows_what_it_has_answered() -> None:
    bench = QueueBench(*"abc")
    pen = publisher(bench, "a")
    pen.send(b"1")
    for other in "bc":
        bench.part("a", other)
    bench.wait(1, "a")
    for other in "bc":
        bench.meet("a", other)
    bench.flow()
    bench.wait(ELECTED_S)
    assert bench.leader == "a"
    pen.send(b"2")
    pen.settle(b"1", b"2")
    bench.wait(2)
    assert bench.messages("b") == [b"1", b"2"] and unsettled(bench, "b") == [] and bench.records() == {}


def test_message_given_up_before_its_proposal_is_not_enqueued(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = QueueBench(*"abc")
    pen = publisher(bench, "a")
    with monkeypatch.context() as busy:
        busy.setattr(SetReplica, "propose", lambda self, proposals: None)
        pen.send(b"1", b"2")
        pen.settle(b"1")
    bench.wait(1)
    pen.send(b"3")
    assert pen.outcomes == {b"2": ACCEPTED, b"3": ACCEPTED}
    pen.settle(b"2", b"3")
    assert bench.messages("b") == [b"2", b"3"] and unsettled(bench, "b") == []


def test_a_queue_is_declared_with_its_first_message() -> None:
    bench = QueueBench(*"abcd", declares=False)
    pen = publisher(bench, "d")
    pen.send(b"1")
    assert pen.outcomes == {b"1": ACCEPTED}
    bench.queue = bench.declare(QUEUE)
    pen.send(b"2")
    assert pen.outcomes == {b"1": ACCEPTED, b"2": ACCEPTED} and bench.messages("b") == [b"1", b"2"]


def test_the_set_has_as_many_queues_as_it_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topic.queues.state.MOST_QUEUES", 1)
    bench = QueueBench(*"abc", declares=False)
    bench.declare("queue/other")
    pen = publisher(bench, "a")
    pen.send(b"1")
    assert pen.outcomes == {b"1": REJECTED}


@pytest.mark.parametrize("limit", [{"limit_messages": 2}, {"limit_bytes": 2}])
def test_a_queue_refuses_what_it_has_no_room_for(limit: dict[str, int]) -> None:
    bench = QueueBench(*"abcd", declares=False)
    bench.queue = bench.declare(QUEUE, **limit)
    pen = publisher(bench, "d")
    pen.send(b"1", b"2", b"3")
    pen.send(b"4", presettled=True)
    assert pen.outcomes == {b"1": ACCEPTED, b"2": ACCEPTED, b"3": REJECTED}
    assert bench.messages("b") == [b"1", b"2"]
    reader = bench.subscriber("d", "s", address=egress_address(SET, QUEUE))
    reader.accept(b"1")
    pen.send(b"5", b"6")
    assert pen.outcomes[b"5"] == ACCEPTED and pen.outcomes[b"6"] == REJECTED
    assert bench.messages("b") == [b"2", b"5"]


def test_settled_messages_are_enqueued_and_nothing_is_remembered() -> None:
    bench = QueueBench(*"abc")
    pen = publisher(bench, "c")
    pen.send(b"1", b"2", tags=[b"t", b"t"], presettled=True)
    assert bench.messages("a") == [b"1", b"2"] and unsettled(bench, "a") == []


def test_message_given_up_may_be_in_the_queue_and_is_not_remembered() -> None:
    bench = QueueBench(*"abc")
    pen = publisher(bench, "a")
    bench.hanging |= {"b", "c"}
    pen.send(b"1")
    pen.settle(b"1")
    bench.hanging.clear()
    bench.flow()
    assert bench.messages("a") in ([], [b"1"]) and unsettled(bench, "a") == []


def test_more_waits_than_a_leader_takes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topic.queues.leader.ingress.UNDECIDED", 100)
    bench = QueueBench(*"abc")
    pens = [publisher(bench, "abc"[number % 3], name=f"p{number}") for number in range(9)]
    bench.hanging |= {"b", "c"}
    for number, pen in enumerate(pens):
        for place in range(5):
            pen.send(bytes([number, place]) * 20)
    ingress = bench.at(bench.leader).node._leaders.led[SET].ingress  # type: ignore[union-attr]
    assert 0 < ingress._held < 300
    bench.hanging.clear()
    bench.flow()
    assert len(bench.messages("a")) == 45 and ingress._held == 0
    assert all(len(pen.outcomes) == 5 for pen in pens)


def test_messages_that_publishers_give_up_take_no_room_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery loses its message as it is settled, before its `Enqueue` is decided."""
    monkeypatch.setattr("topic.queues.leader.ingress.UNDECIDED", 100)
    bench = QueueBench(*"abc")
    pen = publisher(bench, "a")
    bench.hanging |= {"b", "c"}
    pen.send(b"1" * 100)
    pen.settle(b"1" * 100)
    bench.hanging.clear()
    bench.flow()
    pen.send(b"2")
    assert pen.outcomes == {b"2": ACCEPTED}


def test_the_clock_of_an_attach_grows_with_life_and_term() -> None:
    began = 1_700_000_000_000 << 16
    life, later = SetLife(began, "a"), SetLife(began + (3_600_000 << 16), "a")
    clocks = [term_clock(life, term, count) for term in (1, 2, 1000) for count in (0, 1, (1 << TERM_BITS) - 1)]
    assert clocks == sorted(set(clocks)) and clocks[-1] < term_clock(later, 1001, 0)
    assert [term_with(life, clock) for clock in clocks] == [1, 1, 1, 2, 2, 2, 1000, 1000, 1000]


def test_a_later_life_has_the_links_although_the_former_life_had_later_terms() -> None:
    """Router c hears of neither these terms nor the attaches of these leaders. Only router d remembers the attaches."""
    bench = QueueBench(*"abcd")
    bench.part_from_all("c")
    bench.sets("a").lead_anew(SET, 1000, bench.now)
    bench.wait(ELECTED_S, "a", "b", "d")
    for name in "ab":
        bench.stop(name)
    bench.sets("c").recover(SET, bench.now)
    bench.wait(ELECTED_S)
    assert bench.leader == "c"
    bench.meet_again("c")
    bench.wait(ELECTED_S)
    pen = publisher(bench, "d")
    pen.send(b"1")
    assert pen.outcomes == {b"1": ACCEPTED} and bench.leader == "c"


def test_leaders_of_two_lives_do_not_take_the_links_from_each_other_through_a_third_router() -> None:
    """Only router d, which has no replica, is in contact with a and c."""
    bench = QueueBench(*"abcd")
    pen = publisher(bench, "d")
    for router in "ab":
        bench.part(router, "c")
    bench.flow()
    bench.sets("c").recover(SET, bench.now)
    bench.wait(ELECTED_S)
    since = bench.sets("c").ready(SET)
    pen.send(b"1")
    bench.wait(ELECTED_S)
    assert bench.leaders() == ["c"] and bench.sets("c").ready(SET) == since
    assert pen.outcomes == {b"1": ACCEPTED} and bench.messages("c") == [b"1"]


def test_keys_are_those_of_the_publishers() -> None:
    bench = QueueBench(*"abc")
    pen = publisher(bench, "a")
    pen.send(b"1")
    assert unsettled(bench, "b") == [key_of(pen, b"1")]


# rules broken on purpose

BROKEN: list[Broken] = [
    (Ingress, "attach_as_leader", "dict.fromkeys(unsettled, 0)", "dict.fromkeys(unsettled, 0x24)",
     test_a_leader_that_was_given_up_answers_nothing_by_its_map),
    (Ingress, "attach_as_leader", "dict.fromkeys(unsettled, 0)", "{}", partial(test_the_next_leader_goes_on, "d")),
    (Ingress, "forget", "self._over.update", "len",
     partial(test_a_message_is_in_the_queue_at_all_replicas_when_it_is_accepted, "a")),
    (Ingress, "decided", "asked.size", "sum(record.size for record in records)",
     partial(with_patches, test_messages_that_publishers_give_up_take_no_room_for_ever)),
    (Ingress, "decided", "place in answer.refused", "False",
     partial(with_patches, test_the_set_has_as_many_queues_as_it_may_have)),
    (QueuedMessages, "_take", "queue is None or not settings", "queue is None or False and settings",
     partial(test_a_queue_refuses_what_it_has_no_room_for, {"limit_messages": 2})),
    (MessageRows, "delete", "rows.size -= size", "pass",
     partial(test_a_queue_refuses_what_it_has_no_room_for, {"limit_bytes": 2})),
    (SetState, "_queue_for", "not self.messages.has_answered(asked)", "True",
     test_a_delivery_keeps_its_first_answer),
    (SetState, "_queue_for", "if not is_there and", "if False and", test_a_queue_is_declared_with_its_first_message),
    (Ingress, "_propose", "if is_settled else", "if False else",
     test_settled_messages_are_enqueued_and_nothing_is_remembered),
    (LedSet, "_next_clock", "term_clock(*self.since, self._attaches)", "self._attaches",
     partial(test_the_next_leader_goes_on, "d")),
    (Ingress, "detach", "action.condition == STOLEN", "False",
     test_a_later_life_has_the_links_although_the_former_life_had_later_terms),
    (Raft, "_tell_of_latest_life", "known.life < latest", "latest < known.life",
     test_leaders_of_two_lives_do_not_take_the_links_from_each_other_through_a_third_router),
    (LedSet, "stolen", "term_with(self.since[0], latest)", "0",
     test_a_later_life_has_the_links_although_the_former_life_had_later_terms),
    (QueuedMessages, "enqueue", "= self._answers.get(asked.binding + key)", "= None",
     partial(test_the_next_leader_goes_on, "d")),
    (DeliveryAnswer, "is_for", "or place <= self.place", "or True",
     test_a_tag_is_used_again_while_no_leader_can_read_of_that),
    (DeliveryAnswer, "is_for", "attach != self.attach or", "",
     test_a_key_is_of_another_delivery_later_on_the_same_attach),
    (QueuedMessages, "enqueue", "known.attach < attach", "False",
     test_a_key_is_of_another_delivery_later_on_the_same_attach),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
