"""Requests and answers of HTTP, as values: `server` reads and writes them, `site` decides the answers."""

from collections.abc import Awaitable, Callable, Mapping

from attrs import define, field, frozen

NextEvent = Callable[[], Awaitable[bytes]]
"""A function that waits for the next bytes of a stream of events, and returns them."""


@frozen
class WebRequest:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """The headers, keyed by the name in lower case. Of several headers with the same name, the last counts."""


@frozen
class WebAnswer:
    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    events: NextEvent | None = None
    """The stream that the answer sends in place of a body. It continues until the listener or the peer ends it."""


@define
class WebCaller:
    """The peer at the other end of one connection."""

    origin: str
    """The address of the peer, for the log."""
    certified: str = ""
    """The user in the certificate that the peer has shown; "" without a certificate."""
    admit: Callable[[], bool] = field(default=lambda: True)
    """Reserves a place for this connection that later connections cannot take away. Returns False if no
    place is free."""
    may_try: Callable[[], bool] = field(default=lambda: True)
    """Whether the server would check a password now. It would not while the peer has to wait after wrong passwords."""
    denied: Callable[[], None] = field(default=lambda: None)
    """This is called for each wrong password of the peer."""
    reads_events: bool = False
    """Whether the peer may read events. Events also show the refusals of other clients."""
    proven: tuple[str, str] | None = None
    """The credentials that this connection has proven already, and their user; None before that."""


def text_answer(status: int, text: str, *headers: tuple[str, str]) -> WebAnswer:
    """An answer with one line of text."""
    return WebAnswer(status, f"{text}\n".encode(), headers=headers)


class WebRefusal(Exception):
    """A request that gets an error as its answer."""

    def __init__(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.answer = text_answer(status, text, *headers)
