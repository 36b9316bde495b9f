"""A delivery of a balanced address that a subscriber gives back rests before it is offered again (protocol 12.11)."""

from math import inf

import attrs
import pytest

from tests.topic.bench import LASTING, SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import NEWS, Pen, Reader
from topic.actions import Deliver, Drained, Redeliver
from topic.delivery.outcomes import DeliveryOutcome
from topic.settings import BALANCED, CLOSEST, BackOff

RELEASED, MODIFIED = DeliveryOutcome.RELEASED, DeliveryOutcome.MODIFIED
ACCEPTED, REJECTED = DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED
TWO_S = BackOff(2.0)


def work(*names: str, pauses: BackOff = TWO_S, kind: str = BALANCED) -> Bench:
    settings = attrs.evolve(SETTINGS, kinds=((NEWS, kind), ("", BALANCED)), pauses={NEWS: pauses})
    return Bench(*names, settings=settings)


def came(reader: Reader) -> list[bytes]:
    """The messages of all transfers to the subscriber, in order."""
    actions = [a for a in reader.bench.actions[reader.router] if isinstance(a, Deliver | Redeliver)]
    mine = [action for action in actions if action.link is reader]
    records = [one for a in mine for one in (a.records if isinstance(a, Deliver) else [a.record])]
    return [record.message for record in records if record.message is not None]


@pytest.mark.parametrize("kind", [BALANCED, CLOSEST])
@pytest.mark.parametrize("outcome", [RELEASED, MODIFIED])
@pytest.mark.parametrize("router", ["a", "b"])
def test_a_lone_subscriber_gets_again_what_it_gives_back_after_a_pause(
    router: str, outcome: DeliveryOutcome, kind: str
) -> None:
    bench = work("a", "b", kind=kind)
    reader, pen = reader_at(bench, router), pen_at(bench, "a")
    pen.send(b"1")
    reader.answer(outcome, b"1", failed=outcome is MODIFIED)
    assert came(reader) == [b"1"] and bench.cores["a"].deadline() == bench.now + 2
    bench.time(1.9)
    bench.flow()
    assert came(reader) == [b"1"]
    bench.time(0.1)
    bench.flow()
    assert came(reader) == [b"1", b"1"]
    reader.accept(b"1")
    assert pen.outcomes == {b"1": ACCEPTED}


def test_each_pause_is_longer_until_the_last_return_is_final() -> None:
    bench = work("a", pauses=BackOff(1.0, 4, 3.0))
    reader, pen = reader_at(bench, "a"), pen_at(bench, "a")
    pen.send(b"1")
    for pause in (1.0, 3.0):
        reader.answer(RELEASED, b"1")
        had = len(came(reader))
        bench.time(pause - 0.1)
        assert len(came(reader)) == had
        bench.time(0.1)
        assert len(came(reader)) == had + 1
    reader.answer(RELEASED, b"1")
    assert pen.outcomes == {b"1": REJECTED}


def test_other_deliveries_go_on_meanwhile() -> None:
    bench = work("a", "b")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1", b"2")
    reader.answer(RELEASED, b"1")
    pen.send(b"3")
    reader.accept(b"2", b"3")
    assert came(reader) == [b"1", b"2", b"3"]
    bench.wait(2)
    assert came(reader) == [b"1", b"2", b"3", b"1"]


def test_it_rests_for_all_also_for_who_comes_meanwhile() -> None:
    bench = work("a", "b")
    one, other, pen = reader_at(bench, "a", "one"), reader_at(bench, "b", "other"), pen_at(bench, "a")
    pen.send(b"1")
    one.answer(RELEASED, b"1")
    fresh = reader_at(bench, "b", "fresh")
    one.close()
    assert not came(other) and not came(fresh)
    bench.wait(2)
    assert came(other) + came(fresh) == [b"1"]


def test_what_one_refuses_for_itself_goes_to_another_at_once() -> None:
    bench = work("a", "b")
    one, other, pen = reader_at(bench, "a", "one"), reader_at(bench, "b", "other"), pen_at(bench, "a")
    pen.send(b"1")
    one.answer(MODIFIED, b"1", final=True)
    assert came(other) == [b"1"]


def test_what_one_goes_away_with_goes_to_another_at_once() -> None:
    bench = work("a", "b")
    one, other, pen = reader_at(bench, "a", "one"), reader_at(bench, "b", "other"), pen_at(bench, "a")
    pen.send(b"1")
    one.close()
    assert came(other) == [b"1"]


