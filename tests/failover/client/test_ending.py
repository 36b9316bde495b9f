"""Links that end, with their user's block or with their terminus, and those that a store keeps for the next life."""

import math
from pathlib import Path

import pytest
import trio
import trio.testing

from failover.client import ClientError, Connected, Event, Lost, MemoryStore, Outcome, Searching, SqliteStore
from router.amqp.format.values import ACCEPTED, NO_STATE
from tests.failover.client.clients import KEYS, TAGS, publisher, publishing, settled, subscriber, subscribing, taken
from tests.failover.client.scripted import Detached, Gone, Stated, Transferred, attached, running_peers, states


async def test_a_publisher_gives_up_when_its_terminus_is_over() -> None:
    """It says meanwhile, once, that nobody takes its link."""
    events: list[Event] = []
    async with running_peers("a") as [a], publishing(a, timeout=1, events=events.append) as (p, _):
        handle = await p.send(b"body")
        await a.next(Transferred)
        a.dead = True
        a.cut()
        lost = trio.current_time()
        with pytest.raises(ClientError):
            await handle.outcome()
        assert trio.current_time() - lost >= 1
        [searching] = [event for event in events if isinstance(event, Searching)]
        assert 0 < searching.left <= 1


async def test_a_client_that_finds_no_router_says_so_after_each_loss() -> None:
    tell, told = trio.open_memory_channel[Event](math.inf)
    async with running_peers("a") as [a], publishing(a, events=tell.send_nowait):
        assert isinstance(await told.receive(), Connected)
        for _ in range(2):
            a.dead = True
            a.cut()
            await a.next(Gone)
            assert [type(await told.receive()) for _ in range(2)] == [Lost, Searching]
            a.dead = False
            await a.answer({})
            assert isinstance(await told.receive(), Connected)


async def test_a_link_without_a_store_ends_with_its_block_however_it_is_left() -> None:
    async with running_peers("a") as [a]:
        async with publishing(a) as (p, _):
            await p.send(b"body")
            await a.next(Transferred)
        assert await a.next(Detached) == Detached(closed=True)


async def test_a_link_with_a_store_stays_if_its_deliveries_do() -> None:
    store = MemoryStore()
    async with running_peers("a") as [a]:
        async with publishing(a, store=store) as (p, _):
            await p.send(b"body")
            await a.next(Transferred)
        await a.next(Gone)
        async with attached(publisher(a, store=store), a, {}, orderly=True) as (p, link):
            assert link.remote_unsettled == states({TAGS[0]: NO_STATE})
            [handle] = p.resumed
            await settled(a, link, await a.next(Transferred))
            assert await handle.outcome() is Outcome.ACCEPTED
        assert await a.next(Detached) == Detached(closed=True)
        await a.next(Gone)
        async with publishing(a, store=store) as (p, link):
            assert link.remote_unsettled is None
            assert link.remote_properties == {"oncemesh:answers": True}
            assert p.resumed == ()
            await p.send(b"new")
            assert (await a.next(Transferred)).tag == TAGS[1], "tags are never used again"


async def test_a_subscription_without_a_store_ends_with_its_block_however_it_is_left() -> None:
    async with running_peers("a") as [a]:
        async with subscribing(a):
            pass
        assert await a.next(Detached) == Detached(closed=True)


async def test_a_subscription_ends_also_when_its_user_is_cancelled() -> None:
    async with running_peers("a") as [a]:
        with trio.CancelScope() as scope:
            async with subscribing(a):
                scope.cancel()
                await trio.sleep_forever()
        assert await a.next(Detached) == Detached(closed=True)


async def test_an_answer_after_the_end_is_refused(tmp_path: Path) -> None:
    async with running_peers("a") as [a]:
        with SqliteStore(tmp_path / "state") as store:
            async with subscribing(a, store=store) as (s, link):
                delivery = await taken(a, s, link, KEYS[0])
            with pytest.raises(ClientError, match="left"):
                await delivery.accept()


async def test_a_subscription_with_a_store_waits_for_the_next_life() -> None:
    store = MemoryStore()
    async with running_peers("a") as [a]:
        async with attached(subscriber(a, store=store), a, orderly=True) as (s, link):
            await (await taken(a, s, link, KEYS[0])).accept()
            await taken(a, s, link, KEYS[1])
        await a.next(Stated)
        await a.next(Gone)
        async with attached(subscriber(a, store=store), a, {KEYS[0]: NO_STATE}) as (s, link):
            assert link.remote_unsettled == states({KEYS[0]: ACCEPTED})
            handle = await a.send(link, KEYS[0], None, resume=True, state=ACCEPTED)
            assert await a.next(Stated) == Stated(handle, ACCEPTED, False)
            await taken(a, s, link, KEYS[1])
