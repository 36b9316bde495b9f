"""Clients that leave a router for another: which one they try next, and when they do not."""

from typing import Any

import pytest
import trio
import trio.testing

from failover.client import ClientError, Connected, Event, Outcome, Subscriber
from failover.client.attachment import attachment
from router.amqp.format.values import NO_STATE
from router.amqp.proton.link import Link
from tests.failover.client.clients import TAGS, publisher, publishing, settled, subscribing
from tests.failover.client.scripted import Gone, Peer, Transferred, attached, running_peers


async def test_the_next_router_of_the_list_and_those_it_names() -> None:
    async with running_peers("a", "b", "c") as [a, b, c]:
        a.properties["failover-server-list"] = [{"network-host": "127.0.0.1", "port": b.port}]
        b.properties["failover-server-list"] = [{"network-host": "127.0.0.1", "port": c.port, "scheme": "amqp"}]
        events: list[Event] = []
        async with publishing(a, events=events.append) as (p, _):
            handle = await p.send(b"body")
            await a.next(Transferred)
            a.dead = True
            a.cut()
            link = await b.answer({})
            transferred = await b.next(Transferred)
            b.dead = True
            b.cut()
            link = await c.answer({TAGS[0]: NO_STATE})
            transferred = await c.next(Transferred)
            assert transferred.resume
            await settled(c, link, transferred)
            assert await handle.outcome() is Outcome.ACCEPTED
            assert [event.router for event in events if isinstance(event, Connected)] == ["a", "b", "c"]


async def test_a_detach_of_the_router_moves_the_publisher_on() -> None:
    async with running_peers("a", "b") as [a, b], publishing(a, b) as (_, link):
        link.detach("amqp:link:detach-forced", "drained", closed=False)
        link.connection.wake()
        await b.answer({})


async def test_who_is_slow_to_take_a_connection_is_waited_for_if_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attachment, "CONNECT_S", 0.0)
    events: list[Event] = []
    async with running_peers("a", "b") as [a, b], attached(publisher(a, b, events=events.append), b):
        assert [event.url for event in events if isinstance(event, Connected)] == [b.url]


async def test_a_lost_router_is_tried_first_but_not_one_that_sent_us_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment, "LIVED_S", 0.0)
    async with running_peers("a", "b") as [a, b], publishing(a, b):
        a.cut()
        await a.next(Gone)
        link = await a.answer({})
        await trio.testing.wait_all_tasks_blocked()
        link.connection.close("amqp:connection:forced", "bye")
        link.connection.wake()
        await b.answer({})


@pytest.mark.parametrize("condition", ["amqp:link:stolen", "amqp:not-allowed"])
async def test_what_no_other_router_mends_ends_the_publisher(condition: str) -> None:
    async with running_peers("a", "b") as [a, b], publishing(a, b) as (p, link):
        handle = await p.send(b"body")
        await a.next(Transferred)
        link.detach(condition, "why")
        link.connection.wake()
        with pytest.raises(ClientError, match="why") as caught:
            await handle.outcome()
        assert caught.value.condition == condition
        another = "another process has also attached as p" in str(caught.value)
        assert another == (condition == "amqp:link:stolen")


async def test_a_link_that_an_attach_of_its_own_may_have_stolen_is_attached_again() -> None:
    """A router that we gave up may wake up and read an attach that we sent it long ago. Once: then it was others."""
    async with running_peers("a", "b") as [a, b], publishing(a, b) as (p, link):
        link.connection.close("amqp:connection:forced", "bye")
        link.connection.wake()
        await a.next(Gone)
        await b.next(Link)
        b.cut()
        await b.next(Gone)
        link = await a.answer({})
        link.detach("amqp:link:stolen", "attached at router b")
        link.connection.wake()
        await a.next(Gone)
        link = await b.answer({})
        link.detach("amqp:link:stolen", "attached at router c")
        link.connection.wake()
        with pytest.raises(ClientError, match="attached at router c"):
            while True:
                await p.send(b"body")


