"""Connections over trio streams."""

import itertools
import socket
from typing import Any

import pytest
import trio
import trio.testing

from router.amqp import transport
from router.amqp.batches import Dispositions, Transfers
from router.amqp.connection import Connection
from router.amqp.format.errors import FRAMING_ERROR
from router.amqp.format.values import ACCEPTED, HEARTBEAT
from router.amqp.proton.link import Link
from tests.hangs import HANGS_S
from tests.router.amqp.frames import HEADER, OPEN, frame, opening
from tests.router.amqp.pair import Recorder


class Server(Recorder):
    def on_attach(self, link: Link) -> None:
        super().on_attach(link)
        link.answer()
        link.flow(50)

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        super().on_transfers(link, transfers)
        link.update_many(transfers.handles, ACCEPTED, settle=True)
        link.flow(len(transfers.handles))


class Client(Recorder):
    """Sends `count` messages, then closes."""

    def __init__(self, count: int, size: int = 100) -> None:
        super().__init__()
        self.left, self.count, self.size = count, count, size

    def on_open(self, connection: Connection) -> None:
        super().on_open(connection)
        connection.sender("link", "topic/x")

    def on_credit(self, link: Link) -> None:
        while link.credit and self.left:
            link.send(b"%d" % self.left, bytes(self.size))
            self.left -= 1

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        super().on_dispositions(link, dispositions)
        link.settle_many(dispositions.handles)
        if len(self.outcomes) == self.count:
            link.connection.close()


def sockets() -> tuple[trio.SocketStream, trio.SocketStream]:
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    return tuple(trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in (one, other))  # type: ignore[return-value]


def client_of(handler: Recorder, **settings: Any) -> Connection:
    connection = Connection(handler, container="client", server=False, **settings)
    connection.open()
    return connection


def server_of(handler: Recorder, **settings: Any) -> Connection:
    return Connection(handler, container="server", server=True, **settings)


@pytest.mark.parametrize(("count", "size"), [(500, 100), (3, 3_000_000)])
async def test_messages_over_a_socket_and_a_clean_end(count: int, size: int) -> None:
    here, there = Client(count, size), Server()
    one, other = sockets()
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.serve, one, client_of(here))
            nursery.start_soon(transport.serve, other, server_of(there))
    assert [len(message) for message in there.messages] == [size] * count
    assert len(here.outcomes) == count
    assert here.events[-1] == there.events[-1] == ("close", None)


async def test_garbage_is_answered_and_the_stream_closed() -> None:
    there = Server()
    one, other = sockets()
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.serve, other, server_of(there))
            await one.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while data := await one.receive_some():
                answer += data
            await one.aclose()
    assert answer.startswith(b"AMQP")
    assert there.events == [("close", FRAMING_ERROR)]


async def test_a_peer_that_vanishes() -> None:
    here, there = Client(1), Server()
    here.left = 0
    one, other = sockets()
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.serve, other, server_of(there))
            async with trio.open_nursery() as doomed:
                doomed.start_soon(transport.serve, one, client_of(here))
                while not there.attached:
                    await trio.testing.wait_all_tasks_blocked(0.001)
                doomed.cancel_scope.cancel()
    assert there.events[-1] == ("close", None)


async def test_waking_flushes_what_was_done_outside_of_callbacks() -> None:
    here, there = Client(0), Server()
    one, other = sockets()
    server = server_of(there)
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.serve, one, client_of(here))
            nursery.start_soon(transport.serve, other, server)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert here.events == [("open", "server"), ("attached", "link")]
            server.close("amqp:connection:forced")
            server.wake()
    assert here.events[-1] == ("close", "amqp:connection:forced")


async def test_both_sides_keep_an_idle_connection_alive(autojump_clock: trio.testing.MockClock) -> None:
    here, there = Client(0), Server()
    one, other = trio.testing.memory_stream_pair()
    client = client_of(here, idle_timeout=2.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transport.serve, one, client)
        nursery.start_soon(transport.serve, other, server_of(there, idle_timeout=3.0))
        await trio.sleep(100)
        assert not [event for event in here.events + there.events if event[0] == "close"]
        client.close()
        client.wake()
    assert here.events[-1] == there.events[-1] == ("close", None)


async def test_a_silent_peer_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    here = Client(0)
    one, _ = trio.testing.memory_stream_pair()
    began = trio.current_time()
    await transport.serve(one, client_of(here, idle_timeout=2.0))
    assert trio.current_time() - began < 4.0
    assert here.events[-1][0] == "close"


async def test_a_close_that_is_not_answered_ends_all_the_same(autojump_clock: trio.testing.MockClock) -> None:
    here = Client(0)
    one, _ = trio.testing.memory_stream_pair()
    client = client_of(here)
    client.close()
    await transport.serve(one, client)
    assert here.events[-1] == ("close", None)


