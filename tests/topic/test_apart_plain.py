"""Plain subscribers, without a timeout, whose router was out of contact for an instant: they lapse at once, and go on
or are told (protocol 8, Apart)."""

from tests.store import MemoryStore
from tests.topic.bench import SETTINGS, Bench, pen_at, reader_at
from topic.actions import EXPIRED, STOLEN, Detach
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Role
from topic.journal import Event


def over_a_cut(bench: Bench) -> None:
    bench.part("a", "b")
    bench.meet("a", "b")
    bench.flow()


def test_nobody_waits_for_a_plain_subscriber_whose_router_is_lost() -> None:
    bench = Bench("a", "b")
    bench.subscriber("b")
    pen = bench.publisher("a")
    pen.send(b"1")
    assert not pen.outcomes
    bench.part("a", "b")
    pen.send(b"2")
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), DeliveryOutcome.ACCEPTED)


def test_it_is_told_what_was_accepted_without_it_as_soon_as_the_contact_is_back() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    bench.part("a", "b")
    pen.send(b"1")
    assert bench.logged("a", Event.APART) == [], "the end of its link says it: there may be thousands of them"
    bench.meet("a", "b")
    bench.flow()
    [detach] = reader.mine(Detach)
    assert detach.condition == EXPIRED
    assert "router a accepted messages without this subscriber, which was out of reach for 0." in detach.description
    afresh = bench.subscriber("b")
    pen.send(b"2")
    assert afresh.delivered == [b"2"]


def test_it_goes_on_if_nothing_was_accepted_without_it() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    pen.send(b"1")
    reader.accept(b"1")
    pen.settle(b"1")
    over_a_cut(bench)
    pen.send(b"2")
    assert reader.delivered == [b"1", b"2"] and not reader.mine(Detach)
    reader.accept(b"2")
    pen.settle(b"2")
    assert bench.records() == {}


def test_what_waits_for_another_it_is_given_when_the_contact_is_back() -> None:
    bench = Bench("a", "b")
    slow, reader, pen = bench.subscriber("a", "slow"), bench.subscriber("b"), pen_at(bench, "a")
    pen.send(b"1")
    reader.accept(b"1")
    bench.part("a", "b")
    pen.send(b"2")
    bench.meet("a", "b")
    bench.flow()
    assert reader.delivered == [b"1", b"2"], "b has kept what it knew of the first"
    slow.accept(b"1", b"2")
    assert b"2" not in pen.outcomes
    reader.accept(b"2")
    assert pen.outcomes == dict.fromkeys((b"1", b"2"), DeliveryOutcome.ACCEPTED)


def test_thousands_share_what_they_miss() -> None:
    bench = Bench("a", "b")
    readers = [bench.subscriber("b", f"s{number}") for number in range(3)]
    slow, pen = bench.subscriber("a", "slow"), bench.publisher("a")
    pen.send(b"1", b"2")
    bench.part("a", "b")
    first, second = pen.sent[b"1"], pen.sent[b"2"]
    assert first.without is second.without and len(first.without) == len(readers)
    slow.accept(b"1")
    assert not second.without, "all of them end with the first message that is accepted"


def test_one_that_attaches_elsewhere_gets_what_waited_for_it() -> None:
    bench = Bench("a", "b", "c")
    slow, reader, pen = bench.subscriber("a", "slow"), bench.subscriber("b"), pen_at(bench, "a")
    bench.part("a", "b")
    pen.send(b"1")
    there = bench.subscriber("c")
    assert there.delivered == [b"1"]
    slow.accept(b"1")
    assert not pen.outcomes
    there.accept(b"1")
    assert pen.outcomes and not there.mine(Detach) and reader.mine(Detach), "its old link is a zombie's"


def test_one_whose_link_another_has_taken_out_of_its_sight_is_told_though_that_has_died() -> None:
    bench = Bench("a", "b", "c")
    reader, pen = bench.subscriber("c"), bench.publisher("a")
    bench.part("a", "c")
    bench.part("b", "c")
    bench.subscriber("b")
    bench.kill("b")
    pen.send(b"1")
    assert pen.outcomes
    bench.boot("b", 2)
    bench.meet("a", "b")
    bench.meet("a", "c")
    bench.flow()
    assert [detach.condition for detach in reader.mine(Detach)] == [STOLEN]


def test_one_that_left_behind_the_cut_is_forgotten() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    bench.part("a", "b")
    bench.tick("b").suspend_subscriber(reader.end, reader, bench.now)
    bench.meet("a", "b")
    bench.flow()
    pen.send(b"1")
    assert pen.outcomes and not subscribers(bench)


def test_those_of_a_router_that_starts_again_are_forgotten() -> None:
    bench = Bench("a", "b", "c")
    bench.subscriber("b"), bench.subscriber("b", "t", address="topic/other")
    pen = bench.publisher("a")
    bench.kill("b")
    pen.send(b"1")
    assert pen.outcomes, "one has ended for a, the other has lapsed"
    bench.boot("b", 2)
    for other in ("a", "c"):
        bench.meet(other, "b")
    bench.wait(64)
    assert set(subscribers(bench)) == {"s"}, "somebody may use an older attach of the one that has ended, out of sight"
    bench.wait(int(SETTINGS.terminus))
    assert not subscribers(bench)


def test_they_are_nothing_to_agree_on_and_nothing_to_write_down() -> None:
    bench = Bench("a", "b", "c")
    bench.subscriber("b"), bench.subscriber("b", "t", address="topic/other")
    lasting, pen = reader_at(bench, "c", "u"), bench.publisher("a")
    bench.kill("b")
    said = len(bench.said)
    pen.send(b"1")
    lasting.accept(b"1")
    bench.wait(3)
    assert pen.outcomes and not [kind for _, _, kind in bench.said[said:] if kind.name in ("EXPIRE", "GOSSIP")]
    store = bench.stations["a"].store
    assert isinstance(store, MemoryStore) and [entry.identity.container for entry in store.remembered] == ["u"]


def subscribers(bench: Bench) -> list[str]:
    """Those that any router knows, ended ones, too."""
    entries = [entry for core in bench.cores.values() for entry in core.directory.entries()]
    return [entry.identity.container for entry in entries if entry.role is Role.SUBSCRIBER]


def test_what_waits_once_more_for_who_has_it_already_is_not_given_twice_at_a_time() -> None:
    """The publisher, plain too, has ended at each cut, as far as b can see. What it has under way is at b twice: the
    second time behind the first one, and for each of the subscriber's attaches. Its tag on the link is that of both."""
    bench = Bench("a", "b")
    pen, former, other = bench.publisher("a"), bench.subscriber("b"), bench.subscriber("b", "other")
    bench.subscriber("a", "slow")
    pen.send(b"1", b"2")
    over_a_cut(bench)
    reader = bench.subscriber("b")
    assert former.delivered == [b"1", b"2"] and reader.delivered == []
    other.accept(b"1")
    assert reader.delivered == [b"1"]
    over_a_cut(bench)
    assert reader.delivered == [b"1"], "it has not answered that"
