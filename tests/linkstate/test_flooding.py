"""Newest wins, strangers are refused, and what its origin does not renew is forgotten."""

import pytest

from linkstate.clock import TRUST_MS, HybridClock
from linkstate.flooding import LAST_SEQUENCE, Database, InstallResult
from linkstate.frames import AgedAdvertisement, Entries, decode_linkstate, encode_entries
from tests.plans import file

NEWER, KNOWN, OLDER, DISPUTED, REFUSED = InstallResult
TO_A = (("a", 100, 1),)


def entry(origin: str, incarnation: int, sequence: int, *, age_ms: int = 0, links: object = TO_A) -> AgedAdvertisement:
    assert isinstance(links, tuple)
    return AgedAdvertisement(origin, incarnation, sequence, age_ms, links)


@pytest.fixture
def database() -> Database:
    database = Database("a", 100, file("abc"), HybridClock().believes, refresh=10.0, max_age=40.0)
    database.originate((), 0.0)
    database.topology_changed = False
    return database


@pytest.mark.parametrize(
    ("version", "verdict"),
    [((200, 6), NEWER), ((201, 1), NEWER), ((200, 5), KNOWN), ((200, 4), OLDER), ((199, 9), OLDER)],
)
def test_the_newest_version_wins(database: Database, version: tuple[int, int], verdict: InstallResult) -> None:
    database.install(entry("b", 200, 5), 1.0)
    assert database.install(entry("b", *version), 1.0) is verdict
    assert database.entries["b"].version == max(version, (200, 5))


def test_routers_that_the_mesh_does_not_have_are_refused(database: Database) -> None:
    assert database.install(entry("x", 200, 1), 1.0) is REFUSED
    assert database.install(entry("b", 200, 1, links=(("x", 1, 1),)), 1.0) is REFUSED
    assert (sorted(database.entries), database.refused) == (["a"], 2)


def test_a_router_that_was_started_in_the_future_is_refused(database: Database) -> None:
    """Forged, it would hide the real one until it ages out."""
    assert database.install(entry("b", 1 << 62, 1), 1.0) is REFUSED
    assert database.install(entry("b", TRUST_MS + 1, 1), 1.0) is REFUSED
    assert database.install(entry("b", TRUST_MS, 1), 1.0) is NEWER


def test_a_router_with_more_links_than_there_are_others_is_refused(database: Database) -> None:
    assert database.install(entry("b", 200, 1, links=2 * TO_A), 1.0) is NEWER
    assert database.install(entry("b", 200, 2, links=3 * TO_A), 1.0) is REFUSED


def test_our_own_older_version_is_answered_with_the_present_one(database: Database) -> None:
    assert database.install(entry("a", 99, 50), 1.0) is OLDER


def test_our_own_version_of_the_future_is_overridden(database: Database) -> None:
    assert database.install(entry("a", 100, 50, links=(("b", 200, 1),)), 1.0) is DISPUTED
    assert database.originate((), 1.0).version == (100, 51)


def test_our_own_version_as_we_wrote_it_is_no_news(database: Database) -> None:
    assert database.install(entry("a", 100, 1, links=()), 1.0) is KNOWN


def test_router_overrides_an_advertisement_forged_under_its_name(database: Database) -> None:
    assert database.install(entry("a", 100, 1, links=(("b", 200, 1),)), 1.0) is DISPUTED
    assert database.originate((), 1.0).version == (100, 2)


def test_a_higher_incarnation_of_ourselves_is_left_to_age_out(database: Database) -> None:
    assert database.install(entry("a", 101, 1), 1.0) is REFUSED
    assert database.own is not None and database.own.version == (100, 1)


@pytest.mark.parametrize("sequence", [LAST_SEQUENCE - 1, LAST_SEQUENCE, LAST_SEQUENCE + 1, 2**63 - 1])
def test_no_number_forged_under_our_name_has_us_say_what_others_cannot_read(database: Database, sequence: int) -> None:
    database.install(entry("a", 100, sequence, links=(("b", 200, 1),)), 1.0)
    told = AgedAdvertisement("a", *database.originate((), 1.0).version, 0, ())
    assert decode_linkstate(encode_entries(1, [told])) == [Entries(1, (told,))]


def test_an_advertisement_that_is_not_renewed_is_forgotten_but_our_own(database: Database) -> None:
    database.install(entry("b", 200, 1, age_ms=5_000), 1.0)
    assert database.refresh_at == 10.0
    database.expire(35.9)
    assert sorted(database.entries) == ["a", "b"]
    database.expire(36.0)
    assert sorted(database.entries) == ["a"]


def test_age_travels_along_so_that_an_old_advertisement_is_not_revived(database: Database) -> None:
    database.install(entry("b", 200, 1), 0.0)
    (exported,) = database.export(["b"], 39.9999)
    assert exported.age_ms == 40_000
    database.expire(40.0)
    assert database.install(exported, 40.0) is REFUSED


def test_a_mere_renewal_does_not_change_the_topology(database: Database) -> None:
    database.install(entry("b", 200, 1), 0.0)
    assert database.topology_changed
    database.topology_changed = False
    database.install(entry("b", 200, 2), 1.0)
    assert not database.topology_changed
    database.install(entry("b", 200, 3, links=()), 1.0)
    assert database.topology_changed


def test_databases_with_the_same_versions_have_the_same_digest(database: Database) -> None:
    other = Database("c", 300, file("abc"), HybridClock().believes, refresh=10.0, max_age=40.0)
    other.install(entry("b", 200, 1), 5.0)
    other.install(entry("a", 100, 1, links=()), 5.0)
    assert other.digest() != database.digest()
    database.install(entry("b", 200, 1), 0.0)
    assert other.digest() == database.digest()


def test_a_summary_is_answered_with_what_it_lacks(database: Database) -> None:
    database.install(entry("b", 200, 5), 0.0)
    assert database.newer_than({}) == ["a", "b"]
    assert database.newer_than({"a": (100, 1), "b": (200, 4)}) == ["b"]
    assert database.newer_than({"a": (100, 1), "b": (200, 6)}) == []
