"""Publishers that come to a router that has not heard of their last attach, nor of subscribers since (protocol 7.9)."""

import pytest

from linkstate.clock import COUNTER_BITS
from tests.store import MemoryStore
from tests.topic.bench import LASTING, SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import Pen, Reader
from topic.delivery.outcomes import DeliveryOutcome
from topic.identity import Epoch


def _cut_off() -> tuple[Bench, Reader, Pen]:
    """A router a that has not heard of a subscriber and a publisher at b, to which one delivery is promised."""
    bench = Bench("a", "b", "c", meet=False)
    bench.meet("b", "c")
    bench.flow()
    bench.wait(11)
    reader, pen = reader_at(bench, "b"), pen_at(bench, "b")
    pen.send(b"1")
    return bench, reader, pen


def _waits(pen: Pen) -> bool:
    return pen.stream.publisher in pen.bench.cores[pen.router].attaches.waiting


def test_publisher_that_resumes_an_unknown_attach_waits_for_news_of_it() -> None:
    bench, reader, pen = _cut_off()
    again = pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    assert _waits(again)
    bench.meet("a", "c")
    bench.flow()
    assert not _waits(again), "c has heard of it, and of the subscriber"
    again.send(b"1")
    assert not again.outcomes and reader.delivered == [b"1"]


def _left_alone() -> tuple[Bench, Pen, Pen]:
    """A publisher and a subscriber of b, which leaves before it was ever in contact; the publisher goes on at a."""
    bench = Bench("a", "b", "c", meet=False)
    bench.wait(11)
    reader_at(bench, "b")
    pen = pen_at(bench, "b")
    pen.send(b"1")
    bench.replan("abc", leaving="b")
    bench.meet("a", "c")
    bench.flow()
    return bench, pen, pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)


def test_resuming_publisher_waits_for_a_leaving_router() -> None:
    bench, _, again = _left_alone()
    assert _waits(again), "b alone knows the publisher's last attach, and has not left"
    bench.meet("a", "b")
    bench.flow()
    assert not _waits(again)
    again.send(b"1")
    assert not again.outcomes, "b has told of its subscriber"


def test_resuming_publisher_does_not_wait_for_a_router_that_has_left() -> None:
    bench, _, again = _left_alone()
    bench.replan("ac")
    assert not _waits(again)


def test_nobody_waits_longer_for_that_than_termini_live() -> None:
    bench, _, pen = _cut_off()
    again = pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    bench.wait(int(SETTINGS.terminus) - 1, "a")
    assert _waits(again)
    bench.wait(2, "a")
    assert not _waits(again) and again.stream.generation == pen.stream.generation
    again.send(b"1")
    assert again.outcomes == {b"1": DeliveryOutcome.ACCEPTED}, "a limit: the subscriber was apart for longer"


def test_publisher_that_attaches_again_does_not_wait_anew() -> None:
    """Else one that never waits for long enough would be kept out for as long as a router is missing."""
    bench, _, pen = _cut_off()
    third = int(SETTINGS.terminus) // 3
    for _ in range(3):
        again = pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
        assert _waits(again)
        bench.wait(third, "a")
        bench.tick("a").suspend_publisher(again.stream, again, bench.now)
    again = pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    bench.wait(3, "a")
    assert not _waits(again)


def test_publisher_that_comes_long_after_waits_anew() -> None:
    bench, _, pen = _cut_off()
    former = pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    bench.tick("a").suspend_publisher(former.stream, former, bench.now)
    bench.wait(2 * int(SETTINGS.terminus) + 2, "a")
    again = pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    bench.wait(int(SETTINGS.terminus) - 1, "a")
    assert _waits(again)


