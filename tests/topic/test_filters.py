"""Filters of subscribers, at their routers (protocol 5, Filters)."""

import attrs

from tests.topic.bench import Bench, pen_at, reader_at
from tests.topic.clients import key_of
from topic.delivery.outcomes import DeliveryOutcome
from topic.edge.filters import Asked, NoLocal
from topic.journal import Event

ACCEPTED = DeliveryOutcome.ACCEPTED


@attrs.define(eq=False)
class Among:
    """Wants messages that begin with one of these letters, and remembers what it was asked."""

    letters: bytes
    asked: list[bytes] = attrs.Factory(list)
    cost: int = 1

    def read(self, message: bytes) -> bytes:
        return message

    def wants(self, content: bytes) -> bool:
        self.asked.append(content)
        return content[:1] in [self.letters[at : at + 1] for at in range(len(self.letters))]


def test_who_does_not_want_it_is_not_waited_for() -> None:
    bench = Bench("a", "b")
    pen, near, far = pen_at(bench, "a"), bench.subscriber("a", "near", wants=Among(b"r")), bench.subscriber("b", "far")
    pen.send(b"red", b"blue")
    assert near.delivered == [b"red"] and far.delivered == [b"red", b"blue"]
    far.accept(b"red", b"blue")
    assert pen.outcomes == {b"blue": ACCEPTED}
    near.accept(b"red")
    pen.settle(b"red", b"blue")
    assert bench.logged("a", Event.PASSED) == [key_of(pen, b"blue")] and bench.records() == {}


def test_what_nobody_wants_is_accepted() -> None:
    bench = Bench("a", "b")
    pen, far = pen_at(bench, "a"), bench.subscriber("b", wants=Among(b"r"))
    pen.send(b"blue")
    assert pen.outcomes == {b"blue": ACCEPTED} and far.delivered == []
    assert bench.logged("b", Event.PASSED) == [key_of(pen, b"blue")]


def test_subscribers_of_one_filter_share_its_answer_and_others_ask_none() -> None:
    bench, among = Bench("a"), Among(b"r")
    readers = [bench.subscriber("a", name, wants=among) for name in ("one", "two")]
    bench.publisher("a").send(b"red", b"blue", b"rose")
    assert [reader.delivered for reader in readers] == [[b"red", b"rose"]] * 2
    assert among.asked == [b"red", b"blue", b"rose"]


def test_presettled_messages_are_filtered() -> None:
    bench = Bench("a", "b")
    pen, far = pen_at(bench, "a"), bench.subscriber("b", wants=Among(b"r"))
    pen.send(b"red", b"blue", presettled=True)
    assert far.delivered == [b"red"]


def test_another_filter_applies_to_what_its_former_router_has_not_answered_for() -> None:
    bench = Bench("a", "b", "c")
    pen, near = pen_at(bench, "a"), bench.subscriber("b", "near")
    reader = reader_at(bench, "b", wants=Among(b"r"))
    pen.send(b"red", b"blue")
    assert reader.delivered == [b"red"]
    moved = reader_at(bench, "c", unsettled={}, wants=Among(b"b"))
    assert moved.delivered == [b"blue"]
    moved.accept(b"blue")
    near.accept(b"red", b"blue")
    assert pen.outcomes == {b"red": ACCEPTED, b"blue": ACCEPTED}


def test_what_the_map_names_is_given_whatever_the_filter_says() -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", wants=Among(b"r"))
    pen.send(b"red")
    bench.kill("b")
    moved = reader_at(bench, "c", unsettled={key_of(pen, b"red"): 0}, wants=Among(b"b"))
    assert reader.delivered == [b"red"] and moved.resumed == [(b"red", 0, False)]
    assert pen.outcomes == {} and bench.logged("c", Event.PASSED) == []


def test_who_is_suspended_is_not_waited_for_with_what_its_filter_leaves_out() -> None:
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", wants=Among(b"r"))
    bench.tick("b").suspend_subscriber(reader.end, reader, bench.now)
    bench.flow()
    pen.send(b"blue", b"red")
    assert pen.outcomes == {}, "it is told with what comes before it"
    bench.wait(1)
    assert pen.outcomes == {b"blue": ACCEPTED}, "or a little later"


