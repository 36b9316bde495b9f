"""The links between neighbouring routers: connections that carry bodies in order, and the ways in which they fail.

    a ──bodies──▶ b      the fault decides which end notices a break, and when; data under way may
    a ◀──bodies── b      still arrive, up to some point

The lower name dials. If one end still considers a connection intact, it ends there when the other end opens the next
one. On a narrow link bodies wait in an outbox, as in production, and arrive byte by byte: a part of a body is a sign of
life.
"""

from math import inf
from random import Random
from typing import TYPE_CHECKING, Literal

from linkstate.outbox import Outbox
from tests.simulation.knobs import Knobs
from tests.simulation.schedule import Schedule

if TYPE_CHECKING:
    from tests.simulation.router import Router

Body = tuple[Literal["linkstate", "channel"], bytes]
"""(linkstate or channel, bytes)"""


class Connection:
    """One connection between two neighbours. The ends in `open` consider it intact."""

    __slots__ = ("arrival", "broken", "busy", "open", "outboxes", "stalled", "stash", "until")

    def __init__(self, ends: tuple[str, str]) -> None:
        self.arrival = dict.fromkeys(ends, 0.0)
        """When the last bodies to this end arrive."""
        self.until = dict.fromkeys(ends, inf)
        """After this time nothing arrives at this end."""
        self.open = dict.fromkeys(ends, True)
        self.broken = False
        self.stalled = False
        """Whether arriving data waits until the path works again, as under TCP."""
        self.stash: list[tuple[str, list[Body]]] = []
        self.outboxes = {end: Outbox() for end in ends}
        """Data that waits for room on its way to this end."""
        self.busy: set[str] = set()
        """Ends to which so much is under way that they can take no more now."""


