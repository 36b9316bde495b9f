"""Links that are attached again, elsewhere or here, and routers that are lost (protocol 5, Fence; 6.9, 7.5, 8)."""

import attrs
import pytest

from linkstate.clock import COUNTER_BITS, ECHO_MS, TRUST_MS
from tests.topic.bench import LASTING, SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import Pen, Reader
from topic.actions import AnswerPublisher, Detach
from topic.blocks import read_blocks
from topic.delivery.outcomes import DeliveryOutcome
from topic.identity import NOWHERE, Epoch
from topic.journal import Event


def test_a_subscriber_attached_elsewhere_gets_there_what_it_has_not_accepted() -> None:
    bench = Bench("a", "b", "c")
    pen, old = bench.publisher("a"), bench.subscriber("b")
    pen.send(b"1", b"2", b"3")
    old.accept(b"1")
    new = bench.subscriber("c")
    assert [d.condition for d in old.mine(Detach)] == ["amqp:link:stolen"]
    assert new.delivered == [b"2", b"3"]
    new.accept(b"2", b"3")
    assert set(pen.outcomes) == {b"1", b"2", b"3"}
    pen.settle(b"1", b"2", b"3")
    assert bench.records() == {}


def test_what_is_under_way_to_the_former_custodian_reaches_the_subscriber() -> None:
    bench = Bench("a", "b", "c")
    pen = bench.publisher("a")
    bench.subscriber("b")
    bench.hold("c", "a")  # home learns last that the subscriber has moved
    bench.hold("a", "b")
    new = bench.subscriber("c")
    pen.send(b"1")
    bench.let_go()
    assert new.answered
    new.grant(5)
    assert new.delivered == [b"1"]
    new.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_a_subscriber_that_moved_is_not_awaited_for_other_addresses() -> None:
    bench = Bench("a", "b")
    stays = bench.subscriber("b", "stays", address="topic/other")
    bench.subscriber("b", "mover")
    pen = bench.publisher("a", address="topic/other")
    bench.hold("b", "a")
    moved = bench.subscriber("a", "mover")
    pen.send(b"1")
    stays.accept(b"1")
    bench.let_go()
    moved.grant(5)
    assert (moved.delivered, pen.outcomes) == ([], {b"1": DeliveryOutcome.ACCEPTED})


def test_the_departure_log_is_kept_until_every_router_in_contact_knows() -> None:
    bench = Bench("a", "b", "c")
    bench.subscriber("b")
    bench.hold("c", "b")
    bench.subscriber("a")
    departures = bench.cores["b"].directory.departures
    assert len(departures) == 1
    bench.let_go()
    assert not departures


def test_an_attach_at_the_same_router_gets_again_what_was_sent_and_not_accepted() -> None:
    bench = Bench("a", "b")
    pen, old = bench.publisher("b"), bench.subscriber("a")
    pen.send(b"1", b"2", b"3")
    old.accept(b"2")
    new = bench.subscriber("a")
    assert [d.condition for d in old.mine(Detach)] == ["amqp:link:stolen"]
    pen.send(b"4")
    assert new.delivered == [b"1", b"3", b"4"]


def test_a_lost_router_takes_its_subscribers_with_it() -> None:
    bench = Bench("a", "b")
    near, pen = bench.subscriber("a", "near"), bench.publisher("a")
    bench.subscriber("b", "far")
    pen.send(b"1")
    near.accept(b"1")
    bench.part("a", "b")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    pen.settle(b"1")
    assert bench.cores["a"].records.by_key == {}


def test_what_a_lost_home_left_behind_is_delivered_and_settled_without_it() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b", credit=1), bench.publisher("a")
    pen.send(b"1", b"2")
    bench.part("a", "b")
    reader.accept(b"1")
    reader.grant(1)
    reader.accept(b"2")
    assert len(reader.settled) == 2
    assert bench.cores["b"].records.by_key == {}


def test_a_closing_publisher_leaves_edges_to_deliver_what_they_hold() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b", credit=1), bench.publisher("a")
    pen.send(b"1", b"2")
    pen.close()
    reader.accept(b"1")
    reader.grant(1)
    reader.accept(b"2")
    assert (reader.delivered, len(reader.settled), bench.records()) == ([b"1", b"2"], 2, {})


