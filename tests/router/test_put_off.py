"""A connection with thousands of links is over: these go in several turns of the loop, and others are heard between."""

from tests.fuzz.mesh import FuzzMesh, GoodClient
from topic.node import AT_ONCE

LINKS = 3 * AT_ONCE


def left(mesh: FuzzMesh) -> int:
    entries = mesh.routers["a"].node.topic.directory.entries()
    return sum(entry.live and entry.identity.container == "guest" for entry in entries)


def cut(mesh: FuzzMesh) -> None:
    """A guest comes, with many links, and is gone."""
    guest: GoodClient = mesh._good("a", "guest")
    for link in range(LINKS):
        guest.engine.receiver(f"link {link}", f"topic/{link}")
    mesh.flow()
    assert left(mesh) == LINKS
    guest.leave()
    guest.engine.release()


def test_links_of_a_connection_go_in_several_turns() -> None:
    mesh = FuzzMesh("a", "b")
    node = mesh.routers["a"].node
    cut(mesh)
    assert left(mesh) == LINKS - AT_ONCE and node.deadline() == mesh.now
    for turn in (2, 3):
        mesh.check()
        mesh.time(0.0)
        assert left(mesh) == LINKS - turn * AT_ONCE
    assert node.deadline() > mesh.now
    mesh.end()


def test_a_link_that_is_back_before_its_turn_stays() -> None:
    mesh = FuzzMesh("a", "b")
    cut(mesh)
    again = mesh._good("a", "guest")
    receiver = again.engine.receiver(f"link {LINKS - 1}", f"topic/{LINKS - 1}")
    sender = mesh.publisher.engine.sender("sends", f"topic/{LINKS - 1}")
    mesh.flow()
    assert receiver.answered and sender.answered
    for _ in range(3):
        mesh.time(0.0)
    assert left(mesh) == 1
    mesh.end()


def test_a_router_that_stops_lets_all_go() -> None:
    mesh = FuzzMesh("a", "b")
    cut(mesh)
    mesh.routers["a"].node.stop()
    assert left(mesh) == 0
    mesh.end()
