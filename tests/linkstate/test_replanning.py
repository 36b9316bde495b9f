"""A plan that changes (protocol 11): flooded with link state, the same everywhere at rest, and followed."""

import pytest

from linkstate.frames import Hello, PeerError, Planned, decode_linkstate, encode_hello
from linkstate.mesh_actions import Transmit
from tests.linkstate.network import DEAD, Network, line, ring
from tests.plans import file


def rest(network: Network) -> None:
    """Transports come where the plans say, and go."""
    for _ in range(3):
        network.connect_all()
        network.run(5 * DEAD)


def plans(network: Network) -> set[int]:
    return {mesh.plan.digest for mesh in network.meshes.values()}


def test_a_change_of_costs_reaches_all_and_moves_the_paths_without_a_loss_of_contact() -> None:
    """a─b─c, and a─c at 1; then a─c costs 5"""
    network = Network(ring("a", "b", "c"))
    rest(network)
    made = dict(network.ledger.current)
    network.replan("a", file("abc", "ab", "bc", "ac5"))
    network.run(1.0)
    assert len(plans(network)) == 1
    assert network.meshes["a"].routes["c"].path == ("b", "c")
    assert network.meshes["c"].routes["a"].path == ("b", "a")
    assert network.ledger.current == made


def test_a_router_that_is_new_meets_all() -> None:
    """a─b─c; d comes to c"""
    network = Network(line("a", "b", "c", "d"), file=file("abc", "ab", "bc"))
    network.connect("a", "b")
    network.connect("b", "c")
    network.run(2.0)
    network.replan("a", file("abcd", "ab", "bc", "cd"))
    network.run(1.0)
    assert set(network.meshes["a"].contacts) == set("bc"), "nobody is there yet"
    network.file = network.file.merge(file("abcd", "ab", "bc", "cd"))
    network.restart("d")
    network.connect("c", "d")
    network.run(2.0)
    assert network.all_in_contact()
    assert len(plans(network)) == 1


def test_removed_router_leaves_no_trace() -> None:
    """a─b─c─d; d is removed at a"""
    network = Network(line("a", "b", "c", "d"))
    rest(network)
    network.replan("a", file("abc", "ab", "bc"), forced="d")
    network.run(3 * DEAD)
    for name in "abc":
        mesh = network.meshes[name]
        assert set(mesh.contacts) == set("abc") - {name}
        assert "d" not in mesh.routes
        assert "d" not in mesh._linkstate.database.entries
        assert "d" not in mesh._contacts._contacts
    d = network.meshes["d"]
    assert d.plan.is_out("d", 1003)
    assert not d.contacts
    assert not d.neighbours


def test_a_breach_of_who_was_removed_meanwhile_ends_nothing_more() -> None:
    """a─b─c; what c said before it was removed is read only then, and breaks the protocol"""
    network = Network(line("a", "b", "c"))
    rest(network)
    network.replan("a", file("ab", "ab"), forced="c")
    network.drop_contact("a", "c")
    assert set(network.meshes["a"].contacts) == {"b"}


def test_two_sides_of_a_partition_agree_when_it_heals() -> None:
    """a─b ╌ c─d: a side takes e away, the other one changes a cost"""
    network = Network({**line("a", "b", "c", "d"), ("b", "e"): 1, ("d", "e"): 1})
    rest(network)
    network.cut("b", "c")
    network.cut("b", "e")
    network.run(3 * DEAD)
    network.replan("a", file("abcd", "ab", "bc", "cd"), forced="e")
    network.replan("d", file("abcde", "ab", "bc", "cd5", "be", "de"))
    network.run(1.0)
    assert len(plans(network)) == 2
    assert "e" in network.meshes["c"].contacts
    network.connect("b", "c")
    network.run(3 * DEAD)
    assert len({network.meshes[name].plan.digest for name in "abcd"}) == 1
    for name in "abcd":
        assert set(network.meshes[name].contacts) == set("abcd") - {name}
    assert network.meshes["c"].plan.costs_of("d") == {"c": 5}


def test_router_removed_out_of_reach_is_refused() -> None:
    network = Network(line("a", "b"), file=file("abc", "ab", "bc"))
    network.replan("b", file("ab", "ab"), forced="c")
    network.run(1.0)
    network.replan("b", file("abc", "ab", "bc"))
    b = network.meshes["b"]
    since = b.plan.routers["c"].since
    b.link_up("c", network.now)
    b.out.clear()
    b.receive_linkstate("c", encode_hello(Hello("c", since, 0, 100, 0)), network.now)
    assert not b.neighbours["c"].heard
    (told,) = [decode_linkstate(action.body) for action in b.out if isinstance(action, Transmit)]
    assert isinstance(told[0], Planned)
    assert told[0].plan.is_out("c", since), "it is told that it was removed"
    b.receive_linkstate("c", encode_hello(Hello("c", since + 1, 0, 100, 0)), network.now)
    assert b.neighbours["c"].heard


def test_sections_are_exchanged_only_under_the_same_plan() -> None:
    """a─b: a has learned of a change, and b has not: they do not get into contact before it has."""
    network = Network(line("a", "b"), file=file("abc", "ab", "bc"))
    network.replan("a", file("abc", "ab", "bc5"))
    network.connect("a", "b")
    linkstate = network.meshes["b"]._linkstate
    learn, linkstate._learn_plan = linkstate._learn_plan, lambda frame, now: None  # type: ignore[method-assign]
    network.run(5 * DEAD)
    assert "b" in network.meshes["a"].routes
    assert not network.meshes["a"].contacts
    assert not network.meshes["b"].contacts
    linkstate._learn_plan = learn  # type: ignore[method-assign]
    network.run(DEAD)
    assert "b" in network.meshes["a"].contacts
    assert "a" in network.meshes["b"].contacts


def test_a_plan_from_the_future_is_refused() -> None:
    network = Network(line("a", "b"))
    rest(network)
    network.skew("a", 7_200_000)
    network.replan("a", file("ab", "ab5"))
    with pytest.raises(PeerError, match="in the future"):
        network.run(1.0)
