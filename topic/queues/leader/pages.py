"""Pages of the messages of queues, with which the leader of a set answers clients that browse (protocol 14.16).

    browser ─ its router ── Browse ─▶ leader ── bodies on the disk, if it needs them ─▶ page ─▶ its router ─ browser

A page has the next messages of a queue from a position on, each in the form in which the next consumer would get it.
Browsing changes nothing: the leader proposes no entry for it, and keeps nothing of it between two pages.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from topic.queues.leader.log import MessageView, Proposer
from topic.queues.operations import Browse, MessagePage, Refused, RefusedFor
from topic.queues.state import SetState

PAGE_BYTES: Final = 128 << 10
"""The highest number of bytes of a page's messages. A single message may be larger."""
PAGE_MESSAGES: Final = 1000
"""The highest number of messages in a page."""

Asked = tuple[str, int, Browse]
"""A request for a page: the router that asks, the number of the request at that router, and the request itself."""


class Pages:
    """Answers requests for pages of one set, in one term in which this router leads. Only one read of the disk is under
    way at a time."""

    def __init__(
        self,
        state: SetState,
        log: Proposer,
        view: MessageView,
        answer: Callable[[str, int, MessagePage | Refused], None],
    ) -> None:
        """`answer`: a function that sends an answer to a router. Its arguments are the router, the number of the
        router's request, and the answer."""
        self._state = state
        self._log = log
        self._view = view
        self._answer = answer
        self._waiting: deque[Asked] = deque()
        self._reading: Asked | None = None

    def ask(self, router: str, number: int, asked: Browse) -> None:
        """Take a router's request for a page."""
        self._waiting.append((router, number, asked))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._reading is None:
            asked = self._waiting.popleft()
            lacking = [position for position, body in self._rows(asked[2]).items() if body is None]
            queue = self._state.get(asked[2].name)
            if lacking and queue is not None:
                self._reading = asked
                self._log.read(self, queue.id, lacking)
            else:
                self._send(asked, {})

    def found(self, bodies: Mapping[int, bytes]) -> None:
        """Take the bodies that were read, and answer the request that needed them."""
        asked, self._reading = self._reading, None
        if asked is not None:
            self._send(asked, bodies)
        self._go_on()

    def _rows(self, asked: Browse) -> dict[int, bytes | None]:
        """The next messages of the queue, as many as fit into a page. The body is None if it is not in memory."""
        queue = self._state.get(asked.name)
        found: dict[int, bytes | None] = {}
        if queue is None:
            return found
        rows, left = self._state.messages.of(queue.id), PAGE_BYTES
        for position in rows.after(asked.first):
            left -= rows.about(position)[0]
            if len(found) == PAGE_MESSAGES or (found and left < 0):
                break
            found[position] = rows[position]
        return found

    def _send(self, asked: Asked, bodies: Mapping[int, bytes]) -> None:
        """Answer the request. The page ends before the first message without a body, which may have come after the read
        was started."""
        router, number, browse = asked
        rows = self._rows(browse)
        page: list[tuple[int, bytes]] = []
        for position, body in rows.items():
            body = body if body is not None else bodies.get(position)
            if body is None:
                break
            page.append((position, self._view.of(position, body)))
        if rows and not page:
            self._answer(router, number, Refused(RefusedFor.BUSY, "the disk has not read the messages"))
        else:
            self._answer(router, number, MessagePage(tuple(page), page[-1][0] + 1 if page else browse.first))
