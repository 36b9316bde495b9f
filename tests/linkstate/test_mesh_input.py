"""One router of a mesh: what it makes of the bodies that a neighbour sends, of odd and of broken ones above all."""

import pytest

from linkstate.clock import TRUST_MS, HybridClock
from linkstate.frames import (
    PLAN,
    PROBE,
    AgedAdvertisement,
    Entries,
    Hello,
    PeerError,
    decode_channel,
    decode_linkstate,
    encode_entries,
    encode_header,
    encode_hello,
    encode_summary,
)
from linkstate.mesh import Mesh
from linkstate.mesh_actions import Transmit
from linkstate.plan.plan import MOST, plan_of
from tests.linkstate.network import DEAD, HELLO, MAX_PAYLOAD
from tests.plans import file


@pytest.fixture
def mesh() -> Mesh:
    mesh = Mesh("a", 100, file("abc", "ab"), HybridClock(), hello=HELLO, dead=DEAD, max_payload=MAX_PAYLOAD)
    mesh.link_up("b", 0.0)
    mesh.receive_linkstate("b", encode_hello(Hello("b", 200, 0, 100, 0)), 0.0)
    mesh.out.clear()
    return mesh


def test_bytes_of_a_body_that_is_still_under_way_keep_a_neighbour(mesh: Mesh) -> None:
    mesh.receive_linkstate("b", encode_hello(Hello("b", 200, 0, 100, 0)), 0.0)
    mesh.bytes_received("b", DEAD - 0.1)
    mesh.handle_timer(DEAD + 0.1)
    assert mesh.neighbours["b"].up
    mesh.handle_timer(2 * DEAD)
    assert not mesh.neighbours["b"].up


def test_a_body_of_many_hellos_and_summaries_is_answered_once(mesh: Mesh) -> None:
    """What an answer says is longer than the question."""
    hello, summary = encode_hello(Hello("b", 200, 0, 100, 1)), encode_summary(0, [])
    mesh.receive_linkstate("b", 500 * hello + 500 * summary, 0.1)
    assert len([action for action in mesh.out if isinstance(action, Transmit)]) <= 4


@pytest.mark.parametrize("source", ["a", "stranger"])
def test_a_frame_that_comes_from_ourselves_or_a_router_that_the_mesh_does_not_have_is_dropped(
    mesh: Mesh, source: str
) -> None:
    mesh.receive_channel("b", encode_header([PROBE, source, 2, 0, [["a", 1, 1, 0, 0]]]), 0.1)
    assert mesh.out == [] and mesh.contacts == {}


def test_a_frame_that_names_a_target_twice_is_refused(mesh: Mesh) -> None:
    """Its payload would be cut out for each."""
    with pytest.raises(PeerError, match="twice"):
        mesh.receive_channel("b", encode_header([PROBE, "b", 2, 0, 2 * [["a", 1, 1, 0, 0]]]), 0.1)


def test_a_flood_that_names_an_origin_twice_is_refused(mesh: Mesh) -> None:
    """What is passed on of it, and answered, would be as often the last."""
    rows = [AgedAdvertisement("b", 200, sequence, 0, (("a", 100, 1),)) for sequence in (1, 2)]
    with pytest.raises(PeerError, match="twice"):
        mesh.receive_linkstate("b", encode_entries(0, rows), 0.1)
    assert not mesh.routes and not mesh.out


def test_frames_that_go_in_circles_are_dropped(mesh: Mesh) -> None:
    mesh.receive_linkstate(
        "b", encode_entries(0, [AgedAdvertisement("b", 200, 1, 0, (("a", 100, 1), ("c", 300, 1)))]), 0.1
    )
    mesh.receive_linkstate("b", encode_entries(0, [AgedAdvertisement("c", 300, 1, 0, (("b", 200, 1),))]), 0.1)
    mesh.out.clear()
    for hops_left, passed_on in [(9, [2]), (2, [1]), (1, []), (0, [])]:
        mesh.receive_channel("b", encode_header([PROBE, "b", hops_left, 0, [["c", 1, 1, 0, 0]]]), 0.1)
        frames = [decode_channel(action.body)[0] for action in mesh.out if isinstance(action, Transmit)]
        assert [frame.hops_left for frame in frames] == passed_on
        mesh.out.clear()


