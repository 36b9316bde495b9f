"""The merged view of links (protocol 3.3): the highest epoch wins, whatever the order of news."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkstate.clock import HybridClock
from topic.directory.directory import Directory
from topic.directory.entry import Lifetime, LinkEntry, Role, Status
from topic.directory.members import Members
from topic.directory.rumours import Rumours
from topic.errors import BreachError
from topic.identity import Epoch, LinkIdentity, link_name

ROUTERS = ("a", "b", "c")
ADDRESS = "topic/x"


def entry(
    name: str, router: str, hlc: int, status: Status = Status.ATTACHED, role: Role = Role.SUBSCRIBER
) -> LinkEntry:
    identity = LinkIdentity(name, "link", ADDRESS)
    return LinkEntry(role, link_name(identity), identity, Epoch(hlc, router, 1), status=status)


def directory(*contacts: str) -> Directory:
    here = Directory(Members("a", 1, ROUTERS, HybridClock(1000)))
    for router in contacts:
        here.contact(router, 1)
        here.apply_section(router, 0, 0, [], [])
    return here


def where(here: Directory) -> dict[str, str]:
    return {found.identity.container: found.router for found in here.entries() if found.live}


ATTACHES = st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("bc")), min_size=1, max_size=8)


@given(ATTACHES, st.randoms(use_true_random=False))
def test_the_latest_attach_wins_in_any_order_of_deltas(attaches: list[tuple[str, str]], random: object) -> None:
    """Each router's deltas come in order; how those of two routers interleave does not matter."""
    news = [entry(name, router, hlc) for hlc, (name, router) in enumerate(attaches, 1)]
    queues = {router: [e for e in news if e.router == router] for router in "bc"}
    here, versions = directory("b", "c"), dict.fromkeys("bc", 0)
    while any(queues.values()):
        router = random.choice([r for r in "bc" if queues[r]])  # type: ignore[attr-defined]
        versions[router] += 1
        said = queues[router].pop(0)
        here.apply_delta(router, versions[router], said.epoch.hlc, [said])
    assert where(here) == {e.identity.container: e.router for e in news}


def test_news_of_an_older_attach_changes_nothing() -> None:
    here = directory("b", "c")
    here.apply_delta("b", 1, 5, [entry("x", "b", 5)])
    assert here.apply_delta("c", 1, 4, [entry("x", "c", 4)]) == []
    assert here.apply_delta("c", 2, 4, [entry("x", "c", 4, Status.CLOSED)]) == []
    assert where(here) == {"x": "b"}


def test_a_section_never_goes_back() -> None:
    here = directory("b")
    here.apply_delta("b", 2, 5, [entry("x", "b", 5)])
    with pytest.raises(BreachError, match="went back"):
        here.apply_delta("b", 1, 5, [])


def lasting(name: str, router: str, hlc: int) -> LinkEntry:
    return attrs.evolve(entry(name, router, hlc), lifetime=Lifetime(60))


def test_a_departure_that_is_older_than_the_attach_changes_nothing() -> None:
    here = directory("b", "c")
    here.apply_delta("b", 1, 5, [entry("x", "b", 5)])
    assert here.apply_departures("b", [entry("x", "c", 4)]) == []
    assert where(here) == {"x": "b"}


def test_who_moved_to_a_router_in_contact_is_nowhere_until_that_says_so() -> None:
    here = directory("b", "c")
    here.apply_delta("b", 1, 5, [lasting("x", "b", 5)])
    here.apply_departures("b", [lasting("x", "c", 6)])
    [moved] = here.entries()
    assert not here.in_contact(moved)
    assert moved not in here.section()[1], "what nobody has but by hearsay is told to nobody"
    here.apply_delta("c", 1, 6, [lasting("x", "c", 6)])
    assert here.in_contact(moved)


def test_what_others_say_of_one_that_does_not_outlive_its_router_is_no_rumour() -> None:
    rumours = Rumours()
    for told in (entry("x", "b", 5), lasting("y", "b", 6), attrs.evolve(lasting("z", "b", 7), status=Status.CLOSED)):
        rumours.learn(told, None)
    assert [told.identity.container for told in rumours.take("b")] == ["y"]


def test_what_is_durable_and_ends_with_its_session_outlives_no_router() -> None:
    for timeout in (0, 60):
        durable = attrs.evolve(entry("x", "b", 5), lifetime=Lifetime(timeout, "session-end", 1))
        assert durable.outlives_router is bool(timeout)


