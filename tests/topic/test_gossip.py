"""What a router is told of subscribers as it takes over a publisher (protocol 3.3, 7.4): what it lacks, and once. And
what gossip says of attaches (6.7)."""

from unittest.mock import patch

import attrs
import pytest

from linkstate.clock import HybridClock
from linkstate.mesh_actions import ContactLost
from tests.topic.bench import SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import NEWS
from topic.actions import Detach
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory import entries
from topic.directory.directory import Directory
from topic.directory.entry import Lifetime, LinkEntry, Role, Status
from topic.directory.gossip import FEW, Gossip
from topic.directory.members import Members
from topic.identity import Epoch, LinkIdentity, link_name

LASTING = Lifetime(60, "connection-close", 1)
PEN = LinkIdentity("p", "link", NEWS)


class Router:
    """b, in contact with a and c; a tells it of subscribers."""

    def __init__(self) -> None:
        self.directory = Directory(Members("b", 1, ["a", "b", "c"], HybridClock(1000)))
        self.gossip = Gossip(self.directory)
        self.version = 0
        for contact in ("a", "c"):
            self.directory.contact(contact, 7)
            self.directory.apply_section(contact, 0, 0, [], [])
            self.gossip.contact(contact)

    def learn(self, container: str, router: str = "a") -> LinkEntry:
        self.version += 1
        identity = LinkIdentity(container, "in", "topic/news")
        epoch = Epoch(self.version, router, 7)
        entry = LinkEntry(Role.SUBSCRIBER, link_name(identity), identity, epoch, lifetime=LASTING)
        self.directory.apply_delta(router, self.version, entry.epoch.hlc, [entry])
        self.gossip.learned(entry.name, self.version)
        return entry


@pytest.fixture
def b() -> Router:
    return Router()


def test_everything_that_its_owner_has_not_told_it_in_that_order(b: Router) -> None:
    first, second = b.learn("s1"), b.learn("s2")
    assert b.gossip.lacking("c", {}) == [first, second]


def test_nothing_twice(b: Router) -> None:
    first = b.learn("s1")
    assert b.gossip.lacking("c", {}) == [first]
    assert b.gossip.lacking("c", {}) == []
    second = b.learn("s2")
    assert b.gossip.lacking("c", {}) == [second]


def test_nothing_that_its_owner_has_told_it(b: Router) -> None:
    b.learn("s1")
    second = b.learn("s2")
    assert b.gossip.lacking("c", {"a": (7, 1)}) == [second]


def test_news_of_a_former_incarnation_of_the_owner_does_not_count(b: Router) -> None:
    first = b.learn("s1")
    assert b.gossip.lacking("c", {"a": (6, 1)}) == [first]


def test_nothing_of_its_own(b: Router) -> None:
    b.learn("s1", router="c")
    assert b.gossip.lacking("c", {}) == []


def test_one_that_has_attached_again_comes_once_and_last(b: Router) -> None:
    b.learn("s1")
    second, again = b.learn("s2"), b.learn("s1")
    assert b.gossip.lacking("c", {}) == [second, again]


def test_a_new_contact_has_had_all_with_our_section(b: Router) -> None:
    b.learn("s1")
    b.gossip.contact("c")
    assert b.gossip.lacking("c", {}) == []


def test_forgotten_subscriber_is_no_news(b: Router) -> None:
    b.learn("s1")
    b.directory.contact_lost("a")
    b.directory.forget(next(b.directory.entries()))
    assert b.gossip.lacking("c", {}) == []


def test_subscribers_that_have_ended_do_not_pile_up(b: Router) -> None:
    lasting = b.learn("s")
    for number in range(10 * FEW):
        ended = attrs.evolve(b.learn(f"s{number}"), status=Status.CLOSED)
        b.directory.apply_delta("a", b.version, ended.epoch.hlc, [ended])
    assert len(b.gossip._news) <= 2 + FEW + 2
    assert b.gossip.lacking("c", {}) == [lasting]


def test_a_home_is_told_of_a_later_attach_at_a_router_that_died() -> None:
    """Only c has heard of it, its clock is ahead, and its client went on at b: all others would take b for a zombie."""
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "b")
    bench.cores["a"].outlet.clock.merge(bench.cores["b"].outlet.clock.read() + (1 << 30))
    bench.hold("a", "b")
    bench.hold("c", "b")
    unanswered = pen_at(bench, "a", pen, unsettled={})
    bench.hold("b", "c")
    again = pen_at(bench, "b", pen, unsettled={})
    assert again.stream.epoch < unanswered.stream.epoch
    bench.kill("a")
    bench.let_go()
    assert [detach.condition for detach in again.mine(Detach)] == ["amqp:link:stolen"]
    last = pen_at(bench, "b", again, unsettled={})
    entry = bench.cores["c"].directory.publisher(last.stream.publisher)
    assert entry is not None and entry.epoch == last.stream.epoch


@pytest.mark.parametrize("lifetime", [Lifetime(), LASTING])
def test_a_publisher_that_left_and_closed_elsewhere_before_it_was_heard_of_is_no_more(lifetime: Lifetime) -> None:
    bench = Bench("a", "b", "c")
    bench.hold("b", "c")
    bench.publisher("b", lifetime=lifetime)
    bench.publisher("a", lifetime=lifetime).close()
    bench.let_go()
    bench.wait(2 * LASTING.timeout + int(SETTINGS.terminus))
    assert not any(list(core.directory.entries()) for core in bench.cores.values())


