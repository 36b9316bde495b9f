"""Publishers and subscribers that resume at another router, with their unsettled maps (protocol 6, 7 and 8)."""

import attrs
import pytest

from tests.store import MemoryStore
from tests.topic.bench import LASTING, SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import NEWS, Pen, Reader, key_of
from topic.actions import Deliver, Echo, Resume
from topic.delivery.outcomes import DeliveryOutcome
from topic.journal import Event
from topic.settings import BALANCED


def test_acceptance_at_a_dead_router_counts_and_nothing_is_sent_again() -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    pen.send(b"1", b"2")
    bench.kill("b")  # its outcomes with it
    assert not pen.outcomes, "it is awaited as an orphan"
    moved = reader_at(bench, "c", unsettled={key_of(pen, b"1"): DeliveryOutcome.ACCEPTED, key_of(pen, b"2"): 0})
    assert moved.map == {key_of(pen, b"1"): DeliveryOutcome.ACCEPTED, key_of(pen, b"2"): 0}
    assert moved.resumed == [(None, DeliveryOutcome.ACCEPTED, False), (b"2", 0, False)]
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    assert reader.delivered == [b"1", b"2"] and moved.delivered == []


def test_an_outcome_that_is_resumed_is_not_logged_as_one_more_transfer() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a")
    reader_at(bench, "b")
    pen.send(b"1", b"2")
    bench.kill("b")
    reader_at(bench, "c", unsettled={key_of(pen, b"1"): DeliveryOutcome.ACCEPTED, key_of(pen, b"2"): 0})
    assert bench.logged("c", Event.DELIVERED) == [key_of(pen, b"2")]


def test_a_publisher_resumes_at_another_router_and_nobody_gets_anything_twice() -> None:
    bench = Bench("a", "b", "c")
    near, far, pen = reader_at(bench, "b", "near"), reader_at(bench, "c", "far"), pen_at(bench, "a")
    pen.send(b"1", b"2")
    near.accept(b"1", b"2")
    bench.kill("a")
    again = pen_at(bench, "b", pen, unsettled={b"1": 0, b"2": 0})
    assert again.stream.generation == pen.stream.generation
    assert again.map == {b"1": 0, b"2": 0}, "b holds both"
    again.send_again(b"1", b"2")
    assert not again.outcomes, "far has not answered"
    far.accept(b"1", b"2")
    assert set(again.outcomes) == {b"1", b"2"}
    assert near.delivered == far.delivered == [b"1", b"2"]
    again.settle(b"1", b"2")
    assert far.settled_messages == [b"1", b"2"]


def test_deliveries_that_the_map_lacks_are_settled_everywhere() -> None:
    bench = Bench("a", "b", "c")
    reader, pen = bench.subscriber("c"), pen_at(bench, "a")
    pen.send(b"1", b"2")
    reader.accept(b"1")
    bench.kill("a")  # it knows of 1, and has settled it
    again = pen_at(bench, "b", pen, unsettled={b"2": 0})
    assert reader.settled_messages == [b"1"], "c asked about it"
    assert again.map == {}, "b has no subscriber, so it holds nothing"
    again.send(b"2")
    assert reader.delivered == [b"1", b"2"]


def test_nothing_of_a_lost_home_is_given_before_its_publisher_is_back() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "a")
    reader = reader_at(bench, "b", credit=0)
    pen.send(b"1", b"2")
    bench.kill("a")
    reader.grant(10)
    assert reader.delivered == []
    again = pen_at(bench, "b", pen, unsettled={b"1": 0, b"2": 0})
    again.send_again(b"1", b"2")
    assert reader.delivered == [b"1", b"2"]


def test_a_null_map_begins_another_life() -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1")
    fresh = bench.publisher("b", lifetime=LASTING)
    assert fresh.stream.generation != pen.stream.generation and fresh.map is None
    reader.accept(b"1")
    assert reader.settled_messages == [b"1"]


def test_a_subscriber_that_nobody_knows_is_awaited_for_what_is_in_doubt() -> None:
    bench = Bench("a", "b")
    bench.subscriber("a", "other")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    back = reader_at(bench, "b", unsettled={b"?" * 32: 0})
    assert back.delivered == [b"1"]
    assert back.map == {b"?" * 32: 0}, "a publisher that nobody knows may come back"
    new = reader_at(bench, "b", "new")
    assert new.delivered == [], "it has never been attached before"


