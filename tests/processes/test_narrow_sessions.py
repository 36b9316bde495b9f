"""Subscribers whose session takes one frame at first: what they are sent is not written, and they do not wait for it.

publisher - a     c - subscriber
"""

from collections.abc import AsyncIterator

import pytest
import trio

from router.amqp.format.message import data_message
from router.amqp.format.values import ACCEPTED
from tests.processes.by_hand import heard, lasting_attach
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, eventually
from tests.processes.pair import Pair
from tests.router.amqp.frames import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    FLOW,
    HEADER,
    OPEN,
    TRANSFER,
    Described,
    attach,
    frame,
)

FRAME = 64 * 1024
LARGE = bytes(3 * FRAME + 1)
"""Of four frames; two are more than a link is given before it has written any."""


class Narrow(Pair):
    """The subscriber is a stream, the publisher an ordinary client."""

    stream: trio.SocketStream

    async def given(self, link: str, count: int) -> None:
        """Wait until the engine at c has so many messages of the link."""

        async def is_so() -> bool:
            links = (await self.mesh.status("c"))["subscribers"]
            return [row["delivered"] for row in links if row["address"] == self.topic and row["link"] == link] == [
                count
            ]

        await eventually(is_so)

    async def settled_at_c(self, count: int) -> None:
        async def is_so() -> bool:
            return bool((await self.mesh.status("c"))["records"]["settled"] == count)

        await eventually(is_so)

    async def grant(self, handle: int, credit: int, *, window: int = 100_000, came: int = 1) -> None:
        """The session has received so many frames, and takes `window` more."""
        await self.stream.send_all(frame(FLOW, came, window, 0, 1000, handle, 0, credit))

    async def begin(self, *bodies: bytes, given: int) -> None:
        """A lasting link, on handle 0, and messages of which it is given so many."""
        await self.stream.send_all(lasting_attach(0, receiver=True, address=self.topic))
        await heard(self.stream, ATTACH)
        await self.grant(0, 100, window=1, came=0)
        await self.feed(*bodies)
        await self.given("link", given)
        await heard(self.stream, TRANSFER)

    async def feed(self, *bodies: bytes) -> None:
        await self.attach_publisher(await self.clients.connect(self.mesh.address("a"), "writer"))
        self.handles = await self.send(*bodies)

    async def again(self) -> None:
        """The link is attached once more on the same session, on handle 1."""
        await self.stream.send_all(frame(DETACH, 0, False))
        await heard(self.stream, DETACH)
        await self.stream.send_all(lasting_attach(1, receiver=True, address=self.topic))
        await heard(self.stream, ATTACH)

    async def end(self, *handles: int) -> None:
        for handle in handles:
            await self.stream.send_all(frame(DETACH, handle, True))
        self.publisher.link.detach()
        self.publisher.link.connection.wake()
        await self.forgotten()


@pytest.fixture
async def narrow(triangle: RunningMesh, clients: Clients, request: pytest.FixtureRequest) -> AsyncIterator[Narrow]:
    narrow = Narrow(triangle, clients, f"topic/{request.node.name}")
    address = triangle.address("c")
    async with await trio.open_tcp_stream(address.host, address.port) as narrow.stream:
        await narrow.stream.send_all(HEADER + frame(OPEN, "narrow", None, FRAME) + frame(BEGIN, None, 0, 1, 1000))
        yield narrow


async def test_what_one_link_takes_no_more_does_not_starve_another_of_its_session(narrow: Narrow) -> None:
    for handle, name in enumerate(("one", "two")):
        await narrow.stream.send_all(attach(name, handle, receiver=True, address=narrow.topic))
        await heard(narrow.stream, ATTACH)
    await narrow.grant(0, 100, window=1, came=0)
    await narrow.feed(*[LARGE] * 10)
    await narrow.given("one", 2)
    await heard(narrow.stream, TRANSFER)
    await narrow.grant(0, 0)
    await narrow.grant(1, 100)
    await heard(narrow.stream, TRANSFER, 10 * 4)
    await narrow.end(0, 1)


async def test_an_outcome_of_what_came_in_part_before_a_reattach_says_nothing(narrow: Narrow) -> None:
    await narrow.begin(LARGE, LARGE, given=2)
    await narrow.again()
    await narrow.stream.send_all(frame(DISPOSITION, True, 0, 0, True, Described(ACCEPTED)))
    await narrow.grant(1, 100)
    await heard(narrow.stream, TRANSFER, 2 * 4)
    assert narrow.publisher.accepted == []
    await narrow.end(1)


async def test_what_is_settled_before_it_is_written_does_not_count_as_in_hand(narrow: Narrow) -> None:
    await narrow.begin(b"one", b"two", b"abandoned", given=3)
    narrow.settle(narrow.handles[2])
    await narrow.settled_at_c(1)
    await narrow.again()
    await narrow.grant(1, 100)
    (came,) = await heard(narrow.stream, TRANSFER)
    assert came.endswith(data_message(b"two"))
    await narrow.stream.send_all(frame(DISPOSITION, True, 0, 1, True, Described(ACCEPTED)))
    await narrow.told(*narrow.handles[:2])
    await narrow.end(1)
