"""The stream of events of the console (server-sent events).

The router looks at the mesh once a second, if at least one browser watches. All watchers get the same look. After each
look the router pauses, so that the routers have time for other work. A slow watcher misses pictures. It misses an event
only if it is so slow that the feed has dropped the event. The feed stores nothing for a single watcher."""

import json
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import trio

from router.entities.rates import Row
from router.events.sentence import sentence
from router.http.exchange import WebAnswer, WebCaller, WebRefusal, WebRequest
from router.http.gathering import Gathering
from router.http.picture import Painter

log = logging.getLogger("oncemesh.http")

MOST_WATCHERS: Final = 16
MOST_HAPPENINGS: Final = 300
MOST_POINTS: Final = 300
PERIOD_S: Final = 1.0
SHARE: Final = 4
"""The pause after a look is at least this many times as long as the look."""
GONE_S: Final = 3.0
"""A watcher that asks for nothing for this many seconds no longer counts."""


class Feed:
    """The feed of one router. `run` makes the looks, for as long as the router runs."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._painter = Painter()
        self._watchers: dict[Watcher, None] = {}
        self._wanted = trio.Event()
        self._looked = trio.Event()
        self.number = 0
        """The number of the last look."""
        self.picture = b""
        self.points: deque[Row] = deque(maxlen=MOST_POINTS)
        self.happened: deque[tuple[int, Row]] = deque(maxlen=MOST_HAPPENINGS)
        """The last events. The number beside an event is the number of the look that has found the event."""

    async def run(self) -> None:
        """Look at the mesh again and again. If a look fails, log this and go on: a fault in the console must not end
        the router."""
        while True:
            if not self._anybody():
                self._wanted = trio.Event()
                await self._wanted.wait()
            began = trio.current_time()
            try:
                await self._look()
            except Exception:
                log.exception("the console could not read the state of the mesh, and tries again")
            took = trio.current_time() - began
            await trio.sleep(max(PERIOD_S - took, SHARE * took))

    def _anybody(self) -> bool:
        gone = trio.current_time() - GONE_S
        self._watchers = {one: None for one in self._watchers if one.waits or one.served > gone}
        return bool(self._watchers)

    async def _look(self) -> None:
        seen = await self._gathering.look()
        picture = self._painter.picture(seen)
        self.number += 1
        self.points.append(picture["point"])
        self.happened.extend((self.number, {**event, "sentence": sentence(event)}) for event in seen.events)
        self.picture = _event("mesh", picture)
        self._looked.set()
        self._looked = trio.Event()

    async def next_look(self) -> None:
        """Wait until the next look is made."""
        self._wanted.set()
        await self._looked.wait()

    async def watch(self, request: WebRequest, caller: WebCaller) -> WebAnswer:
        """Answer with the stream. Only a caller with permission gets events. Raises WebRefusal if too many watch."""
        self._anybody()
        if len(self._watchers) >= MOST_WATCHERS or not caller.admit():
            raise WebRefusal(503, f"too many browsers are watching, at most {MOST_WATCHERS} may", ("Retry-After", "10"))
        watcher = Watcher(self, reads_events=caller.reads_events)
        self._watchers[watcher] = None
        return WebAnswer(200, content_type="text/event-stream", events=watcher.next)


class Watcher:
    """One browser that receives the stream."""

    def __init__(self, feed: Feed, *, reads_events: bool) -> None:
        self._feed = feed
        self._reads_events = reads_events
        self._seen = -1
        """The number of the last look that this watcher was sent; -1 before the first. With the first look the watcher
        also gets all earlier points of the charts."""
        self.waits = False
        self.served = trio.current_time()

    async def next(self) -> bytes:
        feed = self._feed
        begins = self._seen < 0
        if begins or self._seen == feed.number:
            self.waits = True
            try:
                await feed.next_look()
            finally:
                self.waits, self.served = False, trio.current_time()
        parts = [_event("past", list(feed.points))] if begins else []
        if self._reads_events:
            fresh = [happened for number, happened in feed.happened if number > self._seen]
            parts += [_event("happened", fresh)] if fresh else []
        elif begins:
            parts.append(_event("closed", {}))
        self._seen, self.served = feed.number, trio.current_time()
        return b"".join((*parts, feed.picture))


def _event(name: str, data: Row | Iterable[Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
