"""That a peer still has its connection is proven by its machine, even if it answers nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from attrs import define

from router.amqp import tcp, transport
from router.amqp.connection import Connection
from router.amqp.tls import TlsStream
from tests.hangs import HANGS_S
from tests.router.amqp.frames import opening
from tests.router.amqp.pair import Recorder
from tests.router.amqp.tls import shaken

pytestmark = pytest.mark.skipif(not hasattr(tcp, "struct"), reason="this kernel does not tell")

CLOSE = b"\0\0\0\x0c\x02\0\0\0\0\x53\x18\x45"


@define
class Ends:
    peer: trio.SocketStream | TlsStream
    connection: Connection
    handler: Recorder
    told: trio.Event


@asynccontextmanager
async def ends(tls: bool) -> AsyncIterator[Ends]:
    """A peer that has opened its connection, and reads nothing from then on."""
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            peer: trio.SocketStream | TlsStream
            stream: trio.SocketStream | TlsStream
            peer = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
            stream = await listener.accept()
            if tls:
                peer, stream = await shaken(peer, stream)
            await listener.aclose()
            handler = Recorder()
            connection = Connection(handler, container="server", server=True)
            nursery.start_soon(transport.serve, stream, connection)
            await peer.send_all(opening())
            while not handler.events:
                await trio.sleep(0.001)
            yield Ends(peer, connection, handler, trio.Event())
            nursery.cancel_scope.cancel()


async def settle() -> None:
    """Longer than a proof takes here."""
    await trio.sleep(0.1)
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("tls", [False, True], ids=["socket", "TLS"])
async def test_a_peer_that_never_answers_is_proven_alive_by_its_machine(tls: bool) -> None:
    async with ends(tls) as both:
        both.connection.prove(both.told.set)
        await both.told.wait()
        again = trio.Event()
        both.connection.prove(again.set)
        await again.wait()


@pytest.mark.parametrize("tls", [False, True], ids=["socket", "TLS"])
async def test_what_is_asked_twice_is_told_once(tls: bool) -> None:
    told: list[str] = []
    done = trio.Event()

    def tell() -> None:
        told.append("alive")

    async with ends(tls) as both:
        for _ in range(100):
            both.connection.prove(tell)
        both.connection.prove(done.set)
        await done.wait()
        assert told == ["alive"]


@pytest.mark.parametrize("tls", [False, True], ids=["socket", "TLS"])
async def test_a_peer_that_has_closed_its_socket_proves_nothing(tls: bool) -> None:
    async with ends(tls) as both:
        await both.peer.aclose()
        both.connection.prove(both.told.set)
        await settle()
        assert not both.told.is_set()
        assert both.handler.events[-1] == ("close", None)


@pytest.mark.parametrize("tls", [False, True], ids=["socket", "TLS"])
async def test_what_was_on_its_way_is_read_before_anything_is_proven(tls: bool) -> None:
    """The peer's close came before the acknowledgement: it is gone."""
    async with ends(tls) as both:
        await both.peer.send_all(CLOSE)
        both.connection.prove(both.told.set)
        await settle()
        assert both.connection.closed and not both.told.is_set()


@pytest.mark.parametrize("tls", [False, True], ids=["socket", "TLS"])
async def test_nothing_is_proven_while_what_was_written_does_not_arrive(tls: bool) -> None:
    """Its machine takes no more: for all we know it is unreachable."""
    async with ends(tls) as both:
        stuck = both.connection.data_to_send

        def flood() -> bytes:
            both.connection.data_to_send = stuck  # type: ignore[method-assign]
            return bytes(64 << 20)

        both.connection.data_to_send = flood  # type: ignore[method-assign]
        both.connection.prove(both.told.set)
        await settle()
        assert not both.told.is_set()


async def test_a_stream_that_cannot_tell_proves_nothing() -> None:
    handler = Recorder()
    connection = Connection(handler, container="server", server=True)
    here, there = trio.testing.memory_stream_pair()
    told = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transport.serve, there, connection)
        await here.send_all(opening())
        await trio.testing.wait_all_tasks_blocked()
        connection.prove(told.set)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert not told.is_set()
