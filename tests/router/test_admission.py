"""Who comes in by a listener (`router.admission`): strangers make way, clients and neighbours stay."""

import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from router.admission import GREETING, SPARE_LEAST, Admission, Visitor
from router.log_limit import limit_logs
from tests.hangs import HANGS_S

PLACES = 14
ROOM = PLACES - SPARE_LEAST
PATIENCE_S = 1000.0


class Served:
    """The connections that were handed on, by what they said first; and what becomes of them."""

    def __init__(self) -> None:
        self.visitors: dict[bytes, Visitor] = {}
        self.ended: set[bytes] = set()

    async def serve(self, stream: trio.SocketStream, visitor: Visitor) -> None:
        name = bytes(await stream.receive_some()).rstrip(b".")
        self.visitors[name] = visitor
        try:
            await stream.receive_some()
        finally:
            self.ended.add(name)


class Door:
    def __init__(self, address: tuple[str, int], served: Served) -> None:
        self._address = address
        self._served = served
        self._streams: list[trio.SocketStream] = []  # they stay open

    async def comes(self, name: bytes, host: str = "127.0.0.1") -> trio.SocketStream:
        """Somebody connects from that host, says its name if it has one, and is heard."""
        stream = await trio.open_tcp_stream(*self._address, local_address=host)
        self._streams.append(stream)
        if name:
            await stream.send_all(name.ljust(GREETING, b"."))
            await until(lambda: name in self._served.visitors)
        return stream

    async def client(self, name: bytes) -> bool:
        """One that opens, and asks for a place; whether it got one."""
        await self.comes(name)
        self._served.visitors[name].open()
        return self._served.visitors[name].admit()


class Failing(socket.socket):
    """A listener that cannot accept, so often."""

    def __init__(self, times: int, number: int) -> None:
        super().__init__()
        self.bind(("127.0.0.1", 0))
        self.listen()
        self._times, self._number = times, number

    def accept(self) -> tuple[socket.socket, Any]:
        self._times -= 1
        if self._times >= 0:
            raise OSError(self._number, os.strerror(self._number))
        return super().accept()


async def until(true: Callable[[], bool]) -> None:
    with trio.fail_after(HANGS_S):
        while not true():
            await trio.sleep(0.001)


@asynccontextmanager
async def door(served: Served, patience: float = PATIENCE_S) -> AsyncIterator[Door]:
    admission = Admission(PLACES, patience)
    assert (admission.room, admission.spare) == (ROOM, SPARE_LEAST)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(admission.serve, listener, served.serve, nursery)
        yield Door(address, served)
        nursery.cancel_scope.cancel()


async def is_over(stream: trio.SocketStream) -> bool:
    try:
        with trio.fail_after(HANGS_S):
            return await stream.receive_some() == b""
    except trio.BrokenResourceError:
        return True


async def test_the_oldest_that_says_nothing_makes_way() -> None:
    """One of the address that has more than half of the places; who has spoken is left alone."""
    served = Served()
    async with door(served) as at:
        elsewhere = await at.comes(b"", "127.0.0.2")
        await at.comes(b"spoken")
        silent = [await at.comes(b"") for _ in range(5)]
        assert await is_over(silent[0])
        await at.comes(b"2nd", "127.0.0.3")
        assert await is_over(silent[1]), "of five there"
        await at.comes(b"3rd", "127.0.0.3")
        assert await is_over(elsewhere), "nobody has more than half of them any more"
        assert served.ended == set()


async def test_who_has_spoken_makes_way_when_nobody_is_silent() -> None:
    served = Served()
    async with door(served) as at:
        first = await at.comes(b"first")
        for number in range(PLACES):
            await at.comes(b"%d" % number)
        assert await is_over(first)


async def test_who_opened_stays_while_others_have_not() -> None:
    """As one that reads the status does."""
    served = Served()
    async with door(served) as at:
        await at.comes(b"status")
        served.visitors[b"status"].open()
        for number in range(3 * PLACES):
            await at.comes(b"%d" % number, f"127.0.0.{1 + number}")
        assert len(served.ended) > PLACES and b"status" not in served.ended


async def test_clients_are_admitted_to_all_places_but_the_spare_ones() -> None:
    served = Served()
    async with door(served) as at:
        clients = [await at.client(b"%d" % number) for number in range(ROOM + 1)]
        assert clients == [True] * ROOM + [False]
        for number in range(2 * PLACES):
            await at.comes(b"stranger %d" % number, f"127.0.0.{1 + number}")
        assert not served.ended & {b"%d" % number for number in range(ROOM)}
        assert served.visitors[b"0"].admit(), "it has its place already"


async def test_a_place_is_free_again_when_its_client_has_gone() -> None:
    served = Served()
    async with door(served) as at:
        stream = await at.comes(b"short")
        assert served.visitors[b"short"].admit()
        assert [await at.client(b"%d" % number) for number in range(ROOM)] == [True] * (ROOM - 1) + [False]
        await stream.aclose()
        await until(lambda: b"short" in served.ended)
        assert await at.client(b"next")


async def test_who_says_nothing_is_sent_away(caplog: pytest.LogCaptureFixture) -> None:
    served = Served()
    async with door(served, patience=0.01) as at:
        assert await is_over(await at.comes(b""))
    assert served.visitors == {}
    assert "the client has not sent a protocol header" in caplog.text


async def test_nobody_is_served_before_he_has_said_what_he_speaks() -> None:
    """A byte less than a greeting is as good as silence, and wakes nobody; afterwards every byte does."""
    served = Served()
    async with door(served) as at:
        stream = await at.comes(b"")
        await stream.send_all(b"hesitan")
        await at.comes(b"another")
        assert list(served.visitors) == [b"another"]
        await stream.send_all(b"t")
        await until(lambda: b"hesitant" in served.visitors)
        await stream.send_all(b"x")
        await until(lambda: b"hesitant" in served.ended)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ECONNABORTED])
async def test_an_accept_that_fails_ends_nothing_and_fills_no_log(
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A thousand times, which takes more than a minute; then somebody comes."""
    served, listener = Served(), Failing(1000, number)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(limit_logs)
        await trio.testing.wait_all_tasks_blocked()
        async with await trio.open_tcp_stream(*listener.getsockname()) as stream:
            nursery.start_soon(Admission(PLACES, PATIENCE_S).serve, listener, served.serve, nursery)
            await stream.send_all(b"patient.")
            while not served.visitors:
                await trio.sleep(1)
            nursery.cancel_scope.cancel()
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    line = f"cannot accept connections: {os.strerror(number)}"
    assert told[0] == line and told.count(line) == 2, "1000 times 0.1 s are two minutes"
    assert sum(int(one.split()[0]) for one in told if one != line) == 1000 - 2
