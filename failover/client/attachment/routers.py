"""The routers that a client may attach to: which one comes next, and how long the client pauses before it tries.

The routers that the user has given come first, then the routers that the last router named (`failover-server-list`).
When a link has lived, the client shuffles the other routers, so that the clients of a router that dies do not all go to
the same next one. After a loss the client tries a router at once. It pauses only after a round through all routers
without success, and longer after each such round.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from router.amqp.format.errors import AmqpError
from router.amqp.format.sections import read_message
from topic.properties import MOVE

SCHEMES: Final = {"amqp": 5672, "amqps": 5671}
"""Maps each scheme of a URL to its default port."""
PORTS: Final = range(1, 65536)
MAX_ROUTERS: Final = 256
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5


class RouterAddress(NamedTuple):
    host: str
    port: int
    scheme: str = "amqp"

    @property
    def tls(self) -> bool:
        return self.scheme == "amqps"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_url(url: str) -> RouterAddress:
    """Parse amqp://host:port or amqps://host:port; scheme and port are optional. Raises ValueError for a URL with any
    other part, such as a user or a path, because the client would ignore that part."""
    # The error does not quote the URL, because any part of it may be a password.
    if "@" in url:
        raise ValueError(
            "a router's URL must not have a user or password; use --user and --password-file (Credentials)"
        )
    try:
        parts = urlsplit(url if "//" in url else f"amqp://{url}")
        host, port = parts.hostname, parts.port if parts.port is not None else SCHEMES.get(parts.scheme, 0)
    except ValueError:
        host = None
    if not host or parts.scheme not in SCHEMES or port not in PORTS:
        raise ValueError(f"not a router's URL: {url!r}, expected amqp://host:port with a port from 1 to 65535")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"not a router's URL: {url!r}, expected amqp://host:port and nothing behind it")
    return RouterAddress(host, port, parts.scheme)


class Routers:
    """The routers that a client may attach to, as a ring. `failures` counts the failed attempts since a link last
    lived."""

    def __init__(self, urls: Sequence[str], client: str = "") -> None:
        """`client` seeds the shuffle, so that each client has its own order."""
        if isinstance(urls, str):
            raise ValueError(f"one URL, {urls!r}, where a list of URLs is expected")
        self._given = frozenset(map(parse_url, urls))
        self._ring = list(dict.fromkeys(map(parse_url, urls)))
        if not self._ring:
            raise ValueError("no router to attach to, expected at least one URL")
        self._random = Random(client)
        self._turn = 0
        self.failures = 0

    @property
    def current(self) -> RouterAddress:
        return self._ring[self._turn]

    @property
    def exhausted(self) -> bool:
        """Whether a whole round through all routers has failed since the last success."""
        return self.failures >= len(self._ring)

    @property
    def at_last(self) -> bool:
        """Whether `current` is the last router of this round through the ring."""
        return (self.failures + 1) % len(self._ring) == 0

    @property
    def pause(self) -> float:
        """The seconds that the client waits before it tries `current`."""
        rounds, rest = divmod(self.failures, len(self._ring))
        return min(FIRST_PAUSE_S * 2.0 ** min(rounds - 1, 10), LONGEST_PAUSE_S) if rounds and not rest else 0.0

    def succeeded(self) -> None:
        """A link at `current` has lived: set `failures` to 0, and shuffle the other routers."""
        self.failures = 0
        others = [router for router in self._ring if router != self.current]
        self._random.shuffle(others)
        self._ring, self._turn = [self.current, *others], 0

    def failed(self) -> None:
        self.failures += 1
        self.choose_next()

    def choose_next(self) -> None:
        self._turn = (self._turn + 1) % len(self._ring)

    def move_to(self, router: RouterAddress) -> None:
        """Make `router` the current one. `router` has to be in the ring."""
        self._turn = self._ring.index(router)

    def other(self, servers: Any) -> RouterAddress | None:
        """The first router of the list `servers`. None if the ring lacks this router, or if it is `current`."""
        first = _address(servers[0]) if isinstance(servers, list) and servers else None
        return first if first in self._ring and first != self.current else None

    def learn(self, servers: Any) -> None:
        """Learn the list of routers that a router's open or `$routers` names. Malformed entries are ignored.

        If an earlier list named a router, and this list does not, the router has left the mesh, and is removed from the
        ring.
        """
        if not isinstance(servers, list | tuple):
            return
        named = [_address(server) for server in servers]
        current, kept = self.current, {*self._given, self.current, *named}
        self._ring = [router for router in self._ring if router in kept]
        self._turn = self._ring.index(current)
        for address in named:
            # A router's list must not lead a client with TLS to a connection without TLS.
            if address is None or address.scheme != self.current.scheme:
                continue
            if address not in self._ring and len(self._ring) < MAX_ROUTERS:
                self._ring.append(address)


def _address(server: Any) -> RouterAddress | None:
    if not isinstance(server, Mapping):
        return None
    host, scheme = server.get("network-host"), server.get("scheme", "amqp")
    if not isinstance(host, str) or not host or not isinstance(scheme, str) or scheme not in SCHEMES:
        return None
    try:
        address = RouterAddress(str(host), int(server.get("port", SCHEMES[scheme])), str(scheme))
    except (TypeError, ValueError):
        return None
    return address if address.port in PORTS else None


def read_list(message: bytes) -> tuple[Any, bool]:
    """Read a message of `$routers`. Return the list of routers, and whether the client shall move to the first of
    them."""
    try:
        sections = read_message(message)
    except AmqpError:
        return None, False
    said = sections.get("application-properties")
    return sections.get("value"), isinstance(said, dict) and said.get(MOVE) is True
