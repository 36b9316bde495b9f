"""A link that its router ends in its client's place (protocol 8, By word): nobody waits for it any more."""

from tests.topic.bench import Bench, pen_at, reader_at
from tests.topic.clients import NEWS
from topic.actions import STOLEN, Detach, SettleSubscriber
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Role
from topic.ends.nobody import end_link
from topic.identity import LinkIdentity, link_name

ACCEPTED = DeliveryOutcome.ACCEPTED


def end(bench: Bench, router: str, role: Role, name: str) -> None:
    entry = bench.cores[router].directory.entry((role, link_name(LinkIdentity(name, "link", NEWS))))
    assert entry is not None
    end_link(bench.stations[router].node, entry)
    bench.flow()


def test_home_does_not_await_a_subscriber_that_has_gone() -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "b", "s"), pen_at(bench, "a")
    reader.vanish()
    pen.send(b"1")
    assert pen.outcomes == {}
    end(bench, "b", Role.SUBSCRIBER, "s")
    assert pen.outcomes == {b"1": ACCEPTED}
    pen.settle(b"1")
    assert bench.records() == {}


def test_whom_nobody_in_contact_has_is_awaited_no_more_and_loses_its_link_if_it_is_there_after_all() -> None:
    bench = Bench("a", "b", "c")
    reader, pen = reader_at(bench, "c", "s"), pen_at(bench, "a")
    for other in "ab":
        bench.part(other, "c")
    pen.send(b"1")
    assert pen.outcomes == {}
    end(bench, "b", Role.SUBSCRIBER, "s")
    assert pen.outcomes == {b"1": ACCEPTED}
    for other in "ab":
        bench.meet(other, "c")
    bench.flow()
    [detached] = reader.mine(Detach)
    assert (detached.condition, detached.description) == (STOLEN, "attached and closed at router b")
    pen.settle(b"1")
    pen.send(b"2")
    assert pen.outcomes == {b"1": ACCEPTED, b"2": ACCEPTED} and reader.delivered == []


def test_router_drops_doubted_deliveries_of_a_gone_publisher() -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "b", "s"), pen_at(bench, "a")
    pen.send(b"1")
    pen.vanish()
    assert reader.delivered == [b"1"]
    end(bench, "a", Role.PUBLISHER, "p")
    assert "a" not in bench.records()
    reader.accept(b"1")
    assert reader.mine(SettleSubscriber), "its life is over, and nobody else is left to say it"
