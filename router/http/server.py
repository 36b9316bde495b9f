"""HTTP/1.1 on one connection: requests one after the other, and their answers. h11 implements the protocol.

Everything is bounded. The line and headers of a request have at most `MOST_HEAD` bytes, and have to arrive within
`HEAD_S`. A request has no body. The peer has to read an answer within `ANSWER_S`. In a stream of events, the peer has
to take each event within `EVENT_S`; otherwise the server ends the connection. The server itself keeps no events for a
slow peer. `router.admission` bounds the number of connections.

`site` makes the answers.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import h11
import trio

from router.http.exchange import NextEvent, WebAnswer, WebRequest, text_answer

log = logging.getLogger("oncemesh.http")

MOST_HEAD: Final = 16 * 1024
MOST_FIELDS: Final = 8
"""The highest number of fields of a query."""
READ: Final = 16 * 1024
PIECE: Final = 64 * 1024
IDLE_S: Final = 75.0
"""A connection may wait this many seconds for its next request. It is more than a minute, because some monitors ask
once a minute."""
HEAD_S: Final = 5.0
ANSWER_S: Final = 20.0
EVENT_S: Final = 5.0
LINGER_S: Final = 0.5
"""A peer that was refused while it still sent has this many seconds to read the reason."""

Answering = Callable[[WebRequest], Awaitable[WebAnswer]]


class WebConnection:
    """`answer` is called for each request."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, answer: Answering) -> None:
        self._stream = stream
        self._answer = answer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD - 1)
        self._is_head = False

    async def run(self) -> None:
        """Serve until either end closes. A fault of ours is logged: it ends this connection, and not the router."""
        try:
            try:
                while await self._exchange():
                    self._http.start_next_cycle()
            except h11.RemoteProtocolError as error:
                await self._refuse(text_answer(error.error_status_hint, str(error)))
            await self._part()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass
        except Exception:
            log.exception("a fault ended an HTTP connection")

    async def _exchange(self) -> bool:
        """Handle one request and its answer. Returns whether another may follow."""
        request = await self._request()
        if request is None:
            return False
        answer = await self._answer(request)
        if answer.events is None or self._is_head:
            await self._reply(answer)
        else:
            await self._stream_events(answer, answer.events)
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _request(self) -> WebRequest | None:
        """Wait for the next request; None if the peer has closed. Raises h11.RemoteProtocolError and
        trio.TooSlowError."""
        self._is_head = False
        event = self._http.next_event()
        if event is h11.NEED_DATA:
            with trio.fail_after(IDLE_S):
                await self._read()
            event = self._http.next_event()
        with trio.fail_after(HEAD_S):
            while event is h11.NEED_DATA:
                await self._read()
                event = self._http.next_event()
        if not isinstance(event, h11.Request):
            return None
        self._is_head = event.method == b"HEAD"
        if event.method in (b"GET", b"HEAD") and not isinstance(self._http.next_event(), h11.EndOfMessage):
            raise h11.RemoteProtocolError("the request has a body, expected none", error_status_hint=413)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        try:
            target = urlsplit(event.target.decode("ascii"))
            query = dict(parse_qsl(target.query, max_num_fields=MOST_FIELDS))
        except ValueError:
            raise h11.RemoteProtocolError("the target of the request is not a path") from None
        return WebRequest(event.method.decode("ascii"), target.path, query, headers)

    async def _read(self) -> None:
        """Give h11 more bytes of the peer, but no more than one head may have, because h11 checks the length only of an
        incomplete head."""
        come, _ = self._http.trailing_data
        self._http.receive_data(bytes(await self._stream.receive_some(MOST_HEAD - len(come))))

    async def _reply(self, answer: WebAnswer) -> None:
        """Send the answer. After a HEAD request, send only its headers: no body, and no stream of events."""
        length = [("Content-Length", str(len(answer.body)))] if answer.events is None else []
        headers = [("Content-Type", answer.content_type), *length, *answer.headers]
        parts = [self._http.send(h11.Response(status_code=answer.status, headers=headers))]
        if not self._is_head:
            parts.append(self._http.send(h11.Data(data=answer.body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        data = memoryview(b"".join(part for part in parts if part))
        with trio.fail_after(ANSWER_S):
            for at in range(0, len(data), PIECE):
                await self._stream.send_all(data[at : at + PIECE])

    async def _stream_events(self, answer: WebAnswer, next_event: NextEvent) -> None:
        headers = [("Content-Type", answer.content_type), *answer.headers]
        data = self._http.send(h11.Response(status_code=answer.status, headers=headers))
        while True:
            with trio.fail_after(EVENT_S):
                await self._stream.send_all(data or b"")
            data = self._http.send(h11.Data(data=await next_event()))

    async def _refuse(self, answer: WebAnswer) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._reply(answer)

    async def _part(self) -> None:
        with trio.move_on_after(LINGER_S):
            await self._stream.send_eof()
            while await self._stream.receive_some(READ):
                pass
