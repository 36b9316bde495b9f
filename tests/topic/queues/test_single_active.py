"""One consumer of a queue gets all messages until it has ended (protocol 14.14)."""

from typing import Any
from unittest.mock import patch

import pytest

from tests.topic.clients import Pen
from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, QueueBench
from tests.topic.queues.test_bodies import answer, hold_reads
from tests.topic.queues.test_egress import ADDRESS, lasting, plain
from tests.topic.queues.test_ingress import publisher as publisher_at
from tests.topic.raft.mutants import Broken, must_notice
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import HomeStream
from topic.directory.entry import Lifetime
from topic.home.balancing import Balancing
from topic.queues import replica
from topic.queues.leader.egress import Egress
from topic.queues.leader.leaders import LedSet

AWAY = Lifetime(timeout=5, policy="connection-close")


def filled(*messages: bytes, single_active: bool = True, **options: Any) -> tuple[QueueBench, Pen]:
    """A queue with these messages, which are settled."""
    bench = QueueBench(*"abcde", **options)
    bench.configure(QUEUE, single_active=single_active or None)
    pen = publisher_at(bench, "e")
    for message in messages:
        pen.send(message)
    pen.settle(*messages)
    return bench, pen


@pytest.mark.parametrize("kind", [plain, lasting])
@pytest.mark.parametrize("router", ["a", "d"])
def test_the_others_wait_until_the_active_consumer_has_ended(router: str, kind: Any) -> None:
    bench, pen = filled(b"1", b"2", b"3")
    active, other = kind(bench, router, credit=2), kind(bench, "e", "t")
    pen.send(b"4")
    assert (active.delivered, other.delivered) == ([b"1", b"2"], [])
    active.accept(b"1", b"2")
    pen.send(b"5")
    assert other.delivered == [], "the active one gives no credit"
    active.grant(1)
    assert (active.delivered, other.delivered) == ([b"1", b"2", b"3"], [])
    active.close()
    assert other.delivered == [b"3 failed 1", b"4", b"5"]


def test_the_next_consumer_gets_what_the_active_one_has_left() -> None:
    bench, _ = filled(b"1", b"2")
    active, other = plain(bench, "d", credit=0), plain(bench, "e", "t")
    assert other.delivered == []
    active.close()
    assert other.delivered == [b"1", b"2"]


def test_the_next_consumer_waits_until_all_is_decided_that_the_active_one_had() -> None:
    """Else messages that come back would follow later ones."""
    bench, pen = filled(b"1", b"2")
    active, other = plain(bench, "d", credit=2), plain(bench, "e", "t")
    bench.hanging |= {"b", "c"}
    active.answer(DeliveryOutcome.RELEASED, b"2")
    active.accept(b"1")
    active.close()
    pen.send(b"3")
    assert other.delivered == []
    bench.hanging.clear()
    bench.flow()
    assert other.delivered == [b"2", b"3"]


def test_the_next_consumer_gets_what_waits_at_the_home_when_all_is_decided() -> None:
    """The active one has no room for it any more, and has accepted all that it has got."""
    bench, pen = filled(b"1")
    active, other = plain(bench, "d", credit=2), plain(bench, "e", "t")
    bench.hold("d", "a")
    active.grant(0)
    pen.send(b"2")
    bench.let_go()
    bench.hanging |= {"b", "c"}
    active.accept(b"1")
    active.close()
    assert other.delivered == []
    bench.hanging.clear()
    bench.wait(1)
    assert other.delivered == [b"2"]


def test_returned_message_goes_before_messages_that_wait_at_the_home() -> None:
    """Also if the next consumer has room for one message only."""
    bench, pen = filled(b"1")
    active, other = plain(bench, "d", credit=2), plain(bench, "e", "t", credit=1)
    bench.hold("d", "a")
    active.grant(0)
    pen.send(b"2")
    bench.let_go()
    active.close()
    assert other.delivered == [b"1 failed 1"]
    other.grant(1)
    assert other.delivered == [b"1 failed 1", b"2"]