def test_what_its_own_container_publishes_is_left_out_by_no_local() -> None:
    bench = Bench("a", "b")
    own, other = bench.publisher("a", "mine"), bench.publisher("a", "other")
    reader = bench.subscriber("b", "mine", wants=NoLocal("mine", "", None))
    far = bench.subscriber("b", "far")
    own.send(b"own")
    other.send(b"other")
    assert reader.delivered == [b"other"] and far.delivered == [b"own", b"other"]
    assert bench.logged("b", Event.PASSED) == [key_of(own, b"own")]
    far.accept(b"own")
    assert own.outcomes == {b"own": ACCEPTED}


def test_no_local_goes_together_with_another_filter() -> None:
    bench, among = Bench("a"), Among(b"r")
    own, other = bench.publisher("a", "mine"), bench.publisher("a", "other")
    both = bench.subscriber("a", "both", wants=NoLocal("mine", "", among))
    strangers = bench.subscriber("a", "strangers", wants=NoLocal("mine", "somebody", among))
    for pen in (own, other):
        pen.send(b"red", b"blue")
    assert both.delivered == [b"red"] and strangers.delivered == [b"red", b"red"], "of another user"


def test_what_the_map_names_of_its_own_is_given_all_the_same() -> None:
    bench = Bench("a", "b", "c")
    own = pen_at(bench, "a", name="mine")
    reader_at(bench, "b", "mine")
    own.send(b"red")
    bench.kill("b")
    moved = reader_at(bench, "c", "mine", unsettled={key_of(own, b"red"): 0}, wants=NoLocal("mine", "", None))
    assert moved.resumed == [(b"red", 0, False)]


def test_after_an_incomplete_map_the_filter_waits_for_the_next_attach() -> None:
    """The client may have what its map has no room for."""
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", unsettled={}, complete=False, wants=Among(b"r"))
    pen.send(b"blue")
    assert pen.outcomes == {}
    again = reader_at(bench, "b", unsettled={}, wants=Among(b"r"))
    assert reader.delivered == again.delivered == [] and pen.outcomes == {b"blue": ACCEPTED}


def test_what_the_filters_of_a_user_cost_counts_those_that_are_different() -> None:
    asked, red, blue = Asked(), Among(b"r", cost=3), Among(b"b", cost=4)
    for subscriber, user, wants in ((b"1", "ada", red), (b"2", "ada", red), (b"3", "bob", blue), (b"4", "ada", None)):
        asked.put(subscriber, user, wants)
    assert [asked.with_another("ada", wants) for wants in (red, blue)] == [3, 7]
    assert asked.with_another("bob", NoLocal("mine", "bob", None)) == 4, "it asks no message"
    assert asked.with_another("bob", NoLocal("mine", "bob", blue)) == 8, "it is asked once more"
    asked.put(b"1", "ada", blue)
    assert asked.with_another("ada", red) == 7
    for subscriber in (b"1", b"2", b"4", b"5"):
        asked.drop(subscriber)
    assert [asked.with_another(user, blue) for user in ("ada", "bob")] == [4, 4]


def test_a_router_knows_the_filters_of_all_whom_it_may_deliver_to() -> None:
    bench, red, other = Bench("a", "b"), Among(b"r", cost=3), Among(b"b", cost=0)
    asked = bench.stations["a"].node.topic.edge.delivery.asked
    reader = reader_at(bench, "a", wants=red)
    assert asked.with_another("", other) == 3
    bench.tick("a").suspend_subscriber(reader.end, reader, bench.now)
    assert asked.with_another("", other) == 3, "it may come back"
    reader_at(bench, "b", unsettled={}, wants=red)
    assert asked.with_another("", other) == 0
    reader_at(bench, "a", unsettled={}, wants=Among(b"b", cost=5))
    assert asked.with_another("", other) == 5
