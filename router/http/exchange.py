"""Requests and answers of HTTP, as values: `server` reads and writes them, `site` decides the answers."""

from collections.abc import Awaitable, Callable, Mapping

from attrs import define, field, frozen

NextEvent = Callable[[], Awaitable[bytes]]
"""Returns the next bytes of a stream of events, once there are any."""


@frozen
class WebRequest:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Keyed by the name in lower case; of several headers with the same name, the last."""


@frozen
class WebAnswer:
    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    events: NextEvent | None = None
    """The stream in place of a body; it continues until the listener or the peer ends."""


@define
class WebCaller:
    """The other end of one connection."""

    origin: str
    """Its address, for the log."""
    certified: str = ""
    """The user of the certificate shown; "" if none."""
    admit: Callable[[], bool] = field(default=lambda: True)
    """Takes a place that later connections cannot take away; False if there is none."""
    may_try: Callable[[], bool] = field(default=lambda: True)
    """Whether a password sent now is checked."""
    denied: Callable[[], None] = field(default=lambda: None)
    """Called for each wrong password."""
    reads_events: bool = False
    """Whether it may read events, which also show the refusals of other clients."""
    proven: tuple[str, str] | None = None
    """The credentials that this connection has proven already, and their user."""


def text_answer(status: int, text: str, *headers: tuple[str, str]) -> WebAnswer:
    """An answer with one line of text."""
    return WebAnswer(status, f"{text}\n".encode(), headers=headers)


class WebRefusal(Exception):
    """A request that gets an error as its answer."""

    def __init__(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.answer = text_answer(status, text, *headers)