def test_messages_at_the_home_do_not_wait_for_messages_that_are_gone() -> None:
    """The time of the first message is over before there is room for it."""
    bench, pen = filled(b"1!3")
    active = plain(bench, "d", credit=2)
    bench.hold("d", "a")
    active.grant(0)
    pen.send(b"2")
    bench.let_go()
    active.answer(DeliveryOutcome.RELEASED, b"1!3")
    bench.wait(5)
    active.grant(1)
    assert active.delivered == [b"1!3", b"2"]


def test_the_consumer_that_attached_first_is_the_next() -> None:
    bench, pen = filled()
    first, late, early = plain(bench, "b"), plain(bench, "d", "u", credit=0), plain(bench, "e", "t")
    first.close()
    late.grant(9)
    pen.send(b"1")
    assert (late.delivered, early.delivered) == ([b"1"], [])


def test_a_consumer_that_is_away_stays_the_active_one_until_its_timeout_is_over() -> None:
    bench, pen = filled()
    active = bench.subscriber("d", "s", address=ADDRESS, lifetime=AWAY)
    other = plain(bench, "e", "t")
    active.vanish()
    pen.send(b"1")
    assert other.delivered == []
    bench.wait(AWAY.timeout + 1)
    assert other.delivered == [b"1"]


def test_a_consumer_that_lapses_is_the_active_one_no_more() -> None:
    """It held nothing, and its router is out of reach longer than its timeout."""
    bench, pen = filled()
    bench.subscriber("d", "s", address=ADDRESS, lifetime=AWAY)
    other = plain(bench, "e", "t")
    bench.stop("d")
    pen.send(b"1")
    assert other.delivered == []
    bench.wait(AWAY.timeout + 2)
    assert other.delivered == [b"1"]


def test_a_consumer_that_moves_stays_the_active_one() -> None:
    bench, pen = filled()
    active, other = lasting(bench, "d"), plain(bench, "e", "t")
    active.vanish()
    again = lasting(bench, "b", unsettled={}, seen=active.end.epoch)
    pen.send(b"1")
    assert (again.delivered, other.delivered) == ([b"1"], [])


def test_a_consumer_with_messages_stays_the_active_one_when_the_leader_changes() -> None:
    """It has moved, so the other consumer attached before it."""
    bench, pen = filled(b"1", b"2")
    active, other = lasting(bench, "d", credit=1), plain(bench, "e", "t")
    key = active.handed[0][0].key
    active.vanish()
    again = lasting(bench, "b", unsettled={key: 0}, seen=active.end.epoch, credit=2)
    bench.stop("a")
    for voter in "bc":
        bench.hold("d", voter)
    bench.wait(ELECTED_S)
    other.grant(1)
    bench.let_go()
    pen.send(b"3")
    assert other.delivered == [] and again.delivered == [b"2"]


def test_the_next_leader_serves_nobody_else_while_a_consumer_has_a_message() -> None:
    bench, _ = filled(b"1", b"2")
    active, other = lasting(bench, "d", credit=1), plain(bench, "b", "t")
    bench.stop("a")
    for voter in "bc":
        bench.hold("d", voter)
    bench.wait(ELECTED_S)
    bench.let_go()
    assert bench.leader == "b"
    assert (active.delivered, other.delivered) == ([b"1"], [])
    [entry] = bench.sets("b").state(SET).messages.reserved.consumers
    assert entry.name == active.end.name, "nothing is reserved for the other one"
    active.close()
    assert other.delivered == [b"1 failed 1", b"2"]


def test_the_next_leader_serves_nobody_else_before_it_has_read_what_a_consumer_has() -> None:
    """The consumer has moved, so the other one attached before it."""
    with patch.object(replica, "KEPT_BODIES", -1):
        bench, pen = filled(b"1", b"2", b"3", b"4", compare_every=2)
        active, other = lasting(bench, "d", credit=1), plain(bench, "e", "t", credit=0)
        key = active.handed[0][0].key
        active.vanish()
        again = lasting(bench, "d", unsettled={key: 0}, seen=active.end.epoch, credit=2)
        held = {voter: hold_reads(bench, voter) for voter in "bc"}
        bench.stop("a")
        bench.wait(ELECTED_S)
        other.grant(9)
        pen.send(b"5")
        for read in held[bench.leader]:
            answer(bench, bench.leader, read)
        assert other.delivered == [] and again.delivered == [b"2"]


