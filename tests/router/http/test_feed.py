"""The stream of the console: one look for all who watch, none while nobody does, and nothing kept for who is slow."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from router.http.exchange import WebCaller, WebRefusal, WebRequest
from router.http.feed import MOST_HAPPENINGS, MOST_WATCHERS, PERIOD_S, SHARE, Feed
from router.http.gathering import MeshLook
from tests.router.http.looks import answer, look

GET = WebRequest("GET", "/feed", {}, {})


class Looking:
    """In the place of a gathering: each look takes some time, and brings so many happenings. So many fail at first."""

    def __init__(self, took_s: float = 0.0, happenings: int = 1, failing: int = 0) -> None:
        self.at: list[float] = []
        self._took_s = took_s
        self._happenings = happenings
        self._failing = failing

    async def look(self) -> MeshLook:
        self.at.append(trio.current_time())
        await trio.sleep(self._took_s)
        if len(self.at) <= self._failing:
            raise LookupError("nothing to be seen")
        seen = look(trio.current_time(), a=answer("a", []))
        number = len(self.at) * 1000
        seen.events.extend({"sequence": number + index} for index in range(self._happenings))
        return seen


def told(data: bytes) -> list[tuple[str, Any]]:
    """The events of a stream, as a browser reads them."""
    found = []
    for block in data.decode().strip().split("\n\n"):
        name, _, text = block.partition("\n")
        found.append((name.removeprefix("event: "), json.loads(text.removeprefix("data: "))))
    return found


Start = Callable[..., tuple[Feed, Looking]]


@pytest.fixture
def start(nursery: trio.Nursery) -> Start:
    def begin(**how: Any) -> tuple[Feed, Looking]:
        looking = Looking(**how)
        gathering: Any = looking
        feed = Feed(gathering)
        nursery.start_soon(feed.run)
        return feed, looking

    return begin


async def watch(feed: Feed, *, reads_events: bool = True) -> Callable[[], Any]:
    reply = await feed.watch(GET, WebCaller("me", reads_events=reads_events))
    assert reply.status == 200 and reply.content_type == "text/event-stream" and reply.events is not None
    return reply.events


async def test_nobody_looks_while_nobody_watches(start: Start, autojump_clock: MockClock) -> None:
    feed, looking = start()
    await trio.sleep(100)
    assert looking.at == []
    events = await watch(feed)
    await events()
    await trio.sleep(100)
    assert len(looking.at) <= 5, "who has not asked for more is gone"


async def test_one_look_a_second_serves_all(start: Start, autojump_clock: MockClock) -> None:
    feed, looking = start()
    seen: list[bytes] = []

    async def read() -> None:
        events = await watch(feed)
        for _ in range(10):
            seen.append((await events()).rpartition(b"event: mesh")[2])

    async with trio.open_nursery() as readers:
        for _ in range(MOST_WATCHERS):
            readers.start_soon(read)
    assert len(looking.at) == 10 and len(seen) == 10 * MOST_WATCHERS and len(set(seen)) == 10
    assert looking.at[-1] - looking.at[0] == pytest.approx(9 * PERIOD_S)


async def test_a_look_that_takes_long_is_followed_by_a_longer_pause(start: Start, autojump_clock: MockClock) -> None:
    feed, looking = start(took_s=2.0)
    events = await watch(feed)
    for _ in range(3):
        await events()
    assert looking.at[2] - looking.at[1] == pytest.approx((1 + SHARE) * 2.0)


async def test_after_a_look_that_fails_comes_the_next(
    start: Start, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    feed, looking = start(failing=2)
    events = await watch(feed)
    assert told(await events())[-1][0] == "mesh" and len(looking.at) == 3
    assert caplog.text.count("LookupError: nothing") == 2


async def test_first_comes_what_there_was_then_what_is_new(start: Start, autojump_clock: MockClock) -> None:
    feed, _ = start()
    events = await watch(feed)
    first, second = told(await events()), told(await events())
    assert [name for name, _ in first] == ["past", "happened", "mesh"] and len(first[0][1]) == 1
    assert [name for name, _ in second] == ["happened", "mesh"]
    assert [[one["sequence"] for one in found[-2][1]] for found in (first, second)] == [[1000], [2000]]
    later = told(await (await watch(feed))())
    assert len(later[0][1]) == 3 and [one["sequence"] for one in later[1][1]] == [1000, 2000, 3000]


async def test_who_is_slow_misses_pictures_but_no_happenings_that_are_kept(
    start: Start, autojump_clock: MockClock
) -> None:
    feed, looking = start(happenings=40)
    quick, slow = await watch(feed), await watch(feed)
    await slow()
    for _ in range(5):
        await quick()
    found = told(await slow())
    assert [name for name, _ in found] == ["happened", "mesh"]
    assert len(found[0][1]) == 40 * (len(looking.at) - 1)
    for _ in range(20):
        await quick()
    assert len(told(await slow())[0][1]) == MOST_HAPPENINGS


async def test_who_may_not_read_happenings_is_told_that_and_none_of_them(
    start: Start, autojump_clock: MockClock
) -> None:
    feed, _ = start()
    events = await watch(feed, reads_events=False)
    assert [name for name, _ in told(await events())] == ["past", "closed", "mesh"]
    assert [name for name, _ in told(await events())] == ["mesh"]


async def test_so_many_may_watch_and_who_has_gone_makes_room(start: Start, autojump_clock: MockClock) -> None:
    feed, _ = start()
    for _ in range(MOST_WATCHERS):
        await watch(feed)
    with pytest.raises(WebRefusal):
        await watch(feed)
    await trio.sleep(10)
    await watch(feed)
    with pytest.raises(WebRefusal):
        await feed.watch(GET, WebCaller("me", admit=lambda: False))
