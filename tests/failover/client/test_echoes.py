"""A client's answers to echoes: they say that it is attached there, and a publisher's that it will not ask again."""

from failover.client import Publisher, Subscriber
from router.amqp.format.values import ACCEPTED
from router.amqp.proton.link import Link
from tests.failover.client.scripted import Echoed, Gone, Holding, Stated, Transferred, attached, running_peers


async def test_a_publisher_answers_as_long_as_it_is_attached() -> None:
    async with running_peers("a") as [a]:
        client = Publisher([a.url], "topic/x", container="p", link="out")
        async with attached(client, a) as (_, link):
            for _ in range(3):
                a.ask(link)
                await a.next(Echoed)


async def test_so_does_a_subscriber() -> None:
    async with running_peers("a") as [a]:
        client = Subscriber([a.url], "topic/x", container="s", link="in")
        async with attached(client, a) as (_, link):
            a.ask(link)
            await a.next(Echoed)


async def test_what_a_publisher_was_told_before_it_answers_is_in_its_store() -> None:
    async with running_peers("a") as [a]:
        store = Holding()
        client = Publisher([a.url], "topic/x", container="p", link="out", store=store)
        async with attached(client, a) as (p, link):
            await p.send(b"body")
            transferred = await a.next(Transferred)
            store.hold = True
            a.outcome(link, transferred.handle)
            a.ask(link)
            await store.until_held()
            assert a.has_nothing()
            store.release()
            assert (await a.next(Stated)).settled
            await a.next(Echoed)


async def test_a_publisher_has_left_a_router_for_good_before_it_attaches_at_the_next() -> None:
    """One that fell silent, and may come to itself later: it finds the connection closed."""
    async with running_peers("a", "b") as [a, b]:
        client = Publisher([a.url, b.url], "topic/x", container="p", link="out", idle=0.2)
        async with attached(client, a) as (p, _):
            delivery = await p.send(b"body")
            await a.next(Transferred)
            a.stop()
            attach = await b.next(Link)
            attach.answer(unsettled={}, properties=dict(attach.remote_properties))
            attach.flow(10)
            attach.connection.wake()
            await a.next(Gone)
            transferred = await b.next(Transferred)
            b.outcome(attach, transferred.handle, ACCEPTED)
            await delivery.outcome()
