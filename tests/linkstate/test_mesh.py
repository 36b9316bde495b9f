"""Meshes of several routers through the shell's interface, under virtual time."""

import msgpack

from linkstate.channel import ACK_DELAY
from linkstate.clock import HybridClock
from linkstate.frames import Hello, decode_channel, decode_linkstate
from linkstate.mesh import Mesh
from linkstate.routing import MAX_AGE_DEADS
from tests.linkstate.network import DEAD, DELAY, HELLO, MAX_PAYLOAD, Link, Network, line, ring
from tests.plans import file


def running(links: dict[Link, int]) -> Network:
    network = Network(links)
    network.connect_all()
    network.run(0.1)
    assert network.all_in_contact()
    return network


def arrived(network: Network, here: str) -> list[bytes]:
    return [received.payload for router, received in network.received if router == here]


def test_a_mesh_is_in_contact_within_a_few_round_trips() -> None:
    """a ── b ── c ── d"""
    network = Network(line("a", "b", "c", "d"))
    network.connect_all()
    network.run(16 * DELAY)
    assert network.all_in_contact()
    assert network.meshes["a"].routes["d"].path == ("b", "c", "d")


def test_two_islands_are_in_contact_within_a_few_round_trips_of_being_joined() -> None:
    """a ── b ╌╌ c ── d"""
    network = Network(line("a", "b", "c", "d"))
    network.connect("a", "b")
    network.connect("c", "d")
    network.run(HELLO + 0.1)
    network.connect("b", "c")
    network.run(12 * DELAY)
    assert network.all_in_contact()


def test_one_frame_for_many_routers_travels_once_per_link() -> None:
    r"""
             ┌─ c
    a ── b ──┤
             └─ d ── e
    """
    network = running({("a", "b"): 1, ("b", "c"): 1, ("b", "d"): 1, ("d", "e"): 1})
    network.transmitted.clear()
    network.send("a", ["b", "c", "d", "e"], b"payload")
    network.run(3 * DELAY)

    def targets(source: str, neighbour: str) -> list[list[str]]:
        bodies = network.bodies(source, neighbour, "channel")
        return [[target[0] for target in frame.targets] for body in bodies for frame in decode_channel(body)]

    assert targets("a", "b") == [["b", "c", "d", "e"]]
    assert targets("b", "c") == [["c"]]
    assert targets("b", "d") == [["d", "e"]]
    assert targets("d", "e") == [["e"]]
    assert {here: arrived(network, here) for here in "bcde"} == {here: [b"payload"] for here in "bcde"}


def test_a_relay_passes_on_payloads_it_could_not_decode() -> None:
    """a ── b ── c"""
    network = running(line("a", "b", "c"))
    payloads = [b"x", b"\xc1" * 300, bytes(range(256)) * 300, msgpack.packb("x")]
    for payload in payloads:
        network.send("a", ["c"], payload)
    network.run(0.1)
    assert arrived(network, "c") == payloads
    assert arrived(network, "b") == []


def test_acknowledgements_do_not_cost_a_frame_per_payload() -> None:
    network = running(line("a", "b"))
    network.transmitted.clear()
    for n in range(320):
        network.send("a", ["b"], b"%d" % n)
        network.run(0.0005)
    network.run(0.1)
    assert len(arrived(network, "b")) == 320
    assert 20 <= len(network.bodies("b", "a", "channel")) <= 21


def test_acknowledgements_travel_with_data_that_goes_the_other_way() -> None:
    network = running(line("a", "b"))
    network.transmitted.clear()
    for n in range(100):
        network.send("a", ["b"], b"ping %d" % n)
        network.send("b", ["a"], b"pong %d" % n)
        network.run(0.001)
    assert len(network.bodies("a", "b", "channel")) == 100


def test_targets_that_are_not_in_contact_are_left_out() -> None:
    network = running(line("a", "b", "c"))
    network.cut("b", "c")
    network.run(0.1)
    network.send("a", ["b", "c", "a", "x"], b"payload")
    network.run(0.1)
    assert arrived(network, "b") == [b"payload"]
    assert arrived(network, "c") == []


def test_a_closed_transport_is_noticed_at_once_and_routed_around() -> None:
    """a ── b ── c ── a: the link a ── b closes while frames are on it"""
    network = running(ring("a", "b", "c"))
    contact = network.ledger.current["a", "b"]
    for n in range(5):
        network.send("a", ["b"], b"%d" % n)
    network.cut("a", "b")
    network.run(4 * DELAY)
    assert network.meshes["a"].routes["b"].next_hop == "c"
    assert arrived(network, "b") == [b"%d" % n for n in range(5)]
    assert network.ledger.current["a", "b"] == contact


def test_silence_is_noticed_after_dead() -> None:
    network = running(line("a", "b"))
    network.deaf = {("a", "b"), ("b", "a")}
    network.run(DEAD - HELLO - 0.1)
    assert network.all_in_contact()
    network.run(HELLO + 0.1)
    assert not network.meshes["a"].contacts and not network.meshes["b"].contacts


