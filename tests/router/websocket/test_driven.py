"""A connection that is driven over WebSocket is one like any other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from attrs import define
from wsproto.events import Ping, TextMessage

from router.amqp import tcp, transport
from router.amqp.connection import Connection
from router.amqp.pipe import LayeredStream, pipe_of
from router.websocket.stream import WebSocketStream
from tests.hangs import HANGS_S
from tests.router.amqp.frames import opening
from tests.router.amqp.pair import Recorder
from tests.router.amqp.tls import shaken
from tests.router.websocket.peer import WebSocketPeer


@define
class Ends:
    stream: trio.abc.HalfCloseableStream
    peer: WebSocketPeer
    connection: Connection
    handler: Recorder


@asynccontextmanager
async def ends(*, tls: bool) -> AsyncIterator[Ends]:
    """A peer that has opened its connection."""
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            stream: trio.SocketStream | LayeredStream
            lower: trio.SocketStream | LayeredStream
            stream = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
            lower = await listener.accept()
            await listener.aclose()
            if tls:
                stream, lower = await shaken(stream, lower)
            peer, handler = WebSocketPeer(), Recorder()
            connection = Connection(handler, container="server", server=True)
            nursery.start_soon(transport.serve, WebSocketStream(lower, pipe_of(lower)), connection)
            await stream.send_all(peer.say(opening()))
            while not handler.events:
                await trio.sleep(0.001)
            yield Ends(stream, peer, connection, handler)
            nursery.cancel_scope.cancel()


@pytest.mark.skipif(not hasattr(tcp, "struct"), reason="this kernel does not tell")
@pytest.mark.parametrize("tls", [False, True], ids=["socket", "TLS"])
async def test_a_peer_is_proven_alive_although_its_last_word_was_a_ping(tls: bool) -> None:
    async with ends(tls=tls) as both:
        assert (both.connection.cipher is not None) == tls
        assert both.connection.address.startswith("127.0.0.1:")
        await both.stream.send_all(both.peer.tell(Ping(payload=b"now")))
        while not both.peer.events:
            both.peer.hear(bytes(await both.stream.receive_some()))
        for _ in range(2):
            told = trio.Event()
            both.connection.prove(told.set)
            await told.wait()


@pytest.mark.parametrize("tls", [False, True], ids=["socket", "TLS"])
async def test_text_ends_the_connection_with_a_line_in_the_log(tls: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with ends(tls=tls) as both:
        await both.stream.send_all(both.peer.tell(TextMessage(data="AMQP")) + bytes(1 << 20))
        with trio.move_on_after(HANGS_S):
            while both.peer.closed is None:
                both.peer.hear(bytes(await both.stream.receive_some()))
        assert both.peer.closed == (1003, "a text message came, expected binary messages")
        assert both.handler.events[-1] == ("close", None)
    assert "ended: WebSocket: a text message came, expected binary messages" in caplog.text


async def test_the_end_of_a_connection_closes_the_websocket() -> None:
    async with ends(tls=False) as both:
        both.connection.close("amqp:connection:forced", "bye")
        both.connection.wake()
        while both.peer.closed is None:
            both.peer.hear(bytes(await both.stream.receive_some()))
        assert both.peer.closed == (1000, "")
        assert b"amqp:connection:forced" in both.peer.received