def test_a_closing_publisher_opens_its_gates() -> None:
    bench = Bench("a", "b")
    bench.subscriber("a", "older")
    pen = bench.publisher("a")
    pen.send(b"1")
    newer = bench.subscriber("b", "newer")
    pen.send(b"2")
    assert newer.delivered == []
    pen.close()
    assert newer.delivered == [b"2"]


def test_a_home_that_is_fenced_closes_its_zombie_link() -> None:
    bench = Bench("a", "b", "c")
    reader, old = bench.subscriber("c", "reader"), bench.publisher("a")
    bench.hold("b", "a")  # home does not know that its publisher has gone to b
    new = bench.publisher("b")
    old.send(b"1")
    assert [d.condition for d in old.mine(Detach)] == ["amqp:link:stolen"]
    assert reader.delivered == []
    bench.let_go()
    new.send(b"2")
    assert reader.delivered == [b"2"]


def test_a_publisher_attached_again_starts_afresh() -> None:
    bench = Bench("a")
    old = bench.publisher("a")
    new = bench.publisher("a")
    assert old.mine(Detach)
    assert new.stream.generation != old.stream.generation
    assert new.stream.epoch > old.stream.epoch


def test_a_link_closed_elsewhere_under_a_higher_epoch_is_detached() -> None:
    """Two sides of a partition with clocks that differ: what was attached later may have the lower epoch."""
    bench = Bench("a", "b", meet=False)
    reader = bench.subscriber("a")
    bench.cores["b"].advance(1_700_001_000_000_000)
    bench.subscriber("b").close()
    bench.meet("a", "b")
    bench.flow()
    assert [d.condition for d in reader.mine(Detach)] == ["amqp:link:stolen"]
    assert not bench.cores["a"].edge.subscribers


def test_where_a_publisher_went_is_passed_on_by_where_it_was() -> None:
    """To those that are not in contact with its new home, and hold what it has sent."""
    bench = Bench("b", "c", "d")
    reader, pen = reader_at(bench, "c"), pen_at(bench, "d")
    pen.send(b"1")
    reader.accept(b"1")
    bench.part("b", "c")
    pen_at(bench, "b", pen, unsettled={b"1": 0})
    entry = bench.cores["c"].directory.publisher(pen.stream.publisher)
    assert entry is not None and entry.router == "b"


def test_a_publisher_that_moves_finds_all_subscribers_that_its_former_home_has_known() -> None:
    """Also one whose router was lost before it could tell the new home."""
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "b")
    bench.hold("a", "c")
    reader_at(bench, "a")
    pen.send(b"1")
    bench.part("a", "c")
    bench.part("a", "b")
    moved = pen_at(bench, "c", pen, unsettled={b"1": 0})
    moved.send(b"1")
    assert moved.outcomes == {}
    bench.let_go()
    bench.meet("a", "c")
    bench.flow()
    back = reader_at(bench, "a", unsettled={})
    back.accept(b"1")
    assert moved.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_what_its_owner_cannot_tell_any_more_is_believed_of_others() -> None:
    """As long as the owner is in contact its word is waited for: what others say may be old."""
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "b")
    bench.hold("a", "c")
    reader = reader_at(bench, "a")
    pen.send(b"1")
    moved = pen_at(bench, "c", pen, unsettled={b"1": 0})
    assert bench.cores["c"].directory.subscriber(reader.end.name) is None
    bench.part("a", "c")
    bench.part("a", "b")
    moved.send(b"1")
    assert moved.outcomes == {}


def test_a_rumour_is_over_when_its_owner_has_spoken() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "b")
    bench.hold("a", "c")
    reader = reader_at(bench, "a")
    moved = pen_at(bench, "c", pen, unsettled={})
    reader.close()
    bench.let_go()
    bench.part("a", "c")
    moved.send(b"1")
    assert moved.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_what_is_said_of_a_link_that_is_over_is_left_out_of_account() -> None:
    """Its connection ends after its detach, say; and the client has attached anew meanwhile."""
    bench = Bench("a")
    pens = [pen_at(bench, "a", lively=False)]
    reader_at(bench, "a", "asks", unsettled={})
    pens.append(pen_at(bench, "a", pens[0], unsettled={}))
    readers = [reader_at(bench, "a"), reader_at(bench, "a")]
    core = bench.tick("a")
    questions = list(pens[0].stream.questions)
    core.alive(pens[0].stream)
    assert questions and pens[0].stream.questions == questions
    core.suspend_publisher(pens[0].stream, pens[0], bench.now)
    core.detach_publisher(pens[0].stream, bench.now)
    core.suspend_subscriber(readers[0].end, readers[0], bench.now)
    core.detach_subscriber(readers[0].end, readers[0], bench.now)
    bench.flow()
    pens[1].send(b"2")
    assert b"2" in readers[1].delivered and not pens[1].mine(Detach) and not readers[1].mine(Detach)