def test_it_is_rejected_during_its_rest_when_all_who_are_left_have_refused_it() -> None:
    bench = work("a")
    one, other, pen = reader_at(bench, "a", "one"), reader_at(bench, "a", "other", credit=0), pen_at(bench, "a")
    pen.send(b"1")
    one.answer(MODIFIED, b"1", final=True)
    other.grant(5)
    other.answer(RELEASED, b"1")
    other.close()
    assert pen.outcomes == {b"1": REJECTED}
    bench.wait(5)
    assert came(other) == [b"1"]


def test_with_nobody_left_it_waits_after_its_rest() -> None:
    bench = work("a", "b")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1")
    reader.answer(RELEASED, b"1")
    reader.close()
    bench.wait(5)
    fresh = reader_at(bench, "b", "fresh")
    assert came(fresh) == [b"1"]


def test_its_time_to_live_does_not_end_it_during_its_rest() -> None:
    bench = work("a")
    reader, pen = reader_at(bench, "a"), pen_at(bench, "a")
    pen.send(b"1", until=[1.0])
    reader.answer(RELEASED, b"1")
    bench.wait(2)
    assert came(reader) == [b"1", b"1"] and not pen.outcomes


def resting(bench: Bench) -> int:
    return sum(len(stream.resting) for core in bench.cores.values() for stream in core.home.streams.values())


def test_what_its_publisher_settles_or_leaves_rests_no_more() -> None:
    bench = work("a", "b")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1", b"2")
    reader.answer(RELEASED, b"1", b"2")
    assert resting(bench) == 2
    pen.settle(b"1")
    assert resting(bench) == 1
    pen.close()
    bench.wait(70)
    assert reader.delivered == [b"1", b"2"] and not reader.redelivered
    assert "a" not in bench.records() and not resting(bench) and bench.cores["a"].home.balancing.rests.due == inf


def again(bench: Bench, router: str, former: Pen, *tags: bytes) -> Pen:
    return pen_at(bench, router, former, unsettled=dict.fromkeys(tags, 0))


@pytest.mark.parametrize("router", ["a", "b"])
def test_the_next_home_of_its_publisher_offers_it_at_once(router: str) -> None:
    """The next home does not know of the return; the same router would know, and has the same rule."""
    bench = work("a", "b")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1")
    reader.answer(RELEASED, b"1")
    pen.vanish()
    back = again(bench, router, pen, b"1")
    if router == "a":
        back.send_again(b"1")
    else:
        back.send(b"1")
    assert came(reader) == [b"1", b"1"] and not resting(bench)
    reader.accept(b"1")
    assert back.outcomes == {b"1": ACCEPTED}


def test_it_is_offered_when_its_publisher_is_suspended() -> None:
    bench = work("a", "b")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1")
    reader.answer(RELEASED, b"1")
    pen.vanish()
    bench.wait(2)
    assert came(reader) == [b"1", b"1"]


def test_who_comes_with_it_in_its_map_goes_on_with_it() -> None:
    bench = work("a", "b", "c")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1")
    key = pen.sent[b"1"].key
    reader.answer(RELEASED, b"1")
    bench.kill("b")
    back = reader_at(bench, "c", unsettled={key: 0})
    assert back.resumed == [(b"1", 0, False)] and not resting(bench)
    bench.wait(5)
    assert len(back.resumed) == 1 and not came(back)


def test_a_drain_does_not_wait_for_it() -> None:
    bench = work("a", "b")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1")
    reader.answer(RELEASED, b"1")
    bench.tick("b").drain(reader.end)
    bench.flow()
    assert [action.left for action in reader.mine(Drained)] == [0]


def test_it_counts_against_the_window_of_its_publisher() -> None:
    bench = work("a")
    reader, pen = reader_at(bench, "a"), pen_at(bench, "a")
    messages = [bytes([65 + i]) for i in range(10)]
    pen.send(*messages)
    reader.answer(RELEASED, *messages)
    full = pen.stream.window.credit
    assert resting(bench) == 10
    bench.wait(2)
    reader.accept(*messages)
    pen.settle(*messages)
    assert (full, pen.stream.window.credit) == (0, 10)


def test_without_pauses_of_its_own_prefix_it_comes_again_at_once() -> None:
    bench = work("a")
    reader = bench.subscriber("a", address="other", lifetime=LASTING)
    pen = bench.publisher("a", address="other", lifetime=LASTING)
    pen.send(b"1")
    reader.answer(RELEASED, b"1")
    assert came(reader) == [b"1", b"1"]


def test_at_a_dynamic_node_it_comes_again_at_once() -> None:
    settings = attrs.evolve(SETTINGS, kinds=(("", BALANCED),), pauses={"": TWO_S})
    bench = Bench("a", settings=settings)
    reader, pen = bench.subscriber("a", address="_dynamic/a/x"), bench.publisher("a", address="_dynamic/a/x")
    pen.send(b"1")
    reader.answer(RELEASED, b"1")
    assert came(reader) == [b"1", b"1"]