async def test_an_idle_client_lives_by_the_idle_timeout_of_its_server(autojump_clock: trio.testing.MockClock) -> None:
    """The client's own timeout is far longer than the server's, which it learns with the server's open only."""
    here, there = Recorder(), Server()
    one, other = trio.testing.memory_stream_pair()
    client = client_of(here, idle_timeout=60.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transport.serve, one, client)
        nursery.start_soon(transport.serve, other, server_of(there, idle_timeout=0.5))
        await trio.sleep(100)
        assert not client.closed
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("size", "came", "took_s", "then"),
    [
        (65536, 65536, 4 * transport.TURN_S, 32768),
        (65536, 65536, 2 * transport.TURN_S, 32768),
        (65536, 65536, transport.TURN_S, 65536),
        (65536, 65536, 0.8 * transport.TURN_S, 81920),
        (65536, 65536, 0.0, 131072),
        (65536, 65535, 0.0, 65536),
        (4096, 16384, 0.0, 8192),  # a record of TLS, in several reads of its socket
        (65536, 8192, 0.5 * transport.TURN_S, 32768),
        (transport.READ_SIZE, transport.READ_SIZE, 0.0, transport.READ_SIZE),
        (transport.READ_LEAST, transport.READ_LEAST, 1.0, transport.READ_LEAST),
    ],
)
def test_of_a_peer_that_takes_long_to_handle_less_is_read_at_once(
    size: int, came: int, took_s: float, then: int
) -> None:
    """So that others get their turn."""
    assert transport.next_size(size, came, took_s) == then


class Flood(trio.abc.Stream):
    """Has as much to read as is asked for; notes how much that is."""

    def __init__(self, reads: int) -> None:
        self.left = reads
        self.sizes: list[int] = []

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        assert max_bytes is not None
        await trio.lowlevel.checkpoint()
        self.sizes.append(max_bytes)
        self.left -= 1
        if len(self.sizes) == 1:
            return opening()
        return HEARTBEAT * (max_bytes // len(HEARTBEAT)) if self.left >= 0 else b""

    async def send_all(self, data: Any) -> None:
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_peer_whose_input_takes_long_is_read_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    stream, other = Flood(reads=20), Flood(reads=20)
    monkeypatch.setattr(transport, "used_s", lambda: 0.0)
    await transport.serve(other, server_of(Server()))
    assert (other.sizes[0], other.sizes[-1]) == (transport.READ_FIRST, transport.READ_SIZE)
    monkeypatch.setattr(transport, "used_s", lambda: next(seconds))
    await transport.serve(stream, server_of(Server()))
    assert (stream.sizes[0], stream.sizes[-1]) == (transport.READ_FIRST, transport.READ_LEAST)


class Deaf(trio.abc.Stream):
    """A peer that sends heartbeats and asks for them, and takes so many pieces of what it is sent, each in so long."""

    def __init__(self, takes: int, takes_s: float = 0.0) -> None:
        self._opening = HEADER + frame(OPEN, "hostile", None, None, None, 1000)
        self._takes, self._takes_s = takes, takes_s
        self.taken = 0

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        said, self._opening = self._opening or HEARTBEAT, b""
        await trio.sleep(0.5)
        return said

    async def send_all(self, data: Any) -> None:
        if self.taken >= self._takes:
            await trio.sleep_forever()
        await trio.sleep(self._takes_s)
        self.taken += 1

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_who_gives_credit_and_does_not_read_is_sent_away_by_name(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Not before it has read nothing for a while; its heartbeats count for nothing."""
    there = Recorder()
    with trio.fail_after(100 * transport.STALL_S):
        await transport.serve(Deaf(takes=3), server_of(there, idle_timeout=2.0))
    assert transport.STALL_S <= trio.current_time() < 1.2 * transport.STALL_S
    assert there.events[-1] == ("close", None)
    said = "ended: amqp:resource-limit-exceeded: the peer read nothing for 30 s while data waited for it"
    assert [line.partition(" of ")[2] for line in caplog.messages] == [f"'hostile', a peer without a name {said}"]


async def test_who_reads_slowly_stays(autojump_clock: trio.testing.MockClock) -> None:
    stream, there = Deaf(takes=1000, takes_s=0.8 * transport.STALL_S), Recorder()
    server = server_of(there, idle_timeout=2.0)
    with trio.move_on_after(20 * transport.STALL_S):
        await transport.serve(stream, server)
    assert stream.taken > 20
    assert "close" not in [event for event, *_ in there.events[:-1]]


@pytest.mark.parametrize("attempt", range(10))
async def test_a_router_that_was_stopped_reads_before_it_judges(
    attempt: int, mock_clock: trio.testing.MockClock
) -> None:
    """Ten times, as trio shuffles who runs first."""
    there = Server()
    here, other = socket.socketpair()
    other.setblocking(False)
    server = server_of(there, idle_timeout=2.0)
    with here:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.serve, trio.SocketStream(trio.socket.from_stdlib_socket(other)), server)
            here.send(opening())
            while not server.opened:
                await trio.testing.wait_all_tasks_blocked(0.001)
            for _ in range(3):
                here.send(HEARTBEAT)  # while it is stopped
                mock_clock.jump(10)
                await trio.testing.wait_all_tasks_blocked(0.001)
                assert not server.closed
            mock_clock.jump(10)
            await trio.testing.wait_all_tasks_blocked(0.001)
            assert server.closed, "nothing came this time"
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("attempt", range(10))
async def test_timers_that_are_late_run_behind_those_who_read(attempt: int, mock_clock: trio.testing.MockClock) -> None:
    order = list[str]()
    one, other = sockets()

    async def reads() -> None:
        await other.receive_some()
        order.append("reads")

    async def judges() -> None:
        await trio.sleep_until(1.0)
        await transport.read_first(1.0)
        order.append("judges")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reads)
        nursery.start_soon(judges)
        await trio.testing.wait_all_tasks_blocked(0.001)
        await one.send_all(b"x")
        mock_clock.jump(5)
    assert order == ["reads", "judges"]
