"""Pages of the messages of queues, for clients that browse them (protocol 14.16): what the leader of a set answers.

    browser ─ its router ── Browse ─▶ leader ── bodies on the disk, if it needs them ─▶ page ─▶ its router ─ browser

A page has the next messages of a queue from a position on, each as the next consumer would get it. To browse changes
nothing: no entry is proposed, and nothing is kept of it between two pages.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from topic.queues.leader.log import MessageView, Proposer
from topic.queues.operations import Browse, MessagePage, Refused, RefusedFor
from topic.queues.state import SetState

PAGE_BYTES: Final = 128 << 10
"""Bytes of the messages of a page; or one message, whatever its size."""
PAGE_MESSAGES: Final = 1000
"""Messages of a page, at most."""

Asked = tuple[str, int, Browse]
"""A request for a page: the router that asks, its number there, and the request."""


class Pages:
    """The pages of the queues of one set, in one term of this router. Only one read of the disk is under way at a
    time."""

    def __init__(
        self,
        state: SetState,
        log: Proposer,
        view: MessageView,
        answer: Callable[[str, int, MessagePage | Refused], None],
    ) -> None:
        """`answer`: sends the answer to the request of this number to this router."""
        self._state = state
        self._log = log
        self._view = view
        self._answer = answer
        self._waiting: deque[Asked] = deque()
        self._reading: Asked | None = None

    def ask(self, router: str, number: int, asked: Browse) -> None:
        """A router asks for a page."""
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
        """Bodies were read."""
        asked, self._reading = self._reading, None
        if asked is not None:
            self._send(asked, bodies)
        self._go_on()

    def _rows(self, asked: Browse) -> dict[int, bytes | None]:
        """The next messages of the queue, as many as a page has; a body is None if it is not in memory."""
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
        """Answer. The page ends before the first message whose body was not read: it may have come meanwhile."""
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
