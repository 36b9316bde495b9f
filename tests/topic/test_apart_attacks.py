"""A lapse, and what it meets on its way (protocol 8, Apart)."""

import pytest

from linkstate.clock import COUNTER_BITS, ECHO_MS
from tests.topic.bench import FORGETFUL, LASTING, Bench, pen_at, reader_at
from tests.topic.clients import Reader, key_of
from topic.actions import EXPIRED, Detach
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Decision, Lifetime
from topic.errors import BreachError
from topic.identity import Epoch
from topic.journal import Event

LONGER = Lifetime(300, "connection-close", 1)


def is_told(reader: Reader) -> bool:
    return EXPIRED in [detach.condition for detach in reader.mine(Detach)]


def suspend(reader: Reader) -> None:
    reader.bench.tick(reader.router).suspend_subscriber(reader.end, reader, reader.bench.now)
    reader.bench.flow()


def lapses_unheard_of(reader: Reader) -> None:
    """Of a, b and c, c dies; b knows that its subscriber has lapsed; a, from whom its words are held, does not."""
    bench = reader.bench
    bench.kill("c")
    suspend(reader)
    bench.wait(58)
    bench.hold("b", "a")
    bench.wait(4)
    assert not bench.cores["b"].directory.lapsed
    bench.step("b", "a")  # what b proposes
    bench.flow()
    assert bench.cores["b"].directory.lapsed and not bench.cores["a"].directory.lapsed


def test_home_awaits_returned_subscriber_before_the_rest_of_the_section() -> None:
    """The same section tells that the other one, whom all waited for, has closed."""
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    other = bench.subscriber("b", "t", lifetime=LONGER)
    bench.part("a", "b")
    pen.send(b"1")
    bench.wait(64, "a")
    assert not pen.outcomes
    other.close()
    bench.meet("a", "b")
    bench.flow()
    assert reader.delivered == [b"1"] and not pen.outcomes


def test_what_is_accepted_without_somebody_ends_it_once_for_all_that_is_decided_by_then() -> None:
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a")
    reader_at(bench, "c")
    bench.part("a", "c")
    bench.part("b", "c")
    bench.wait(64, "a", "b")
    bench.subscriber("b", "t", credit=0)  # ends with its router
    bench.hold("a", "b")
    pen.send(b"1")
    pen.send(b"2", presettled=True)
    bench.part("a", "b")
    bench.flow()
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    assert pen.credit == 1
    pen.settle(b"1")
    assert pen.credit == 2


def test_one_that_has_lapsed_where_it_moved_to_is_not_sought_there() -> None:
    """Another subscriber at the router that it left took its time."""
    bench = Bench("a", "b", "c", "d")
    bench.kill("d")
    pen, slow = pen_at(bench, "a"), bench.subscriber("c", "t", credit=0)
    reader_at(bench, "c")
    pen.send(b"1")
    moved = reader_at(bench, "b", unsettled={key_of(pen, b"1"): 0})
    suspend(moved)
    bench.wait(64)
    slow.grant(1)
    slow.accept(b"1")
    bench.wait(10)
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_evidence_that_comes_after_the_lapse_does_not_join_it_again() -> None:
    bench = Bench("a", "b", "d")
    bench.kill("d")
    pen = bench.publisher("a", lifetime=LASTING, lively=False)
    other = bench.subscriber("b", "t")
    reader = reader_at(bench, "b", unsettled={})  # it has been elsewhere
    suspend(reader)
    bench.wait(64)
    pen.answer_echo()
    pen.send(b"1")
    other.accept(b"1")
    bench.wait(10)
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_evidence_that_crosses_the_lapse_does_not_join_it_for_ever() -> None:
    bench = Bench("a", "b", "d")
    bench.kill("d")
    pen = bench.publisher("a", lifetime=LASTING, lively=False)
    other = bench.subscriber("b", "t")
    reader = reader_at(bench, "b", unsettled={})
    suspend(reader)
    bench.hold("b", "a")
    while reader.end.name not in bench.cores["b"].directory.lapsed:
        bench.wait(1)
        if bench.now > 62:
            bench.step("b", "a")  # the proposal, not the decision
            bench.hold("a", "b")
            pen.answer_echo()
            bench._held.discard(("a", "b"))
            bench.flow()
    bench.let_go()
    pen.send(b"1")
    other.accept(b"1")
    bench.wait(10)
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_subscriber_told_at_its_last_router_is_forgotten() -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    name = reader.end.name
    bench.kill("c")
    suspend(reader)
    pen.send(b"1")
    bench.wait(64)
    assert pen.outcomes
    back = reader_at(bench, "b", unsettled={})
    assert is_told(back)
    pen.settle(b"1")
    bench.boot("c", 2)
    for other in ("a", "b"):
        bench.meet("c", other)
    bench.flow()
    bench.wait(700)
    assert not [(r, e) for r, core in bench.cores.items() for e in core.directory.entries() if e.name == name]


