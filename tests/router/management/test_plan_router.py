"""Routers that join by way of `$management` (protocol 11): what is taken for one, and what is not."""

import contextlib
from collections.abc import Hashable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from linkstate.plan.names import MOST_COST
from linkstate.plan.plan import Plan, Standing, plan_of
from router.entities.observed import ObservedRouter
from router.management import plan_router
from router.management.requests import ManagementError
from router.neighbours import VERSION
from tests.router.observing import observed
from tests.router.test_node import CountingStore, boot
from topic.node import Node

SAID = {
    "mesh": "alone",
    "wire": VERSION,
    "routers": ["a", "d"],
    "amqp": "d.example.org:5672",
    "inter": "d.example.org:5772",
    "links": {"a": [5, "gateway:15772"]},
}


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObservedRouter]:
    """A router that is alone."""
    with CountingStore(tmp_path / "state.db") as store:
        node, ends = boot(store)
        monkeypatch.setattr(ends, "note", lambda happening: None)
        yield observed(node, tmp_path, started=0.0, epoch=0.0)


def join(at: ObservedRouter, name: str = "d", **changes: Any) -> Plan:
    assert plan_router.join(at, name, SAID | changes) == name
    return at.linkstate.plan


def remove(at: ObservedRouter, name: str) -> Plan:
    plan_router.remove(at, name)
    return at.linkstate.plan


def test_who_joins_is_in_the_plan_with_its_links(at: ObservedRouter) -> None:
    plan = join(at)
    assert plan.members == {"a", "d"} and plan.costs_of("d") == {"a": 5}
    assert (plan.routers["d"].amqp, plan.dialled_by("a")) == ("d.example.org:5672", {"d": "gateway:15772"})


def test_who_could_not_start_is_taken_back_and_may_join_later_as_another(at: ObservedRouter) -> None:
    join(at)
    assert remove(at, "d").routers["d"].standing is Standing.REMOVED
    plan = join(at, links={"a": [1, ""]})
    assert plan.members == {"a", "d"} and plan.routers["d"].since > 0
    assert plan.dialled_by("a") == {"d": "d.example.org:5772"}


def test_who_says_the_same_again_and_is_not_there_joins_with_the_links_that_it_says_now(at: ObservedRouter) -> None:
    plan = join(at)
    assert join(at) == plan
    assert join(at, links={"a": [7, ""]}).costs_of("d") == {"a": 7}
    with pytest.raises(ManagementError, match="the mesh already has a router of this name"):
        join(at, inter="elsewhere:5772")


@pytest.mark.parametrize("may_stop", ["", "d"])
def test_a_voter_is_removed_only_if_its_sets_have_a_majority_without_it(
    at: ObservedRouter, monkeypatch: pytest.MonkeyPatch, may_stop: str
) -> None:
    join(at)
    q0 = SimpleNamespace(name="q0", voters=("a", "d"), may_stop=tuple(may_stop))
    monkeypatch.setattr(Node, "sets", SimpleNamespace(overview=lambda: [q0]))
    if may_stop:
        assert remove(at, "d").routers["d"].standing is Standing.REMOVED
    else:
        with pytest.raises(ManagementError, match="router d is a voter of replica sets q0, and no majority is left"):
            remove(at, "d")


def test_who_is_there_is_not_removed_like_this(at: ObservedRouter) -> None:
    with pytest.raises(ManagementError, match="router a is running: use oncemesh remove a"):
        remove(at, "a")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mesh": "other"}, "this is mesh alone, not other"),
        ({"wire": VERSION + 1}, f"the mesh speaks wire version {VERSION}, this router {VERSION + 1}"),
        ({"wire": None}, "expected mesh, wire, routers, amqp, inter and links in the body"),
        ({"routers": ["a", 1]}, "expected mesh, wire, routers, amqp, inter and links in the body"),
        ({"routers": ["d"]}, "its topology lacks a, which the mesh has"),
        ({"routers": ["a", "c", "d"]}, "its topology has c, which the mesh does not have"),
        ({"name": "../d"}, "'../d' cannot name a router"),
        ({"name": "clients"}, "'clients' cannot name a router"),
        ({"name": "a", "links": {"b": [1, ""]}}, "the mesh already has a router of this name"),
        ({"inter": "0.0.0.0:5772"}, "inter: 0.0.0.0:5772 is no reachable address"),
        ({"inter": ""}, 'inter: "" is not an address'),
        ({"amqp": "d.example.org:0"}, "amqp: d.example.org:0 is no reachable address"),
        ({"links": {}}, "it has no link, expected a link to a router of the mesh"),
        ({"links": {"a": [1, ""], "b": [1, ""]}}, "there is no router 'b', expected a"),
        ({"links": {f"{n}": [1, ""] for n in range(3000)}}, "there is no router '0', expected a"),
        ({"links": {"a": [1, ""], "d": [1, ""]}}, "links: 'd': [1, ''], expected [cost, address], and another router"),
        ({"links": {"a": [True, ""]}}, "links: 'a': [True, ''], expected [cost, address]"),
        ({"inter": "a\0b:5772"}, "is not an address"),
        ({"links": {"a": [0, ""]}}, "links: 'a': [0, ''], expected [cost, address]"),
        ({"links": {"a": [MOST_COST + 1, ""]}}, "links: 'a': [65536, ''], expected [cost, address]"),
        ({"links": {"a": 1}}, "links: 'a': 1, expected [cost, address]"),
        ({"links": {"a": [1, "x"]}}, 'link to a: "x" is not an address'),
    ],
)
def test_who_does_not_fit_is_told_why_and_the_plan_is_what_it_was(
    at: ObservedRouter, changes: dict[str, Any], reason: str
) -> None:
    before = at.linkstate.plan
    with pytest.raises(ManagementError) as told:
        join(at, **changes)
    assert reason in str(told.value)
    assert at.linkstate.plan == before


@pytest.mark.parametrize("where", [*SAID])
@pytest.mark.parametrize("what", [None, True, 7, 1 << 70, -1, 0.5, b"a", "", "\0", "x" * 30_000, [[]], {1: {2: []}}])
def test_what_may_be_said_is_refused_or_leaves_a_plan_that_others_read(
    at: ObservedRouter, where: str, what: object
) -> None:
    neighbour = what if isinstance(what, Hashable) else "d"
    bodies: list[dict[str, Any]] = [
        {"links": {"a": link, neighbour: link}} for link in ([what, ""], [1, what], [1, ""])
    ]
    for changes in ({where: what}, *bodies):
        with contextlib.suppress(ManagementError):
            join(at, **changes)
        plan = at.linkstate.plan
        assert plan_of(msgpack.unpackb(msgpack.packb(plan.changed()))).changed() == plan.changed()


def test_an_address_is_one_routers(at: ObservedRouter) -> None:
    join(at)
    with pytest.raises(ManagementError, match=f"router d is at {SAID['amqp']} already, expected another address"):
        join(at, "e", routers=["a", "d"], inter="e:1")