def test_a_hello_from_somebody_else_is_the_peers_error_and_changes_nothing(mesh: Mesh) -> None:
    flood = encode_entries(0, [AgedAdvertisement("b", 200, 1, 0, (("a", 100, 1),))])
    with pytest.raises(PeerError, match="the peer is router 'c'"):
        mesh.receive_linkstate("b", flood + encode_hello(Hello("c", 300, 0, 0, 0)), 0.1)
    assert not mesh.routes and not mesh.out
    mesh.receive_linkstate("b", flood, 0.1)
    assert list(mesh.routes) == ["b"]


def test_garbage_is_the_peers_error_and_changes_nothing(mesh: Mesh) -> None:
    for body in (b"garbage", encode_hello(Hello("b", 201, 0, 0, 0)) + b"\xc4\x01"):
        with pytest.raises(PeerError):
            mesh.receive_linkstate("b", body, 0.1)
        with pytest.raises(PeerError):
            mesh.receive_channel("b", body, 0.1)
    assert mesh.neighbours["b"].incarnation == 200 and not mesh.out


def test_a_transport_to_a_stranger_is_the_peers_error(mesh: Mesh) -> None:
    with pytest.raises(PeerError, match="'c' is not a neighbour of 'a'"):
        mesh.link_up("c", 0.1)


def test_a_body_of_a_closed_transport_is_ignored(mesh: Mesh) -> None:
    mesh.link_down("b", 0.1)
    mesh.out.clear()
    mesh.receive_linkstate("b", encode_hello(Hello("b", 200, 0, 100, 0)), 0.2)
    assert not mesh.out and not mesh.neighbours["b"].up


def test_a_stale_advertisement_of_our_own_is_answered_with_the_present_one(mesh: Mesh) -> None:
    stale = AgedAdvertisement("a", 99, 70, 0, (("b", 199, 1), ("c", 299, 1)))
    mesh.receive_linkstate("b", encode_entries(0, [stale]), 0.1)
    (entry,) = advertised(mesh)
    assert (entry.origin, entry.incarnation, entry.links) == ("a", 100, (("b", 200, 1),))


def test_an_advertisement_of_our_own_that_we_did_not_write_is_overridden(mesh: Mesh) -> None:
    forged = AgedAdvertisement("a", 100, 70, 0, (("c", 300, 1),))
    mesh.receive_linkstate("b", encode_entries(0, [forged]), 0.1)
    (entry,) = advertised(mesh)
    assert (entry.incarnation, entry.sequence, entry.links) == (100, 71, (("b", 200, 1),))


def test_channel_frames_are_ignored_until_the_neighbour_said_who_it_is() -> None:
    """b ╌╌ a ── c"""
    mesh = Mesh("a", 100, file("abc", "ab", "ac"), HybridClock(), hello=HELLO, dead=DEAD, max_payload=MAX_PAYLOAD)
    mesh.link_up("b", 0.0)
    mesh.link_up("c", 0.0)
    flood = encode_entries(0, [AgedAdvertisement("c", 300, 1, 0, (("a", 100, 1),))])
    mesh.receive_linkstate("c", encode_hello(Hello("c", 300, 0, 100, 0)) + flood, 0.0)
    mesh.out.clear()
    to_c = encode_header([PROBE, "b", 3, 0, [["c", 1, 1, 0, 0]]])
    mesh.receive_channel("b", to_c, 0.1)
    assert not mesh.out
    mesh.receive_linkstate("b", encode_hello(Hello("b", 200, 0, 0, 0)), 0.2)
    mesh.out.clear()
    mesh.receive_channel("b", to_c, 0.2)
    assert [action[:2] for action in mesh.out if isinstance(action, Transmit)] == [("c", "channel")]


