"""A publisher whose connection is cut at every step of a delivery's life, at a router that honours unsettled maps."""

from typing import Any

import pytest
import trio
import trio.testing

from failover.client import Abandoned, Connected, Event, Lost, Outcome, Resumed
from router.amqp.format.values import ACCEPTED, NO_STATE, RECEIVED, REJECTED
from router.amqp.proton.link import Link
from tests.failover.client.clients import TAGS, publishing, settled
from tests.failover.client.scripted import EPOCH, GENERATION, Gone, Holding, Peer, Transferred, running_peers, states
from topic.identity import KeyMaker, LinkIdentity, link_name


async def again(peer: Peer, ours: dict[bytes, int], theirs: dict[bytes, int], **options: Any) -> Link:
    """Cut the connection; the publisher attaches again with that map."""
    peer.cut()
    await peer.next(Gone)
    link = await peer.answer(theirs, **options)
    assert link.remote_unsettled == states(ours)
    echoed = {"oncemesh:generation": GENERATION, "oncemesh:epoch": EPOCH}
    assert link.remote_properties == {**echoed, "oncemesh:answers": True}
    return link


async def test_it_asks_for_a_terminus_that_outlives_the_connection() -> None:
    async with running_peers("a") as [a], publishing(a, timeout=7) as (_, link):
        for terminus in (link.remote_source, link.remote_target):
            assert terminus is not None
            assert (terminus.durable, terminus.expiry_policy, terminus.timeout) == (1, "connection-close", 7)


async def test_cut_with_nothing_unsettled() -> None:
    events: list[Event] = []
    async with running_peers("a") as [a], publishing(a, events=events.append) as (p, _):
        link = await again(a, {}, {})
        handle = await p.send(b"body")
        await settled(a, link, await a.next(Transferred))
        assert await handle.outcome() is Outcome.ACCEPTED
        assert [type(event) for event in events] == [Connected, Lost, Connected]
        assert events[0] == Connected(a.url, "a")


async def test_cut_before_the_transfer() -> None:
    """What was not transferred is in no map, and new at the next router."""
    store = Holding()
    async with running_peers("a") as [a], publishing(a, store=store) as (p, _):
        store.hold = True
        await p.send(b"body")
        await store.until_held()
        a.cut()
        await a.next(Gone)
        store.release()
        link = await a.answer({})
        assert link.remote_unsettled == {}
        transferred = await a.next(Transferred)
        assert (transferred.tag, transferred.body, transferred.resume) == (TAGS[0], b"body", False)


async def test_cut_before_the_outcome_at_a_router_that_has_the_message() -> None:
    events: list[Event] = []
    async with running_peers("a") as [a], publishing(a, events=events.append) as (p, _):
        handle = await p.send(b"body")
        await a.next(Transferred)
        link = await again(a, {TAGS[0]: NO_STATE}, {TAGS[0]: NO_STATE})
        resumed = await a.next(Transferred)
        assert (resumed.tag, resumed.body, resumed.resume, resumed.state) == (TAGS[0], b"body", True, NO_STATE)
        await settled(a, link, resumed)
        assert await handle.outcome() is Outcome.ACCEPTED
        assert Resumed(1) in events


async def test_cut_before_the_outcome_at_a_router_that_has_not() -> None:
    async with running_peers("a") as [a], publishing(a) as (p, _):
        handles = [await p.send(b"%d" % n) for n in range(3)]
        for _ in handles:
            await a.next(Transferred)
        await again(a, dict.fromkeys(TAGS[:3], NO_STATE), {TAGS[1]: RECEIVED})
        order = [await a.next(Transferred) for _ in handles]
        assert [(one.tag, one.body, one.resume) for one in order] == [
            (TAGS[0], b"0", False),
            (TAGS[1], b"1", True),
            (TAGS[2], b"2", False),
        ]


async def test_resumed_deliveries_go_before_new_ones_as_credit_comes() -> None:
    async with running_peers("a") as [a], publishing(a) as (p, _), trio.open_nursery() as nursery:
        for n in range(3):
            await p.send(b"%d" % n)
            await a.next(Transferred)
        link = await again(a, dict.fromkeys(TAGS[:3], NO_STATE), {TAGS[0]: NO_STATE}, credit=2)
        nursery.start_soon(p.send, b"3")
        assert [(await a.next(Transferred)).tag for _ in range(2)] == TAGS[:2]
        await trio.testing.wait_all_tasks_blocked()
        assert a.has_nothing()
        link.flow(2)
        link.connection.wake()
        assert [(await a.next(Transferred)).tag for _ in range(2)] == TAGS[2:4]


async def test_cut_after_the_outcome_before_the_settlement() -> None:
    """The acceptance was told; the settlement did not arrive, so the router still has the delivery."""
    for theirs, aborted in (({TAGS[0]: NO_STATE}, True), ({TAGS[0]: ACCEPTED}, False)):
        async with running_peers("a") as [a], publishing(a, store=(store := Holding())) as (p, link):
            handle = await p.send(b"body")
            transferred = await a.next(Transferred)
            store.hold = True
            a.outcome(link, transferred.handle)
            await store.until_held()
            a.cut()
            await a.next(Gone)
            store.release()
            assert await handle.outcome() is Outcome.ACCEPTED
            link = await a.answer(theirs)
            assert link.remote_unsettled == states({TAGS[0]: ACCEPTED})
            resumed = await a.next(Transferred)
            assert (resumed.tag, resumed.body, resumed.aborted) == (TAGS[0], None, aborted)
            await p.drain()


