"""What the links of clients that do not say who they are may leave behind (docs/security.md, Limits)."""

from functools import partial

from router.amqp.format.errors import RESOURCE_LIMIT
from router.mesh.config import Limits
from tests.fuzz.mesh import FuzzMesh
from tests.router.amqp.frames import ATTACH, SOURCE, TARGET, Described, Symbol, frame, opening

MOST = 3


def durable(number: int) -> bytes:
    termini = [Described(kind, f"topic/{number}", 2, Symbol("never"), 60) for kind in (SOURCE, TARGET)]
    return frame(ATTACH, f"link {number}", number, False, None, None, *termini, None, None, 0)


def hear(heard: bytearray, data: bytes) -> None:
    heard += data


def test_durable_links_of_all_strangers_together_are_bounded() -> None:
    """Wherever in the mesh they are attached, and until they have ended."""
    mesh = FuzzMesh("a", "b", limits=Limits(anonymous_durable=MOST))
    heard = {"a": bytearray(), "b": bytearray()}
    for number in range(MOST + 1):
        name = "ab"[number % 2]
        guest = mesh.guest(name)
        guest.hears = partial(hear, heard[name])  # type: ignore[method-assign]
        guest.say(opening() + durable(number))
    assert RESOURCE_LIMIT.encode() not in heard["a"] and RESOURCE_LIMIT.encode() in heard["b"]
    guards = [router.guard for router in mesh.routers.values()]
    assert [guard.exceeded["anonymous_durable"] for guard in guards] == [0, 1]
    for router in mesh.routers.values():
        entries = router.node.topic.directory.entries()
        assert sum(entry.outlives_router for entry in entries) == router.node.topic.directory.kept[""] == MOST
    mesh.check()
    for router in mesh.routers.values():
        for guest in list(router.guests):
            if guest not in (mesh.publisher, mesh.subscriber):
                guest.leave()
    mesh.check_forgotten()
    assert [router.node.topic.directory.kept for router in mesh.routers.values()] == [{}, {}]
    mesh.end()
