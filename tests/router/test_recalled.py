"""An attach without a source takes up the subscriber of its name, wherever it was attached: so JMS ends a durable
subscription.
"""

import pytest

from router.amqp.format.codec import decode
from router.amqp.format.performative import AMQP_HEADER, code_of, frames_of, parse
from tests.fuzz.mesh import FuzzMesh, Guest
from tests.router.amqp.frames import ATTACH, BEGIN, DETACH, HEADER, OPEN, Described, frame

SOURCE = Described(0x28, "topic/x", 2, None, 3)
BEGINNING = frame(BEGIN, None, 0, 1000, 1000) + frame(BEGIN, None, 0, 1000, 1000, channel=1)


class Client(Guest):
    def __init__(self, mesh: FuzzMesh, router: str, container: str = "jms") -> None:
        super().__init__(mesh.routers[router])
        self.router.guests.append(self)
        self.heard = b""
        self.say(HEADER + frame(OPEN, container) + BEGINNING)

    def hears(self, data: bytes) -> None:
        self.heard += data.removeprefix(AMQP_HEADER)

    def asks(self, *frames: bytes) -> list[tuple[int, list[object]]]:
        """The performatives that come in answer to the frames, and their fields."""
        self.heard = b""
        self.say(b"".join(frames))
        answers = [whole for whole in frames_of(self.heard) if len(whole) > 8]
        return [(code_of(whole), [decode(field)[0] for field in parse(whole).fields]) for whole in answers]


@pytest.fixture
def mesh() -> FuzzMesh:
    mesh = FuzzMesh("a", "b", "c")
    first = Client(mesh, "a")
    first.asks(frame(ATTACH, "reader", 0, True, None, None, SOURCE, Described(0x29)))
    first.asks(frame(DETACH, 0, False))
    return mesh


def without_source(name: str, *, channel: int = 0) -> bytes:
    return frame(ATTACH, name, 0, True, None, None, None, Described(0x29), channel=channel)


def subscribers(mesh: FuzzMesh) -> list[str]:
    return [str(entry.identity) for entry in mesh.routers["a"].node.topic.directory.subscribers("topic/x")]


@pytest.mark.parametrize("router", "ab")
def test_the_answer_names_the_source_and_a_closing_detach_ends_the_subscriber(mesh: FuzzMesh, router: str) -> None:
    assert subscribers(mesh) == ["jms/reader on topic/x"]
    client = Client(mesh, router)
    ((code, fields),) = client.asks(without_source("reader", channel=1))
    assert code == ATTACH and fields[5].value[:4] == ["topic/x", 2, "session-end", 3]  # type: ignore[attr-defined]
    client.asks(frame(DETACH, 0, True, channel=1))
    assert subscribers(mesh) == []


def test_another_name_and_another_client_find_nothing(mesh: FuzzMesh) -> None:
    for client, name in ((Client(mesh, "a"), "other"), (Client(mesh, "b", "another"), "reader")):
        (_, attach), (code, detach) = client.asks(without_source(name))
        assert code == DETACH and attach[5] is None
        assert detach[2].value[0] == "amqp:not-found"  # type: ignore[attr-defined]
    assert subscribers(mesh) == ["jms/reader on topic/x"]