async def test_an_outcome_known_on_both_sides_and_one_that_the_router_has_forgotten() -> None:
    async with running_peers("a") as [a], publishing(a, store=(store := Holding())) as (p, link):
        handle = await p.send(b"body")
        transferred = await a.next(Transferred)
        store.hold = True
        a.outcome(link, transferred.handle)
        await store.until_held()
        a.cut()
        await a.next(Gone)
        store.release()
        await handle.outcome()
        await a.answer({})
        await p.drain()
        assert a.has_nothing()


async def test_an_outcome_that_only_the_router_knows_is_taken_over_without_the_message() -> None:
    async with running_peers("a") as [a], publishing(a) as (p, _):
        handle = await p.send(b"body")
        await a.next(Transferred)
        await again(a, {TAGS[0]: NO_STATE}, {TAGS[0]: REJECTED})
        resumed = await a.next(Transferred)
        assert (resumed.body, resumed.resume, resumed.state) == (None, True, REJECTED)
        assert await handle.outcome() is Outcome.REJECTED
        await p.drain()


async def test_another_generation_leaves_deliveries_in_doubt() -> None:
    events: list[Event] = []
    async with running_peers("a") as [a], publishing(a, events=events.append) as (p, _):
        handle = await p.send(b"body")
        await a.next(Transferred)
        await again(a, {TAGS[0]: NO_STATE}, {}, generation=b"another!")
        assert await handle.outcome() is Outcome.IN_DOUBT
        assert events[-1] == Abandoned(1)
        later = await p.send(b"later")
        assert (await a.next(Transferred)).tag == TAGS[1] == later.tag
        assert later.key == KeyMaker(link_name(LinkIdentity("p", "out", "topic/x")), b"another!").key(TAGS[1])


async def test_a_terminus_that_expired_while_its_router_was_cut_off_begins_anew() -> None:
    async with running_peers("a", "b") as [a, b], publishing(a, b) as (p, link):
        handle = await p.send(b"body")
        await a.next(Transferred)
        link.detach("amqp:resource-deleted", "it expired while this router was out of contact")
        link.connection.wake()
        link = await b.answer(None, generation=b"another!")
        assert link.remote_unsettled == states({TAGS[0]: NO_STATE})
        assert await handle.outcome() is Outcome.IN_DOUBT
        await p.send(b"later")
        assert (await b.next(Transferred)).tag == TAGS[1]


@pytest.mark.parametrize("resend", [False, True])
async def test_a_router_that_knows_no_maps(resend: bool) -> None:
    async with running_peers("a") as [a], publishing(a, resend_in_doubt=resend) as (p, _):
        handle = await p.send(b"body")
        await a.next(Transferred)
        a.cut()
        await a.next(Gone)
        link = await a.answer(None)
        if resend:
            resent = await a.next(Transferred)
            assert (resent.tag, resent.body, resent.resume) == (TAGS[0], b"body", False)
            await settled(a, link, resent)
        assert await handle.outcome() is (Outcome.ACCEPTED if resend else Outcome.IN_DOUBT)


async def test_an_incomplete_map_proves_nothing() -> None:
    """What it names goes on, what it leaves out waits for the next attach, and so does what is new."""
    async with running_peers("a") as [a], publishing(a) as (p, _), trio.open_nursery() as nursery:
        handles = [await p.send(b"%d" % n) for n in range(3)]
        for _ in handles:
            await a.next(Transferred)
        link = await again(a, dict.fromkeys(TAGS[:3], NO_STATE), {TAGS[1]: NO_STATE}, incomplete=True)
        nursery.start_soon(p.send, b"3")
        resumed = await a.next(Transferred)
        assert (resumed.tag, resumed.resume) == (TAGS[1], True)
        await trio.testing.wait_all_tasks_blocked()
        assert a.has_nothing()
        await settled(a, link, resumed)
        await a.next(Gone)
        link = await a.answer({TAGS[0]: NO_STATE})
        assert link.remote_unsettled == states(dict.fromkeys([TAGS[0], TAGS[2]], NO_STATE))
        order = [await a.next(Transferred) for _ in range(3)]
        assert [(one.tag, one.resume) for one in order] == [(TAGS[0], True), (TAGS[2], False), (TAGS[3], False)]


async def test_senders_that_wait_for_room_send_in_the_order_of_their_calls() -> None:
    async with running_peers("a") as [a], publishing(a, in_flight=1) as (p, link), trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(p.send, b"%d" % number)
            await trio.testing.wait_all_tasks_blocked()
        for number in range(10):
            transferred = await a.until(Transferred)
            assert transferred.body == b"%d" % number
            a.outcome(link, transferred.handle)
