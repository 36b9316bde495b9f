"""The handshake of WebSocket: who gets one, and what the others read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from router.amqp.tls import LeftError
from router.mesh.topology import load
from router.security.doors import Doors, LateError
from router.websocket.entrance import WebSocketEntrance
from router.websocket.handshake import WebSocketRefusal
from router.websocket.stream import WebSocketStream
from tests.hangs import HANGS_S
from tests.router.websocket.peer import WebSocketPeer

UPGRADE = {
    "Host": "127.0.0.1:8080",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "binary, amqp",
}
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # for this key: RFC 6455 1.3


def request(method: str = "GET", /, **changed: str | None) -> bytes:
    """The request with other headers; None: without."""
    headers = UPGRADE | {name.replace("_", "-"): value for name, value in changed.items()}
    lines = [f"{name}: {value}\r\n" for name, value in headers.items() if value is not None]
    return f"{method} /any HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


def entrance(folder: Path, security: str = "", host: str = "127.0.0.1", opening: str = "30s") -> WebSocketEntrance:
    path = folder / "mesh.yaml"
    path.write_text(
        f"{{mesh: m, routers: {{a: {{amqp: 127.0.0.1:0}}}}, limits: {{opening: {opening}}}, security: {{{security}}}}}"
    )
    topology = load(path)
    return WebSocketEntrance(Doors(topology, "a"), topology, "amqp", host)


@asynccontextmanager
async def sockets() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """The streams of a client and of the server."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
    server = await listener.accept()
    await listener.aclose()
    async with client, server:
        with trio.fail_after(HANGS_S):
            yield client, server


async def refused(at: WebSocketEntrance, said: bytes) -> tuple[WebSocketRefusal, str]:
    """How it is refused, and what the client reads."""
    async with sockets() as (client, server), trio.open_nursery() as nursery:
        read = list[bytes]()

        async def listen() -> None:
            read.extend([bytes(part) async for part in client])
            await client.send_eof()

        nursery.start_soon(listen)
        await client.send_all(said)
        with pytest.raises(WebSocketRefusal) as caught:
            await at.let_in(server)
    return caught.value, b"".join(read).decode()


@pytest.mark.parametrize("cut", [1, 100, 1000])
async def test_a_request_becomes_a_websocket_with_the_subprotocol(tmp_path: Path, cut: int) -> None:
    said = request()
    async with sockets() as (client, server), trio.open_nursery() as nursery:
        found = list[WebSocketStream]()

        async def let_in() -> None:
            stream, certified, _ = await entrance(tmp_path).let_in(server)
            assert isinstance(stream, WebSocketStream) and not certified and stream.cipher is None
            found.append(stream)

        nursery.start_soon(let_in)
        for at in range(0, len(said), cut):
            await client.send_all(said[at : at + cut])
        head = b""
        while b"\r\n\r\n" not in head:
            head += await client.receive_some()
        assert head.startswith(b"HTTP/1.1 101 ") and ACCEPT in head
        assert b"Sec-WebSocket-Protocol: amqp\r\n" in head
        while not found:
            await trio.lowlevel.checkpoint()
        peer = WebSocketPeer()
        await client.send_all(peer.say(b"hello"))
        assert await found[0].receive_some() == b"hello"
        await found[0].send_all(b"hello yourself")
        await found[0].send_eof()
        peer.hear(b"".join([part async for part in client]))
        assert (peer.received, peer.closed) == (b"hello yourself", (1000, ""))


