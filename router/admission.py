"""Admits connections at a listener, although descriptors are few and strangers may be many.

A *place* is the descriptor of one connection. Clients at topics and neighbours are *admitted* to all places except a
few spare ones. The spare places are for strangers: connections that are not open yet, and open connections without a
link at a topic, such as readers of `$status`. When the spare places are taken, a stranger makes way for the next
connection (`Strangers`). So strangers keep no client out, and a router that is full of clients still shows its status.

A stranger without a protocol header costs only a descriptor and a task. The kernel wakes the task when `GREETING` bytes
have arrived, and only then does the connection get an engine. The code that serves a connection decides whether to
admit the connection. The engine ends a connection whose open does not come in time.
"""

import logging
import os
import resource
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import trio

from router.amqp.transport import at_once
from router.mesh.quantities import Address

log = logging.getLogger("oncemesh.admission")

PAUSE_S: Final = 0.1
"""After a failed accept, the router waits for this many seconds, because a descriptor may become free meanwhile."""
AT_ONCE: Final = 256
GREETING: Final = 8
"""The number of bytes of AMQP's protocol header. A client of TLS, MQTT or HTTP begins with a longer message. A kernel
without SO_RCVLOWAT wakes the task of a connection at the first byte."""
SPARE_MOST: Final = 4096
SPARE_LEAST: Final = 8
OWN: Final = 80
"""The descriptors that a router needs for other things than AMQP connections: listeners, log, store, HTTP connections,
and a reserve."""


def take_descriptors() -> None:
    """Raise the process's limit of descriptors to the hard limit, because each connection takes a descriptor."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def descriptors(neighbours: int) -> tuple[int, int]:
    """The places for connections of neighbours, and the places for connections of clients, at a router with this number
    of neighbours."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    dialled, accepted = 2 * neighbours, 2 * neighbours + 2 * SPARE_LEAST
    return accepted, max(2 * SPARE_LEAST, limit - OWN - dialled - accepted)


class Stranger(Protocol):
    host: str

    @property
    def has_spoken(self) -> bool: ...


S = TypeVar("S", bound=Stranger)


class Unopened(Generic[S]):
    """Connections that are not open yet: first the silent ones, then the ones that have sent their greeting. Both kinds
    are in the order of their arrival. An OrderedDict finds its first key at once, but a dict first skips all deleted
    keys."""

    def __init__(self) -> None:
        self._silent: OrderedDict[S, None] = OrderedDict()
        self._spoken: OrderedDict[S, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._silent) + len(self._spoken)

    def __contains__(self, one: S) -> bool:
        return one in self._silent or one in self._spoken

    def add(self, one: S) -> None:
        self._silent[one] = None

    def speaks(self, one: S) -> None:
        if one in self._silent:
            del self._silent[one]
            self._spoken[one] = None

    def remove(self, one: S) -> None:
        self._silent.pop(one, None)
        self._spoken.pop(one, None)

    @property
    def oldest_silent(self) -> S | None:
        return next(iter(self._silent), None)

    @property
    def oldest(self) -> S | None:
        """The oldest silent connection; if none is silent, the oldest one."""
        return self.oldest_silent or next(iter(self._spoken), None)


class Strangers(Generic[S]):
    """The connections on the spare places. Decides which one makes way next: first connections that are not open yet,
    then open ones. If one address has more than half of the places, its connections go first. Silent connections go
    before others, and older ones before younger ones. Every method takes constant time, because strangers choose how
    often it is called."""

    def __init__(self, places: int) -> None:
        # A stranger that makes way keeps its place until its task ends. A quarter of the places stays free for this.
        self._most = 3 * places // 4
        self._crowded = places // 2
        self._unopened = Unopened[S]()
        self._of_host: dict[str, Unopened[S]] = {}  # maps an address to its connections that are not open
        # The connections of the last address that had more than half of the places.
        self._crowd = Unopened[S]()
        self._opened: OrderedDict[S, None] = OrderedDict()

    def __contains__(self, one: S) -> bool:
        return one in self._opened or one in self._unopened

    def next_to_go(self) -> S | None:
        """The stranger that makes way for the next connection; None if there is room."""
        if len(self._unopened) + len(self._opened) < self._most:
            return None
        of = self._crowd if len(self._crowd) > self._crowded else self._unopened
        while (silent := of.oldest_silent) is not None and silent.has_spoken:
            # The kernel has the greeting of this connection, but the connection's task has not run since.
            # Each connection gets here at most once, so the loop takes constant time on average.
            self.speaks(silent)
        return of.oldest or next(iter(self._opened))

    def enter(self, one: S) -> None:
        compatriots = self._of_host.setdefault(one.host, Unopened[S]())
        for queue in (self._unopened, compatriots):
            queue.add(one)
        # Only one address at a time can have more than half of the places.
        if len(compatriots) > self._crowded:
            self._crowd = compatriots

    def speaks(self, one: S) -> None:
        if one in self._unopened:
            for queue in (self._unopened, self._of_host[one.host]):
                queue.speaks(one)

    def opens(self, one: S) -> None:
        if one in self._unopened:
            self.forget(one)
            self._opened[one] = None

    def forget(self, one: S) -> None:
        """Remove a connection that has ended or is admitted."""
        self._opened.pop(one, None)
        if one in self._unopened:
            compatriots = self._of_host[one.host]
            for queue in (self._unopened, compatriots):
                queue.remove(one)
            if not compatriots:
                del self._of_host[one.host]


