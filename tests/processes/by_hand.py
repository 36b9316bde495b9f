"""Links whose frames a test writes and reads itself."""

import trio
import trio.testing

from router.amqp.format.performative import code_of
from router.amqp.format.values import EXPIRE_CONNECTION
from tests.hangs import HANGS_S
from tests.router.amqp.frames import ATTACH, HEADER, SOURCE, TARGET, Described, Raw, Symbol, frame, ubyte
from topic.properties import GENERATION


def lasting_attach(handle: int, *, receiver: bool, address: str, of_life: bytes | None = None) -> bytes:
    """The frame of an attach. With `of_life`, it has a map with one delivery in doubt of that life."""
    ends = [Described(code, address, 2, Symbol(EXPIRE_CONNECTION), 60) for code in (SOURCE, TARGET)]
    unsettled = None if of_life is None else {b"1": None}
    properties = None if of_life is None else {Symbol(GENERATION): of_life}
    return frame(
        ATTACH, "link", handle, receiver, None, Raw(ubyte(1)), *ends, unsettled, None, 0, None, None, None, properties
    )


async def heard(stream: trio.SocketStream, code: int, count: int = 1) -> list[bytes]:
    """Read until `count` frames of that kind have come."""
    frames: list[bytes] = []
    unread = b""
    with trio.fail_after(HANGS_S):
        while sum(code_of(one) == code for one in frames) < count:
            unread += await stream.receive_some()
            unread = unread.removeprefix(HEADER)
            while len(unread) >= 4 and len(unread) >= (size := int.from_bytes(unread[:4], "big")):
                frames.append(unread[:size])
                unread = unread[size:]
    return [one for one in frames if code_of(one) == code]
