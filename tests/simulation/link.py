"""A client's link, as its router and its client see it: the shell's part of `router.edge`, with delays both ways.

    client ──FIFO──▶ router      each link has a connection of its own; when it breaks, what is under way may still
    client ◀──FIFO── router      arrive, up to some point. Either end may believe in it much longer than the other.

The ends know deliveries by handles, as AMQP does. A disposition for a handle already settled is ignored.
"""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from router.edge.queue_address import address_inside
from topic.actions import EXPIRED, Detach, LinkAction
from topic.identity import Epoch, shown_address

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.router import Router


class Link:
    """One connection with one link on it."""

    def __init__(self, router: "Router", client: "Client", number: int, first: bool) -> None:
        self.router = router
        self.client = client
        self.number = number
        self.first = first
        self.timeout = client.lifetime.timeout
        self.attached = False
        """Whether the attach has reached the router."""
        self.attached_at = 0.0
        self.answered = False
        """Whether the router has answered the attach."""
        self.closed = False
        """Whether the client has sent a closing detach."""
        self.hung_up = False
        """Whether the client has closed its socket, so that its machine acknowledges nothing. The router may not know
        this."""
        self.ended = False
        """Whether the router's end is gone; the client may not know this."""
        self.ended_at = 0.0
        self.epoch: Epoch | None = None
        self.echoed_epoch = client.seen
        self.afresh = False
        """Whether the attach has a null map."""
        self.life = 0
        """The life of the publisher that this link belongs to."""
        self.in_doubt = False
        """Whether a publisher attaches with a delivery in doubt, as far as its map shows."""
        self.latest = 0
        """The highest stamp of an attach that the router knew when this one came."""
        self.away = 0.0
        """The seconds for which the routers in contact had not seen the client when its attach came."""
        self._arrival = [0.0, 0.0]
        self._until = [inf, inf]
        self.broken_at = inf
        """When the connection broke at the end at which it broke first."""
        router.links.append(self)
        client.opened.append(self)

    def __repr__(self) -> str:
        return f"{self.client.name}#{self.number}@{self.router.name}"

    def check(self, holds: bool, what: str) -> None:
        self.router.judge.check(holds, what)

    # transport

    def to_router(self, action: Callable[..., None], *arguments: Any) -> None:
        self._send(0, self._reach_router, action, *arguments)

    def to_client(self, action: Callable[..., None], *arguments: Any) -> None:
        self._send(1, self._reach_client, action, *arguments)

    def _send(self, way: int, carry: Callable[..., None], *arguments: Any) -> None:
        router = self.router
        delay = router.random.random() * router.knobs.client_delay
        self._arrival[way] = at = max(self._arrival[way], router.schedule.now + delay)
        router.schedule.at(at, carry, *arguments)

    def _reach_router(self, action: Callable[..., None], *arguments: Any) -> None:
        if self.router.schedule.now <= self._until[0] and not self.ended:
            self.router.handle(self._at_router, action, *arguments)

    def _at_router(self, action: Callable[..., None], *arguments: Any) -> None:
        if not self.ended:
            action(*arguments)

    def _reach_client(self, action: Callable[..., None], *arguments: Any) -> None:
        if self.router.schedule.now <= self._until[1]:
            action(self, *arguments)

    def _soon(self, late: float) -> float:
        return self.router.random.random() * late

    def router_died(self, late: float) -> None:
        if self.attached:
            self.lost()
        self.end()
        self._ends_at_client(late)

    def client_left(self, late: float) -> None:
        """The client is gone without a goodbye. Its router notices this after at most this many seconds."""
        self.hung_up = True
        at = self._break(0) + self._soon(late)
        self.router.schedule.at(at, self.router.handle, self._noticed)

    def broken(self, late: float) -> None:
        """The connection breaks while both ends live. Each notices after at most this many seconds."""
        self.client_left(late)
        self._ends_at_client(late)

    def _ends_at_client(self, late: float) -> None:
        at = self._break(1) + self._soon(late)
        self.router.schedule.at(at, self.client.lost, self)

    def stall(self, longest: float) -> None:
        """Delay everything that the client sends from now on."""
        self._arrival[0] = max(self._arrival[0], self.router.schedule.now + self._soon(longest))

    def given_up(self) -> None:
        """The client hears nothing from its paused router and goes elsewhere."""
        if self.router.paused and self.client.link is self:
            self.client_left(0.01)
            self.client.lost(self)

    def _break(self, way: int) -> float:
        """Break one direction. Of the data under way, only the part that comes before the returned time arrives."""
        at = self.router.schedule.now + self.router.random.random() * self.router.knobs.client_delay
        self._until[way] = min(self._until[way], at)
        self.broken_at = min(self.broken_at, self.router.schedule.now)
        return at

    def _noticed(self) -> None:
        if not self.ended:
            if self.attached:
                self.router.note(self.router.name, f"{self} is gone")
                self.suspend()
            self.end()

    def leave(self) -> None:
        """A detach that does not close arrives, after all that was sent before it."""
        self.router.note(self.router.name, f"{self} detaches")
        self.suspend()
        self.end()

    # the router's end

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.ended_at = self.router.schedule.now
            if self in self.router.links:
                self.router.links.remove(self)

    def close(self) -> None:
        """The closing detach arrives."""
        self.router.note(self.router.name, f"{self} closes")
        self.detach()
        self.end()

    def _arrived(self) -> None:
        self.away = self.router.judge.termini.away(self)
        self.latest = self.router.judge.memory.latest(self.router)
        self.attached = True
        self.attached_at = self.router.schedule.now
        self.router.note(self.router.name, f"attaches {self}")
        address = self.client.identity.address
        inside = address_inside(self.router.node, shown_address(address), receives=self.client.receives)
        assert inside == address, "its router has the link inside the set that has the queue"

    def fit(self, unsettled: dict[bytes, int] | None) -> tuple[dict[bytes, int] | None, bool]:
        """The first part of the router's map that fits into the client's frames, and whether this is the whole map."""
        entries = list((unsettled or {}).items())
        most = self.router.knobs.room
        return (unsettled, True) if len(entries) <= most else (dict(entries[:most]), False)

    def _given(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self.router.judge.memory.epoch_given(self)

    def suspend(self) -> None:
        raise NotImplementedError

    def detach(self) -> None:
        raise NotImplementedError

    def perform(self, action: LinkAction) -> None:
        if self.ended:
            return
        if isinstance(action, Detach):
            self.router.note(self.router.name, f"detaches {self}: {action.description}")
            self.stolen()
            self.end()
            self.to_client(self._detached if action.condition == EXPIRED else self.client.detached)
        else:
            self.carry_out(action)

    def _detached(self, _: "Link") -> None:
        """The client reads that its router has ended its link, and answers, unless it has gone elsewhere."""
        if self.client.link is not self:
            return
        self.router.judge.told(self)
        self.client.detached(self)
        at = self.router.schedule.now + self._soon(self.router.knobs.client_delay)
        self.router.schedule.at(at, self._answered_detach, self.router.incarnation)

    def _answered_detach(self, incarnation: int) -> None:
        if self.router.schedule.now <= self._until[0] and self.router.incarnation == incarnation:
            self.router.handle(self.knows)

    def knows(self) -> None:
        """The client has answered that it knows the end of its link."""

    def lost(self) -> None:
        """The link's router has died."""

    def stolen(self) -> None:
        """The router detaches the link, as it considers another link to be the later one."""

    def carry_out(self, action: LinkAction) -> None:
        raise NotImplementedError