def test_a_link_that_is_suspended_is_suspended_once() -> None:
    bench = Bench("a")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "a")
    for _ in range(2):
        bench.tick("a").suspend_publisher(pen.stream, pen, bench.now)
        bench.tick("a").suspend_subscriber(reader.end, reader, bench.now)
    blocks, _ = read_blocks(bench.take_log("a"))
    assert [entry.event for block in blocks for entry in block.entries()].count(Event.SUSPENDED) == 2


def test_an_attach_that_waits_goes_with_its_own_client_only() -> None:
    bench = Bench("a", "b", meet=False)
    former = bench.publisher("a")
    former.close()
    waits = pen_at(bench, "a", unsettled={b"1": 0})
    bench.tick("a").suspend_publisher(former.stream, former, bench.now)
    assert bench.cores["a"].attaches.waiting == [waits.stream.publisher]
    waits.close()
    assert not bench.cores["a"].attaches.waiting


def test_who_waited_here_and_was_attached_elsewhere_and_closed_there_since_is_told_so() -> None:
    bench = Bench("a", "b", "c", meet=False)
    waits = pen_at(bench, "a", unsettled={b"1": 0})
    bench.publisher("b").close()
    bench.meet("a", "b")
    bench.flow()
    bench.wait(11, "a")
    assert [detach.condition for detach in waits.mine(Detach)] == ["amqp:link:stolen"] and not waits.mine(
        AnswerPublisher
    )


def test_a_gate_that_opens_after_its_subscriber_has_gone_out_of_contact_opens_nothing() -> None:
    bench = Bench("a", "b", "c")
    pen, older = pen_at(bench, "a"), reader_at(bench, "a", "older")
    pen.send(b"1")
    newer = reader_at(bench, "a", "newer")
    bench.part("a", "b")
    moved = reader_at(bench, "b", "newer", unsettled={})
    assert newer.mine(Detach)
    older.accept(b"1")
    pen.settle(b"1")
    pen.send(b"2")
    bench.meet("a", "b")
    bench.flow()
    assert moved.delivered == [b"2"]


def test_that_a_link_of_ours_has_closed_elsewhere_is_passed_on() -> None:
    bench = Bench("a", "b", "c", meet=False)
    reader = bench.subscriber("a")
    bench.meet("a", "c")
    bench.flow()
    bench.cores["b"].advance(1_700_001_000_000_000)
    bench.subscriber("b").close()
    bench.meet("a", "b")
    bench.flow()
    entry = bench.cores["c"].directory.subscriber(reader.end.name)
    assert entry is None or not entry.live


def test_a_late_attach_of_a_plain_subscriber_takes_the_link_also_if_its_router_dies_at_once() -> None:
    """The former router is not in contact with the new one, and all others take the link for ended. So the former
    router has to know, and its client has to attach again."""
    bench = Bench("a", "b", "c")
    bench.part("a", "c")
    reader = bench.subscriber("a")
    bench.subscriber("c")
    assert [detach.condition for detach in reader.mine(Detach)] == ["amqp:link:stolen"]
    bench.kill("c")
    again = bench.subscriber("a")
    pen = pen_at(bench, "b")
    pen.send(b"1")
    assert again.delivered == [b"1"] and not pen.outcomes


def test_a_close_that_may_be_late_with_its_attach_ends_nothing() -> None:
    """Their connection stalled, and the subscriber has begun anew since: what it is owed then, it still gets (6.12)."""
    pen, again = closed_as_it_attaches(heard_of_it=False)
    assert not pen.outcomes and again.delivered == [b"1"]


