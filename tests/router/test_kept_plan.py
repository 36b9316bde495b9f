"""What of the plan of a mesh a router's state store keeps (protocol 11)."""

from pathlib import Path

import pytest

from linkstate.plan.plan import MOST_TAKEN, Plan, PlannedLink, PlannedRouter, Standing
from tests.plans import file
from tests.router.test_store import changed_plan, entry, refused, store, tamper


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_a_plan_is_kept_as_far_as_it_was_changed(path: Path) -> None:
    with store(path) as first:
        assert not any(first.plan.changed())
        first.save([], 1, changed_plan())
    with store(path) as again:
        assert again.plan.changed() == changed_plan().changed()
        assert file("abc", "ab", "bc").merge(again.plan) == changed_plan()


def test_a_store_from_before_there_were_plans_has_an_empty_one_and_all_that_it_had(path: Path) -> None:
    with store(path) as first:
        first.save([entry("s")], 1)
    tamper(path, "DROP TABLE plan")
    tamper(path, "PRAGMA user_version = 2")
    for _ in range(2):
        with store(path) as again:
            assert again.remembered == [entry("s")]
            assert not any(again.plan.changed())


def test_of_a_plan_that_was_kept_with_an_address_that_is_none_all_else_counts(path: Path) -> None:
    """As from before these were refused: a router that is to dial it would end at each start."""
    version, wanted = (1, "a"), file("abc", "ab", "bc")
    poisoned = {"b": PlannedRouter(5, Standing.LEAVING, version, "nowhere", "é.org:1")}
    links = {("a", "b"): PlannedLink(version, 7, "two words:1")}
    with store(path) as first:
        first.save([], 1, Plan(poisoned, links))
    with store(path) as again:
        plan = wanted.merge(again.plan)
    assert plan.routers["b"] == PlannedRouter(5, Standing.LEAVING, version, "", "xn--9ca.org:1")
    assert plan.links["a", "b"] == PlannedLink(version, 7, "")


def test_a_plan_that_is_none_is_refused_as_all_else_that_cannot_be_read(path: Path) -> None:
    """As one of more routers than are taken, from before those were counted."""
    with store(path) as first:
        first.save([], 1, Plan({f"r{number}": PlannedRouter(version=(1, "a")) for number in range(MOST_TAKEN + 1)}, {}))
    refused(path, "the stored plan of the mesh cannot be read: the data are not a plan")
