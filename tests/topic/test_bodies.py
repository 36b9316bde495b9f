"""Large messages, which go ahead of their Forwards in pieces (protocol 5, Large messages)."""

import attrs
import pytest

from linkstate.mesh_actions import Full, Room
from tests.topic.bench import LASTING, SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import Pen
from topic.delivery.outcomes import DeliveryOutcome
from topic.edge.bodies import Bodies
from topic.errors import BreachError
from topic.wire.segments import Segment

IN_PIECES = attrs.evolve(SETTINGS, piece=4)
LARGE, NEXT = b"0123456789", b"abcdefghijklm"


def begin(bench: Bench, pen: Pen, message: bytes = LARGE, full: str = "b") -> None:
    """The first piece goes; then there is no room for another."""
    core = bench.tick(pen.router)
    (pen.sent[message],) = core.publish(pen.stream, [message], [message], presettled=False)
    bench.stations[pen.router].contacts.out.append(Full(full))
    bench.flow()


def go_on(bench: Bench, full: str = "b") -> None:
    bench.stations["a"].contacts.out.append(Room(full))
    bench.flow()


def said(bench: Bench, there: str) -> list[Segment]:
    """By router a, since it was last asked for."""
    kinds = [kind for source, target, kind in bench.said if (source, target) == ("a", there)]
    bench.said.clear()
    return kinds


def held(bench: Bench, router: str) -> int:
    """Messages of which something has come, and which were not forwarded."""
    return len(bench.cores[router].peers.bodies.come)


def test_a_large_message_goes_ahead_in_pieces() -> None:
    bench = Bench("a", "b", settings=IN_PIECES)
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    said(bench, "b")
    pen.send(LARGE, b"small", NEXT)
    body, forward = Segment.BODY, Segment.FORWARD
    assert said(bench, "b") == [body, body, body, forward, forward, body, body, body, body, forward]
    assert reader.delivered == [LARGE, b"small", NEXT] and held(bench, "b") == 0
    reader.accept(LARGE, b"small", NEXT)
    assert set(pen.outcomes.values()) == {DeliveryOutcome.ACCEPTED}


def test_who_attaches_meanwhile_is_behind_a_piece_and_gets_all_of_it() -> None:
    bench = Bench("a", "b", "c", settings=IN_PIECES)
    early, pen = bench.subscriber("b"), bench.publisher("a")
    begin(bench, pen)
    here, there = bench.subscriber("b", "here"), bench.subscriber("c", "there")
    assert here.answered and there.answered and early.delivered == []
    go_on(bench)
    assert early.delivered == here.delivered == there.delivered == [LARGE]


def test_what_went_ahead_in_a_contact_that_is_lost_goes_again() -> None:
    bench = Bench("a", "b", "c", settings=IN_PIECES)
    reader, other, pen = reader_at(bench, "b"), bench.subscriber("c", "other"), bench.publisher("a")
    begin(bench, pen, full="c")
    assert held(bench, "b") == held(bench, "c") == 1
    bench.part("a", "b")
    assert held(bench, "b") == 0
    bench.meet("a", "b")
    bench.flow()
    assert reader.delivered == other.delivered == []
    go_on(bench, full="c")
    assert reader.delivered == other.delivered == [LARGE]


def test_who_has_nobody_for_it_any_more_need_not_keep_it() -> None:
    bench = Bench("a", "b", "c", settings=IN_PIECES)
    reader, other, pen = bench.subscriber("b"), bench.subscriber("c", "other"), bench.publisher("a")
    begin(bench, pen)
    reader.close()
    go_on(bench)
    assert other.delivered == [LARGE] and held(bench, "b") == 0
    other.accept(LARGE)
    pen.settle(LARGE)
    late = bench.subscriber("b", "late")
    pen.send(NEXT)
    assert late.delivered == [NEXT]


def test_a_publisher_that_closes_or_moves_leaves_nothing_of_it() -> None:
    bench = Bench("a", "b", "c", settings=IN_PIECES)
    reader = bench.subscriber("b")
    closes, moves = bench.publisher("a", "closes"), pen_at(bench, "a", name="moves")
    begin(bench, closes)
    closes.close()
    assert held(bench, "b") == 0
    go_on(bench)
    begin(bench, moves)
    assert held(bench, "b") == 1
    moved = pen_at(bench, "c", moves, name="moves", unsettled={LARGE: 0})
    assert held(bench, "b") == 0
    moved.send(LARGE)
    assert reader.delivered == [LARGE]


def test_a_presettled_one_goes_at_once() -> None:
    """Its publisher may leave as soon as it is sent."""
    bench = Bench("a", "b", settings=IN_PIECES)
    reader, pen = bench.subscriber("b"), bench.publisher("a", lifetime=LASTING)
    said(bench, "b")
    pen.send(LARGE, presettled=True)
    assert Segment.BODY not in said(bench, "b") and reader.delivered == [LARGE]


@pytest.mark.parametrize(
    ("pieces", "taken"),
    [
        ([(b"k", 4, b"late")], None),
        ([(b"k", 0, b"1234"), (b"k", 3, b"4567")], None),
        ([(b"k", 0, b"1234"), (b"other", 4, b"5678")], None),
        ([(b"k", 0, b"1234"), (b"k", 4, b"5678"), (b"k", 8, b"9ab")], None),
        ([(b"k", -1, b"1234")], None),
        ([(b"k", 0, b"1234")], b"other"),
        ([(b"k", 0, b"1234"), (b"k", 4, b"")], b"k"),
        ([], b"k"),
    ],
)
def test_pieces_that_do_not_fit_break_the_protocol(pieces: list[tuple[bytes, int, bytes]], taken: bytes | None) -> None:
    bodies = Bodies(10)
    with pytest.raises(BreachError):
        for key, at, piece in pieces:
            bodies.add("a", b"p", key, at, piece)
        if taken is not None:
            bodies.take(b"p", taken)


def test_what_comes_of_a_publisher_that_has_moved_is_harmless() -> None:
    """Its former home has not heard of that."""
    bench = Bench("a", "b", "c", settings=IN_PIECES)
    reader, pen = bench.subscriber("b"), pen_at(bench, "a")
    begin(bench, pen)
    bench.hold("c", "a")
    bench.hold("b", "a")
    moved = pen_at(bench, "c", pen, unsettled={LARGE: 0})
    go_on(bench)
    assert held(bench, "b") == 0 and reader.delivered == []
    bench.let_go()
    moved.send(LARGE)
    assert reader.delivered == [LARGE]


def test_what_is_still_to_come_of_a_former_attach_is_harmless_when_others_announce_the_next_one_there() -> None:
    """Its home is far, and the publisher has been elsewhere for a moment: that router's word comes first."""
    bench = Bench("a", "b", "c", settings=IN_PIECES)
    reader, pen = bench.subscriber("b"), pen_at(bench, "a")
    bench.hold("a", "b")
    begin(bench, pen)
    go_on(bench)
    there = pen_at(bench, "c", pen, unsettled={LARGE: 0})
    bench.step("a", "b")
    again = pen_at(bench, "a", there, unsettled={LARGE: 0})
    entry = bench.cores["b"].directory.publisher(pen.stream.publisher)
    assert entry is not None and entry.epoch == again.stream.epoch
    bench.step("a", "b")
    assert held(bench, "b") == 0
    bench.let_go()
    again.send(LARGE)
    assert reader.delivered == [LARGE]
