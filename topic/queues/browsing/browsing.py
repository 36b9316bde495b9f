"""The clients of one router that browse queues (protocol 14.16): the pages that the router asks for, and when.

    end of a client ── browse, rest ─▶ Browsing ── Browse ─▶ leader of the set ── page ─▶ Browsing ─▶ end of the client

A router asks for few pages at a time, however many clients browse. While no router leads a set, the answer to its
browsers is that there is nothing.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from topic.actions import Browsed
from topic.queues.operations import Browse, MessagePage
from topic.queues.sets import ReplicaSets

AT_ONCE: Final = 8
"""Pages that a router asks for at once, at most."""
LOOK_S: Final = 1.0
"""How long a client that has seen all messages waits for new ones, at least."""


class Browsing:
    """The requests for pages of one router. `flush` is to be called after each call of another method."""

    def __init__(self, sets: ReplicaSets) -> None:
        self._sets = sets
        self._waiting: deque[tuple[Any, Browse]] = deque()
        """The ends of clients, and their requests."""
        self._asked: dict[int, tuple[Any, Browse]] = {}
        """The same, of requests that the leader has, by number."""
        self._resting: dict[Any, Browse] = {}
        self._next_look = 0.0

    def browse(self, end: Any, asked: Browse) -> None:
        """Get a page for the end of a client."""
        self._resting.pop(end, None)
        self._waiting.append((end, asked))

    def rest(self, end: Any, asked: Browse) -> None:
        """Put off a request for a page until the next look, because the queue has no messages for it at present."""
        self._resting[end] = asked

    def look(self, now: float) -> None:
        """Get what rests, unless the last look was just now."""
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            resting, self._resting = self._resting, {}
            self._waiting.extend(resting.items())

    def flush(self, now: float) -> Iterator[Browsed]:
        """Ask for further pages, up to `AT_ONCE`. Returns the answers to requests that no leader has."""
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
        """The answer to the request of this number, with no page if it is refused. Returns None if nobody here has
        asked, or waits any more."""
        end, asked = self._asked.pop(number, (None, None))
        if asked is None:
            return None
        return Browsed(end, page.messages, page.next) if page is not None else Browsed(end, None, asked.first)