def test_publisher_that_was_elsewhere_meanwhile_waits_anew() -> None:
    bench, _, pen = _cut_off()
    former = pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    bench.wait(int(SETTINGS.terminus) - 1, "a")
    bench.tick("a").suspend_publisher(former.stream, former, bench.now)
    pen = pen_at(bench, "b", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    again = pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    bench.wait(2, "a")
    assert _waits(again)


@pytest.mark.parametrize("unsettled", [{}, {b"1": DeliveryOutcome.ACCEPTED}])
def test_publisher_with_nothing_in_doubt_does_not_wait(unsettled: dict[bytes, int]) -> None:
    bench, _, pen = _cut_off()
    again = pen_at(bench, "a", pen, unsettled=unsettled, seen=pen.stream.epoch)
    assert not _waits(again)


def test_router_that_knows_an_older_attach_waits_for_news_of_the_last() -> None:
    bench, _, pen = _cut_off()
    again = pen_at(bench, "c", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    bench.part("b", "c")
    moved = pen_at(bench, "a", again, unsettled={b"1": 0}, seen=again.stream.epoch)
    bench.kill("c")
    bench.boot("c", 2, MemoryStore())
    bench.meet("a", "c")
    bench.flow()
    assert _waits(moved), "c has lost its memory, and b is out of contact"
    bench.meet("a", "b")
    bench.flow()
    assert not _waits(moved)


def test_a_life_that_has_ended_by_then_is_not_resumed() -> None:
    bench = Bench("a", "b", "c")
    first = pen_at(bench, "b")
    bench.part("a", "b")
    bench.part("a", "c")
    pen = pen_at(bench, "b", first, unsettled={}, seen=first.stream.epoch)
    again = pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    assert _waits(again), "a knows an older attach only"
    bench.tick("b").detach_publisher(pen.stream, bench.now)
    bench.flow()
    bench.meet("a", "b")
    bench.flow()
    assert not _waits(again) and again.stream.generation != pen.stream.generation


def test_a_contact_that_only_we_have_still_has_told_nothing_of_an_attach_since() -> None:
    bench = Bench("a", "b")
    former = pen_at(bench, "b")
    bench.lose("b", "a")
    _moves_over_a_cut_that_b_has_noticed(pen_at(bench, "b", former, unsettled={}, seen=former.stream.epoch))


def test_a_contact_that_only_we_have_still_has_told_nothing_of_a_life_since() -> None:
    """It may not be begun afresh (7.10)."""
    bench = Bench("a", "b")
    bench.lose("b", "a")
    _moves_over_a_cut_that_b_has_noticed(pen_at(bench, "b"))


def _moves_over_a_cut_that_b_has_noticed(pen: Pen) -> None:
    bench = pen.bench
    reader = reader_at(bench, "b")
    pen.send(b"1")
    moved = pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    assert bench.cores["a"].directory.complete
    bench.part("a", "b")
    assert _waits(moved)
    bench.meet("a", "b")
    bench.flow()
    moved.send(b"1")
    assert moved.stream.generation == pen.stream.generation and not moved.outcomes
    reader.accept(b"1")
    assert moved.outcomes == {b"1": DeliveryOutcome.ACCEPTED} and reader.delivered == [b"1"]


def test_publisher_does_not_wait_for_news_of_an_incarnation_that_is_gone() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "b")
    bench.kill("b")
    bench.boot("b", 2, MemoryStore())
    bench.meet("a", "b")
    bench.flow()
    assert not _waits(pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch._replace(hlc=2**62)))


def test_an_attach_that_has_waited_is_told_later_than_those_that_came_after_it() -> None:
    """Router b has told of a later one before, and is lost as it tells of that: its life is not over for a."""
    bench = Bench("a", "b", "c", meet=False)
    bench.meet("a", "b")
    bench.flow()
    bench.wait(11)
    former = pen_at(bench, "a")
    for name in "a", "b":
        bench.kill(name)
    for name in "a", "b":
        bench.boot(name, 2, MemoryStore())
    bench.meet("a", "b")
    bench.flow()
    bench.wait(11)
    seen = former.stream.epoch._replace(router="c")
    pen = pen_at(bench, "b", former, unsettled={b"1": 0}, seen=seen)
    assert _waits(pen)
    reader_at(bench, "b")
    bench.hold("b", "a")
    bench.wait(int(SETTINGS.terminus) + 1, "b")
    assert not _waits(pen)
    again = pen_at(bench, "a", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    bench.let_go()
    assert again.stream.begun and again.stream.generation == pen.stream.generation


def test_a_life_ended_by_an_attach_of_the_same_clock_that_its_publisher_has_not_seen() -> None:
    """Two routers out of contact give two attaches epochs of the same clock: the router's name says which is later."""
    bench = Bench("b", "c", "d", meet=False)
    ahead = Epoch((bench.wall_us // 1000 + 30_000) << COUNTER_BITS, "e", 1)
    pen, later = pen_at(bench, "b", seen=ahead), pen_at(bench, "d", seen=ahead)
    assert pen.stream.epoch.hlc == later.stream.epoch.hlc and pen.stream.epoch < later.stream.epoch
    for router in "bd":
        bench.meet(router, "c")
    bench.flow()
    again = pen_at(bench, "c", pen, seen=pen.stream.epoch, unsettled={b"1": 0})
    assert again.stream.generation not in (pen.stream.generation, later.stream.generation)


def test_an_attach_that_waits_is_not_told_of_when_another_of_the_same_epoch_waits_no_longer() -> None:
    """Router a states no clock of the waiting attach or above: b would take the attach for one that is over."""
    bench, *_ = _cut_off()
    ahead = Epoch((bench.wall_us // 1000 + 30_000) << COUNTER_BITS, "b", 1)
    first, again = (bench.publisher("a", name, unsettled={b"1": 0}, seen=ahead, lifetime=LASTING) for name in "qr")
    assert _waits(first) and _waits(again) and first.stream.epoch == again.stream.epoch
    first.vanish()
    bench.wall_us += 60_000_000
    reader_at(bench, "a")
    assert bench.cores["a"].directory.members.told_up_to < again.stream.epoch.hlc
