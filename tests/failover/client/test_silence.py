"""How long a client believes in a router that says nothing."""

from typing import Any, cast

import pytest
import trio

from failover.client.attachment.silence import GRACE_S, Patience, silence
from router.amqp.connection import Connection


class Peer:
    """As much of a connection as is looked at."""

    def __init__(self) -> None:
        self.last_received: float | None = None

    def speak(self) -> None:
        self.last_received = trio.current_time()

    async def silence(self, patience: Patience) -> float:
        await silence(cast(Connection, self), patience)
        return trio.current_time()


@pytest.mark.parametrize(
    ("dead_ms", "limit"),
    [
        (1000, 1.0),  # as long as the other routers wait
        (200, 0.75),  # but it is not heard that often
        (60_000, 1.5),  # nor need we wait for longer than we want to
        (None, 1.5),
        ("1s", 1.5),
        (-1, 1.5),
        (0, 1.5),
    ],
)
def test_a_router_says_when_others_give_it_up(dead_ms: Any, limit: float) -> None:
    patience = Patience(1.5)
    patience.learn({} if dead_ms is None else {"oncemesh:dead": dead_ms})
    assert patience.limit == limit


async def test_a_router_that_never_speaks(autojump_clock: trio.testing.MockClock) -> None:
    begun = trio.current_time()
    assert await Peer().silence(Patience(1.0)) == pytest.approx(begun + 1.0 + GRACE_S)


async def test_a_router_that_falls_silent(autojump_clock: trio.testing.MockClock, nursery: trio.Nursery) -> None:
    peer = Peer()

    async def speak() -> None:
        for _ in range(10):
            await trio.sleep(0.9)
            peer.speak()

    nursery.start_soon(speak)
    over = await peer.silence(Patience(1.0))
    assert peer.last_received is not None
    assert over == pytest.approx(peer.last_received + 1.0 + GRACE_S)


async def test_a_router_that_takes_a_while_to_open_is_believed_in_for_as_long_as_it_says_then(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    peer, patience = Peer(), Patience(1.5)

    async def open_late() -> None:
        await trio.sleep(0.1)
        peer.speak()
        patience.learn({"oncemesh:dead": 1000})

    nursery.start_soon(open_late)
    over = await peer.silence(patience)
    assert peer.last_received is not None
    assert over == pytest.approx(peer.last_received + 1.0 + GRACE_S)


async def test_what_came_while_we_did_not_run_counts(autojump_clock: trio.testing.MockClock) -> None:
    """A machine that stood still finds the time over before it reads what has come."""
    peer = Peer()

    async def speak_late() -> None:
        await trio.sleep(1.0 + GRACE_S / 2)
        peer.speak()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(speak_late)
        over = await peer.silence(Patience(1.0))
        assert peer.last_received is not None
        assert over > peer.last_received + 1.0
