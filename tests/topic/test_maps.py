"""What a client's unsettled map may name, and what our answer lists of that (protocol 6.1, 6.8, 7.2)."""

import pytest

from tests.topic.bench import LASTING, Bench, pen_at, reader_at
from tests.topic.clients import NEWS, key_of
from topic.delivery.outcomes import DeliveryOutcome
from topic.identity import KeyMaker, LinkIdentity, link_name
from topic.journal import Event
from topic.settings import Settings


def test_a_map_that_names_what_can_be_no_delivery_of_its_address_resumes_nothing() -> None:
    bench = Bench("a", "b")
    elsewhere = pen_at(bench, "b", address="topic/other", lively=False)
    made_up = {b"no key": DeliveryOutcome.ACCEPTED, key_of(elsewhere, b"1"): DeliveryOutcome.ACCEPTED}
    reader = reader_at(bench, "a", unsettled=made_up)
    assert reader.map == {} and bench.records() == {}


def test_publisher_transfers_again_once_what_our_map_lists() -> None:
    bench = Bench("a")
    reader_at(bench, "a")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    again = pen_at(bench, "a", pen, unsettled={b"1": 0, b"2": 0})
    assert again.map == {b"1": 0}
    core = bench.tick("a")
    assert core.transferred_again(again.stream, b"2") is None
    assert core.transferred_again(again.stream, b"1") is not None
    assert core.transferred_again(again.stream, b"1") is None


def test_resuming_publisher_abandons_deliveries_that_it_aborts() -> None:
    bench = Bench("a")
    reader_at(bench, "a")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    again = pen_at(bench, "a", pen, unsettled={b"1": 0})
    bench.logged("a", Event.ABANDONED)
    bench.tick("a").abort(again.stream, b"1")
    assert bench.logged("a", Event.ABANDONED) == [key_of(pen, b"1")]


def test_a_publisher_aborts_a_delivery_that_its_home_does_not_hold() -> None:
    """Its home asks the subscriber's router, which holds it, and settles it there."""
    bench = Bench("a", "b", "c")
    reader, pen = reader_at(bench, "c"), pen_at(bench, "a")
    pen.send(b"1")
    reader.accept(b"1")
    bench.kill("a")
    again = pen_at(bench, "b", pen, unsettled={b"1": 0})
    assert again.map == {} and reader.settled_messages == []
    bench.tick("b").abort(again.stream, b"1")
    bench.flow()
    assert reader.settled_messages == [b"1"]


def test_deliveries_that_our_map_omits_are_not_transferred_again() -> None:
    """1 is here, but the publisher has not named it; 2 is a placeholder."""
    bench = Bench("a")
    pen = pen_at(bench, "a", lively=False)
    reader_at(bench, "a", credit=0)
    pen.send(b"1")
    reader_at(bench, "a", unsettled={key_of(pen, b"2"): 0})
    again = pen_at(bench, "a", pen, unsettled={b"2": 0}, lively=False)
    assert again.map == {}
    for tag in (b"1", b"2"):
        assert bench.tick("a").transferred_again(again.stream, tag) is None


def test_answer_to_attach_lacks_deliveries_abandoned_meanwhile() -> None:
    bench = Bench("a", "b")
    first, pen = reader_at(bench, "a", "first", credit=0), pen_at(bench, "a", lively=False)
    pen.send(b"1")
    bench.hold("b", "a")  # so the attach is not answered yet
    reader = reader_at(bench, "a", unsettled={key_of(pen, b"1"): 0})
    pen.close()
    bench.let_go()
    assert reader.map == {} and bench.records() == {"a": 1}
    first.grant(1)
    assert first.delivered == [b"1"]


def test_delivery_with_outcome_from_a_map_is_answered_once() -> None:
    bench = Bench("a", "b")
    reader, other, pen = reader_at(bench, "b"), reader_at(bench, "a", "other"), pen_at(bench, "a")
    pen.send(b"1")
    again = reader_at(bench, "b", unsettled={key_of(pen, b"1"): DeliveryOutcome.ACCEPTED})
    bench.tick("b").outcomes(again.end, [record for record, _ in reader.handed], DeliveryOutcome.REJECTED)
    bench.flow()
    other.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    for core in bench.cores.values():
        core.check()


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_placeholder_stays_while_the_answer_of_another_attach_lists_it(is_answered: bool) -> None:
    bench = Bench("a", "b", "c")
    key = key_of(pen_at(bench, "a", lively=False), b"1")
    if not is_answered:
        bench.hold("b", "c")
    reader = reader_at(bench, "c", unsettled={key: 0})
    other = reader_at(bench, "c", "other", unsettled={key: 0})
    assert reader.answered is is_answered
    bench.cores["c"].edge.joined("a", reader.end, {})
    other.close()
    bench.let_go()
    assert reader.map == {key: 0} and bench.records() == {"c": 1}