async def test_a_silent_router_is_left_for_the_next() -> None:
    """One that takes connections and says nothing, and one that falls silent later."""
    async with running_peers("a", "b") as [a, b]:
        [silent] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        url = f"amqp://127.0.0.1:{silent.socket.getsockname()[1]}"
        s = Subscriber([url, a.url, b.url], "topic/x", container="s", link="in", idle=0.2)
        async with attached(s, a):
            a.stop()
            await b.answer({})
        await silent.aclose()


async def test_a_router_is_left_as_soon_as_the_others_give_it_up() -> None:
    """And without a goodbye: should it wake up, it must not find us there."""
    async with running_peers("a", "b") as [a, b]:
        a.properties["oncemesh:dead"] = 100
        s = Subscriber([a.url, b.url], "topic/x", container="s", link="in", idle=6)
        begun = trio.current_time()
        async with attached(s, a):  # what it heard last may be long ago on a busy machine
            lost = trio.current_time()
            a.stop()
            await b.answer({})
            assert begun + 3 < trio.current_time() < lost + 6
            await a.next(Gone)


def _server(peer: Peer, **others: object) -> dict[str, object]:
    return {"network-host": "127.0.0.1", "port": peer.port, "scheme": "amqp", **others}


async def test_a_router_that_asks_is_left_for_the_one_that_it_names() -> None:
    async with running_peers("a", "b", "c", "d") as [a, b, c, d], publishing(a, b, c) as (p, _):
        handle = await p.send(b"body")
        await a.next(Transferred)
        await a.tell([_server(d), _server(b), _server(c)], move=True)
        await a.next(Gone)
        link = await d.answer({TAGS[0]: NO_STATE})
        transferred = await d.next(Transferred)
        assert transferred.resume
        await settled(d, link, transferred)
        assert await handle.outcome() is Outcome.ACCEPTED


async def test_a_client_that_was_asked_to_go_where_nobody_is_goes_on_to_the_others() -> None:
    async with running_peers("a", "b", "c") as [a, b, c], publishing(a, c):
        a.dead = b.dead = True  # an attach at a would wait for its answer
        await a.tell([_server(b), _server(c)], move=True)
        await a.next(Gone)
        await c.answer({})


async def test_who_has_moved_stays_for_a_while_whoever_asks() -> None:
    async with running_peers("a", "b") as [a, b], publishing(a) as (p, _):
        await a.tell([_server(b)], move=True)
        link = await b.answer({})
        await b.tell([_server(a)], move=True)
        handle = await p.send(b"body")
        await settled(b, link, await b.next(Transferred))
        assert await handle.outcome() is Outcome.ACCEPTED


async def test_what_cannot_be_followed_is_not() -> None:
    """Nor what leads out of TLS, or into it; nor a list without the word."""
    async with running_peers("a", "b") as [a, b], publishing(a) as (p, link):
        await a.tell([_server(b)])
        other = _server(b, scheme="amqps")
        for servers in [], None, "amqp://127.0.0.1", {"port": 1}, [None], [{"port": 5672}], [_server(a)], [other]:
            await a.tell(servers, move=True)
        handle = await p.send(b"body")
        await settled(a, link, await a.next(Transferred))
        assert await handle.outcome() is Outcome.ACCEPTED


async def test_a_router_of_another_make_that_has_no_such_list_is_not_left() -> None:
    async with running_peers("a", "b") as [a, b]:
        a.has_list = False
        async with publishing(a, b) as (p, link):
            handle = await p.send(b"body")
            await settled(a, link, await a.next(Transferred))
            assert await handle.outcome() is Outcome.ACCEPTED
            assert a.listening is not None and a.listening.ended


@pytest.mark.parametrize("options", [{"settle": "first"}, {"timeout": 0}])
async def test_who_would_lose_something_by_a_move_does_not_listen(options: dict[str, Any]) -> None:
    async with running_peers("a") as [a], subscribing(a, **options):
        await trio.testing.wait_all_tasks_blocked()
        assert a.listening is None


async def test_a_list_that_comes_later_is_what_a_client_goes_by() -> None:
    """Of those that its open named none is left."""
    async with running_peers("a", "b") as [a, b], publishing(a):
        await a.tell([_server(b)])
        await trio.testing.wait_all_tasks_blocked()
        a.dead = True
        a.cut()
        await b.answer({})
