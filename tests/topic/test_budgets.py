"""Who waits, and who does not, while too much is under way to a router (protocol 5, Budgets)."""

import attrs

from linkstate.mesh_actions import Full, Room
from tests.topic.bench import SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import NEWS, Pen
from topic.delivery.outcomes import DeliveryOutcome
from topic.wire.outgoing import FLUSH_BYTES
from topic.wire.segments import Segment

SIDE = "topic/side"


def full(bench: Bench, here: str, there: str) -> None:
    bench.stations[here].contacts.out.append(Full(there))
    bench.flow()


def room(bench: Bench, here: str, there: str) -> None:
    bench.stations[here].contacts.out.append(Room(there))
    bench.flow()


def received(pen: Pen) -> int:
    return len(pen.stream.records)


def test_what_is_for_a_full_router_waits_in_order_until_there_is_room() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    full(bench, "a", "b")
    pen.send(b"1", b"2")
    pen.send(b"3")
    assert (reader.delivered, pen.outcomes) == ([], {})
    room(bench, "a", "b")
    assert reader.delivered == [b"1", b"2", b"3"]
    reader.accept(b"1", b"2", b"3")
    assert set(pen.outcomes.values()) == {DeliveryOutcome.ACCEPTED}


def test_a_full_router_holds_up_no_other_topic() -> None:
    bench = Bench("a", "b", "c")
    bench.subscriber("b")
    side, pen = bench.subscriber("c", "side", address=SIDE), bench.publisher("a", "p", address=SIDE)
    full(bench, "a", "b")
    pen.send(b"1")
    assert side.delivered == [b"1"]


def test_who_joins_meanwhile_is_in_the_audience_of_what_waits() -> None:
    bench = Bench("a", "b", "c")
    bench.subscriber("b")
    pen = bench.publisher("a")
    full(bench, "a", "b")
    pen.send(b"1")
    late = bench.subscriber("c", "late")
    assert late.answered, "nothing of the attach waits"
    room(bench, "a", "b")
    assert late.delivered == [b"1"]


def test_a_router_that_is_lost_while_it_is_full_holds_up_nobody() -> None:
    bench = Bench("a", "b", "c")
    bench.subscriber("b")
    other, pen = bench.subscriber("c", "other"), bench.publisher("a")
    full(bench, "a", "b")
    pen.send(b"1")
    bench.part("a", "b")
    bench.flow()
    assert other.delivered == [b"1"]


def test_a_router_whose_breach_ends_its_contact_while_it_fills_up_holds_up_nobody_when_it_is_back() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    here = bench.stations["a"]
    here.note = lambda happening: None  # type: ignore[method-assign]
    here.contacts.received("b", b"no batch")
    full(bench, "a", "b")
    bench.part("a", "b")
    bench.meet("a", "b")
    bench.flow()
    pen.send(b"1")
    assert reader.delivered == [b"1"]


def test_publishers_that_wait_go_on_in_turn_a_batch_at_a_time() -> None:
    """The router is full again after a batch of the first."""
    bench = Bench("a", "b", settings=attrs.evolve(SETTINGS, piece=FLUSH_BYTES))
    bench.subscriber("b")
    pens = [bench.publisher("a", name) for name in ("p", "q")]
    full(bench, "a", "b")
    home = bench.cores["a"].home.publishing
    half = b"." * (FLUSH_BYTES // 2)
    for pen in pens:
        home.publish(pen.stream, [b"1", b"2", b"3"], [half] * 3, presettled=False)
    home.room("b")
    taken = []
    while bench.cores["a"].forward_withheld():
        taken.append([received(pen) for pen in pens])
    assert taken == [[2, 0], [2, 2], [3, 2], [3, 3]]


def test_what_waited_goes_on_as_one() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    full(bench, "a", "b")
    pen.send(b"1")
    pen.send(b"2", b"3")
    bench.said.clear()
    room(bench, "a", "b")
    assert [kind for _, _, kind in bench.said] == [Segment.FORWARD]
    assert reader.delivered == [b"1", b"2", b"3"]


def test_what_waited_goes_on_in_order_whatever_it_is() -> None:
    """A small one, a presettled one, a large one, one that uses a tag again, and one whose time is over meanwhile."""
    bench = Bench("a", "b", settings=attrs.evolve(SETTINGS, piece=10))
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    full(bench, "a", "b")
    pen.send(b"1")
    pen.send(b"2", presettled=True)
    pen.send(large := b"3" * 30, tags=[b"3"])
    pen.send(b"4", b"5")
    pen.send(b"again", tags=[b"1"])
    pen.send(b"6", until=[5.0])
    pen.send(b"7")
    bench.wait(6)
    room(bench, "a", "b")
    assert reader.delivered == [b"1", b"2", large, b"4", b"5"], "the tag of the first is not free"
    assert bench.records()["b"] == 4, "nobody answers what is presettled"
    reader.accept(b"1")
    pen.settle(b"1")
    bench.wait(1)
    assert reader.delivered[5:] == [b"again"]
    pen.settle(b"6")
    assert reader.delivered[6:] == [b"7"]
    waiting = (b"3", b"4", b"5", b"1", b"7")
    reader.accept(large, b"4", b"5", b"again", b"7")
    assert [pen.outcomes[tag] for tag in waiting] == [DeliveryOutcome.ACCEPTED] * 5


def test_what_somebody_may_have_does_not_go_on_with_what_is_new() -> None:
    """At a balanced address: that waits for who may have it, who is lost."""
    for sent in (b"2", b"1"), (b"1", b"2"):
        bench = Bench("a", "b", "c", settings=attrs.evolve(SETTINGS, kinds=((NEWS, "balanced"),)))
        pen, holder = pen_at(bench, "c"), reader_at(bench, "c", "holder", credit=1)
        other = reader_at(bench, "b", "other")
        pen.send(b"1")
        assert holder.delivered == [b"1"]
        bench.kill("c")
        again = pen_at(bench, "a", pen, unsettled={b"1": 0})
        full(bench, "a", "b")
        for message in sent:
            again.send(message)
        room(bench, "a", "b")
        assert other.delivered == [b"2"]


def test_somebody_who_asked_about_the_second_of_them_is_answered_first() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a", lively=False)
    full(bench, "a", "b")
    pen.send(b"1", b"2")
    bench.tick("a").home.liveness.question(pen.stream, ("b", [pen.sent[b"2"].key]))
    room(bench, "a", "b")
    assert reader.delivered == [b"1"]
    pen.answer_echo()
    assert reader.delivered == [b"1", b"2"]


def test_status_says_which_router_a_publisher_waits_for() -> None:
    bench = Bench("a", "b")
    bench.subscriber("b")
    pen = bench.publisher("a")
    publishing = bench.cores["a"].home.publishing
    assert publishing.awaited_routers(pen.stream) == []
    full(bench, "a", "b")
    pen.send(b"1")
    assert publishing.awaited_routers(pen.stream) == ["b"]
    room(bench, "a", "b")
    assert publishing.awaited_routers(pen.stream) == []
