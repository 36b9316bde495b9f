"""A link that is cut in both of its ways, and healed. The far end echoes what it gets."""

import pytest
import trio
from trio.testing import MockClock

from failover.chaos.carrier import Impairment
from failover.chaos.proxy import LinkProxy
from router.mesh.quantities import Address


async def echo(stream: trio.SocketStream) -> None:
    try:
        async for data in stream:
            await stream.send_all(data)
        await stream.send_eof()
    except trio.BrokenResourceError:
        pass


@pytest.fixture
def autojump_clock() -> MockClock:
    """It waits a moment for what is under way in the kernel, before it takes everybody for idle."""
    return MockClock(autojump_threshold=0.02)


@pytest.fixture
async def proxy(nursery: trio.Nursery) -> LinkProxy:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, echo, [listener])
    target = Address(*listener.socket.getsockname()[:2])
    proxy = LinkProxy(lambda: target)
    await nursery.start(proxy.run)
    return proxy


async def connect(proxy: LinkProxy) -> trio.SocketStream:
    return await trio.open_tcp_stream(proxy.address.host, proxy.address.port)


async def read(stream: trio.SocketStream, length: int) -> bytes:
    data = b""
    while len(data) < length and (more := await stream.receive_some()):
        data += more
    return data


async def ends(stream: trio.SocketStream) -> bool:
    try:
        return await stream.receive_some() == b""
    except trio.BrokenResourceError:
        return True


async def test_a_whole_link_carries_both_ways_and_passes_the_end_on(proxy: LinkProxy) -> None:
    async with await connect(proxy) as stream:
        await stream.send_all(b"there and back")
        assert await read(stream, 14) == b"there and back"
        await stream.send_eof()
        assert await ends(stream)


async def test_a_silenced_link_gives_late_what_was_under_way(proxy: LinkProxy, autojump_clock: object) -> None:
    async with await connect(proxy) as stream:
        await stream.send_all(b"before")
        assert await read(stream, 6) == b"before"
        proxy.become(Impairment(silent=True))
        await stream.send_all(b"under way")
        with trio.move_on_after(5) as patience:
            await stream.receive_some()
        assert patience.cancelled_caught
        proxy.become(Impairment())
        assert await read(stream, 9) == b"under way"


async def test_a_connection_made_over_a_silenced_link_hears_nothing_until_it_is_healed(
    proxy: LinkProxy, autojump_clock: object
) -> None:
    proxy.become(Impairment(silent=True))
    async with await connect(proxy) as stream:
        await stream.send_all(b"hello")
        with trio.move_on_after(5) as patience:
            await stream.receive_some()
        assert patience.cancelled_caught
        proxy.become(Impairment())
        assert await read(stream, 5) == b"hello"


async def test_a_severed_link_resets_old_connections_and_new_ones(proxy: LinkProxy) -> None:
    async with await connect(proxy) as old:
        await old.send_all(b"before")
        assert await read(old, 6) == b"before"
        proxy.become(Impairment(severed=True))
        with pytest.raises(trio.BrokenResourceError):
            await old.receive_some()
    async with await connect(proxy) as new:
        assert await ends(new)
    proxy.become(Impairment())
    async with await connect(proxy) as healed:
        await healed.send_all(b"after")
        assert await read(healed, 5) == b"after"


async def test_a_silenced_link_that_is_severed_and_healed_is_whole(proxy: LinkProxy) -> None:
    proxy.become(Impairment(silent=True))
    proxy.become(Impairment(silent=True, severed=True))
    proxy.become(Impairment())
    async with await connect(proxy) as stream:
        await stream.send_all(b"whole")
        assert await read(stream, 5) == b"whole"


async def test_nobody_at_the_far_end_is_an_end(nursery: trio.Nursery) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    deserted = Address(*listener.socket.getsockname()[:2])
    await listener.aclose()
    proxy = LinkProxy(lambda: deserted)
    await nursery.start(proxy.run)
    async with await connect(proxy) as stream:
        assert await ends(stream)


async def test_a_slow_link_gives_all_of_it_later_and_in_order(proxy: LinkProxy, autojump_clock: object) -> None:
    async with await connect(proxy) as stream:
        proxy.become(Impairment(latency=2.0, jitter=1.0))
        started = trio.current_time()
        for number in range(10):
            await stream.send_all(b"%d" % number)
            await trio.sleep(0.1)
        assert await read(stream, 10) == b"0123456789"
        assert 4.0 <= trio.current_time() - started <= 8.0  # there and back


async def test_a_narrow_link_carries_so_many_bytes_in_a_second_and_loses_none(
    proxy: LinkProxy, autojump_clock: object
) -> None:
    async with await connect(proxy) as stream:
        proxy.become(Impairment(rate=10_000))
        started = trio.current_time()
        await stream.send_all(bytes(30_000))
        assert await read(stream, 30_000) == bytes(30_000)
        assert 3.0 <= trio.current_time() - started <= 6.1  # there and back, at the same time


async def test_a_reset_ends_connections_but_not_the_link(proxy: LinkProxy) -> None:
    async with await connect(proxy) as old:
        await old.send_all(b"before")
        assert await read(old, 6) == b"before"
        proxy.reset()
        with pytest.raises(trio.BrokenResourceError):
            await old.receive_some()
    async with await connect(proxy) as new:
        await new.send_all(b"after")
        assert await read(new, 5) == b"after"


async def test_a_silent_link_that_ceases_to_be_slow_lets_nothing_through(
    proxy: LinkProxy, autojump_clock: object
) -> None:
    async with await connect(proxy) as stream:
        proxy.become(Impairment(silent=True, latency=1.0))
        await stream.send_all(b"under way")
        proxy.become(Impairment(silent=True))
        with trio.move_on_after(5) as patience:
            await stream.receive_some()
        assert patience.cancelled_caught
        proxy.become(Impairment())
        assert await read(stream, 9) == b"under way"