def test_a_publisher_is_nowhere_for_a_router_that_has_forgotten_its_end() -> None:
    """News of an attach at c comes to b late, and c gates a subscriber at b. But the publisher has been at b since, and
    at a, and b has forgotten that it closed there: for b it is at c."""
    bench = Bench("a", "b", "c")
    bench.hold("a", "c")
    bench.hold("c", "b")
    bench.publisher("c", lively=False).send(b"1")
    reader = reader_at(bench, "b", unsettled={})
    bench.hold("b", "c")
    bench.publisher("b").close()
    bench.publisher("a").close()
    while bench.under_way("c", "b"):
        bench.step("c", "b")
    assert reader.end.gated
    while bench.under_way("b", "c"):  # so b itself says where the publisher went
        bench.step("b", "c")
    bench.let_go()
    assert not reader.end.gated
    assert not any(core.directory.publisher(link_name(PEN)) for core in bench.cores.values())


def test_a_publisher_is_nowhere_for_a_router_that_has_told_of_its_end_and_forgotten_it() -> None:
    """Only b tells c of the end, and hears late that the publisher had attached again at c before."""
    bench = Bench("a", "b", "c", "d")
    bench.part("b", "d")
    for here, there in (("a", "c"), ("b", "c"), ("c", "b")):
        bench.hold(here, there)
    bench.publisher("c")
    bench.publisher("c")
    bench.publisher("a").close()
    bench.step("c", "b")
    bench.meet("b", "d")
    bench.flow()
    while bench.under_way("c", "b"):
        bench.step("c", "b")
    entry = bench.cores["b"].directory.publisher(link_name(PEN))
    assert entry is not None and entry.router == "c"
    while bench.under_way("b", "c"):  # before a does
        bench.step("b", "c")
    bench.let_go()
    assert not any(core.directory.publisher(link_name(PEN)) for core in bench.cores.values())


def test_new_home_learns_subscribers_that_the_former_home_knows() -> None:
    """Of a subscriber at a router that the new home has not been in contact with since, and that has died."""
    bench = Bench("a", "b", "c")
    bench.part("a", "c")
    pen, reader = pen_at(bench, "b"), reader_at(bench, "a", credit=0)
    pen.send(b"1")
    bench.kill("a")
    again = pen_at(bench, "c", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    again.send(b"1")
    assert not again.outcomes and reader.delivered == []


def test_nothing_is_a_rumour_that_its_owner_has_spoken_of_before() -> None:
    """It is over, as c has not heard, and b does not remember it, as so many others have ended since."""
    bench = Bench("a", "b", "c")
    bench.hold("c", "b")
    reader = reader_at(bench, "a", unsettled={})
    bench.hold("a", "c")
    with patch.object(entries, "MOST_PAST", 0):
        reader.close()
    pen = pen_at(bench, "b")
    while bench.under_way("c", "b"):
        bench.step("c", "b")
    bench.part("a", "b")
    pen.send(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_news_of_an_earlier_attach_does_not_overtake_the_present_one() -> None:
    """It goes from b to c, and back to b, which has heard of that by d; c has joined it there, a is late."""
    bench = Bench("a", "b", "c", "d")
    bench.hold("a", "b")
    bench.hold("c", "b")
    reader_at(bench, "b")
    reader_at(bench, "c", unsettled={})
    again = reader_at(bench, "b", unsettled={})
    while bench.under_way("c", "b"):
        bench.step("c", "b")
    assert again.end.unanswered == {"a"}
    bench.time(SETTINGS.join)
    assert [late.router for late in bench.actions["b"] if isinstance(late, ContactLost)] == ["a"]


def test_news_under_way_does_not_bring_an_ended_link_back() -> None:
    """Router c has passed the attach on. When a hears that, all know of the end, and b, whose link it was, is lost."""
    bench = Bench("a", "b", "c")
    bench.hold("c", "a")
    reader_at(bench, "b", unsettled={}).close()
    bench.kill("b")
    assert bench.under_way("c", "a")
    while bench.under_way("c", "a"):
        bench.step("c", "a")
        assert not any(entry.live for entry in bench.cores["a"].directory.entries())


def test_news_of_the_former_owner_does_not_bring_an_ended_link_back() -> None:
    """b had the links, and was slow to say so to c, which by then has heard from a that they have ended there. b has
    forgotten them as well, and a is lost: nobody would speak of them any more."""
    bench = Bench("a", "b", "c")
    bench.hold("b", "c")
    for router in "ba":
        links = pen_at(bench, router, unsettled={}), reader_at(bench, router, unsettled={})
    for link in links:
        link.close()
    bench.kill("a")
    assert bench.under_way("b", "c")
    while bench.under_way("b", "c"):
        bench.step("b", "c")
        assert not any(entry.live for entry in bench.cores["c"].directory.entries())
    bench.flow()
    assert not any(entry.live for name in "bc" for entry in bench.cores[name].directory.entries())


def test_router_learns_of_an_ending_that_others_have_forgotten() -> None:
    """Else it would wait for the link for ever, as those whom it points it out to know better."""
    bench = Bench("a", "b", "c")
    reader = reader_at(bench, "b")
    bench.hold("b", "c")
    bench.hold("a", "c")
    reader.close()
    bench.kill("b")
    bench.part("a", "c")
    bench.let_go()
    assert any(entry.live for entry in bench.cores["c"].directory.entries())
    bench.meet("a", "c")
    bench.flow()
    assert not any(entry.live for name in "ac" for entry in bench.cores[name].directory.entries())