def test_who_moved_out_of_contact_is_an_orphan_there() -> None:
    here = directory("b")
    here.apply_delta("b", 1, 5, [lasting("x", "b", 5)])
    here.apply_departures("b", [lasting("x", "c", 6)])
    [moved] = here.entries()
    assert not here.is_announced(moved) and moved in here.section()[1]


def test_who_moved_to_a_router_that_has_told_later_attaches_and_not_this_is_gone() -> None:
    here = directory("b", "c")
    here.apply_delta("b", 1, 5, [entry("x", "b", 5)])
    here.apply_delta("c", 1, 7, [entry("y", "c", 7)])
    here.apply_departures("b", [entry("x", "c", 6)])
    assert where(here) == {"y": "c"}


def test_a_lost_router_takes_plain_publishers_along_and_its_plain_subscribers_lapse() -> None:
    here = directory("b", "c")
    here.apply_delta("b", 1, 2, [entry("p", "b", 1, role=Role.PUBLISHER), entry("x", "b", 2)])
    here.apply_delta("c", 1, 3, [entry("y", "c", 3)])
    [change] = here.contact_lost("b")
    assert here.audience(ADDRESS).counted_on == ("b",), "the router may come back with its plain subscriber"
    here.give_up(("b", 1), since_us=7)
    assert (change.entry.role, change.new, where(here)) == (Role.PUBLISHER, None, {"x": "b", "y": "c"})
    assert list(here.lapsed.values()) == [7] and here.audience(ADDRESS).routers == ("c",)


def test_what_a_whole_section_does_not_list_was_closed() -> None:
    here = directory("b")
    here.apply_delta("b", 1, 2, [entry("x", "b", 1), entry("y", "b", 2)])
    changes = here.apply_section("b", 2, 2, [entry("y", "b", 2)], [])
    assert [(change.entry.identity.container, change.new) for change in changes] == [("x", None)]


def test_a_section_does_not_speak_for_a_later_attach_that_gossip_told_of() -> None:
    here = directory("c")
    here.apply_gossip("c", [attrs.evolve(entry("x", "b", 2), lifetime=Lifetime(60))])
    here.contact("b", 1)
    assert here.apply_section("b", 1, 1, [attrs.evolve(entry("x", "b", 1), lifetime=Lifetime(60))], []) == []
    later = attrs.evolve(entry("x", "b", 2), lifetime=Lifetime(60))
    assert here.audience(ADDRESS).orphans == (later.name,)
    assert [change.new for change in here.apply_delta("b", 2, later.epoch.hlc, [later])] == [later]
    assert here.audience(ADDRESS).routers == ("b",)


def test_the_audience_is_routers_in_contact_and_orphans() -> None:
    here = directory("b", "c")
    here.write(entry("x", "a", 1))
    here.apply_delta("b", 1, 3, [entry("y", "b", 2), entry("z", "b", 3)])
    assert (here.audience(ADDRESS).routers, here.audience(ADDRESS).orphans) == (("b",), ())
    moved = entry("z", "c", 4)
    here.apply_departures("b", [moved])
    assert here.audience(ADDRESS).orphans == (moved.name,), "its new custodian has not spoken yet"
    here.apply_delta("c", 1, moved.epoch.hlc, [moved])
    assert (here.audience(ADDRESS).routers, here.audience(ADDRESS).orphans) == (("b", "c"), ())


def test_a_departure_to_where_we_have_no_contact_is_the_end_for_us() -> None:
    here = directory("b")
    here.apply_delta("b", 1, 1, [entry("x", "b", 1)])
    [change] = here.apply_departures("b", [entry("x", "c", 2)])
    assert (change.new, where(here)) == (None, {})


def test_a_departure_told_after_the_new_custodian_closed_the_link_is_stale() -> None:
    here = directory("b", "c")
    here.apply_delta("c", 2, 2, [entry("x", "c", 2), entry("x", "c", 2, Status.CLOSED)])
    here.apply_delta("b", 1, 1, [entry("x", "b", 1)])
    here.apply_departures("b", [entry("x", "c", 2)])
    assert where(here) == {}


def test_who_has_moved_on_from_there_too_before_we_were_told_is_still_waited_for() -> None:
    here = directory("b")
    lasting = Lifetime(60)
    here.apply_delta("b", 1, 1, [attrs.evolve(entry("x", "b", 1), lifetime=lasting)])
    here.contact("c", 1)
    here.apply_section("c", 9, 5, [entry("y", "c", 5)], [])
    moved = attrs.evolve(entry("x", "c", 2), lifetime=lasting)
    here.apply_departures("b", [moved])
    assert here.audience(ADDRESS).orphans == (moved.name,), "until b says that it is back there"
    here.apply_delta("b", 3, 6, [attrs.evolve(entry("x", "b", 6), lifetime=lasting)])
    assert (here.audience(ADDRESS).routers, here.audience(ADDRESS).orphans) == (("b", "c"), ())


