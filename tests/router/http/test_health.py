"""Whether a router lives and is ready; and that to be measured has a bound."""

import trio
from trio.testing import MockClock

from router.entities.observed import LOOK_S, LOOKS, LoopLag
from router.http.census import MeasuredSeries
from router.http.exchange import WebCaller, WebRequest
from router.http.health import HealthPages
from router.http.metrics import PAUSE_S, Metrics

GET, ME = WebRequest("GET", "/", {}, {}), WebCaller("me")


async def test_a_loop_that_was_late_by_dead_is_not_well_until_that_is_some_time_ago(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lag = LoopLag()
    pages = HealthPages(lag, 1.0, lambda: "")
    nursery.start_soon(lag.run)
    await trio.sleep(3.5)
    assert (await pages.live(GET, ME)).status == 200
    autojump_clock.jump(2.0)
    await trio.sleep(LOOK_S)
    reply = await pages.live(GET, ME)
    assert reply.status == 503 and reply.body.startswith(b"the event loop is 1.")
    await trio.sleep((LOOKS + 1) * LOOK_S)
    assert (await pages.live(GET, ME)).status == 200


async def test_who_is_not_ready_says_why() -> None:
    why = ""
    pages = HealthPages(LoopLag(), 1.0, lambda: why)
    assert (await pages.ready(GET, ME)).status == 200
    why = "this router waits for b"
    reply = await pages.ready(GET, ME)
    assert (reply.status, reply.body) == (503, b"this router waits for b\n")


class Counting:
    """In the place of what is measured."""

    def __init__(self) -> None:
        self.at: list[float] = []

    async def take(self) -> list[MeasuredSeries]:
        self.at.append(trio.current_time())
        await trio.sleep(0.01)
        return [MeasuredSeries("oncemesh_ready", "ready", (), False, [((), float(len(self.at)))])]


async def test_one_text_serves_all_who_wait_and_is_no_older_than_they_ask(autojump_clock: MockClock) -> None:
    counting = Counting()
    metrics = Metrics(counting.take)
    texts: list[bytes] = []

    async def ask() -> None:
        texts.append((await metrics.show(GET, ME)).body)

    for _ in range(3):
        async with trio.open_nursery() as askers:
            for _ in range(20):
                askers.start_soon(ask)
    assert len(texts) == 60 and len(counting.at) <= 6, "those who came during a look wait for the next one"
    assert all(later - sooner >= PAUSE_S for sooner, later in zip(counting.at, counting.at[1:], strict=False))
    asked = trio.current_time()
    await ask()
    assert counting.at[-1] >= asked and f"oncemesh_ready {len(counting.at):.1f}\n".encode() in texts[-1]