def test_a_link_that_works_one_way_only_does_not_count() -> None:
    """b still hears a, but a does not hear b: both ends give up the contact."""
    network = running(line("a", "b"))
    network.deaf = {("b", "a")}
    network.run(2 * DEAD)
    assert not network.meshes["a"].routes and not network.meshes["b"].routes
    assert not network.meshes["b"].neighbours["a"].up


def test_a_restarted_neighbour_is_lost_and_found_even_if_nobody_saw_it_go() -> None:
    network = running(line("a", "b", "c"))
    before = dict(network.meshes["a"].contacts)
    network.restart("b", noticed=False)
    network.heal()
    network.run(0.1)
    assert network.all_in_contact()
    assert network.meshes["a"].contacts["b"] > before["b"]
    assert network.ledger.current["a", "c"] == ("a", "c", 2), "the path led through the old incarnation"


def test_nothing_of_a_contact_arrives_in_the_next() -> None:
    network = running(line("a", "b"))
    network.send("a", ["b"], b"old")
    network.drop_contact("b", "a")
    network.send("a", ["b"], b"old too")
    network.run(0.1)
    assert network.all_in_contact()
    network.send("a", ["b"], b"new")
    network.run(0.1)
    assert arrived(network, "b") == [b"new"]


def test_a_dropped_contact_ends_at_both_ends_and_is_made_anew() -> None:
    """a ── b ── c"""
    network = running(line("a", "b", "c"))
    network.drop_contact("a", "c")
    assert "c" not in network.meshes["a"].contacts
    network.run(10 * DELAY)
    assert network.all_in_contact()
    assert network.ledger.current["c", "a"] == ("c", "a", 2)
    assert network.ledger.current["c", "b"] == ("c", "b", 1)


def test_a_lost_frame_is_asked_for_and_sent_again() -> None:
    network = running(line("a", "b"))
    for n in range(3):
        network.deaf = {("a", "b")} if n == 1 else set()
        network.send("a", ["b"], b"%d" % n)
    network.run(DELAY)
    assert arrived(network, "b") == [b"0"]
    network.run(ACK_DELAY + HELLO + 4 * DELAY)
    assert arrived(network, "b") == [b"0", b"1", b"2"]


def test_a_slow_receiver_is_not_sent_everything_again() -> None:
    network = running(line("a", "b"))
    for n in range(10):
        network.send("a", ["b"], b"payload %d" % n)
    network.transmitted.clear()
    network.pause("b", 0.8)
    network.run(1.5)
    assert len(arrived(network, "b")) == 10
    assert all(b"payload" not in body for body in network.bodies("a", "b", "channel"))


def test_a_lost_flood_is_noticed_by_the_next_hello_and_repaired() -> None:
    """a ── b ── c ── d: what b says about the end of c ── d does not reach a"""
    network = running(line("a", "b", "c", "d"))
    network.deaf = {("b", "a")}
    network.cut("c", "d")
    network.run(5 * DELAY)
    network.deaf = set()
    assert "d" in network.meshes["a"].routes
    network.run(2 * HELLO)
    assert "d" not in network.meshes["a"].routes


def test_advertisements_are_renewed_before_they_age_out() -> None:
    network = running(line("a", "b", "c"))
    network.run(100 * DEAD)
    assert network.all_in_contact()
    assert network.ledger.current["a", "c"] == ("a", "c", 1)


def test_a_router_whose_clock_was_set_back_is_let_in_when_its_former_life_has_aged_out() -> None:
    network = running(line("a", "b", "c"))
    network.restart("b", later=-10)
    network.heal()
    network.run((MAX_AGE_DEADS + 1) * DEAD)
    assert network.all_in_contact()


def test_clocks_are_merged_across_the_mesh() -> None:
    network = Network(line("a", "b", "c"))
    network.skew("c", 600_000)
    network.connect_all()
    network.run(0.1)
    assert network.clock("a").stamp() > (600_000 + 1_000_000) << 16


def test_a_mesh_of_one_router_has_nobody_to_wait_for() -> None:
    mesh = Mesh("a", 100, file("a"), HybridClock(), hello=HELLO, dead=DEAD, max_payload=MAX_PAYLOAD)

    mesh.handle_timer(mesh.deadline())

    assert mesh.contacts == {}
    assert mesh.out == []


def test_a_mesh_at_rest_says_hello_and_nothing_else() -> None:
    network = running(line("a", "b"))
    network.run(1.0)
    network.transmitted.clear()
    network.run(4 * HELLO)
    for here, there in (("a", "b"), ("b", "a")):
        bodies = network.bodies(here, there, "linkstate")
        assert bodies and {type(frame) for body in bodies for frame in decode_linkstate(body)} == {Hello}
        assert not network.bodies(here, there, "channel")
