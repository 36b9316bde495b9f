"""Subscribers that the configuration of the mesh lists, as the leaders of sets attach them (protocol 14).

a ~~~ b ~~~ c       all in contact
"""

from functools import partial

import attrs
import pytest

from tests.topic.bench import FORGETFUL, SETTINGS, Bench, pen_at
from tests.topic.inside import INGRESS, Incoming, InsideSubscriber
from tests.topic.raft.mutants import Broken, must_notice
from topic.actions import STOLEN
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.directory import Directory
from topic.directory.entry import Role
from topic.identity import link_name
from topic.outlet import Outlet

ACCEPTED = DeliveryOutcome.ACCEPTED
NAME = link_name(INGRESS)


def mesh(*names: str, **options: object) -> Bench:
    return Bench(*(names or "abc"), configured=[INGRESS], **options)  # type: ignore[arg-type]


def test_what_is_published_before_anybody_has_attached_it_waits() -> None:
    bench, into = mesh(), Incoming()
    pen = pen_at(bench, "a")
    pen.send(b"1")
    bench.wait(20)
    assert pen.outcomes == {}
    InsideSubscriber(bench, "b", into, clock=100)
    assert into.taken == [b"1"] and pen.outcomes == {b"1": ACCEPTED}
    pen.settle(b"1")
    assert into.map == {} and bench.records() == {}


def test_it_is_waited_for_where_it_was_never_heard_of_and_boot_wait_is_over() -> None:
    bench, into = mesh(meet=False), Incoming()
    InsideSubscriber(bench, "b", into, clock=100)
    pen = pen_at(bench, "a")
    pen.send(b"1")
    bench.wait(int(SETTINGS.boot_wait) + 5)
    assert pen.outcomes == {}
    bench.meet("a", "b")
    bench.flow()
    assert into.taken == [b"1"] and pen.outcomes == {b"1": ACCEPTED}


@pytest.mark.parametrize("is_attached", [True, False])
def test_it_never_ends_and_never_lapses(is_attached: bool) -> None:
    """However long its leader is out of reach, or there is none: nothing is accepted without it."""
    bench, into = mesh(settings=FORGETFUL), Incoming()
    if is_attached:
        InsideSubscriber(bench, "c", into, clock=100)
        bench.kill("c")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    for core in bench.cores.values():
        assert core.directory.subscriber(NAME) is not None
    bench.wait(int(FORGETFUL.forget) + 30, "a", "b")
    assert pen.outcomes == {} and not bench.cores["a"].directory.lapsed
    known = bench.cores["b"].directory.subscriber(NAME)
    assert known is not None and known.live
    InsideSubscriber(bench, "b", into, clock=200)
    assert into.taken == [b"1"] and pen.outcomes == {b"1": ACCEPTED}


def test_a_later_leader_has_it_whatever_the_clocks_say() -> None:
    """A leader that was given up, and does not know it, attaches again, with a clock ahead of all. It is told."""
    bench, into, other = mesh(meet=False), Incoming(), Incoming()
    bench.meet("b", "c")
    bench.flow()
    later = InsideSubscriber(bench, "b", into, clock=201)
    bench.wall_us += 3_000_000
    former = InsideSubscriber(bench, "a", other, clock=105)
    assert former.is_there and later.is_there
    bench.meet("a", "b")
    bench.meet("a", "c")
    bench.flow()
    assert (former.is_there, former.why, later.is_there) == (False, STOLEN, True)
    pen = pen_at(bench, "c")
    pen.send(b"1")
    assert (into.taken, other.taken) == ([b"1"], [])


def test_a_leader_that_was_given_up_cannot_attach_it_again() -> None:
    bench, into = mesh(), Incoming()
    former = InsideSubscriber(bench, "a", Incoming(), clock=100)
    later = InsideSubscriber(bench, "b", into, clock=200)
    former = InsideSubscriber(bench, "a", Incoming(), clock=101)
    assert (former.is_there, former.why, later.is_there) == (False, STOLEN, True)
    pen = pen_at(bench, "a")
    pen.send(b"1")
    assert into.taken == [b"1"]


def test_the_next_leader_goes_on_with_the_map() -> None:
    bench, into = mesh(), Incoming()
    pen = pen_at(bench, "a")
    former = InsideSubscriber(bench, "c", into, clock=100)
    pen.send(b"1")
    former.accepts = False
    pen.send(b"2")
    bench.kill("c")
    pen.send(b"3")
    later = InsideSubscriber(bench, "b", into, clock=200)
    assert into.taken == [b"1", b"2", b"3"] and later.is_there
    assert pen.outcomes == dict.fromkeys((b"1", b"2", b"3"), ACCEPTED)


def test_the_clock_of_a_leader_says_nothing_of_time() -> None:
    """Others conclude from the clocks of a router's attaches how far it has told of them (7.9)."""
    bench = mesh()
    directory = bench.cores["a"].directory
    pen_at(bench, "a", name="client")
    told = directory.members.told_up_to
    InsideSubscriber(bench, "a", Incoming(), clock=100)
    assert directory.members.told_up_to >= told > 100


def test_no_router_is_told_of_it_before_somebody_has_attached_it() -> None:
    bench = mesh()
    for core in bench.cores.values():
        own, gossip = core.directory.section()
        assert (own, gossip) == ([], [])
    InsideSubscriber(bench, "a", Incoming(), clock=100)
    assert [entry.index for entry in bench.cores["a"].directory.section()[0]] == [(Role.SUBSCRIBER, NAME)]


def test_a_router_that_does_not_list_it_learns_of_it_and_does_not_end_it() -> None:
    bench = mesh("a", "b", settings=attrs.evolve(FORGETFUL, boot_wait=1.0))
    bench.configured = ()
    bench.kill("b")
    bench.boot("b", 2)
    InsideSubscriber(bench, "a", Incoming(), clock=100)
    bench.meet("a", "b")
    bench.flow()
    bench.kill("a")
    bench.wait(int(FORGETFUL.forget) + 30, "b")
    known = bench.cores["b"].directory.subscriber(NAME)
    assert known is not None and known.live and known.is_configured


# rules broken on purpose

BROKEN: list[Broken] = [
    (Directory, "__init__", "*map(configured_subscriber, configured)", "",
     test_what_is_published_before_anybody_has_attached_it_waits),
    (Directory, "unattended", "if not entry.is_configured", "if True",
     partial(test_it_never_ends_and_never_lapses, is_attached=True)),
    (Directory, "section", " and entry.epoch != NOWHERE", "",
     test_no_router_is_told_of_it_before_somebody_has_attached_it),
    (Outlet, "leaders_epoch", "Epoch(clock", "Epoch(self.clock.stamp()",
     test_a_later_leader_has_it_whatever_the_clocks_say),
    (Outlet, "refuses", "latest < epoch.hlc", "True", test_a_leader_that_was_given_up_cannot_attach_it_again),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
