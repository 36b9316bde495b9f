"""Wires between two namespaces: what becomes of packets, seen by the kernel's own TCP and UDP at both ends."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from random import Random

import pytest
import trio

from failover.chaos.carrier import Impairment
from failover.chaos.hosts.namespace import Namespace, lacking
from failover.chaos.hosts.packets import reset_of
from failover.chaos.hosts.wire import WAITING_S, Wire
from tests.hangs import HANGS_S

LACKING = lacking()
needs_hosts = pytest.mark.skipif(bool(LACKING), reason=f"cannot create network namespaces: {LACKING}")

NEAR, FAR = "10.98.0.1", "10.98.0.2"
PATIENCE_S = HANGS_S


class Ends:
    """Two hosts, and the wire between them."""

    def __init__(self) -> None:
        self.near, self.far = Namespace(), Namespace()
        ends = self.near.tunnel("wire"), self.far.tunnel("wire")
        for host, ours, theirs in ((self.near, NEAR, FAR), (self.far, FAR, NEAR)):
            host.configure(f"address add {ours} peer {theirs} dev wire", "link set wire up")
        self.wire = Wire(ends, Random(1))
        with self.far.entered():
            self.listener = trio.socket.from_stdlib_socket(socket.create_server((FAR, 0)))
        self.address: tuple[str, int] = self.listener.getsockname()

    def datagrams(self) -> tuple[trio.socket.SocketType, trio.socket.SocketType]:
        with self.near.entered():
            here = socket.socket(type=socket.SOCK_DGRAM)
        with self.far.entered():
            there = socket.socket(type=socket.SOCK_DGRAM)
        there.bind(self.address)
        return trio.socket.from_stdlib_socket(here), trio.socket.from_stdlib_socket(there)

    async def connect(self) -> trio.socket.SocketType:
        with self.near.entered():
            client = trio.socket.socket()
        await client.connect(self.address)
        return client

    async def connection(self) -> tuple[trio.socket.SocketType, trio.socket.SocketType]:
        client = await self.connect()
        return client, (await self.listener.accept())[0]

    def close(self) -> None:
        self.listener.close()
        for host in (self.near, self.far):
            host.close()


@pytest.fixture
async def ends(nursery: trio.Nursery) -> AsyncIterator[Ends]:
    made = Ends()
    nursery.start_soon(made.wire.run)
    yield made
    made.close()


async def received(connection: trio.socket.SocketType, count: int) -> bytes:
    data = b""
    with trio.fail_after(PATIENCE_S):
        while len(data) < count and (more := await connection.recv(1 << 16)):
            data += more
    return data


@needs_hosts
async def test_a_whole_wire_carries_everything(ends: Ends) -> None:
    near, far = await ends.connection()
    sent = Random(2).randbytes(1 << 18)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.SocketStream(near).send_all, sent)
        assert await received(far, len(sent)) == sent


@needs_hosts
async def test_what_is_slow_comes_as_much_later(ends: Ends) -> None:
    ends.wire.become(Impairment(latency=0.05))
    began = trio.current_time()
    near, far = await ends.connection()
    assert trio.current_time() - began >= 2 * 0.05
    await near.send(b"x")
    assert await received(far, 1) == b"x"


@needs_hosts
async def test_a_cable_that_is_out_lets_nothing_through_and_nobody_is_told(ends: Ends) -> None:
    near, far = await ends.connection()
    ends.wire.become(Impairment(silent=True))
    await near.send(b"late")
    with trio.move_on_after(0.3) as patience:
        await ends.connect()
    assert patience.cancelled_caught
    ends.wire.become(Impairment())
    assert await received(far, 4) == b"late"


@needs_hosts
async def test_so_many_packets_are_lost_and_tcp_makes_up_for_it(ends: Ends) -> None:
    ends.wire.become(Impairment(loss=0.5))
    here, there = ends.datagrams()
    for number in range(220):
        await here.sendto(b"%d" % number if number < 200 else b"end", ends.address)
    count = 0
    with trio.fail_after(PATIENCE_S):
        while await there.recv(100) != b"end":
            count += 1
    assert 60 <= count <= 160
    ends.wire.become(Impairment(loss=0.05))
    near, far = await ends.connection()
    sent = Random(3).randbytes(20_000)
    await near.send(sent)
    assert await received(far, len(sent)) == sent


@needs_hosts
async def test_a_narrow_wire_takes_its_time_and_loses_what_would_wait_for_longer(ends: Ends) -> None:
    ends.wire.become(Impairment(rate=20_000))
    here, there = ends.datagrams()
    began = trio.current_time()
    for number in range(100):
        await here.sendto(b"%3d" % number + bytes(997), ends.address)
    numbers = []
    with trio.move_on_after(2 * WAITING_S):
        while True:
            numbers.append(int((await there.recv(2000))[:3]))
            last = trio.current_time()
    assert numbers == sorted(numbers) and len(numbers) < 50
    assert last - began >= (len(numbers) - 1) * 1000 / 20_000


@needs_hosts
@pytest.mark.parametrize("severed", [False, True], ids=["reset", "severed"])
async def test_connections_are_reset_and_new_ones_refused_only_where_it_is_severed(ends: Ends, severed: bool) -> None:
    near, far = await ends.connection()
    await near.send(b"x")
    assert await received(far, 1) == b"x"
    if severed:
        ends.wire.become(Impairment(severed=True, latency=0.01))
        with pytest.raises(ConnectionRefusedError):
            await ends.connect()
    else:
        ends.wire.reset()
        (await ends.connect()).close()
    for end in (near, far):
        with pytest.raises(ConnectionResetError):
            await end.send(b"y")
            await received(end, 1)


def test_what_is_no_tcp_or_a_reset_itself_is_not_answered() -> None:
    udp = bytes.fromhex("45000020000040004011 0000 0a620001 0a620002 1234 0035 000c 0000 61626364")
    assert reset_of(udp) is None
    syn = bytes.fromhex("4500002800004000 4006 0000 0a620001 0a620002 1234162800000010 00000000 5002 7210 0000 0000")
    answer = reset_of(syn)
    assert answer is not None
    assert answer[12:20] == syn[16:20] + syn[12:16]
    assert answer[20:34] == bytes.fromhex("16281234 00000000 00000011 5014")
    assert reset_of(answer) is None
    assert reset_of(b"\x60" + bytes(60)) is None and reset_of(b"") is None


@needs_hosts
def test_who_may_not_make_hosts_is_told() -> None:
    """As anybody but root; the module is loaded before."""
    program = "import os; from failover.chaos.hosts.namespace import lacking; os.seteuid(65534); print(lacking())"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told == "unshare: Operation not permitted; this needs root\n"


@needs_hosts
def test_a_thread_comes_back_whatever_happens() -> None:
    home, host = os.readlink("/proc/thread-self/ns/net"), Namespace()
    with pytest.raises(ZeroDivisionError), host.entered():
        assert os.readlink("/proc/thread-self/ns/net") == os.readlink(host.path) != home
        raise ZeroDivisionError
    assert os.readlink("/proc/thread-self/ns/net") == home
    host.close()