def test_a_zombie_home_gives_nothing_and_calls_nothing_settled_without_evidence() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a", lively=False)
    reader_at(bench, "c")
    pen.send(b"1")
    bench.part("a", "c")
    bench.part("b", "c")
    moved = reader_at(bench, "b", unsettled={})
    assert moved.answered and moved.delivered == []
    pen.send(b"2")
    assert moved.delivered == [], "the publisher is gated until there is evidence"
    pen.answer_echo()
    assert moved.delivered == [b"1", b"2"]


def test_what_is_read_late_is_given_on_evidence_to_who_may_have_had_it_elsewhere() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "a", lively=False)
    here, there = reader_at(bench, "a", unsettled={}), reader_at(bench, "b", "t", unsettled={})
    fresh = reader_at(bench, "b", "u")
    pen.send(b"1")
    assert (here.delivered, there.delivered, fresh.delivered) == ([], [], [b"1"])
    pen.answer_echo()
    pen.answer_echo()
    assert (here.delivered, there.delivered) == ([b"1"], [b"1"])


def test_evidence_counts_from_the_last_attach_on() -> None:
    """The publisher may have gone elsewhere after the first, and so may the subscriber."""
    bench = Bench("a")
    pen = pen_at(bench, "a", lively=False)
    reader_at(bench, "a", unsettled={})
    again = reader_at(bench, "a", unsettled={})
    pen.send(b"1")
    pen.answer_echo()
    assert again.delivered == []
    pen.answer_echo()
    assert again.delivered == [b"1"]


@pytest.mark.parametrize("where", ["a", "b"])
def test_what_the_map_of_a_late_attach_lacks_may_have_been_sent_elsewhere_since(where: str) -> None:
    bench = Bench("a", "b", "c")
    reader, pen = reader_at(bench, where), pen_at(bench, "c")
    pen_at(bench, "c", pen, unsettled={}).send(b"1")  # the attach at a was on its way by then
    reader.accept(b"1")
    late = pen_at(bench, "a", pen, unsettled={}, lively=False)
    assert not reader.settled
    pen_at(bench, "c", pen, seen=late.stream.epoch, unsettled={b"1": 0}).send(b"1")
    assert reader.delivered == [b"1"]


@pytest.mark.parametrize("end", ["closed", "begun afresh", "expired"])
def test_what_waits_for_evidence_goes_with_the_life_of_its_publisher(end: str) -> None:
    """It was settled elsewhere, and is read late."""
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a", lively=False), reader_at(bench, "b")
    bench.part("a", "b")
    moved = pen_at(bench, "b", pen, unsettled={})
    moved.send(b"1")
    reader.accept(b"1")
    moved.settle(b"1")
    reader.answer_echo()
    if end == "closed":
        moved.close()
    elif end == "begun afresh":
        pen_at(bench, "b")
    else:
        bench.tick("b").suspend_publisher(moved.stream, moved, bench.now)
        bench.wait(64)
    again = reader_at(bench, "a", unsettled={})
    pen.send(b"1")
    bench.meet("a", "b")
    bench.flow()
    assert again.delivered == []


def test_who_is_learned_of_last_is_awaited_as_the_others_are() -> None:
    """One section says that one subscriber has closed, and that there is another."""
    bench = Bench("b", "c", "d")
    known, unknown = reader_at(bench, "b", "known"), reader_at(bench, "b", "unknown", credit=0)
    pen = pen_at(bench, "c")
    pen.send(b"1")
    known.accept(b"1")
    remembered = [entry for entry in bench.cores["d"].directory.entries() if entry.name == known.end.name]
    bench.kill("c")
    bench.kill("d")
    store = MemoryStore()
    store.save(remembered, 0)
    bench.boot("d", 2, store)
    bench.wait(11, "d")
    known.close()
    again = pen_at(bench, "d", pen, unsettled={b"1": 0})
    again.send(b"1")
    bench.meet("b", "d")
    bench.flow()
    assert not again.outcomes
    unknown.grant(1)
    unknown.accept(b"1")
    assert again.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def lost_and_sent_again_settled(unsettled: dict[bytes, int] | None, *, complete: bool = True) -> tuple[Pen, Reader]:
    """The reader has accepted 1, and its publisher, which has not heard that, sends it again settled at c."""
    bench = Bench("a", "b", "c")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1")
    reader.accept(b"1")
    bench.kill("a")
    again = pen_at(bench, "c", pen, unsettled=unsettled, complete=complete)
    again.send(b"1", presettled=True)
    return again, reader