class Wire:
    """A configured link, with its present connection as each end sees it."""

    def __init__(
        self, ends: tuple[str, str], cost: int, routers: "dict[str, Router]", schedule: Schedule, random: Random,
        knobs: Knobs,
    ) -> None:  # fmt: skip
        self.ends = ends
        self.cost = cost
        self.cut = False
        """Whether no connection can be opened."""
        self.slow = 1.0
        self._routers = routers
        self._schedule = schedule
        self._random = random
        self._knobs = knobs
        self._current: dict[str, Connection | None] = dict.fromkeys(ends)
        self._latest: Connection | None = None

    def other(self, end: str) -> str:
        return self.ends[1] if end == self.ends[0] else self.ends[0]

    # opening

    def seek(self) -> None:
        """Dial after a while. If that fails, the code that ends the cause seeks again."""
        self._schedule.after(self._random.random() * 0.2, self._dial)

    def _dial(self) -> None:
        latest, dialler = self._latest, self.ends[0]
        if self.cut or not all(self._routers[end].alive for end in self.ends):
            return
        if self._routers[dialler].paused:
            self.seek()
            return
        if not all(map(self._is_wanted, self.ends)):
            return
        if latest is None or not latest.open[dialler]:
            self._latest = connection = Connection(self.ends)
            for end in self.ends:
                connection.arrival[end] = at = self._schedule.now + self._random.random() * self._knobs.delay
                self._schedule.at(at, self._routers[end].handle, self._up, connection, end)

    def _is_wanted(self, end: str) -> bool:
        """Whether the plan of this end has the link. If the plan has removed the other router, this end tells it so."""
        other, mesh = self._routers[self.other(end)], self._routers[end].mesh
        if other.name in mesh.plan.routers and other.name not in mesh.plan.listed and end in other.mesh.neighbours:
            other.handle(other.expelled)
        return other.name in mesh.neighbours

    def part(self, end: str) -> None:
        """The plan of this end no longer has the link: the end closes its connection after the data that it has
        sent."""
        connection = self._current[end]
        if connection is not None:
            there = self.other(end)
            self._current[end], connection.broken = None, True
            self._closed(connection, end)
            at = max(connection.arrival[there], self._schedule.now)
            self._schedule.at(at, self._routers[there].handle, self._down, connection, there)

    def _up(self, connection: Connection, end: str) -> None:
        if connection.broken:
            return
        self._current[end] = connection
        if self.other(end) in self._routers[end].mesh.neighbours:
            self._routers[end].mesh.link_up(self.other(end), self._schedule.now)
        else:  # the plan has removed the link meanwhile
            self.part(end)

    # bodies

    def transmit(self, end: str, bodies: list[Body]) -> None:
        connection = self._current[end]
        if connection is not None and self._knobs.rate == inf:
            self._carry(connection, self.other(end), bodies, 0.0)
        elif connection is not None:
            for link, body in bodies:
                connection.outboxes[self.other(end)].put(link, body)
            self._fill(connection, end)

    def _fill(self, connection: Connection, end: str) -> None:
        """Let each live end hand over as many bodies as its transport has room for."""
        there, router = self.other(end), self._routers[end]
        if there in connection.busy or self._current[end] is not connection or router.paused:
            return
        taken = connection.outboxes[there].take(self._knobs.held)
        if taken is not None:
            link, bodies = taken
            takes = sum(map(len, bodies)) / self._knobs.rate
            connection.busy.add(there)
            self._schedule.after(takes, self._free, connection, end)
            for part in range(1, int(4 * takes / self._knobs.dead)):
                self._carry(connection, there, [], part * self._knobs.dead / 4)
            self._carry(connection, there, [(link, b"".join(bodies))], takes)

    def _free(self, connection: Connection, end: str) -> None:
        connection.busy.discard(self.other(end))
        self._fill(connection, end)

    def _carry(self, connection: Connection, there: str, bodies: list[Body], takes: float) -> None:
        """Carry bodies. An empty list stands for a part of one body."""
        delay = takes + self._random.random() * self._knobs.delay * self.slow
        at = connection.arrival[there] = max(connection.arrival[there], self._schedule.now + delay)
        self._schedule.at(at, self._arrive, connection, there, bodies)

    def _arrive(self, connection: Connection, end: str, bodies: list[Body]) -> None:
        if connection.stalled:
            connection.stash.append((end, bodies))
        elif self._schedule.now <= connection.until[end]:
            self._routers[end].handle(self._receive, connection, end, bodies)

    def _receive(self, connection: Connection, end: str, bodies: list[Body]) -> None:
        if self._current[end] is not connection:
            return
        mesh, neighbour, now = self._routers[end].mesh, self.other(end), self._schedule.now
        if neighbour not in mesh.neighbours:
            return  # the plan has removed the link, and the connection is about to be closed
        if not bodies:
            mesh.bytes_received(neighbour, now)
        for link, body in bodies:
            mesh.receive(neighbour, link, memoryview(body), now)  # as `router.neighbours` does

    # faults

    def break_off(self, late: tuple[float, float]) -> None:
        """The connection breaks. Its ends notice after these seconds; the first number is for the lower name."""
        connection = self._latest
        if connection is None or connection.broken:
            return
        connection.broken = True
        self._unstall(connection)
        for end, delay in zip(self.ends, late, strict=True):
            under_way = self._random.random() * self._knobs.delay
            connection.until[end] = self._schedule.now + under_way
            self._schedule.after(under_way + delay, self._routers[end].handle, self._down, connection, end)

    def _down(self, connection: Connection, end: str) -> None:
        if self._current[end] is connection:
            self._current[end] = None
            self._routers[end].mesh.link_down(self.other(end), self._schedule.now)
        self._closed(connection, end)

    def _closed(self, connection: Connection, end: str) -> None:
        if connection.open[end]:
            connection.open[end] = False
            self.seek()

    def killed(self, router: str, late: float) -> None:
        """The router has died. Its neighbour notices after this many seconds."""
        self.break_off((late, late))
        self._current[router] = None
        if self._latest is not None:
            self._latest.open[router] = False

    def stall(self) -> None:
        if self._latest is not None and not self._latest.broken:
            self._latest.stalled = True

    def heal(self) -> None:
        self.cut = False
        self.slow = 1.0
        if self._latest is not None:
            self._unstall(self._latest)
        self.seek()

    def _unstall(self, connection: Connection) -> None:
        connection.stalled = False
        stash, connection.stash = connection.stash, []
        for end, bodies in stash:
            self._arrive(connection, end, bodies)