@pytest.mark.parametrize(
    ("said", "status", "text"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 426, "expected a WebSocket with the subprotocol amqp"),
        (b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n", 426, "expected a WebSocket with the subprotocol amqp"),
        (b"AMQP\0\1\0\0", 400, "the peer speaks AMQP, expected a WebSocket with the subprotocol amqp"),
        (request() + b"\x82", 400, "bytes follow the request, expected none before the answer"),
        (request("POST"), 426, "Request method must be GET; expected a WebSocket"),
        (request(Sec_WebSocket_Version="8"), 426, "Missing header, 'Sec-WebSocket-Version'"),
        (request(Sec_WebSocket_Protocol="mqtt"), 400, "the subprotocol is mqtt, expected amqp"),
        (request(Sec_WebSocket_Protocol=None), 400, "the subprotocol is none, expected amqp"),
        (request(Upgrade="h2c"), 426, "expected a WebSocket"),
        (request(Connection="\xff"), 400, "expected ASCII"),
        (b"AMQP\x00\x01\x00\x00 this is no HTTP\r\n\r\n", 400, "expected a WebSocket"),
        (request(Cookie="x" * 40_000), 400, "expected a WebSocket"),
        (request(Host="rebound.example.org"), 421, "expected localhost or 127.0.0.1"),
        (request(Origin="https://evil.example.org"), 403, "may not connect, expected a page of '127.0.0.1'"),
        (request(Origin="null"), 403, "may not connect"),
        (request(Origin="http://[bad"), 403, "may not connect"),
    ],
)
async def test_other_requests_get_an_answer(tmp_path: Path, said: bytes, status: int, text: str) -> None:
    refusal, answer = await refused(entrance(tmp_path), said)
    assert refusal.status == status
    assert text in str(refusal)
    assert answer.startswith(f"HTTP/1.1 {status} ") and answer.endswith(f"\r\n\r\n{refusal}\n")
    assert ("Upgrade: websocket\r\n" in answer) == (status == 426)


@pytest.mark.parametrize(
    ("security", "host", "headers", "admitted"),
    [
        ("", "127.0.0.1", {"Origin": None}, True),
        ("", "127.0.0.1", {"Origin": "http://localhost:3000"}, True),
        ("", "127.0.0.1", {"Origin": "http://127.0.0.1"}, True),
        ("", "127.0.0.1", {"Origin": "https://shop.example.org"}, False),
        ("", "0.0.0.0", {"Origin": "https://shop.example.org", "Host": "shop.example.org:8443"}, True),
        ("", "0.0.0.0", {"Origin": "https://Shop.example.org", "Host": "shop.EXAMPLE.org"}, True),
        ("", "0.0.0.0", {"Origin": "https://evil.example.org", "Host": "shop.example.org"}, False),
        ("", "0.0.0.0", {"Origin": "null", "Host": "shop.example.org"}, False),
        ("origins: ['https://shop.example.org']", "0.0.0.0", {"Origin": "https://shop.example.org"}, True),
        ("origins: ['https://shop.example.org']", "0.0.0.0", {"Origin": "http://shop.example.org"}, False),
        ("origins: ['https://shop.example.org']", "0.0.0.0", {"Origin": "https://shop.example.org:444"}, False),
        ("origins: ['https://shop.example.org']", "0.0.0.0", {"Origin": None}, True),
        ("origins: ['*']", "127.0.0.1", {"Origin": "null"}, True),
        ("origins: ['*']", "127.0.0.1", {"Host": "rebound.example.org"}, False),
    ],
)
async def test_a_page_is_of_the_host_or_named(
    tmp_path: Path, security: str, host: str, headers: dict[str, str | None], admitted: bool
) -> None:
    at = entrance(tmp_path, security, host)
    if not admitted:
        assert (await refused(at, request(**headers)))[0].status in (403, 421)
        return
    async with sockets() as (client, server):
        await client.send_all(request(**headers))
        await at.let_in(server)
        assert (await client.receive_some()).startswith(b"HTTP/1.1 101 ")


async def test_who_is_slow_or_leaves_gets_no_websocket(tmp_path: Path) -> None:
    async with sockets() as (client, server):
        await client.send_all(request()[:-1])
        with pytest.raises(LateError):
            await entrance(tmp_path, opening="10ms").let_in(server)
        await client.send_eof()
        with pytest.raises(LeftError):
            await entrance(tmp_path).let_in(server)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("[shop.example.org]", '"shop.example.org", expected origins of web pages such as [https://shop.example.org]'),
        ("https://shop.example.org", '"https://shop.example.org", expected origins'),
        ("[]", "a list, expected origins"),
        ("['https://shop.example.org/path']", '"https://shop.example.org/path", expected origins'),
    ],
)
def test_wrong_origins_are_explained(tmp_path: Path, said: str, complaint: str) -> None:
    with pytest.raises(Exception, match=r"mesh.yaml:1: security.origins: ") as caught:
        entrance(tmp_path, f"origins: {said}")
    assert complaint in str(caught.value)