@pytest.mark.parametrize(("unsettled", "complete"), [({b"1": 0}, True), ({}, False)])
def test_a_delivery_sent_again_settled_reaches_nobody_twice(unsettled: dict[bytes, int], complete: bool) -> None:
    again, reader = lost_and_sent_again_settled(unsettled, complete=complete)
    assert reader.delivered == [b"1"] == reader.settled_messages
    reader.answer_echo()
    assert again.bench.records().keys() == {"a"}, "which is dead"
    assert not again.outcomes


def test_a_delivery_sent_again_settled_gives_its_credit_back_when_all_have_answered() -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", credit=0)
    pen.send(b"1")
    bench.kill("a")
    again = pen_at(bench, "c", pen, unsettled={b"1": 0})
    again.send(b"1", presettled=True)
    reader.grant(1)
    assert reader.delivered == [b"1"] and again.credit == 0
    reader.accept(b"1")
    assert again.credit == 1 and not again.outcomes and reader.settled_messages == [b"1"]


def test_a_delivery_sent_again_settled_is_settled_though_its_publisher_has_gone() -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    pen.send(b"1")
    bench.kill("a")
    again = pen_at(bench, "c", pen, unsettled={b"1": 0})
    again.send(b"1", presettled=True)
    again.vanish()
    reader.accept(b"1")
    assert reader.settled_messages == [b"1"] == reader.delivered


def test_a_delivery_sent_again_settled_may_wait_for_one_before_it() -> None:
    """Its publisher uses the tag of a delivery again that the network still knows, and sends 2 behind that."""
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    pen.send(b"1", b"2")
    reader.accept(b"1", b"2")
    pen.settle(b"1")
    bench.kill("a")
    again = pen_at(bench, "b", pen, unsettled={b"2": 0})
    again.send(b"3", tags=[b"1"])
    again.send(b"2", presettled=True)
    assert reader.settled_messages == [b"1"], "3 waits for its key"
    reader.answer_echo()
    assert reader.delivered == [b"1", b"2", b"3"]
    assert reader.settled_messages == [b"1", b"2"]


def test_a_delivery_resumed_settled_goes_to_subscribers_that_have_not_had_it() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "a")
    reader = reader_at(bench, "b", credit=0)
    pen.send(b"1")
    bench.kill("a")
    again = pen_at(bench, "b", pen, unsettled={b"1": 0})
    assert bench.tick("b").transferred_again(again.stream, b"1", settled=True) is not None
    reader.grant(1)
    reader.accept(b"1")
    assert reader.delivered == [b"1"] == reader.settled_messages and not again.outcomes


def test_a_balanced_delivery_sent_again_settled_goes_to_one_that_has_room() -> None:
    bench = Bench("a", "b", "c", settings=attrs.evolve(SETTINGS, kinds=((NEWS, BALANCED),)))
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", credit=0)
    pen.send(b"1")
    bench.kill("a")
    again = pen_at(bench, "c", pen, unsettled={b"1": 0})
    again.send(b"1", presettled=True)
    reader.grant(1)
    assert reader.delivered == [b"1"]
    reader.accept(b"1")
    assert reader.settled_messages == [b"1"] and not again.outcomes


def test_a_delivery_sent_again_settled_is_resumed_for_a_subscriber_whose_map_names_it() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a")
    reader = reader_at(bench, "b")
    pen.send(b"1")
    bench.kill("a")
    bench.kill("b")
    back = reader_at(bench, "c", unsettled={key_of(pen, b"1"): 0})
    pen_at(bench, "c", pen, unsettled={b"1": 0}).send(b"1", presettled=True)
    assert back.resumed == [(b"1", 0, False)] and reader.delivered == [b"1"]
    (record,) = bench.cores["c"].records.by_key.values()
    bench.tick("c").outcomes(back.end, [record], DeliveryOutcome.ACCEPTED)
    bench.flow()
    assert back.settled == [record]
    back.answer_echo()
    assert not bench.cores["c"].records.by_key


def test_all_routers_die_and_their_stores_know_whom_to_wait_for() -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1")
    reader.accept(b"1")
    for name in "ab":
        bench.boot(name, 2, bench.stations[name].store)
    bench.meet("a", "b")
    bench.flow()
    back = pen_at(bench, "b", pen, unsettled={b"1": 0})
    back.send(b"1")
    assert not back.outcomes, "the subscriber is awaited"
    again = reader_at(bench, "a", unsettled={key_of(pen, b"1"): DeliveryOutcome.ACCEPTED})
    assert back.outcomes == {b"1": DeliveryOutcome.ACCEPTED} and again.delivered == []


