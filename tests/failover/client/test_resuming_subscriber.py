"""A subscriber whose connection is cut at every step of a delivery's life, at a router that honours unsettled maps."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from failover.client import Abandoned, Delivery, Event, Resumed, Subscriber
from failover.client import subscriber as subscribers
from failover.client.attachment import attachment
from failover.client.endpoint import TURN_S
from router.amqp.format.values import ACCEPTED, MODIFIED, NO_STATE, RCV_SECOND, REJECTED, RELEASED
from router.amqp.proton.link import Link
from tests.failover.client.clients import KEYS, subscribing, taken
from tests.failover.client.scripted import EPOCH, Gone, Holding, Peer, Stated, running_peers, states


async def again(peer: Peer, ours: dict[bytes, int], theirs: dict[bytes, int] | None, **options: Any) -> Link:
    """Cut the connection; the subscriber attaches again with that map."""
    peer.cut()
    await peer.next(Gone)
    link = await peer.answer(theirs, **options)
    assert link.remote_unsettled == states(ours)
    assert link.remote_properties == {"oncemesh:epoch": EPOCH}
    return link


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link has lived as soon as it is there."""
    for module in (attachment, subscribers):
        monkeypatch.setattr(module, "LIVED_S", 0.001)


async def accepts_all_and_is_cut(peer: Peer, s: Subscriber, link: Link) -> None:
    for key in KEYS:
        await (await taken(peer, s, link, key)).accept()
        await peer.next(Stated)
    peer.cut()


async def has_nothing(s: Subscriber) -> bool:
    await trio.testing.wait_all_tasks_blocked()
    return not s._waiting


async def test_it_asks_for_a_terminus_that_outlives_the_connection() -> None:
    async with running_peers("a") as [a], subscribing(a, timeout=7) as (_, link):
        assert link.remote_unsettled is None
        assert link.remote_rcv_settle_mode == RCV_SECOND
        assert link.remote_source is not None
        source = link.remote_source
        assert (source.durable, source.expiry_policy, source.timeout) == (1, "connection-close", 7)