class Visitor:
    """A connection at a listener, from its accept on."""

    def __init__(self, admission: "Admission", accepted: socket.socket, address: Sequence[Any]) -> None:
        self.host, self.port = address[:2]
        self.scope = trio.CancelScope()
        self._admission = admission
        self._accepted = accepted

    def __str__(self) -> str:
        return f"a peer at {Address(self.host, self.port)}"

    @property
    def has_spoken(self) -> bool:
        """Whether the kernel has received the peer's whole greeting. False if the peer has gone."""
        try:
            return len(self._accepted.recv(GREETING, socket.MSG_PEEK)) == GREETING
        except OSError:
            return False

    def open(self) -> None:
        """The peer has sent its AMQP open."""
        self._admission.open(self)

    def admit(self) -> bool:
        """Move from a spare place to a place for clients. Returns False if none is free."""
        return self._admission.admit(self)


Handler = Callable[[trio.SocketStream, Visitor], Awaitable[None]]


def _log(limit: str, who: str, what: str) -> None:
    log.warning("connection of %s ended: %s", who, what)


class Admission:
    """Accepts the connections of one listener, and decides which of them keep their places. `places`: the number of all
    places, a quarter of which is spare. `most`: the highest number of connections that are admitted. `patience`: the
    seconds that a peer has for its greeting. `turn`: the task of a connection awaits `turn()` after the greeting,
    before it serves the connection. `exceed`: called with the exceeded limit, the peer, and the consequence."""

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
        """Whether the listener accepts connections."""
        self._exceed = exceed
        self._patience = patience
        self._turn = turn
        self._places = trio.Semaphore(places)
        self._strangers = Strangers[Visitor](self.spare)
        self._admitted: set[Visitor] = set()

    async def serve(self, listener: socket.socket, handler: Handler, nursery: trio.Nursery) -> None:
        """Accept connections until cancelled. An error of one connection ends no other one."""
        listener.setblocking(False)
        # Sockets inherit this option (SO_RCVLOWAT) from the listener that accepts them.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, GREETING)
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
                log.warning("cannot accept connections: %s", os.strerror(error.errno or 0))
                await trio.sleep(PAUSE_S)

    def _accept(self, listener: socket.socket, handler: Handler, nursery: trio.Nursery) -> None:
        """Accept all waiting connections, before the router serves any of them. If too many connections wait, the later
        ones end most of the earlier ones at once."""
        for _ in range(min(AT_ONCE, self._places.value)):
            accepted, address = listener.accept()
            accepted.setblocking(False)
            self._places.acquire_nowait()
            self._make_way()
            visitor = Visitor(self, accepted, address)
            self._strangers.enter(visitor)
            nursery.start_soon(self._run, visitor, accepted, handler)

    async def _run(self, visitor: Visitor, accepted: socket.socket, handler: Handler) -> None:
        try:
            with accepted, visitor.scope:
                with trio.move_on_after(self._patience) as patience:
                    await trio.lowlevel.wait_readable(accepted)
                if patience.cancelled_caught:
                    self._exceed("opening", str(visitor), "the client has not sent a protocol header")
                else:
                    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
                    self._strangers.speaks(visitor)
                    await self._turn()
                    await handler(trio.SocketStream(trio.socket.from_stdlib_socket(accepted)), visitor)
        finally:
            self._strangers.forget(visitor)
            self._admitted.discard(visitor)
            self._places.release()

    def _make_way(self) -> None:
        """End the stranger that makes way for a new connection, if the spare places are taken."""
        visitor = self._strangers.next_to_go()
        if visitor is not None:
            self._exceed(
                "connections",
                str(visitor),
                "the router was full and closed this connection because it had no link to a topic",
            )
            self._strangers.forget(visitor)
            visitor.scope.cancel()

    # The methods from here on are called when a connection changes.

    def open(self, visitor: Visitor) -> None:
        self._strangers.opens(visitor)

    def admit(self, visitor: Visitor) -> bool:
        if visitor in self._admitted:
            return True
        if visitor not in self._strangers or len(self._admitted) >= self.room:
            return False
        self._strangers.forget(visitor)
        self._admitted.add(visitor)
        return True
