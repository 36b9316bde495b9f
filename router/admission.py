"""Who comes in by a listener, while descriptors are few and strangers many.

A *place* is the descriptor of one connection. Clients at topics and neighbours are *admitted* to all places but a few.
These spare ones are for all others: connections that are not open yet, and open ones of which no link is at a topic, as
of those who read `$status`. When they are taken, the oldest makes way for who comes: of that address which has more
than half of them, if there is one, and of those who have said nothing, if there are any; open ones go last. So
strangers keep nobody out, and a router that is full of clients still shows its status.

A stranger costs a descriptor and a task: it has an engine when its first byte has come. Which connections are
admitted is decided by whoever serves them; how long an open may take is the engine's business, once there is one.
"""

import logging
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import trio

from router.amqp.transport import at_once
from router.mesh.quantities import Address

log = logging.getLogger("oncemesh.admission")

PAUSE_S: Final = 0.1
"""After an accept that failed: what it lacked may be there again."""
AT_ONCE: Final = 256
SPARE_MOST: Final = 4096
SPARE_LEAST: Final = 8
OWN: Final = 80
"""Descriptors of a router besides connections of AMQP: listeners, log, store, who looks over HTTP, and some to be
safe."""


def take_descriptors() -> None:
    """As many as this process may have: every client takes one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def descriptors(neighbours: int) -> tuple[int, int]:
    """Of a router with so many neighbours: places for connections of neighbours, and of clients."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    dialled, accepted = 2 * neighbours, 2 * neighbours + 2 * SPARE_LEAST
    return accepted, max(2 * SPARE_LEAST, limit - OWN - dialled - accepted)


class Visitor:
    """A connection, from its accept on."""

    def __init__(self, admission: "Admission", accepted: socket.socket, address: Sequence[Any]) -> None:
        self.host, self.port = address[:2]
        self.scope = trio.CancelScope()
        self._admission = admission
        self._accepted = accepted
        self.has_spoken = False

    def __str__(self) -> str:
        return f"a peer at {Address(self.host, self.port)}"

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come, as far as the kernel knows."""
        if not self.has_spoken:
            try:
                self._accepted.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return True
            except OSError:
                pass  # it has gone, and is about to be noticed
            self.has_spoken = True
        return False

    def open(self) -> None:
        """The peer has said who it is."""
        self._admission.open(self)

    def admit(self) -> bool:
        """Take one of the places that are not spare. False: there is none."""
        return self._admission.admit(self)


Handler = Callable[[trio.SocketStream, Visitor], Awaitable[None]]


def _log(limit: str, who: str, what: str) -> None:
    log.warning("connection of %s ended: %s", who, what)


class Admission:
    """By one listener, to so many places; no more than `most` are admitted. `patience`: seconds for a first byte. Who
    has spoken waits for its `turn`. `exceed` is told the limit, who is beyond it, and what that means."""

    def __init__(
        self,
        places: int,
        patience: float,
        turn: Callable[[], Awaitable[None]] = at_once,
        most: int = 1 << 20,
        exceed: Callable[[str, str, str], object] = _log,
    ) -> None:
        self.spare = max(SPARE_LEAST, min(SPARE_MOST, places // 4))
        self.room = min(places - self.spare, most)
        self.is_open = False
        """Whether it accepts."""
        self._exceed = exceed
        self._patience = patience
        self._turn = turn
        self._places = trio.Semaphore(places)
        self._unopened: dict[Visitor, None] = {}
        self._of_host: dict[str, dict[Visitor, None]] = {}  # the same, by address
        self._opened: dict[Visitor, None] = {}
        self._admitted: set[Visitor] = set()

    async def serve(self, listener: socket.socket, handler: Handler, nursery: trio.Nursery) -> None:
        """Accept until cancelled. What one connection or the system lacks ends none of the others."""
        listener.setblocking(False)
        self.is_open = True
        try:
            with listener:
                await self._accept_all(listener, handler, nursery)
        finally:
            self.is_open = False

    async def _accept_all(self, listener: socket.socket, handler: Handler, nursery: trio.Nursery) -> None:
        while True:
            async with self._places:
                await trio.lowlevel.wait_readable(listener)
            try:
                self._accept(listener, handler, nursery)
            except BlockingIOError:
                pass
            except OSError as error:
                log.warning("no connection can be accepted: %s", os.strerror(error.errno or 0))
                await trio.sleep(PAUSE_S)

    def _accept(self, listener: socket.socket, handler: Handler, nursery: trio.Nursery) -> None:
        """Those who wait, before anything is done for them: of a crowd most make way for the last."""
        for _ in range(min(AT_ONCE, self._places.value)):
            accepted, address = listener.accept()
            accepted.setblocking(False)
            self._places.acquire_nowait()
            self._make_way()
            visitor = Visitor(self, accepted, address)
            self._unopened[visitor] = None
            self._of_host.setdefault(visitor.host, {})[visitor] = None
            nursery.start_soon(self._run, visitor, accepted, handler)

    async def _run(self, visitor: Visitor, accepted: socket.socket, handler: Handler) -> None:
        try:
            with accepted, visitor.scope:
                with trio.move_on_after(self._patience) as patience:
                    await trio.lowlevel.wait_readable(accepted)
                if patience.cancelled_caught:
                    self._exceed("opening", str(visitor), "it has said nothing")
                else:
                    visitor.has_spoken = True
                    await self._turn()
                    await handler(trio.SocketStream(trio.socket.from_stdlib_socket(accepted)), visitor)
        finally:
            self._forget(visitor)
            self._admitted.discard(visitor)
            self._places.release()

    # who makes way

    def _make_way(self) -> None:
        """For one that comes. A quarter of the spare places is for those who come before the others have gone."""
        if len(self._unopened) + len(self._opened) < 3 * self.spare // 4:
            return
        crowd = max(self._of_host.values(), key=len, default=self._unopened)
        of = crowd if len(crowd) > self.spare // 2 else self._unopened or self._opened
        self._end(next((visitor for visitor in of if visitor.is_silent), None) or next(iter(of)))

    def _end(self, visitor: Visitor) -> None:
        self._exceed("connections", str(visitor), "it makes way for others: it had no link at a topic")
        self._forget(visitor)
        visitor.scope.cancel()

    def _forget(self, visitor: Visitor) -> None:
        self._opened.pop(visitor, None)
        if visitor in self._unopened:
            del self._unopened[visitor]
            compatriots = self._of_host[visitor.host]
            del compatriots[visitor]
            if not compatriots:
                del self._of_host[visitor.host]

    # what a visitor becomes

    def open(self, visitor: Visitor) -> None:
        if visitor in self._unopened:
            self._forget(visitor)
            self._opened[visitor] = None

    def admit(self, visitor: Visitor) -> bool:
        if visitor in self._admitted:
            return True
        if (visitor not in self._opened and visitor not in self._unopened) or len(self._admitted) >= self.room:
            return False
        self._forget(visitor)
        self._admitted.add(visitor)
        return True
