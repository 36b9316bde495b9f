"""Wrong passwords: from where too many have come, the next one has to wait for its turn (docs/security.md).

By the address that clients come from, as anybody can make new connections: the first `FREE` within `FORGET_S` cost
nothing, then there is one attempt every `EVERY_S`. Whoever would have to wait for longer than `MOST_S` is turned away.
What comes from this host itself is let through: it may be a proxy that many come by.

A connection waits as it comes. One that came while passwords were free has no turn, and asks for one once it says its
password: else whoever opens many connections first would have a guess on each.

To look at a password takes milliseconds, and the loop waits. So in one pass of the loop (`router.turns`) one is looked
at, and addresses take turns: whoever says many at once, be they right, does not hold up those who come from elsewhere.
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
"""Bytes of an IPv6 address: whoever has one of these networks has all the addresses in it."""


@attrs.define(slots=True)
class _Source:
    wrong: int = 0
    last: float = 0.0
    """When it was wrong last."""
    turn: float = 0.0
    """No attempt before that."""


class Attempts:
    """At one router."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sources: dict[bytes, _Source] = {}
        """The one that was wrong last comes last."""

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
        """For how many seconds an attempt from there has to wait; None if for too long, and then no turn is taken."""
        source, now = self._slowed(host), self._now()
        if source is None:
            return 0.0
        turn = max(now, source.turn) + EVERY_S
        if turn > now + MOST_S:
            return None
        source.turn = turn
        return turn - now

    def take_turn_now(self, host: str) -> bool:
        """Whether an attempt from there need not wait; only then a turn is taken."""
        source, now = self._slowed(host), self._now()
        if source is not None:
            if source.turn + EVERY_S > now:
                return False
            source.turn = now
        return True

    def _slowed(self, host: str) -> _Source | None:
        """None for one from where attempts are free."""
        key = _source(host)
        source = self._sources.get(key) if key is not None else None
        if source is None or source.wrong < FREE or self._now() - source.last > FORGET_S:
            return None
        return source


class Checks(trio.abc.Instrument):
    """Of passwords, in a loop of which it is an instrument. After a pass with one comes a pass without: what else is
    heard of clients waits in a pass that has lasted for long, and would find none that is young."""

    def __init__(self) -> None:
        self._is_made = self._was_made = False  # in this pass; in the last
        self._waiting: dict[bytes, int] = {}  # by where they come from
        self._next: bytes | None = None  # whose turn it is
        self._last: dict[bytes, None] = {}  # from where the last were, the oldest first

    def after_io_wait(self, timeout: float) -> None:
        """A pass begins. It is for who has not had one for longest."""
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
        """Returns in a pass in which a password from there may be looked at."""
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
    """Of one connection."""

    def __init__(self, attempts: Attempts, host: str, checks: Checks, *, has_turn: bool = False) -> None:
        self._attempts = attempts
        self._host = host
        self._checks = checks
        self._has_turn = has_turn

    def may(self) -> bool:
        """Whether what is said now proves anything."""
        has_turn, self._has_turn = self._has_turn, False
        return has_turn or self._attempts.take_turn_now(self._host)

    def may_check(self) -> bool:
        """The same of a password in words, which is looked at then."""
        may = self.may()
        if may:
            self._checks.made(self._host)
        return may

    async def turn(self) -> None:
        """Before anything is heard that may be a password."""
        await self._checks.turn(self._host)

    def after(self, turn: Turn, is_in: Callable[[], bool]) -> Turn:
        """Both turns, until the client is let in. This one last: it counts in the pass only in which it comes."""

        async def both() -> None:
            await turn()
            if not is_in():
                await self.turn()

        return both

    def was_wrong(self) -> None:
        self._attempts.was_wrong(self._host)


def _origin(host: str) -> bytes:
    """Where it comes from, be it this host."""
    return _source(host) or host.encode()


def _source(host: str) -> bytes | None:
    """None for one that is not limited, be it that it has gone."""
    if not host:
        return None
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return None
    return address.packed[:NETWORK]
