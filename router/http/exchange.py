"""What is asked over HTTP, and what is answered: values, as `server` reads and writes them and `site` decides them."""

from collections.abc import Awaitable, Callable, Mapping

from attrs import define, field, frozen

NextEvent = Callable[[], Awaitable[bytes]]
"""The next bytes of a stream of events, once there are any."""


@frozen
class WebRequest:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By their names in lower case; of several of a name the last."""


@frozen
class WebAnswer:
    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    events: NextEvent | None = None
    """Instead of a body: goes on until the listener or the peer ends."""


@define
class WebCaller:
    """The other end of one connection."""

    origin: str
    """For the log."""
    certified: str = ""
    """The user whose certificate it has shown."""
    admit: Callable[[], bool] = field(default=lambda: True)
    """Have it keep its place though others come; False if there is none."""
    may_try: Callable[[], bool] = field(default=lambda: True)
    """Whether a password that is said now is looked at."""
    denied: Callable[[], None] = field(default=lambda: None)
    """Hears of each wrong password."""
    reads_events: bool = False
    """Whether it may read what has happened, which tells of what others were refused."""
    proven: tuple[str, str] | None = None
    """The credentials that were found to be right on this connection, and whose they are."""


def told(status: int, text: str, *headers: tuple[str, str]) -> WebAnswer:
    """A line of text."""
    return WebAnswer(status, f"{text}\n".encode(), headers=headers)


class WebRefusal(Exception):
    """A request that is not answered as it was meant to be."""

    def __init__(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.answer = told(status, text, *headers)
