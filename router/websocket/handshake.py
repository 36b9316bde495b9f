"""The handshake of WebSocket (RFC 6455 4): an HTTP request that becomes a WebSocket, or gets an answer that
says why not."""

import re
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request
from wsproto.utilities import RemoteProtocolError

from router.amqp.pipe import READ, HandshakeError, LayeredStream, pipe_of
from router.amqp.tls import LeftError
from router.websocket.stream import WebSocketStream

LINGER_S: Final = 0.5
"""A peer that was refused has this many seconds to read the reason."""
NOT_HTTP: Final = "Bad HTTP message"
"""wsproto's error text for a request that is not HTTP."""
HEAD_END: Final = re.compile(rb"\n\r?\n")
AMQP_HEADER: Final = b"AMQP"
"""How a client of AMQP begins that does not speak WebSocket."""


class WebSocketRefusal(HandshakeError):
    """The refusal of a request that becomes no WebSocket. It has the status and the text of the answer."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status

    def answer(self) -> bytes:
        body = f"{self}\n".encode()
        upgrade = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" if self.status == 426 else ""
        head = f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n{upgrade}Connection: close\r\n"
        head += f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


async def shake_hands(
    lower: trio.SocketStream | LayeredStream, protocol: str, check: Callable[[Request], None]
) -> WebSocketStream:
    """Answer the request on `lower`, and return the WebSocket above it. `protocol`: the subprotocol that the peer has
    to offer. `check` raises WebSocketRefusal for a request that is not allowed. Raises HandshakeError."""
    pipe, http = pipe_of(lower), WSConnection(ConnectionType.SERVER)
    try:
        try:
            request, said = None, b""
            while request is None:
                if not (came := await pipe.read(READ)):
                    raise LeftError("the peer closed the connection during the WebSocket handshake")
                said += came
                request = _request(http, came, protocol)
                _begins_well(said, protocol)
            check(request)
            _choose(request, protocol)
        except WebSocketRefusal as refusal:
            await _answer(lower, refusal)
            raise
        accepted = memoryview(http.send(AcceptConnection(subprotocol=protocol)))
        while accepted:
            accepted = accepted[await pipe.write_on(accepted) :]
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        raise LeftError("the peer closed the connection during the WebSocket handshake") from None
    return WebSocketStream(lower, pipe)


def _request(http: WSConnection, came: bytes, protocol: str) -> Request | None:
    """The request, once all of it has arrived; None before that. The h11 library below wsproto limits its size: an
    incomplete request of 16 KiB is refused. Raises WebSocketRefusal."""
    try:
        http.receive_data(came)
        found = next(http.events(), None)
    except RemoteProtocolError as error:
        status = HTTPStatus.BAD_REQUEST if str(error) == NOT_HTTP else HTTPStatus.UPGRADE_REQUIRED
        raise WebSocketRefusal(status, f"{error}; expected a WebSocket with the subprotocol {protocol}") from None
    # A ValueError means that a header has text that is not ASCII.
    except ValueError:
        raise WebSocketRefusal(HTTPStatus.BAD_REQUEST, "a header of the request is not valid, expected ASCII") from None
    return found if isinstance(found, Request) else None


def _begins_well(said: bytes, protocol: str) -> None:
    """Check what the peer has sent so far. Raises WebSocketRefusal. A peer has to wait for the answer to its request
    (RFC 6455 4.1); wsproto drops bytes that come earlier."""
    if said.startswith(AMQP_HEADER):
        raise WebSocketRefusal(
            HTTPStatus.BAD_REQUEST, f"the peer speaks AMQP, expected a WebSocket with the subprotocol {protocol}"
        )
    end = HEAD_END.search(said)
    if end is not None and end.end() < len(said):
        raise WebSocketRefusal(HTTPStatus.BAD_REQUEST, "bytes follow the request, expected none before the answer")


def _choose(request: Request, protocol: str) -> None:
    if protocol not in request.subprotocols:
        offered = ", ".join(request.subprotocols)[:100] or "none"
        raise WebSocketRefusal(HTTPStatus.BAD_REQUEST, f"the subprotocol is {offered}, expected {protocol}")


async def _answer(lower: trio.SocketStream | LayeredStream, refusal: WebSocketRefusal) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError), trio.move_on_after(LINGER_S):
        await lower.send_all(refusal.answer())
        await lower.send_eof()
        while await lower.receive_some(READ):
            pass
