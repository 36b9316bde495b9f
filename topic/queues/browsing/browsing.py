"""Gets pages of messages for the clients of one router that browse queues (protocol 14.16).

    end of a client ── browse, rest ─▶ Browsing ── Browse ─▶ leader of the set ── page ─▶ Browsing ─▶ end of the client

The router asks for only a few pages at a time, however many clients browse. While no router leads a set, clients that
browse its queues get the answer that there are no messages.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from topic.actions import Browsed
from topic.queues.operations import Browse, MessagePage
from topic.queues.sets import ReplicaSets

AT_ONCE: Final = 8
"""The highest number of pages for which a router asks at the same time."""
LOOK_S: Final = 1.0
"""If a client has seen all messages of a queue, the router asks for new ones only after this many seconds, or later."""


class Browsing:
    """The requests of one router for pages. Callers have to call `flush` after each call of another method."""

    def __init__(self, sets: ReplicaSets) -> None:
        self._sets = sets
        self._waiting: deque[tuple[Any, Browse]] = deque()
        """The ends of clients with requests that no leader has got yet."""
        self._asked: dict[int, tuple[Any, Browse]] = {}
        """The ends of clients with requests that a leader has got, by the number of the request."""
        self._resting: dict[Any, Browse] = {}
        self._next_look = 0.0

    def browse(self, end: Any, asked: Browse) -> None:
        """Ask for a page for the end of a client."""
        self._resting.pop(end, None)
        self._waiting.append((end, asked))

    def rest(self, end: Any, asked: Browse) -> None:
        """Keep a request for a page until `look` asks again, because the queue has no more messages for the client at
        present."""
        self._resting[end] = asked

    def look(self, now: float) -> None:
        """Ask again for the pages that `rest` has delayed. Do nothing if this was done less than `LOOK_S` seconds
        ago."""
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            resting, self._resting = self._resting, {}
            self._waiting.extend(resting.items())

    def flush(self, now: float) -> Iterator[Browsed]:
        """Send further requests to leaders, up to `AT_ONCE` at a time. Yields the answers to requests whose set has no
        leader."""
        for number, (end, asked) in [*self._asked.items()]:
            if not self._sets.leader_of(asked.name):
                del self._asked[number]
                yield Browsed(end, None, asked.first)
        while self._waiting and len(self._asked) < AT_ONCE:
            end, asked = self._waiting.popleft()
            if self._sets.leader_of(asked.name):
                self._asked[self._sets.ask(asked, now)] = end, asked
            else:
                yield Browsed(end, None, asked.first)

    def answered(self, number: int, page: MessagePage | None) -> Browsed | None:
        """Take the answer to the request with this number; `page` is None if the request is refused. Returns the action
        for the client's end; None if no client of this router waits for this answer."""
        end, asked = self._asked.pop(number, (None, None))
        if asked is None:
            return None
        return Browsed(end, page.messages, page.next) if page is not None else Browsed(end, None, asked.first)