def test_it_is_switched_on_while_two_consumers_have_messages() -> None:
    bench, pen = filled(b"1", b"2", single_active=False)
    one, other = plain(bench, "d", credit=1), plain(bench, "e", "t", credit=1)
    assert (one.delivered, other.delivered) == ([b"1"], [b"2"])
    bench.configure(QUEUE, single_active=True)
    one.grant(5)
    other.grant(5)
    pen.send(b"3")
    assert (one.delivered, other.delivered) == ([b"1"], [b"2"])
    one.accept(b"1")
    bench.wait(1)
    assert (one.delivered, other.delivered) == ([b"1"], [b"2", b"3"]), "it has a message, so it is the active one"


def test_it_is_switched_off() -> None:
    bench, _ = filled(b"1", b"2", b"3")
    active, other = plain(bench, "d", credit=1), plain(bench, "e", "t")
    assert (active.delivered, other.delivered) == ([b"1"], [])
    bench.configure(QUEUE, single_active=None)
    assert other.delivered == [b"2", b"3"]


def test_message_that_the_active_consumer_refuses_for_itself_waits() -> None:
    bench, _ = filled(b"1", b"2")
    active, other = plain(bench, "d", credit=1), plain(bench, "e", "t")
    active.answer(DeliveryOutcome.MODIFIED, b"1", final=True)
    active.grant(1)
    assert (active.delivered, other.delivered) == ([b"1", b"2"], [])
    active.accept(b"2")
    active.close()
    assert other.delivered == [b"1"]


BROKEN: list[Broken] = [
    (Balancing, "_served", "if stream.served not in there and there:", "if there:",
     test_a_consumer_that_moves_stays_the_active_one),
    (Balancing, "_served", "(entry.epoch, entry.name)", "(entry.name, entry.epoch)",
     test_the_consumer_that_attached_first_is_the_next),
    (Balancing, "_served", "len(having) > 1 or ", "",
     test_it_is_switched_on_while_two_consumers_have_messages),
    (Balancing, "gone", "self._serve_next(stream, name)", "pass",
     test_the_next_consumer_gets_what_the_active_one_has_left),
    (Balancing, "lapsed", "self._serve_next(stream, subscriber.name)", "pass",
     test_a_consumer_that_lapses_is_the_active_one_no_more),
    (Balancing, "_served", " or not having <= there.keys()", "",
     test_the_next_consumer_gets_what_waits_at_the_home_when_all_is_decided),
    (HomeStream, "having", " | {*self.holders.values()}", "",
     test_the_next_leader_serves_nobody_else_before_it_has_read_what_a_consumer_has),
    (HomeStream, "having", "if one.chosen", "if False",
     test_it_is_switched_on_while_two_consumers_have_messages),
    (Egress, "_publish", "self.node.topic.serve_one(self.stream, only=serves_one)", "pass",
     test_it_is_switched_off),
    (Egress, "_publish", "self.stream.serve(None)", "pass",
     test_the_next_leader_serves_nobody_else_while_a_consumer_has_a_message),
    (Egress, "_publish", " or (serves_one and self.stream.served is None)", "",
     test_the_next_consumer_gets_what_waits_at_the_home_when_all_is_decided),
    (HomeStream, "next_ones", "gap is None or", "True or",
     test_returned_message_goes_before_messages_that_wait_at_the_home),
    (Egress, "_publish", " or is_gone", "",
     test_messages_at_the_home_do_not_wait_for_messages_that_are_gone),
    (LedSet, "follow", "egress.go_on()", "pass", test_it_is_switched_off),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