@pytest.mark.parametrize(("name", "spoken"), [("a", HELLO), ("c", 1.25 * HELLO)])
def test_a_hello_is_answered_if_one_is_due_soon_and_the_higher_name_is_not_the_first_to_speak(
    name: str, spoken: float
) -> None:
    """So one of two routers that are idle wakes only when the other does."""
    mesh = Mesh(name, 100, file("abc", "ab", "bc"), HybridClock(), hello=HELLO, dead=DEAD, max_payload=MAX_PAYLOAD)
    mesh.link_up("b", 0.0)
    for now in (0.0, 0.4 * HELLO):
        mesh.out.clear()
        mesh.receive_linkstate("b", encode_hello(Hello("b", 200, 0, 100, 0)), now)
        assert mesh.neighbours["b"].hello_at == spoken
    mesh.receive_linkstate("b", encode_hello(Hello("b", 200, 0, 100, 0)), 0.9 * HELLO)
    assert mesh.neighbours["b"].hello_at == 0.9 * HELLO + spoken


def advertised(mesh: Mesh) -> tuple[AgedAdvertisement, ...]:
    """The advertisements in the only body that was transmitted."""
    (action,) = mesh.out
    assert isinstance(action, Transmit)
    (frame,) = decode_linkstate(action.body)
    assert isinstance(frame, Entries)
    return frame.entries


def test_mesh_ignores_frames_of_a_neighbour_before_its_hello(mesh: Mesh) -> None:
    mesh.link_up("b", 0.1)
    mesh.out.clear()
    mesh.receive_linkstate("b", encode_summary(0, []), 0.1)
    assert mesh.out == []


def test_a_hello_of_a_router_that_was_started_in_the_future_is_the_peers_error(mesh: Mesh) -> None:
    with pytest.raises(PeerError, match="lies in the future"):
        mesh.receive_linkstate("b", encode_hello(Hello("b", 1 << 62, 0, 100, 0)), 0.1)
    assert mesh.neighbours["b"].up and mesh.neighbours["b"].incarnation == 200


def test_a_plan_with_an_address_that_is_none_is_refused_before_it_is_kept_or_told(mesh: Mesh) -> None:
    """Who dials it, or tells clients of it, would end at each start."""
    told = encode_header([PLAN, 0, [[["c", 0, 0, [1, "b"], "nowhere", ""]], []]])
    with pytest.raises(PeerError, match="the plan of the mesh has a malformed entry for a router"):
        mesh.receive_linkstate("b", told, 0.1)
    assert mesh.out == [] and not mesh.plan.digest


def test_a_plan_that_grows_beyond_what_others_take_is_refused(mesh: Mesh) -> None:
    """By frames each of which is taken alone."""
    for side in "xy":
        tell_routers(mesh, [f"{side}{number}" for number in range(MOST - 3)])
    known = mesh.plan
    assert plan_of(known.changed()).digest == known.digest, "two sides of a partition have grown apart"
    with pytest.raises(PeerError, match="more than 2000 routers"):
        tell_routers(mesh, [f"z{number}" for number in range(MOST - 3)])
    assert mesh.plan is known


def test_a_router_is_not_taken_out_for_good_by_a_time_that_lies_far_ahead(mesh: Mesh) -> None:
    """None of its incarnations would belong to the mesh ever again."""
    taken_in_again = [["c", TRUST_MS + 1, 0, [1, "b"], "", ""]]
    with pytest.raises(PeerError, match="in the future"):
        mesh.receive_linkstate("b", encode_header([PLAN, 0, [taken_in_again, []]]), 0.1)
    assert not mesh.plan.digest


def tell_routers(mesh: Mesh, names: list[str]) -> None:
    mesh.receive_linkstate("b", encode_header([PLAN, 0, [[[name, 0, 0, [1, "b"], "", ""] for name in names], []]]), 0.1)
