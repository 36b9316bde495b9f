"""Lets in clients that speak WebSocket: first as the other listeners do (`router.security.doors`), then by the
handshake.

A browser names the page that connects (`Origin`). A page from a foreign host could misuse the browser of its reader:
the browser may have a certificate, or may run on a host from which it reaches loopback. So the page has to come from
this host, or the topology has to name its origin (docs/security.md)."""

from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import trio
from wsproto.events import Request

from router.mesh.config import ANY_ORIGIN, Topology, is_loopback
from router.security.doors import Doors, LateError, Secured
from router.websocket.handshake import WebSocketRefusal, shake_hands

LONGEST_SHOWN: Final = 100


class WebSocketEntrance:
    """Lets clients in at one WebSocket listener."""

    def __init__(self, doors: Doors, topology: Topology, protocol: str, host: str) -> None:
        """`protocol`: the subprotocol that clients have to offer. `host`: the host at which the listener listens."""
        self._doors = doors
        self._protocol = protocol
        self._patience = topology.limits.opening
        self._origins = topology.security.origins
        self._is_loopback = is_loopback(host)

    async def let_in(self, below: trio.SocketStream) -> Secured:
        """Let a client's stream in, and make the handshake of WebSocket on it. Raises HandshakeError."""
        stream, certified, guesses = await self._doors.let_in(below)
        with trio.move_on_after(self._patience):
            return await shake_hands(stream, self._protocol, self.check), certified, guesses
        raise LateError("the peer began no WebSocket in time")

    def check(self, request: Request) -> None:
        """Check whether the page that asks may connect. Raises WebSocketRefusal if it may not."""
        host = _host(f"//{request.host}")
        if self._is_loopback and not is_loopback(host):
            raise WebSocketRefusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the host name is not allowed on loopback, expected localhost or 127.0.0.1",
            )
        origins = [value.decode("latin-1") for name, value in request.extra_headers if name == b"origin"]
        for origin in origins:
            if not self._admits(origin.lower(), host):
                raise WebSocketRefusal(
                    HTTPStatus.FORBIDDEN,
                    f"a page of {origin[:LONGEST_SHOWN]!r} may not connect, expected a page of {host[:LONGEST_SHOWN]!r}"
                    ", or its origin in security.origins",
                )

    def _admits(self, origin: str, host: str) -> bool:
        if self._origins:
            return ANY_ORIGIN in self._origins or origin in self._origins
        own = _host(origin)
        return bool(own) and (own == host or (is_loopback(own) and is_loopback(host)))


def _host(url: str) -> str:
    """The host of a URL or an origin, in lower case; empty if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