def test_a_close_of_who_has_heard_of_its_last_attach_ends_it() -> None:
    pen, again = closed_as_it_attaches(heard_of_it=True)
    assert pen.outcomes and not again.delivered


def closed_as_it_attaches(*, heard_of_it: bool) -> tuple[Pen, Reader]:
    """A subscriber's attach and its close are read at once, another message is published, and it attaches again."""
    bench = Bench("a", "b")
    pen, reader, stalled = pen_at(bench, "b"), reader_at(bench, "a"), object()
    seen = reader.end.epoch if heard_of_it else NOWHERE
    core = bench.tick("a")
    late = core.attach_subscriber(reader.end.identity, stalled, bench.now, lifetime=LASTING, unsettled={}, seen=seen)
    assert not late.answered
    core.detach_subscriber(late, stalled, bench.now)
    bench.flow()
    assert reader.mine(Detach)
    pen.send(b"1")
    return pen, reader_at(bench, "b", unsettled={}, seen=seen)


@pytest.mark.parametrize("heard_of_it", [False, True])
def test_a_publishers_close_that_may_be_late_with_its_attach_ends_no_life(heard_of_it: bool) -> None:
    bench = Bench("a", "b")
    reader_at(bench, "a")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    stream, stalled, core = pen.stream, object(), bench.tick("b")
    seen = stream.epoch if heard_of_it else NOWHERE
    late = core.attach_publisher(
        stream.identity, stalled, bench.now, generation=stream.generation, seen=seen, lifetime=LASTING, unsettled={}
    )
    assert not late.answered
    core.detach_publisher(late, bench.now)
    bench.flow()
    known = bench.tick("a").directory.publisher(stream.publisher)
    assert (known is not None and known.live) is not heard_of_it


def echoing(bench: Bench, ahead_ms: int) -> tuple[Pen, int]:
    """A publisher that attaches at a, and echoes an epoch so far ahead of the clock there; and the clock of that."""
    clock = (bench.wall_us // 1000 + ahead_ms) << COUNTER_BITS
    return pen_at(bench, "a", seen=Epoch(clock, "b", 1)), clock


def test_what_a_client_echoes_its_attach_is_above() -> None:
    """Clocks of routers that were out of contact may be apart: else the older attach would win when they are back."""
    for ahead_ms in (1000, 30_000, TRUST_MS):
        pen, echoed = echoing(Bench("a", "b"), ahead_ms)
        assert pen.stream.epoch.hlc > echoed
        assert pen.mine(AnswerPublisher)


def test_what_a_client_echoes_moves_the_clock_by_little() -> None:
    """A client may be anybody. What is too far ahead counts for nothing."""
    for ahead_ms in (1000, 30_000, TRUST_MS, 2 * TRUST_MS):
        bench = Bench("a", "b")
        pen, echoed = echoing(bench, ahead_ms)
        clock = bench.cores["a"].outlet.clock
        limit = (bench.wall_us // 1000 + ECHO_MS) << COUNTER_BITS
        assert clock.read() < limit
        assert (clock.read() > echoed) is (ahead_ms < ECHO_MS)
        assert (pen.stream.epoch.hlc > limit) is (ECHO_MS < ahead_ms <= TRUST_MS)
        again, _ = echoing(bench, 0)
        assert again.stream.epoch > pen.stream.epoch


def test_publishers_with_equal_epochs_have_outcomes_and_settlements_of_their_own() -> None:
    """Only the attaches of one link have different epochs: a router gives each of these two the epoch that follows the
    echoed one."""
    bench = Bench("a", "b", settings=attrs.evolve(SETTINGS, settle_delay=0.5))
    reader = reader_at(bench, "b")
    ahead = Epoch((bench.wall_us // 1000 + 30_000) << COUNTER_BITS, "b", 1)
    pen, other = (pen_at(bench, "a", name=name, seen=ahead) for name in "pq")
    assert pen.stream.epoch == other.stream.epoch
    pen.send(b"1", b"2")
    other.send(b"3", b"4")
    reader.accept(b"1", b"4")
    assert (set(pen.outcomes), set(other.outcomes)) == ({b"1"}, {b"4"})
    pen.settle(b"1")
    other.settle(b"4")
    bench.wait(1)
    assert reader.settled_messages == [b"1", b"4"]
