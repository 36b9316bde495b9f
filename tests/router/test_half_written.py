"""What a subscriber says of a message of which a part is written: its session has room for no more meanwhile."""

import pytest

from router.amqp.format.message import data_message
from router.amqp.format.performative import TRANSFER, code_of, frames_of
from router.amqp.format.values import ACCEPTED, MODIFIED, SND_SETTLED
from tests.fuzz.mesh import FuzzMesh
from tests.router.amqp.frames import BEGIN, DISPOSITION, FLOW, HEADER, OPEN, Described, attach, frame
from tests.router.test_unfit import Client

ADDRESS = "topic/x"
BODY = b"x" * 1200


def said(state: int, *, settled: bool) -> bytes:
    """Of its first delivery, by the subscriber."""
    return frame(DISPOSITION, True, 0, 0, settled, Described(state))


@pytest.mark.parametrize("mode", [None, SND_SETTLED])
@pytest.mark.parametrize("state", [ACCEPTED, MODIFIED])
@pytest.mark.parametrize("is_settled_at_first", [False, True])
def test_what_is_said_of_it_once_it_is_settled_says_nothing(
    mode: int | None, state: int, is_settled_at_first: bool
) -> None:
    mesh = FuzzMesh("a", "b")
    stranger, writer = mesh.guest("a"), Client(mesh, "a", "writer")
    heard = bytearray()

    def hear(data: bytes) -> None:
        heard.extend(data)

    def written() -> int:
        return sum(code_of(each) == TRANSFER for each in frames_of(bytes(heard)))

    stranger.hears = hear  # type: ignore[method-assign]
    stranger.say(HEADER + frame(OPEN, "small", None, 512) + frame(BEGIN, None, 0, 1, 1000))
    stranger.say(attach("link", 0, receiver=True, address=ADDRESS, modes=(mode, 1)) + frame(FLOW, 0, 1, 0, 9, 0, 0, 10))
    mesh.flow()
    writer.send(writer.writes(ADDRESS), data_message(BODY))
    assert written() == 1
    for settled in (is_settled_at_first, True, True):
        stranger.say(said(state, settled=settled))
        mesh.flow()
    stranger.say(frame(FLOW, 1, 100, 0, 9, 0, 0, 10))
    mesh.flow()
    comes_again = state == MODIFIED and mode is None
    assert written() == (6 if comes_again else 3)
    assert writer.told == ([] if comes_again else [ACCEPTED])
