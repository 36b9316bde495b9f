"""How much a neighbour's engine is given at once (architecture: between routers)."""

import contextlib
import os
from typing import Any

import pytest
import trio
import trio.testing

from linkstate.chunks import CHUNK
from router.amqp import transport
from router.amqp.connection import Connection
from router.neighbours import BEHIND_BYTES, HELD_BYTES, Transport
from tests.hangs import HANGS_S
from tests.router.amqp.test_transport import Client, Server, server_of, sockets

AMQP = b"AMQP"


class Line:
    """A connection, as its transport sees it."""

    is_behind = False

    def __init__(self) -> None:
        self.given = 0

    def send(self, lane: int, bodies: list[bytes]) -> None:
        self.given += sum(map(len, bodies))


@pytest.mark.parametrize(("is_behind", "room"), [(False, HELD_BYTES), (True, BEHIND_BYTES)])
def test_a_line_that_is_behind_is_given_less_at_once(is_behind: bool, room: int) -> None:
    connection: Any = Line()
    connection.is_behind = is_behind
    neighbour = Transport(connection, "b")
    for _ in range(100):
        neighbour.outbox.put("channel", bytes(CHUNK))
    for _ in range(2):
        assert neighbour.fill() and room <= neighbour.held < room + 2 * CHUNK
        assert connection.given == neighbour.held, "what is held already counts"


class Noting(Connection):
    """Notes whether its stream is said to be behind, whenever that changes."""

    @property
    def is_behind(self) -> bool:
        return self.changes[-1]

    @is_behind.setter
    def is_behind(self, value: bool) -> None:
        if not hasattr(self, "changes"):
            self.changes = [value]
        elif value != self.changes[-1]:
            self.changes.append(value)


async def test_a_stream_is_behind_while_it_has_not_taken_all_that_was_written() -> None:
    here = Noting(Client(1, 3_000_000), container="client", server=False)
    here.open()
    one, other = sockets()
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.serve, one, here)
            nursery.start_soon(transport.serve, other, server_of(Server()))
    assert here.changes[:2] == [False, True] and not here.is_behind


async def test_what_goes_whole_but_later_was_not_taken_at_once() -> None:
    here = Noting(Client(0), container="client", server=False)
    here.open()
    one, other = sockets()
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(one.socket.fileno(), bytes(4096))
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.serve, one, here)
            await trio.testing.wait_all_tasks_blocked()
            assert here.is_behind
            while AMQP not in await other.receive_some():
                pass
            nursery.cancel_scope.cancel()
    assert here.is_behind