async def test_a_user_who_takes_time_for_each_message_leaves_some_to_others(
    mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    """Else the connection would have nobody to answer for it while messages are there."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with running_peers("a") as [a], subscribing(a) as (s, link):
        for key in KEYS[:6]:
            await a.send(link, key, b"body")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(others)
        for _ in range(6):
            await anext(s)
            mock_clock.jump(TURN_S)
        assert turns >= 4  # if not between all: who is first in a turn of trio's is chance
        nursery.cancel_scope.cancel()


async def test_what_is_there_is_accepted_in_one_commit_and_stated_behind_it_in_order() -> None:
    store = Holding()
    async with running_peers("a") as [a], subscribing(a, store=store) as (s, link), trio.open_nursery() as nursery:
        for key in KEYS[:4]:
            await a.send(link, key, b"body")
        await trio.testing.wait_all_tasks_blocked()
        deliveries = [await anext(s), *s.here(2)]
        assert [delivery.key for delivery in deliveries] == KEYS[:3]
        store.hold = True
        nursery.start_soon(s.accept_all, deliveries)
        await store.until_held()
        await trio.testing.wait_all_tasks_blocked()
        assert a.has_nothing()
        store.release()
        handles = [delivery.handle for delivery in deliveries]
        assert [(await a.next(Stated)).state for _ in handles] == [ACCEPTED] * 3
        kept = store.load("subscriber", s.identity).unsettled
        assert [*kept] == KEYS[:3]
        assert [delivery.key for delivery in s.here(9)] == [KEYS[3]]
        assert s.here(9) == []


async def test_cut_with_nothing_unsettled() -> None:
    async with running_peers("a") as [a], subscribing(a) as (s, _):
        link = await again(a, {}, {})
        await (await taken(a, s, link, KEYS[0])).accept()
        assert (await a.next(Stated)).state == ACCEPTED


async def test_cut_before_the_acceptance_and_the_message_comes_again() -> None:
    """It stays with the user, whose answer goes over the new link."""
    events: list[Event] = []
    async with running_peers("a") as [a], subscribing(a, events=events.append) as (s, link):
        delivery = await taken(a, s, link, KEYS[0])
        link = await again(a, {KEYS[0]: NO_STATE}, {KEYS[0]: NO_STATE})
        handle = await a.send(link, KEYS[0], b"body", resume=True)
        assert await has_nothing(s)
        await delivery.accept()
        assert await a.next(Stated) == Stated(handle, ACCEPTED, False)
        assert Resumed(1) in events


async def test_cut_before_the_user_took_the_message() -> None:
    async with running_peers("a") as [a], subscribing(a) as (s, link):
        for n in range(2):
            await a.send(link, KEYS[n], b"%d" % n)
        await trio.testing.wait_all_tasks_blocked()
        link = await again(a, dict.fromkeys(KEYS[:2], NO_STATE), dict.fromkeys(KEYS[:2], NO_STATE))
        for n in range(3):
            await a.send(link, KEYS[n], b"%d" % n, resume=n < 2)
        await trio.testing.wait_all_tasks_blocked()
        assert [(await anext(s)).body for _ in range(3)] == [b"0", b"1", b"2"]
        assert await has_nothing(s)


async def test_accepted_while_there_is_no_link() -> None:
    async with running_peers("a") as [a], subscribing(a) as (s, link):
        delivery = await taken(a, s, link, KEYS[0])
        a.dead = True
        a.cut()
        await a.next(Gone)
        await delivery.accept()
        a.dead = False
        link = await a.answer({KEYS[0]: NO_STATE})
        assert link.remote_unsettled == states({KEYS[0]: ACCEPTED})
        handle = await a.send(link, KEYS[0], None, resume=True, state=ACCEPTED)
        assert await a.next(Stated) == Stated(handle, ACCEPTED, False)


@pytest.mark.parametrize("body", [None, b"", b"body"])
async def test_cut_after_the_acceptance_before_the_settlement(body: bytes | None) -> None:
    """It is answered again, whatever comes with it, and forgotten when settled."""
    async with running_peers("a") as [a], subscribing(a) as (s, link):
        await (await taken(a, s, link, KEYS[0])).accept()
        await a.next(Stated)
        link = await again(a, {KEYS[0]: ACCEPTED}, {KEYS[0]: NO_STATE})
        handle = await a.send(link, KEYS[0], body, resume=True, state=NO_STATE if body else ACCEPTED)
        assert await a.next(Stated) == Stated(handle, ACCEPTED, False)
        a.settle(link, handle)
        await trio.testing.wait_all_tasks_blocked()
        assert await has_nothing(s)
        await again(a, {}, {})


async def test_what_the_router_leaves_out_is_settled() -> None:
    async with running_peers("a") as [a], subscribing(a) as (s, link):
        accepted, kept = await taken(a, s, link, KEYS[0]), await taken(a, s, link, KEYS[1])
        await accepted.accept()
        await a.next(Stated)
        await again(a, {KEYS[0]: ACCEPTED, KEYS[1]: NO_STATE}, {})
        await kept.accept()
        await trio.testing.wait_all_tasks_blocked()
        assert a.has_nothing()
        await again(a, {}, {})


async def test_an_ordinary_transfer_of_what_it_has() -> None:
    """As from a router that did not read the map."""
    async with running_peers("a") as [a], subscribing(a) as (s, link):
        await (await taken(a, s, link, KEYS[0])).reject("amqp:decode-error", "no")
        kept = await taken(a, s, link, KEYS[1])
        await a.next(Stated)
        link = await again(a, {KEYS[0]: REJECTED, KEYS[1]: NO_STATE}, {KEYS[0]: NO_STATE, KEYS[1]: NO_STATE})
        handles = [await a.send(link, key, b"body") for key in KEYS[:2]]
        assert await a.next(Stated) == Stated(handles[0], REJECTED, False)
        assert link.remote_outcome(handles[0]).condition == "amqp:decode-error"
        await kept.accept()
        assert await a.next(Stated) == Stated(handles[1], ACCEPTED, False)
        assert await has_nothing(s)


async def test_settled_aborted_and_unknown_resumed_deliveries() -> None:
    async with running_peers("a") as [a], subscribing(a) as (s, link):
        for n in range(2):
            await (await taken(a, s, link, KEYS[n])).accept()
            await a.next(Stated)
        held = dict.fromkeys(KEYS[:2], ACCEPTED)
        link = await again(a, held, held)
        await a.send(link, KEYS[0], None, resume=True, state=ACCEPTED, settled=True)
        await a.send(link, KEYS[1], None, resume=True, aborted=True)
        unknown = await a.send(link, KEYS[2], None, resume=True, state=ACCEPTED)
        assert await a.next(Stated) == Stated(unknown, ACCEPTED, True)
        await a.send(link, KEYS[3], b"new to us", resume=True)
        assert (await anext(s)).body == b"new to us"
        await again(a, {KEYS[3]: NO_STATE}, {})


async def test_the_sender_s_outcome_counts_where_they_differ() -> None:
    async with running_peers("a") as [a], subscribing(a) as (s, link):
        await (await taken(a, s, link, KEYS[0])).accept()
        await a.next(Stated)
        link = await again(a, {KEYS[0]: ACCEPTED}, {KEYS[0]: REJECTED})
        handle = await a.send(link, KEYS[0], None, resume=True, state=REJECTED)
        assert await a.next(Stated) == Stated(handle, REJECTED, True)
        await again(a, {}, {})


@pytest.mark.parametrize(("give_back", "state"), [(Delivery.release, RELEASED), (Delivery.fail, MODIFIED)])
async def test_what_was_given_back_comes_again(give_back: Callable[[Delivery], Awaitable[None]], state: int) -> None:
    async with running_peers("a") as [a], subscribing(a) as (s, link):
        await give_back(await taken(a, s, link, KEYS[0]))
        given = await a.next(Stated)
        assert given.state == state
        a.settle(link, given.handle)
        await give_back(await taken(a, s, link, KEYS[0]))
        await a.next(Stated)
        link = await again(a, {}, {})
        await (await taken(a, s, link, KEYS[0])).accept()
        assert (await a.next(Stated)).state == ACCEPTED


async def test_a_router_that_knows_no_maps() -> None:
    """It may use the same tags for other messages."""
    events: list[Event] = []
    async with running_peers("a") as [a], subscribing(a, events=events.append) as (s, link):
        await (await taken(a, s, link, KEYS[0])).accept()
        await a.next(Stated)
        handed_out = await taken(a, s, link, KEYS[1])
        await a.send(link, KEYS[2], b"waits")
        await trio.testing.wait_all_tasks_blocked()
        ours = {KEYS[0]: ACCEPTED, KEYS[1]: NO_STATE, KEYS[2]: NO_STATE}
        link = await again(a, ours, None)
        await trio.testing.wait_all_tasks_blocked()
        assert events[-1] == Abandoned(2)
        await handed_out.accept()
        for n in range(3):
            await taken(a, s, link, KEYS[n], b"other")
        assert a.has_nothing()


async def test_credit_is_given_for_answers_and_anew_at_every_attach() -> None:
    async with running_peers("a") as [a], subscribing(a, credit=4) as (s, link):
        deliveries = [await taken(a, s, link, KEYS[n]) for n in range(4)]
        assert link.credit == 0
        for delivery in deliveries[:2]:
            await delivery.accept()
            await a.next(Stated)
        await trio.testing.wait_all_tasks_blocked()
        assert link.credit == 2
        link = await again(a, {key: ACCEPTED if n < 2 else NO_STATE for n, key in enumerate(KEYS[:4])},
                           dict.fromkeys(KEYS[:4], NO_STATE))  # fmt: skip
        assert link.credit == 4
        for n in range(4):
            await a.send(link, KEYS[n], None if n < 2 else b"body", resume=True, state=ACCEPTED if n < 2 else NO_STATE)
        for _ in range(2):
            await a.next(Stated)
        await trio.testing.wait_all_tasks_blocked()
        assert link.credit == 2
        for delivery in deliveries[2:]:
            await delivery.accept()
            await a.next(Stated)
        await trio.testing.wait_all_tasks_blocked()
        assert link.credit == 4


@pytest.mark.usefixtures("at_once")
async def test_an_incomplete_map_proves_nothing() -> None:
    async with running_peers("a") as [a], subscribing(a) as (s, link):
        for n in range(3):
            await (await taken(a, s, link, KEYS[n])).accept()
            await a.next(Stated)
        await again(a, dict.fromkeys(KEYS[:3], ACCEPTED), {KEYS[1]: ACCEPTED}, incomplete=True)
        await a.next(Gone)
        link = await a.answer({KEYS[0]: NO_STATE})
        assert link.remote_unsettled == states(dict.fromkeys(KEYS[:3], ACCEPTED))
        assert list(link.remote_unsettled) == [KEYS[0], KEYS[2], KEYS[1]], "what was left out comes first"
        await trio.testing.wait_all_tasks_blocked()
        await again(a, {KEYS[0]: ACCEPTED}, {})


@pytest.mark.usefixtures("at_once")
async def test_a_map_that_is_too_large_is_told_in_parts() -> None:
    async with running_peers("a") as [a]:
        a.max_frame = 1024
        async with subscribing(a, credit=200) as (s, link):
            await accepts_all_and_is_cut(a, s, link)
            parts, left = 0, list(KEYS)
            while left:
                await a.next(Gone)
                link = await a.next(Link)
                assert link.remote_unsettled is not None
                named = list(link.remote_unsettled)
                assert named == left[: len(named)]
                assert link.remote_incomplete_unsettled == (len(named) < len(left))
                link.answer(unsettled={})
                link.connection.wake()
                left = left[len(named) :]
                parts += 1
            assert parts > 2
            await trio.testing.wait_all_tasks_blocked()
            await taken(a, s, link, b"new")


@pytest.mark.usefixtures("at_once")
async def test_what_was_left_out_is_told_though_nothing_is_settled() -> None:
    """Settlement may wait for another subscriber, which waits for what we have left out."""
    async with running_peers("a") as [a]:
        a.max_frame = 1024
        async with subscribing(a, credit=200) as (s, link):
            await accepts_all_and_is_cut(a, s, link)
            told: set[bytes] = set()
            while told != set(KEYS):
                await a.next(Gone)
                link = await a.next(Link)
                assert link.remote_unsettled is not None and link.remote_incomplete_unsettled
                named, left_out = list(link.remote_unsettled), [key for key in KEYS if key not in told]
                assert named[: len(left_out)] == left_out[: len(named)]
                link.answer(unsettled=dict.fromkeys(named, ACCEPTED))
                link.connection.wake()
                told |= set(named)


@pytest.mark.usefixtures("at_once")
async def test_what_the_user_still_has_is_answered_before_more_is_told() -> None:
    async with running_peers("a") as [a], subscribing(a) as (s, link):
        deliveries = [await taken(a, s, link, key) for key in KEYS[:2]]
        link = await again(a, dict.fromkeys(KEYS[:2], NO_STATE), {KEYS[0]: NO_STATE}, incomplete=True)
        await a.send(link, KEYS[0], b"body", resume=True)
        assert await has_nothing(s) and a.has_nothing(), "it has not gone"
        await deliveries[0].accept()
        await a.next(Stated)
        await a.next(Gone)
        link = await a.answer({})
        assert link.remote_unsettled == states({KEYS[1]: NO_STATE, KEYS[0]: ACCEPTED})


async def test_the_acceptance_is_durable_before_it_is_stated() -> None:
    store = Holding()
    async with running_peers("a") as [a], subscribing(a, store=store) as (s, link), trio.open_nursery() as nursery:
        delivery = await taken(a, s, link, KEYS[0])
        store.hold = True
        nursery.start_soon(delivery.accept)
        await store.until_held()
        assert a.has_nothing()
        link = await again(a, {KEYS[0]: NO_STATE}, {KEYS[0]: NO_STATE})
        handle = await a.send(link, KEYS[0], b"body", resume=True)
        store.release()
        assert await a.next(Stated) == Stated(handle, ACCEPTED, False)


async def test_settle_mode_first_goes_on_with_null_maps() -> None:
    async with running_peers("a") as [a], subscribing(a, settle="first") as (s, link):
        handed_out = await taken(a, s, link, KEYS[0])
        await a.send(link, KEYS[1], b"waits")
        await trio.testing.wait_all_tasks_blocked()
        a.cut()
        await a.next(Gone)
        link = await a.answer()
        assert link.remote_unsettled is None
        await handed_out.accept()
        await (await taken(a, s, link, KEYS[1])).accept()
        assert (await a.next(Stated)).settled
        assert a.has_nothing()
