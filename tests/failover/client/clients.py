"""The clients under test, at scripted peers."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from failover.client import Delivery, Publisher, Subscriber
from router.amqp.format.values import NO_STATE
from router.amqp.proton.link import Link
from tests.failover.client.scripted import Peer, Stated, Transferred, attached

TAGS = [n.to_bytes(8, "big") for n in range(100)]
KEYS = [b"key %028d" % n for n in range(100)]


def publisher(*peers: Peer, **options: Any) -> Publisher:
    return Publisher([peer.url for peer in peers], "topic/x", container="p", link="out", **options)


def publishing(*peers: Peer, **options: Any) -> AbstractAsyncContextManager[tuple[Publisher, Link]]:
    """A publisher that attaches for the first time, and is left by an error."""
    return attached(publisher(*peers, **options), peers[0])


def subscriber(*peers: Peer, **options: Any) -> Subscriber:
    return Subscriber([peer.url for peer in peers], "topic/x", container="s", link="in", **options)


def subscribing(*peers: Peer, **options: Any) -> AbstractAsyncContextManager[tuple[Subscriber, Link]]:
    """A subscriber that attaches for the first time, and is left by an error."""
    return attached(subscriber(*peers, **options), peers[0])


async def settled(peer: Peer, link: Link, transferred: Transferred) -> None:
    peer.outcome(link, transferred.handle)
    assert await peer.next(Stated) == Stated(transferred.handle, NO_STATE, True)


async def taken(peer: Peer, s: Subscriber, link: Link, key: bytes, body: bytes = b"body") -> Delivery:
    await peer.send(link, key, body)
    delivery = await anext(s)
    assert (delivery.key, delivery.body) == (key, body)
    return delivery