def test_only_who_has_it_confirms_what_was_announced() -> None:
    here = directory("b", "c")
    moved = attrs.evolve(entry("x", "c", 2), lifetime=Lifetime(60))
    here.apply_delta("b", 1, 1, [attrs.evolve(entry("x", "b", 1), lifetime=Lifetime(60))])
    here.apply_departures("b", [moved])
    here.apply_gossip("c", [moved])
    assert here.audience(ADDRESS).orphans == (moved.name,)
    here.mark(moved, Status.BOUND)
    here.apply_delta("c", 1, moved.epoch.hlc, [moved])
    assert here.audience(ADDRESS).routers == ("c",)


def test_what_was_announced_is_told_to_others_when_its_owner_is_lost() -> None:
    """All others that know of it may be started again before that one is."""
    here = directory("b", "c")
    moved = attrs.evolve(entry("x", "c", 2), lifetime=Lifetime(60))
    here.apply_delta("b", 1, 1, [attrs.evolve(entry("x", "b", 1), lifetime=Lifetime(60))])
    here.apply_departures("b", [moved])
    assert moved not in here.section()[1]
    here.contact_lost("c")
    assert moved in here.section()[1]
    assert here.audience(ADDRESS).orphans == (moved.name,)


def test_a_departure_to_us_told_after_we_have_ended_the_link_is_stale() -> None:
    here = directory("b")
    here.apply_delta("b", 1, 1, [attrs.evolve(entry("x", "b", 1), lifetime=Lifetime(60))])
    here.apply_departures("b", [attrs.evolve(entry("x", "a", 2), lifetime=Lifetime(60))])
    assert where(here) == {}


def test_tombstones_are_kept_until_every_router_of_the_topology_has_acknowledged_them() -> None:
    here = directory("b")
    mine = entry("x", "a", 1)
    here.write(mine)
    here.write(attrs.evolve(mine, status=Status.CLOSED))
    here.acknowledge("b", 2)
    assert [found.status for found in here.section()[0]] == [Status.CLOSED]
    here.contact("c", 1)
    here.acknowledge("c", 2)
    assert list(here.entries()) == []


def test_a_contact_starts_with_nothing_acknowledged() -> None:
    here = directory("b")
    here.write(entry("x", "a", 1))
    here.acknowledge("b", 1)
    assert here.members.have(here.contacts, 1)
    here.contact_lost("b")
    here.contact("b", 2)
    assert not here.members.have(here.contacts, 1)


def with_one_that_has_ended() -> Directory:
    """At b, under clock 5, as all know: it is forgotten."""
    here = directory("b", "c")
    for router in "bc":
        here.acknowledge(router, 0)
    here.apply_delta("b", 1, 5, [lasting("x", "b", 5)])
    here.apply_delta("b", 2, 5, [attrs.evolve(lasting("x", "b", 5), status=Status.CLOSED)])
    assert list(here.entries()) == []
    return here


def test_the_end_of_an_older_attach_that_is_told_late_does_not_make_a_later_one_live() -> None:
    here = with_one_that_has_ended()
    here.apply_delta("c", 1, 3, [attrs.evolve(lasting("x", "c", 3), status=Status.CLOSED)])
    here.contact_lost("b")
    assert here.apply_gossip("c", [lasting("x", "b", 5)]) == []
    assert where(here) == {}


def test_who_has_moved_to_an_attach_that_has_ended_is_gone() -> None:
    here = with_one_that_has_ended()
    here.contact_lost("b")
    here.apply_delta("c", 1, 3, [attrs.evolve(lasting("x", "c", 3), status=Status.CLOSED)])
    here.apply_departures("c", [lasting("x", "b", 5)])
    assert where(here) == {}


def test_the_latest_attach_of_a_link_is_known_still_when_that_has_ended_and_is_forgotten() -> None:
    here, index = with_one_that_has_ended(), lasting("x", "b", 5).index
    assert here.latest(index) == 5
    here.apply_delta("c", 1, 7, [lasting("x", "c", 7)])
    assert here.latest(index) == 7
    assert here.latest(entry("y", "b", 1).index) == 0
