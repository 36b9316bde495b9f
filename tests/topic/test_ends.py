"""Ends inside a router, on the base of all ends: they attach, deliver, are superseded and resume with their maps, and
the shell hears nothing of it.

    a ~~~ b ~~~ c       all in contact
"""

import pytest

from tests.topic.bench import Bench
from tests.topic.clients import NEWS
from tests.topic.inside import Incoming, InsidePublisher, InsideSubscriber, Outgoing
from topic.actions import STOLEN, Credit, Deliver
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Role
from topic.ends.end import LinkEnd
from topic.identity import LinkIdentity, link_name

MANY = [b"%02d" % number for number in range(25)]
"""More than a window."""


def asked_of_the_shells(bench: Bench) -> list[object]:
    return [action for actions in bench.actions.values() for action in actions]


def state(end: LinkEnd) -> tuple[bool, bool]:
    """Whether its attach is answered; whether the link is where it left it."""
    return end.is_answered, end.is_current


def test_both_ends_may_be_inside_routers_whose_shells_hear_nothing() -> None:
    bench = Bench("a", "b", "c")
    out, into = Outgoing(), Incoming()
    InsideSubscriber(bench, "c", into)
    publisher = InsidePublisher(bench, "a", out)
    publisher.send(*MANY)
    assert into.taken == MANY
    assert (out.messages, into.map) == ({}, {})
    assert asked_of_the_shells(bench) == []
    assert bench.records() == {}


def test_a_client_receives_from_an_end_inside_a_router() -> None:
    bench = Bench("a", "b", "c")
    reader = bench.subscriber("b")
    publisher = InsidePublisher(bench, "a", Outgoing())
    publisher.send(b"m")
    [(_, message)] = reader.handed
    assert message == b"m"
    assert publisher.state.map == {b"m": 0}
    reader.answer(DeliveryOutcome.ACCEPTED, b"m")
    assert publisher.state.map == {}


def test_a_publisher_that_another_router_takes_over_goes_on_there_with_its_map() -> None:
    """What nobody has answered is published again, in its order; what has an outcome is settled by the map."""
    bench = Bench("a", "b", "c")
    into, out = Incoming(), Outgoing()
    reader = InsideSubscriber(bench, "c", into)
    former = InsidePublisher(bench, "a", out, settles=False)
    former.send(b"1", b"2")
    reader.accepts = False
    former.send(b"3", b"4")
    assert out.map == {b"1": DeliveryOutcome.ACCEPTED, b"2": DeliveryOutcome.ACCEPTED, b"3": 0, b"4": 0}
    later = InsidePublisher(bench, "b", out)
    assert (former.is_there, former.why, later.is_there) == (False, STOLEN, True)
    assert former.stream.generation == later.stream.generation
    assert out.map == {b"3": 0, b"4": 0}
    former.go(closed=True)  # changes nothing
    reader.go()
    reader.accepts = True
    reader.come()
    later.send(b"5")
    assert into.taken == [b"1", b"2", b"3", b"4", b"5"]
    assert (out.map, into.map) == ({}, {})
    assert asked_of_the_shells(bench) == []
    assert bench.records() == {}


def test_a_subscriber_that_another_router_takes_over_is_resumed_there_by_its_map() -> None:
    """What it had accepted it is not given again, and hears of its settlement there."""
    bench = Bench("a", "b", "c")
    into, out = Incoming(), Outgoing()
    publisher = InsidePublisher(bench, "a", out, settles=False)
    former = InsideSubscriber(bench, "c", into)
    publisher.send(b"1")
    former.accepts = False
    publisher.send(b"2")
    assert sorted(into.map.values()) == [0, DeliveryOutcome.ACCEPTED]
    later = InsideSubscriber(bench, "b", into)
    assert (former.is_there, former.why, later.is_there) == (False, STOLEN, True)
    assert sorted(later.resumed) == [(0, False), (DeliveryOutcome.ACCEPTED, False)]
    assert later.named == {}
    assert into.taken == [b"1", b"2"]
    publisher.settle_all()
    assert (out.map, into.map) == ({}, {})
    assert bench.records() == {}


def test_a_subscriber_is_told_by_our_map_what_was_settled_while_it_was_away() -> None:
    bench = Bench("a", "b", "c")
    into, out = Incoming(), Outgoing()
    publisher = InsidePublisher(bench, "a", out, settles=False)
    reader = InsideSubscriber(bench, "c", into)
    publisher.send(b"1", b"2")
    reader.go()
    publisher.settle_all()
    assert len(into.map) == 2
    later = InsideSubscriber(bench, "b", into)
    assert (into.map, later.resumed, later.named) == ({}, [], {})
    assert into.taken == [b"1", b"2"]


def test_an_end_attaches_again_where_it_was_and_goes_on() -> None:
    bench = Bench("a", "b", "c")
    into, out = Incoming(), Outgoing()
    reader = InsideSubscriber(bench, "c", into, accepts=False)
    publisher = InsidePublisher(bench, "a", out)
    publisher.send(b"1")
    for end in reader, publisher:
        first = end.epoch
        end.go()
        assert state(end) == (False, True)
        reader.accepts = True
        end.come()
        assert state(end) == (True, True) and end.epoch != first
    assert into.taken == [b"1"]
    assert (out.map, into.map) == ({}, {})


def test_an_end_that_closes_ends_its_terminus() -> None:
    bench = Bench("a", "b", "c")
    reader, publisher = InsideSubscriber(bench, "c", Incoming()), InsidePublisher(bench, "a", Outgoing())
    reader.go(closed=True)
    publisher.go(closed=True)
    live = [entry for core in bench.cores.values() for entry in core.directory.entries() if entry.live]
    assert live == []
    assert not (reader.is_current or publisher.is_current)


def test_credit_of_an_attach_before_this_one_is_not_taken() -> None:
    """It was still to be done as the end attached again."""
    bench = Bench("a", "b", "c")
    publisher = InsidePublisher(bench, "a", Outgoing())
    granted = list(publisher.granted)
    publisher.go()
    bench.hold("b", "a")
    publisher.come()
    assert state(publisher) == (False, True)
    publisher.perform(Credit(publisher, 7))
    bench.let_go()
    assert state(publisher) == (True, True)
    assert publisher.granted == granted


def test_an_action_for_the_other_kind_of_link_is_a_bug() -> None:
    bench = Bench("a", "b", "c")
    reader, publisher = InsideSubscriber(bench, "c", Incoming()), InsidePublisher(bench, "a", Outgoing())
    with pytest.raises(AssertionError, match="the end of a subscriber cannot perform Credit"):
        reader.perform(Credit(reader, 7))
    with pytest.raises(AssertionError, match="the end of a publisher cannot perform Deliver"):
        publisher.perform(Deliver(publisher, []))


def test_the_claim_of_an_end_is_what_is_known_of_its_link_here() -> None:
    bench = Bench("a", "b", "c")
    publisher = InsidePublisher(bench, "a", Outgoing())
    later = InsidePublisher(bench, "b", publisher.state)
    assert not publisher.is_current
    assert publisher.index == (Role.PUBLISHER, link_name(LinkIdentity("set", "out", NEWS)))
    claim = publisher.claim({b"m": 0}, complete=False)
    assert (claim.seen, claim.generation, claim.complete) == (later.epoch, later.stream.generation, False)
    assert publisher.claim(None).generation is None