def test_a_placeholder_ends_when_no_terminus_can_live_any_longer() -> None:
    bench = Bench("a", "b", settings=Settings(terminus=300.0))
    back = reader_at(bench, "b", unsettled={b"?" * 32: DeliveryOutcome.ACCEPTED})
    bench.time(1)
    bench.time(309)  # terminus, and what an attach of the publisher may wait
    assert not back.settled
    bench.time(2)
    assert [record.key for record in back.settled] == [b"?" * 32]


@pytest.mark.parametrize("router", ["a", "b"])
def test_after_an_incomplete_map_only_what_it_names_is_given(router: str) -> None:
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    pen.send(b"1", b"2", b"3")
    part = reader_at(bench, router, unsettled={key_of(pen, b"2"): 0}, complete=False)
    assert part.resumed == [(b"2", 0, False)] and part.delivered == []
    whole = reader_at(bench, router, unsettled={key_of(pen, b"2"): 0, key_of(pen, b"3"): DeliveryOutcome.ACCEPTED})
    assert whole.delivered == [b"1"] and (b"2", 0, False) in whole.resumed
    assert reader.delivered == [b"1", b"2", b"3"]


def test_a_map_that_names_what_is_abandoned_without_outcome_is_told_that_it_is_settled() -> None:
    bench = Bench("a")
    other, reader, pen = reader_at(bench, "a", "other"), reader_at(bench, "a"), pen_at(bench, "a")
    pen.send(b"1", b"2")
    pen_at(bench, "a")  # begins another life; what was sent is delivered still, and then forgotten
    again = reader_at(bench, "a", unsettled={key_of(pen, b"1"): 0, key_of(pen, b"2"): DeliveryOutcome.ACCEPTED})
    assert reader.delivered == [b"1", b"2"]
    assert again.map == {key_of(pen, b"2"): DeliveryOutcome.ACCEPTED}
    other.accept(b"1", b"2")
    for client in (other, again):
        client.answer_echo()
    assert bench.records() == {}


def test_settled_delivery_in_a_map_is_kept_until_the_answer_is_read() -> None:
    """It is kept for another subscriber, which goes: if its key were free, it might be a new message's."""
    bench = Bench("a", "b", "c")
    other, reader, pen = reader_at(bench, "a", "other"), reader_at(bench, "b"), pen_at(bench, "c")
    pen.send(b"1")
    for client in (other, reader):
        client.accept(b"1")
    pen.settle(b"1")
    bench.hold("b", "a")
    again = reader_at(bench, "a", unsettled={key_of(pen, b"1"): DeliveryOutcome.ACCEPTED})
    other.answer_echo()
    assert bench.records()["a"] == 1 and not again.answered
    bench.let_go()
    assert again.map == {}
    again.grant(1)
    for client in (reader, again):
        client.answer_echo()
    assert bench.records() == {}


def test_a_map_reaches_no_delivery_of_another_address() -> None:
    bench = Bench("a")
    reader, pen = reader_at(bench, "a"), pen_at(bench, "a")
    pen.send(b"1")
    stranger = reader_at(
        bench, "a", "stranger", address="topic/other", unsettled={key_of(pen, b"1"): DeliveryOutcome.REJECTED}
    )
    assert stranger.map == {}
    reader.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_placeholders_go_with_the_last_who_names_them() -> None:
    bench = Bench("a", "b")
    bench.kill("b")
    made_up = [bytes([65 + n]) * 32 for n in range(3)]
    for n in range(2):
        reader = reader_at(bench, "a", unsettled={made_up[n]: DeliveryOutcome.ACCEPTED, made_up[n + 1]: 0})
        assert reader.map == {made_up[n]: DeliveryOutcome.ACCEPTED, made_up[n + 1]: 0}
        assert bench.records() == {"a": 2}
    other = reader_at(bench, "a", "other", unsettled={made_up[1]: 0})
    reader.close()
    assert bench.records() == {"a": 1}
    other.close()
    assert bench.records() == {}


def test_a_placeholder_stays_for_who_waits_for_an_answer_though_home_has_joined_it() -> None:
    bench = Bench("a", "b", "c")
    key = key_of(pen_at(bench, "a", lively=False), b"1")
    bench.hold("b", "c")  # so the attaches are not answered yet
    reader = reader_at(bench, "c", unsettled={key: 0})
    other = reader_at(bench, "c", "other", unsettled={key: DeliveryOutcome.ACCEPTED})
    other.close()
    bench.let_go()
    bench.flow()
    assert reader.answered and reader.map == {key: 0}


def test_a_wrong_address_for_a_publisher_that_nobody_knows_hides_nothing_of_the_right_one() -> None:
    bench = Bench("a", "b")
    bench.kill("b")
    known = KeyMaker(link_name(LinkIdentity("p", "link", NEWS)), b"8 bytes.")
    one, another = known.key(b"1"), known.key(b"2")
    reader_at(bench, "a", "stranger", address="topic/other", unsettled={another: 0})
    reader = reader_at(bench, "a", unsettled={one: DeliveryOutcome.ACCEPTED})
    assert reader.map == {one: DeliveryOutcome.ACCEPTED}
    pen = bench.publisher("a", lifetime=LASTING, generation=b"8 bytes.", unsettled={b"1": 0})
    pen.send(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED} and reader.delivered == []
