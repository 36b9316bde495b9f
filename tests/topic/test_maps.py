"""What a client's unsettled map may name, and what our answer lists of that (protocol 6.1, 6.8, 7.2)."""

import pytest

from tests.topic.bench import Bench, key_of, pen_at, reader_at
from topic.delivery.outcomes import DeliveryOutcome


def test_a_map_that_names_what_can_be_no_delivery_of_its_address_resumes_nothing() -> None:
    bench = Bench("a", "b")
    elsewhere = pen_at(bench, "b", address="topic/other", lively=False)
    made_up = {b"no key": DeliveryOutcome.ACCEPTED, key_of(elsewhere, b"1"): DeliveryOutcome.ACCEPTED}
    reader = reader_at(bench, "a", unsettled=made_up)
    assert reader.map == {} and bench.records() == {}


def test_what_is_transferred_again_is_what_our_map_has_listed_and_once() -> None:
    bench = Bench("a")
    reader_at(bench, "a")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    again = pen_at(bench, "a", pen, unsettled={b"1": 0, b"2": 0})
    assert again.map == {b"1": 0}
    core = bench.tick("a")
    assert core.transferred_again(again.stream, b"2", aborted=False) is None
    assert core.transferred_again(again.stream, b"1", aborted=False) is not None
    assert core.transferred_again(again.stream, b"1", aborted=False) is None


def test_what_our_map_could_not_list_is_not_transferred_again() -> None:
    """1 is here, but the publisher has not named it; 2 is a placeholder."""
    bench = Bench("a")
    pen = pen_at(bench, "a", lively=False)
    reader_at(bench, "a", credit=0)
    pen.send(b"1")
    reader_at(bench, "a", unsettled={key_of(pen, b"2"): 0})
    again = pen_at(bench, "a", pen, unsettled={b"2": 0}, lively=False)
    assert again.map == {}
    for tag in (b"1", b"2"):
        assert bench.tick("a").transferred_again(again.stream, tag, aborted=False) is None


def test_what_is_abandoned_while_an_attach_waits_is_not_in_its_answer() -> None:
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


def test_what_has_its_outcome_by_a_map_is_answered_once() -> None:
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
