"""The life of a delivery (protocol 5): published, forwarded, delivered, accepted, settled, forgotten."""

import pytest

from tests.topic.bench import Bench, pen_at, reader_at
from tests.topic.clients import key_of
from topic.actions import AnswerDeliveries
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Lifetime
from topic.edge.delivery import BEHIND
from topic.journal import Event
from topic.wire.segments import Segment


def test_a_delivery_lives_from_publish_to_forget() -> None:
    bench = Bench("a", "b")
    near, far, pen = bench.subscriber("a", "near"), bench.subscriber("b", "far"), bench.publisher("a")
    pen.send(b"1", b"2")
    assert near.delivered == far.delivered == [b"1", b"2"]
    near.accept(b"1", b"2")
    assert pen.outcomes == {}, "accepted before the far subscriber accepted"
    far.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    far.accept(b"2")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED, b"2": DeliveryOutcome.ACCEPTED}
    assert near.settled == far.settled == []
    pen.settle(b"1", b"2")
    assert len(near.settled) == len(far.settled) == 2
    assert pen.credit == 2
    assert bench.records() == {}


def test_without_subscribers_a_delivery_is_accepted_at_once() -> None:
    pen = Bench("a", "b").publisher("a")
    pen.send(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_a_router_without_subscribers_of_the_address_hears_nothing() -> None:
    bench = Bench("a", "b")
    bench.subscriber("b", address="topic/other")
    bench.publisher("a").send(b"1")
    assert Segment.FORWARD not in [kind for _, _, kind in bench.said]


def test_what_not_all_accept_is_rejected_and_says_so() -> None:
    bench = Bench("a", "b")
    near, far, pen = bench.subscriber("a", "near"), bench.subscriber("b", "far"), bench.publisher("a")
    pen.send(b"1")
    near.accept(b"1")
    far.answer(DeliveryOutcome.REJECTED, b"1")
    [answer] = pen.mine(AnswerDeliveries)
    assert answer.outcome is DeliveryOutcome.REJECTED
    assert answer.description == "rejected by 1, released by 0, modified by 0 subscribers"


def test_a_released_delivery_comes_again_until_the_limit_and_then_counts_as_refused() -> None:
    bench = Bench("a")
    reader, pen = bench.subscriber("a"), bench.publisher("a")
    pen.send(b"1")
    for _ in range(3):
        reader.answer(DeliveryOutcome.RELEASED, b"1")
    assert reader.redelivered == [1, 2]
    assert pen.outcomes == {b"1": DeliveryOutcome.REJECTED}
    pen.settle(b"1")
    assert not reader.end.attempts


def test_modified_undeliverable_here_is_final_at_once() -> None:
    bench = Bench("a")
    reader, pen = bench.subscriber("a"), bench.publisher("a")
    pen.send(b"1")
    reader.answer(DeliveryOutcome.MODIFIED, b"1", final=True)
    assert (reader.redelivered, pen.outcomes) == ([], {b"1": DeliveryOutcome.REJECTED})


def test_a_released_delivery_that_its_publisher_settles_is_settled_at_the_subscriber() -> None:
    bench = Bench("a")
    reader, pen = bench.subscriber("a", credit=1), bench.publisher("a")
    pen.send(b"1")
    reader.answer(DeliveryOutcome.RELEASED, b"1")
    pen.settle(b"1")
    assert len(reader.settled) == 1
    reader.grant(5)
    assert reader.redelivered == []


def test_presettled_deliveries_are_dropped_without_credit_and_give_credit_back() -> None:
    bench = Bench("a", "b")
    willing, poor = bench.subscriber("b", "willing"), bench.subscriber("b", "poor", credit=0)
    pen = bench.publisher("a")
    pen.send(b"1", b"2", presettled=True)
    assert (willing.delivered, poor.delivered) == ([b"1", b"2"], [])
    assert (pen.credit, pen.outcomes, bench.records()) == (2, {}, {})


def test_a_tag_used_again_is_withheld_until_the_network_has_forgotten_it() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b"), pen_at(bench, "a")
    pen.send(b"1", tags=[b"t"])
    reader.accept(b"1")
    bench.hold("b", "a")
    pen.settle(b"1")
    pen.send(b"2", tags=[b"t"])
    pen.send(b"3", tags=[b"u"])
    assert reader.delivered == [b"1"]
    bench.let_go()
    assert reader.delivered == [b"1", b"2", b"3"]


@pytest.mark.parametrize("count", [2, 5])
def test_withheld_deliveries_settled_as_they_go_are_not_lost(count: int) -> None:
    """Receiver settle mode first: home settles at once, and the next one may be free right then."""
    bench = Bench("a")
    reader, pen = bench.subscriber("a"), bench.publisher("a", first=True)
    messages = [b"%d" % i for i in range(count)]
    pen.send(*messages, tags=[b"t"] * count)
    for message in messages:
        reader.accept(message)
    assert reader.delivered == messages
    assert (pen.stream.window.unsettled, bench.records()) == (0, {})


def test_an_edge_withholds_a_key_that_it_still_holds_from_an_earlier_contact() -> None:
    bench = Bench("a", "b")
    slow, pen = bench.subscriber("b"), bench.publisher("a")
    pen.send(b"1", tags=[b"t"])
    bench.hold("a", "b")
    pen.settle(b"1")  # it abandons it, and b hears nothing of that
    bench.part("a", "b")
    bench.meet("a", "b")
    bench.let_go()
    pen.send(b"2", tags=[b"t"])
    assert slow.delivered == [b"1"], "the key is in use on the subscriber's link"
    slow.accept(b"1")
    assert slow.delivered == [b"1", b"2"]
    slow.accept(b"2")
    pen.settle(b"2")
    assert bench.records() == {}


def test_a_publisher_that_settles_early_abandons_the_delivery() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b", credit=1), bench.publisher("a")
    pen.send(b"1", b"2")
    pen.settle(b"1", b"2")
    reader.grant(5)
    assert (reader.delivered, len(reader.settled)) == ([b"1"], 1)
    assert (pen.credit, bench.records()) == (2, {})


def test_what_is_settled_early_again_and_again_does_not_pile_up() -> None:
    bench = Bench("a")
    reader, pen = bench.subscriber("a", credit=0), bench.publisher("a")
    for i in range(1000):
        pen.send(b"%d" % i)
        pen.settle(b"%d" % i)
    assert reader.end.queued() < 200


def test_the_message_of_a_settled_delivery_is_there_until_the_shell_has_sent_it() -> None:
    """Forward and Settle of one delivery may arrive in one batch."""
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    bench.hold("a", "b")
    pen.send(b"1")
    pen.settle(b"1")
    bench.let_go()
    assert reader.delivered == [b"1"]


def test_an_outcome_repeated_in_one_batch_counts_once() -> None:
    bench = Bench("a", "b")
    pen = bench.publisher("a")
    bench.subscriber("b", sends_settled=True)
    pen.send(b"1", b"2")
    assert sum(len(answer.records) for answer in pen.mine(AnswerDeliveries)) == 2
    assert [kind for _, _, kind in bench.said].count(Segment.OUTCOME) == 1


def test_the_answer_to_an_older_echo_proves_nothing_of_later_settlements() -> None:
    bench = Bench("a")
    reader, pen = bench.subscriber("a", lifetime=Lifetime(60)), bench.publisher("a")
    for message in (b"1", b"2"):  # 1 is settled and asked about, which the outcome of 2 answers before the echo does
        pen.send(message)
        reader.accept(message)
        pen.settle(message)
    reader.answer_echo()
    assert bench.records() == {"a": 1}
    reader.answer_echo()
    assert bench.records() == {}


def test_a_redelivery_proves_nothing_by_the_outcome_that_led_to_it() -> None:
    bench = Bench("a")
    reader, pen = bench.subscriber("a", lifetime=Lifetime(60)), bench.publisher("a")
    pen.send(b"1", b"2")
    reader.accept(b"1")
    pen.settle(b"1")
    reader.answer(DeliveryOutcome.RELEASED, b"2")  # may have been sent before the client read that 1 is settled
    assert bench.records() == {"a": 2}
    reader.accept(b"2")
    assert bench.records() == {"a": 1}


def test_the_log_has_each_delivery_that_is_received_once_but_for_presettled_ones() -> None:
    bench = Bench("a", "b", "c")
    reader_at(bench, "b", "there")
    reader_at(bench, "c", "moving")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    pen.send(b"2", presettled=True)
    reader_at(bench, "b", "moving", unsettled={})  # so it is forwarded once more
    for router in ("a", "b"):
        assert bench.logged(router, Event.RECEIVED) == [key_of(pen, b"1")]


def test_the_log_has_an_outcome_that_a_map_states_once() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    stated = {key_of(pen, b"1"): DeliveryOutcome.ACCEPTED}
    for logged in ([key_of(pen, b"1")], []):
        reader_at(bench, "b", unsettled=stated)
        assert bench.logged("b", Event.OUTCOME) == logged


def test_the_log_tells_what_its_publisher_has_settled_from_what_it_left() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    pen.send(b"1", b"2")
    reader.accept(b"1")
    pen.settle(b"1")
    assert bench.logged("b", Event.SETTLED) == [key_of(pen, b"1")]
    pen.close()
    reader.accept(b"2")
    assert bench.logged("b", Event.ABANDONED) == [key_of(pen, b"2")]


def test_a_plain_subscriber_whose_connection_is_gone_is_gone_at_once() -> None:
    bench = Bench("a", "b")
    pen, reader = bench.publisher("b"), bench.subscriber("a")
    pen.send(b"1")
    bench.tick("a").suspend_subscriber(reader.end, reader, bench.now)
    bench.flow()
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_a_presettled_delivery_takes_with_it_what_waits_for_room() -> None:
    """Nobody sends it again: it is not dropped because its subscriber's connection is slow."""
    bench = Bench("a")
    reader, pen = bench.subscriber("a"), bench.publisher("a")
    reader.end.room = 1
    pen.send(b"1", b"2")
    assert reader.delivered == [b"1"]
    pen.send(b"3", presettled=True)
    assert reader.delivered == [b"1", b"2", b"3"]
    reader.end.room = -BEHIND
    pen.send(b"4", presettled=True)
    pen.send(b"5")
    assert reader.delivered == [b"1", b"2", b"3"]
    bench.tick("a").room(reader.end, 100)
    bench.flow()
    assert reader.delivered == [b"1", b"2", b"3", b"5"]
