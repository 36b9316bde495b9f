"""Limits on wrong passwords: after too many from one address, the next attempt waits for its turn (docs/security.md).

The limit is per client address, as a client can make new connections at will. The first `FREE` wrong passwords within
`FORGET_S` cost nothing. After them the router allows one attempt every `EVERY_S`. It refuses an attempt that would have
to wait for longer than `MOST_S`. It does not limit attempts from its own host, because a proxy of many clients may run
there.

A connection waits for its turn before it is let in. If attempts are free at this time, the connection takes no turn. If
attempts are no longer free when the client sends its password, the connection has to take a turn then. Otherwise a
client could open many connections first, and have a free guess on each.

A check of a password takes milliseconds, in which the loop waits. So one pass of the loop (`router.turns`) has at most
one check, and addresses take turns: a client that sends many passwords at once, even right ones, does not delay clients
from elsewhere.
"""

from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, ip_address
from typing import Final

import attrs
import trio

FREE: Final = 10
EVERY_S: Final = 1.0
MOST_S: Final = 4.0
FORGET_S: Final = 60.0
MOST_SOURCES: Final = 10_000
Turn = Callable[[], Awaitable[None]]
NETWORK: Final = 8
"""The leading bytes of an IPv6 address that name its network. Attempts are counted by network, because its owner has
all addresses in it."""


@attrs.define(slots=True)
class _Source:
    wrong: int = 0
    last: float = 0.0
    """The time of the last wrong password."""
    turn: float = 0.0
    """The time before which no attempt is allowed."""


class Attempts:
    """The wrong passwords at one router, counted by client address."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sources: dict[bytes, _Source] = {}
        """Source -> its wrong passwords, in the order of the last wrong password of each."""

    def was_wrong(self, host: str) -> None:
        key, now = _source(host), self._now()
        if key is None:
            return
        source = self._sources.pop(key, None)
        if source is None or now - source.last > FORGET_S:
            source = _Source()
        source.wrong += 1
        source.last = now
        self._sources[key] = source
        if len(self._sources) > MOST_SOURCES:
            del self._sources[next(iter(self._sources))]

    def take_turn(self, host: str) -> float | None:
        """Take a turn for an attempt from this host. Returns the seconds to wait for the turn. If these are more than
        `MOST_S`, takes no turn and returns None."""
        source, now = self._slowed(host), self._now()
        if source is None:
            return 0.0
        turn = max(now, source.turn) + EVERY_S
        if turn > now + MOST_S:
            return None
        source.turn = turn
        return turn - now

    def take_turn_now(self, host: str) -> bool:
        """Take a turn for an attempt from this host, if the attempt may be made at once. Returns whether it may."""
        source, now = self._slowed(host), self._now()
        if source is not None:
            if source.turn + EVERY_S > now:
                return False
            source.turn = now
        return True

    def _slowed(self, host: str) -> _Source | None:
        """The source under which wrong passwords of this host count. None if the attempts of this host are free at
        present."""
        key = _source(host)
        source = self._sources.get(key) if key is not None else None
        if source is None or source.wrong < FREE or self._now() - source.last > FORGET_S:
            return None
        return source


class Checks(trio.abc.Instrument):
    """Spreads the checks of passwords over the passes of a loop, as an instrument of trio. A pass with a check is long.
    The pass after it has no check and is short, so that other clients do not wait for two long passes in a row."""

    def __init__(self) -> None:
        # Whether this pass has made a check, and whether the pass before it had.
        self._is_made = self._was_made = False
        self._waiting: dict[bytes, int] = {}  # maps an origin to the number of its waiting checks
        self._next: bytes | None = None  # the origin to which this pass belongs
        # The origins of the last checks, the oldest first.
        self._last: dict[bytes, None] = {}

    def after_io_wait(self, timeout: float) -> None:
        """Start a pass. It belongs to the waiting origin whose last check is the oldest."""
        self._was_made, self._is_made = self._is_made, False
        self._next = None
        if self._waiting and not self._was_made:
            waited = (origin for origin in self._waiting if origin not in self._last)
            self._next = next(waited, None) or next(origin for origin in self._last if origin in self._waiting)

    def made(self, host: str) -> None:
        self._is_made = True
        origin = _origin(host)
        self._last.pop(origin, None)
        self._last[origin] = None
        if len(self._last) > MOST_SOURCES:
            del self._last[next(iter(self._last))]

    async def turn(self, host: str) -> None:
        """Return in a pass in which a password from this host may be checked."""
        if not (self._waiting or self._is_made or self._was_made):
            return
        origin = _origin(host)
        self._waiting[origin] = self._waiting.get(origin, 0) + 1
        try:
            while self._next != origin or self._is_made:
                await trio.lowlevel.checkpoint()
        finally:
            self._waiting[origin] -= 1
            if not self._waiting[origin]:
                del self._waiting[origin]


class Guesses:
    """The password attempts of one connection."""

    def __init__(self, attempts: Attempts, host: str, checks: Checks, *, has_turn: bool = False) -> None:
        self._attempts = attempts
        self._host = host
        self._checks = checks
        self._has_turn = has_turn

    def may(self) -> bool:
        """Whether the client's present attempt may be checked. If not, the attempt is refused without a check."""
        has_turn, self._has_turn = self._has_turn, False
        return has_turn or self._attempts.take_turn_now(self._host)

    def may_check(self) -> bool:
        """Whether the client's present attempt with a plain password may be checked. If so, the password is checked in
        this pass."""
        may = self.may()
        if may:
            self._checks.made(self._host)
        return may

    async def turn(self) -> None:
        """Wait for a pass that allows a check, before reading anything that may contain a password."""
        await self._checks.turn(self._host)

    def after(self, turn: Turn, is_in: Callable[[], bool]) -> Turn:
        """Returns a function for the transport to await before it reads. The function awaits `turn`. Until the client
        is authenticated (`is_in`), it then also waits for a pass that allows a password check. This comes last, because
        the read has to follow in the same pass."""

        async def both() -> None:
            await turn()
            if not is_in():
                await self.turn()

        return both

    def was_wrong(self) -> None:
        self._attempts.was_wrong(self._host)


def _origin(host: str) -> bytes:
    """The origin under which the checks for this client host take turns. A host whose wrong passwords are not counted
    also has an origin."""
    return _source(host) or host.encode()


def _source(host: str) -> bytes | None:
    """The source under which the router counts wrong passwords from this client host. None if the client is on the
    router's own host, or if its address is unknown: these passwords are not counted."""
    if not host:
        return None
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return None
    return address.packed[:NETWORK]
