"""A link that is attached again on its own session is stolen (AMQP 1.0 2.6.1): its terminus moves, and is not gone in
between."""

from router.amqp.format.message import data_message
from router.amqp.format.performative import FLOW
from tests.fuzz.mesh import FuzzMesh
from tests.router.amqp.frames import attach, frame, opening
from tests.router.test_unfit import Client

ADDRESS = "topic/x"


def test_a_plain_subscriber_that_steals_its_own_link_is_owed_what_has_waited() -> None:
    mesh = FuzzMesh("a", "b")
    stranger, writer = mesh.guest("a"), Client(mesh, "a", "writer")
    heard = bytearray()

    def hear(data: bytes) -> None:
        heard.extend(data)

    stranger.hears = hear  # type: ignore[method-assign]
    stranger.say(opening() + attach("link", 0, receiver=True, address=ADDRESS))
    mesh.flow()
    writer.send(writer.writes(ADDRESS), data_message(b"1"))
    stranger.say(attach("link", 1, receiver=True, address=ADDRESS, unsettled={}))
    mesh.flow()
    assert b"amqp:link:stolen" in heard and writer.told == []
    stranger.say(frame(FLOW, 0, 1000, 0, 1000, 1, 0, 10))
    mesh.flow()
    assert data_message(b"1") in heard
