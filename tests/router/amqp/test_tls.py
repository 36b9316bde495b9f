"""The TLS pipe: what goes in comes out, however it is cut, and an end is an end."""

import random
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from router.amqp.sasl.credentials import Credentials
from router.amqp.tls import TlsError, TlsStream
from router.security.certs import Authority
from tests.router.amqp.tls import contexts, shaken


async def sockets() -> tuple[trio.SocketStream, trio.SocketStream]:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    one = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
    other = await listener.accept()
    await listener.aclose()
    return one, other


@pytest.fixture
async def ends() -> AsyncIterator[tuple[TlsStream, TlsStream]]:
    both = await shaken(*await sockets())
    yield both
    for end in both:
        await trio.aclose_forcefully(end)


async def read_to_end(stream: TlsStream) -> bytes:
    parts = []
    while data := await stream.pipe.read(128 * 1024):
        parts.append(data)
    return b"".join(parts)


async def test_the_server_is_known_by_its_certificate(ends: tuple[TlsStream, TlsStream]) -> None:
    client, server = ends
    assert (client.peer, server.peer) == ("b", "")


async def test_what_goes_in_at_once_or_after_a_wait_comes_out_once_and_in_order(
    ends: tuple[TlsStream, TlsStream],
) -> None:
    client, server = ends
    said = random.Random(1).randbytes(8 << 20)
    turns: list[int] = []

    async def say() -> None:
        rest = memoryview(said)
        while rest:
            written = server.pipe.write(rest)
            turns.append(written)
            rest = rest[written or await server.pipe.write_on(rest) :]
        await server.send_eof()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(say)
        heard = await read_to_end(client)
    assert heard == said
    assert 0 in turns and max(turns) > 0  # both ways were gone
    assert client.pipe.taken > len(said)


async def test_a_read_brings_more_than_one_record(ends: tuple[TlsStream, TlsStream]) -> None:
    client, server = ends
    await server.send_all(bytes(64 * 1024))
    await server.send_eof()
    assert len(await client.pipe.read(128 * 1024)) > 16 * 1024


async def test_an_end_without_goodbye_is_an_end(ends: tuple[TlsStream, TlsStream]) -> None:
    client, server = ends
    await server.send_all(b"half of it")
    await server.below.send_eof()
    assert await read_to_end(client) == b"half of it"


async def test_a_damaged_record_breaks_the_stream_in_both_directions(ends: tuple[TlsStream, TlsStream]) -> None:
    client, server = ends
    await server.below.send_all(b"\x17\x03\x03" + struct.pack(">H", 64) + bytes(64))
    with pytest.raises(trio.BrokenResourceError):
        await read_to_end(client)
    assert client.pipe.write(memoryview(b"too late")) == 0
    with pytest.raises(trio.BrokenResourceError):
        await client.pipe.write_on(memoryview(b"too late"))


@pytest.mark.parametrize("said", [b"AMQP\x00\x01\x00\x00" + bytes(100), b"\x16\x03\x01\x00\x05hello", b""])
async def test_who_does_not_speak_tls_is_told_apart(said: bytes) -> None:
    one, other = await sockets()
    async with one, other:
        await one.send_all(said)
        await one.send_eof()
        with pytest.raises(TlsError, match=r"TLS: |the peer closed"):
            await TlsStream.over(other, contexts()[1])


async def test_a_host_that_the_certificate_does_not_name_is_not_believed() -> None:
    one, other = await sockets()

    async def answer() -> None:
        with pytest.raises(TlsError):
            await TlsStream.over(other, contexts()[1])

    async with one, other, trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        with pytest.raises(TlsError, match="Hostname mismatch"):
            await TlsStream.over(one, contexts()[0], "elsewhere")
        await one.aclose()


@pytest.mark.parametrize("known", [None, "another"])
async def test_a_certificate_that_nobody_vouches_for_is_told_with_what_to_say(
    tmp_path: Path, known: str | None
) -> None:
    Authority(tmp_path, "another CA")
    ca = None if known is None else tmp_path / "ca.pem"
    one, other = await sockets()

    async def answer() -> None:
        with pytest.raises(TlsError):
            await TlsStream.over(other, contexts()[1])

    hint = "name the CA that signed it by --ca" if ca is None else f"no CA in {ca} has signed it"
    async with one, other, trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        with pytest.raises(TlsError, match=f"the certificate was not accepted: unable to get local issuer .*; {hint}"):
            await Credentials(ca=ca).secure(one, "localhost")
        await one.aclose()


def test_contexts_are_of_one_end_each() -> None:
    client, server = contexts()
    assert client.verify_mode is ssl.CERT_REQUIRED and server.verify_mode is ssl.CERT_NONE


async def test_a_write_that_was_given_up_is_whole_when_it_goes_on(
    ends: tuple[TlsStream, TlsStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket had no room for any of it."""
    client, server = ends

    async def wait(data: bytes) -> int:
        await trio.sleep_forever()

    with monkeypatch.context() as patched, trio.CancelScope() as scope:
        patched.setattr(client.pipe._below, "write_on", wait)
        scope.cancel()
        await client.pipe.write_on(b"said")
    assert await client.pipe.write_on(b"said") == 4
    assert await server.pipe.read(1000) == b"said"