def test_home_forgets_when_the_subscribers_know() -> None:
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    pen.send(b"1")
    reader.accept(b"1")
    pen.settle(b"1")
    assert bench.records() == {"a": 1, "b": 1} and len(reader.mine(Echo)) == 1
    pen.send(b"again", tags=[b"1"])
    assert reader.delivered == [b"1"], "its key is still taken"
    reader.answer_echo()
    assert reader.delivered == [b"1", b"again"]


def test_a_home_that_was_restarted_says_nothing_of_what_it_was_home_of_before() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "b")
    reader_at(bench, "c")
    pen.send(b"1")
    bench.kill("b")
    bench.boot("b", 2)
    moved = reader_at(bench, "a", unsettled={key_of(pen, b"1"): 0})
    other = reader_at(bench, "a", "other", unsettled={key_of(pen, b"1"): DeliveryOutcome.ACCEPTED})
    for router in "ac":
        bench.meet(router, "b")
    bench.flow()
    other.close()
    again = pen_at(bench, "c", pen, unsettled={b"1": 0})
    again.send_again(b"1")
    assert (moved.delivered, moved.resumed) == ([], [(b"1", 0, False)])


def test_released_delivery_comes_on_the_next_link() -> None:
    bench = Bench("a", "b", meet=False)
    reader, pen = reader_at(bench, "a", credit=1), pen_at(bench, "a")
    pen.send(b"1")
    reader.answer(DeliveryOutcome.RELEASED, b"1")
    moved = pen_at(bench, "b", pen, unsettled={b"1": 0})
    bench.meet("a", "b")
    bench.flow()  # b has joined the reader, and forwards nothing to it yet
    again = reader_at(bench, "a", unsettled={key_of(pen, b"1"): DeliveryOutcome.RELEASED})
    moved.send(b"1")
    assert again.resumed == [(b"1", 0, False)] and moved.outcomes == {}


def test_what_was_given_back_here_and_had_again_elsewhere() -> None:
    """A zombie custodian knows of the first time only: it is not to take it for given back."""
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    bench.subscriber("a", "slow", credit=0)
    pen.send(b"1")
    bench.part("a", "b")
    bench.part("b", "c")
    reader.answer(DeliveryOutcome.MODIFIED, b"1", final=True)
    moved = reader_at(bench, "c", unsettled={key_of(pen, b"1"): DeliveryOutcome.MODIFIED}, seen=reader.end.epoch)
    assert moved.resumed == [(b"1", 0, False)]
    back = reader_at(bench, "b", unsettled={key_of(pen, b"1"): 0}, seen=moved.end.epoch)
    assert back.map == {key_of(pen, b"1"): 0}
    bench.meet("a", "b")
    bench.meet("b", "c")
    bench.flow()
    assert back.resumed == [(b"1", 0, False)]
    held = bench.cores["b"].records.by_key[key_of(pen, b"1")]
    bench.tick("b").outcomes(back.end, [held], DeliveryOutcome.ACCEPTED)
    bench.flow()
    assert bench.cores["a"].records.by_key[key_of(pen, b"1")].refusals is None


def test_a_late_attach_whose_life_nobody_knows_settles_nothing_before_its_publisher_shows_that_it_is_there() -> None:
    """It says that the delivery is in doubt, and it may have sent that elsewhere since."""
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "a")
    pen.send(b"1")
    reader.accept(b"1")
    key = key_of(pen, b"1")
    bench = Bench("c", "d", meet=False)
    bench.wait(11)
    moved = reader_at(bench, "c", unsettled={key: DeliveryOutcome.ACCEPTED})
    late = bench.publisher("c", lifetime=LASTING, unsettled={b"1": 0}, lively=False)
    bench.wait(11)
    assert late.map is None and late.mine(Echo)
    assert key in bench.cores["c"].records.by_key and not moved.settled
    late.answer_echo()
    assert [record.key for record in moved.settled] == [key]


def test_the_end_of_a_delivery_that_waits_for_a_sign_of_life_is_told_once() -> None:
    """The subscriber names it, its publisher transfers it again, and closes before it has shown life."""
    bench = Bench("a")
    reader, pen = reader_at(bench, "a"), pen_at(bench, "a", lively=False)
    pen.send(b"1")
    reader.vanish()
    pen.vanish()
    again = pen_at(bench, "a", pen, unsettled={b"1": 0}, lively=False)
    here = reader_at(bench, "a", unsettled={key_of(pen, b"1"): 0}, credit=0)
    again.send_again(b"1")
    assert here.end.gated
    again.close()
    here.grant(10)
    assert len(here.mine(Resume)) == 1 and not here.mine(Deliver)