def test_subscriber_that_began_afresh_is_not_told_of_an_earlier_ending() -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    for other in ("b", "c"):
        bench.part("a", other)
    pen.send(b"1")
    bench.wait(64, "a")
    afresh = reader_at(bench, "c", seen=reader.end.epoch)
    suspend(afresh)
    again = reader_at(bench, "c", unsettled={}, seen=afresh.end.epoch)
    for other in ("b", "c"):
        bench.meet("a", other)
    bench.flow()
    assert not is_told(again)


def test_who_moved_is_told_by_who_hears_of_the_ending_of_its_former_attach() -> None:
    """Who ended it is gone for good before it hears of the later attach."""
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    for other in ("b", "c"):
        bench.part("a", other)
    moved = reader_at(bench, "c", unsettled={}, seen=reader.end.epoch)
    pen.send(b"1")
    bench.wait(64)
    bench.hold("c", "a")
    bench.meet("a", "c")
    bench.flow()
    bench.part("a", "c")
    assert is_told(moved)


def test_the_attach_that_is_told_of_an_end_is_above_the_one_that_it_echoes() -> None:
    """The client had gone on at b, out of the sight of a, which ended its link. The clock of b is far ahead."""
    bench = Bench("a", "b")
    pen = pen_at(bench, "a")
    reader_at(bench, "b")
    bench.part("a", "b")
    pen.send(b"1")
    bench.wait(64, "a")
    ahead_ms = 2 * ECHO_MS
    seen = Epoch((bench.wall_us // 1000 + ahead_ms) << COUNTER_BITS, "b", 1)
    back = reader_at(bench, "a", unsettled={}, seen=seen)
    assert is_told(back) and back.end.epoch > seen


def test_moved_subscriber_that_was_given_up_is_told() -> None:
    bench = Bench("a", "b", "c", settings=FORGETFUL)
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    for other in ("b", "c"):
        bench.part("a", other)
    bench.wait(124, "a")
    moved = reader_at(bench, "c", unsettled={}, seen=reader.end.epoch)
    pen.send(b"1")
    assert pen.outcomes
    for other in ("b", "c"):
        bench.meet("a", other)
    bench.flow()
    assert is_told(moved)


def test_a_link_that_its_client_has_left_is_no_way_to_tell_it() -> None:
    """Its router has not noticed that the client has gone elsewhere, behind a partition."""
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    for one, two in (("a", "b"), ("a", "c"), ("b", "c")):
        bench.part(one, two)
    moved = reader_at(bench, "c", unsettled={}, seen=reader.end.epoch)
    pen.send(b"1")
    bench.wait(64, "a")
    assert pen.outcomes
    bench.meet("a", "b")
    bench.flow()
    for other in ("a", "b"):
        bench.meet("c", other)
    bench.flow()
    assert is_told(moved)


def test_subscriber_detached_on_a_lost_connection_is_told_again() -> None:
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    bench.part("a", "b")
    pen.send(b"1")
    bench.wait(64, "a")
    bench.meet("a", "b")
    bench.flow()
    assert is_told(reader)  # into a socket that nobody reads
    back = reader_at(bench, "a", unsettled={}, seen=reader.end.epoch)
    assert is_told(back)


@pytest.mark.parametrize("says_so", [False, True])
def test_who_knows_of_its_ending_says_so_where_nobody_has_heard_that_it_was_told(says_so: bool) -> None:
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    for other in ("b", "c"):
        bench.part("a", other)
    pen.send(b"1")
    bench.wait(64, "a")
    bench.meet("a", "b")
    bench.flow()
    assert is_told(reader)
    bench.hold("b", "c")
    reader.answer_detach()
    again = reader_at(bench, "c", unsettled={}, seen=reader.end.epoch, told=says_so)
    bench.meet("a", "c")
    bench.let_go()
    assert is_told(again) is not says_so


def test_endings_of_who_never_comes_back_are_given_up_in_the_end() -> None:
    bench = Bench("a", "b", "c", settings=FORGETFUL)
    bench.kill("c")
    pen = pen_at(bench, "a")
    for number in range(20):
        reader = reader_at(bench, "b", f"s{number}")
        bench.tick("b").suspend_subscriber(reader.end, reader, bench.now)
    bench.wait(64)
    pen.send(b"1")
    pen.settle(b"1")
    bench.wait(300)
    pen.send(b"2")
    assert pen.outcomes[b"2"] is DeliveryOutcome.ACCEPTED
    assert len(bench.logged("a", Event.APART)) <= 20


def test_subscriber_is_told_of_an_acceptance_by_a_router_that_restarted() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "a")
    reader = bench.subscriber("b", lifetime=Lifetime(60, "connection-close", 0))
    bench.part("a", "b")
    pen.send(b"1")
    bench.wait(64, "a")
    assert pen.outcomes
    bench.boot("a", 2, bench.stations["a"].store)
    bench.meet("a", "b")
    bench.flow()
    assert is_told(reader)


def test_that_a_publisher_has_lapsed_is_nonsense_that_ends_the_contact_not_the_router() -> None:
    bench = Bench("a", "b")
    pen = pen_at(bench, "b")
    entry = bench.cores["b"].directory.publisher(pen.stream.publisher)
    assert entry is not None
    bench.tick("b").outlet.batches.expired(["a"], entry, Decision.LAPSED)
    with pytest.raises(BreachError, match="a batch tells that a publisher has lapsed"):
        bench.flow()


def test_what_crosses_the_news_of_a_lapse_is_accepted_without_who_has_lapsed() -> None:
    """Its home counts on it at its router, where nothing waits for it any more."""
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    lapses_unheard_of(reader)
    pen.send(b"1")
    bench.let_go()
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    assert bench.logged("a", Event.APART) == [key_of(pen, b"1")]


def test_what_crosses_the_news_of_a_lapse_still_lacks_who_has_lapsed_when_it_is_forwarded_again() -> None:
    """Another subscriber there attaches anew, and is given its backlog."""
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    other = bench.subscriber("b", "t", lifetime=LONGER, credit=0)
    lapses_unheard_of(reader)
    pen.send(b"1")
    bench.let_go()
    suspend(other)
    again = bench.subscriber("b", "t", lifetime=LONGER, unsettled={})
    again.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    assert bench.logged("a", Event.APART) == [key_of(pen, b"1")]


def test_the_owner_of_a_link_hears_that_its_client_was_told_of_its_end_where_it_has_no_contact() -> None:
    """Else it tells the client once more, at its next attach."""
    bench = Bench("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b")
    bench.part("b", "c")
    bench.part("a", "b")
    pen.send(b"1")
    bench.wait(64, "a", "c")
    bench.meet("a", "b")
    bench.flow()
    told = reader_at(bench, "c", unsettled={}, seen=reader.end.epoch)
    assert [detach.condition for detach in told.mine(Detach)] == [EXPIRED]
    told.answer_detach()
    known = bench.cores["b"].directory.subscriber(reader.end.name)
    assert known is None or not known.ending
    again = reader_at(bench, "a", unsettled={}, seen=told.end.epoch)
    assert again.answered and not again.mine(Detach)


def test_who_has_lapsed_is_not_back_as_a_home_that_has_not_heard_of_that_joins_it_once_more() -> None:
    bench = Bench("a", "b", "c")
    pen, quiet = pen_at(bench, "a"), bench.publisher("a", "q", lifetime=LASTING, lively=False)
    other = bench.subscriber("b", "t", lifetime=LONGER)
    lapses_unheard_of(reader_at(bench, "b", unsettled={}))  # it has been elsewhere: what q has sent it is put off
    pen.send(b"1")
    quiet.answer_echo()
    bench.flow()
    other.accept(b"1")
    bench.let_go()
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    assert bench.logged("a", Event.APART) == [key_of(pen, b"1")]
