"""Whom a strike hits: by name, by number, by what they are to a client; never anybody who cannot be struck."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failover.chaos.script.targets import (
    AMOUNTS,
    Field,
    Named,
    ReplicaOf,
    RouterOf,
    Several,
    Some,
    Target,
    replicas_in,
    resolve,
    sides,
)

ROUTERS = ("a", "b", "c", "d", "e")
GROUPS = {"west": ("a", "b")}
SEATS = {"news": "d", "reader": "b"}

opens = st.sets(st.sampled_from(ROUTERS)).map(lambda some: [name for name in ROUTERS if name in some])
plain = st.one_of(
    st.sampled_from(AMOUNTS).map(Some),
    st.sampled_from([*ROUTERS, "west"]).map(Named),
    st.sampled_from(["news", "reader", "gone"]).map(lambda client: RouterOf("home-of", client)),
)
targets: st.SearchStrategy[Target] = st.one_of(
    plain, st.lists(plain, max_size=3).map(lambda some: Several(tuple(some)))
)


def field(*of: str) -> Field:
    return Field(ROUTERS, of or ROUTERS, GROUPS, SEATS)


@given(targets, opens, st.integers())
def test_only_those_are_hit_that_can_be_struck_each_once_and_in_order(target: Target, of: list[str], seed: int) -> None:
    found = resolve(target, Field(ROUTERS, of, GROUPS, SEATS), Random(seed))
    assert list(found) == [name for name in of if name in found]
    assert found == resolve(target, Field(ROUTERS, of, GROUPS, SEATS), Random(seed))


@pytest.mark.parametrize(("amount", "number"), [("one", 1), ("minority", 2), ("majority", 3), ("all", 5)])
def test_an_amount_counts_the_whole_mesh(amount: str, number: int) -> None:
    assert len(resolve(Some(amount), field(), Random(1))) == number
    assert len(resolve(Some(amount), field("a", "b"), Random(1))) == min(number, 2)


def test_who_a_router_is_to_a_client_is_asked_at_the_strike() -> None:
    assert resolve(RouterOf("home-of", "news"), field(), Random(1)) == ("d",)
    assert str(RouterOf("home-of", "news")) == "the router of publisher news"
    assert str(RouterOf("custodian-of", "reader")) == "the router of subscriber reader"
    assert resolve(RouterOf("home-of", "gone"), field(), Random(1)) == ()
    assert resolve(Several((RouterOf("home-of", "news"), Named("west"))), field(), Random(1)) == ("a", "b", "d")


def replica(what: str) -> ReplicaOf:
    return ReplicaOf(what, "queue/orders", "q0")


def led(*of: str) -> Field:
    """Router c leads the set, a and b follow."""
    return Field(ROUTERS, of or ROUTERS, GROUPS, SEATS, {"q0": ["c", "a", "b"]})


def test_the_leader_of_a_set_is_one_router_and_a_follower_one_of_the_others() -> None:
    assert resolve(replica("leader-of"), led(), Random(1)) == ("c",)
    assert {resolve(replica("follower-of"), led(), Random(seed)) for seed in range(20)} == {("a",), ("b",)}
    assert {resolve(replica("follower-of"), led("b", "c"), Random(seed)) for seed in range(20)} == {("b",)}
    assert resolve(replica("leader-of"), led("a"), Random(1)) == ()
    assert resolve(replica("follower-of"), Field(ROUTERS, ROUTERS, voters={"q0": ["c"]}), Random(1)) == ()
    assert str(replica("leader-of")) == "the leader of queue/orders"
    assert str(replica("follower-of")) == "a follower of queue/orders"


def test_a_replica_stands_for_its_links_where_links_are_struck() -> None:
    field = Field(["a-b", "b-c"], ["a-b", "b-c"], {"a": ("a-b",), "c": ("b-c",)}, {}, {"q0": ["c", "a"]})
    assert resolve(replica("leader-of"), field, Random(1)) == ("b-c",)
    assert resolve(replica("follower-of"), field, Random(1)) == ("a-b",)


def test_all_sets_of_a_target_are_found() -> None:
    leader, follower = replica("leader-of"), replica("follower-of")
    assert [*replicas_in(Several((leader, Named("a"), Several((follower,)))))] == [leader, follower]
    assert [*replicas_in(leader)] == [leader]
    assert [*replicas_in(Named("a"))] == [*replicas_in(None)] == []


def test_what_is_on_no_side_of_a_partition_is_a_side_of_its_own() -> None:
    assert sides(Several((Named("west"), Named("d"))), field(), Random(1)) == [("a", "b"), ("d",), ("c", "e")]
    assert sides(Named("west"), field(), Random(1)) == [("a", "b"), ("c", "d", "e")]


@given(targets, st.integers())
def test_the_sides_of_a_partition_are_all_routers_each_once(target: Target, seed: int) -> None:
    found = sides(target, field(), Random(seed))
    assert sorted(name for side in found for name in side) == list(ROUTERS)
    assert all(found)
