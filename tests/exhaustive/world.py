"""The mesh as one value: a number in each of a few dozen columns.

Two routers are in contact or not. A contact begins and ends at one router first, and batches under way end with it.
Batches between two routers arrive in order. A client has a connection, or a cut one: frames that it sends on a cut one
may still arrive at its router until the router notices.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations, compress
from struct import Struct
from typing import Any, Generic, Protocol, TypeVar

import attrs

from tests.exhaustive.clients import Frame
from tests.exhaustive.memo import Numbers
from tests.exhaustive.router import Facts

UP, LOW_LOST, HIGH_LOST, DOWN, LOW_UP, HIGH_UP = range(6)
"""States of the contact of a lower and a higher router: which of them noticed its end, or began the next one, first."""
LOST, BEGUN = (LOW_LOST, HIGH_LOST), (LOW_UP, HIGH_UP)
IN_CONTACT = ((True, True), (False, True), (True, False), (False, False), (True, False), (False, True))
"""For each state: whether the lower router, and whether the higher router, considers itself in contact."""
FLOWS = ((True, True), (False, False), (False, False), (False, False), (True, False), (False, True))
"""For each state: whether batches of the lower router, and whether batches of the higher router, can arrive."""

AWAY, APART, GONE, UNTOLD, ENDED = 1, 2, 4, 8, 16
"""Bits of `terms`, in this order: when its time last ran out, the client was not connected; or some routers were not in
contact. The client was not connected then, and no attach of it has been answered since. A home accepted a message
without it, and no router has told it. A router has ended the present life of this publisher."""

Event = tuple[Any, ...]
Wire = tuple[int, int, tuple[Frame, ...]]
"""A client's connection: its serial, the router, and the frames of the client that have not arrived."""
Values = tuple[int, ...]
"""The value of each column."""
World = bytes
"""The values, packed for fast hashing."""

T = TypeVar("T")


class Table(Protocol[T]):
    def number(self, value: T) -> int: ...
    def value(self, number: int) -> T: ...


class _Plain:
    """The table of a column whose values are numbers."""

    def number(self, value: int) -> int:
        return value

    def value(self, number: int) -> int:
        return number


@attrs.frozen
class Part(Generic[T]):
    """Columns of one kind: the first one, how many, and the table of their values."""

    first: int
    count: int
    table: Table[T]


class Layout:
    """The columns of the worlds of a scope."""

    def __init__(self, routers: int, clients: int, messages: int, faults: int, facts: Numbers[Facts | None]) -> None:
        self.size = 0
        plain = _Plain()
        queues: Numbers[tuple[int, ...]] = Numbers()
        wires: Numbers[tuple[Wire, ...]] = Numbers()
        assert queues.number(()) == wires.number(()) == 0, "a world of zeros has nothing under way, and no connection"
        self.count = routers
        self.routers = self._part(routers, plain)
        """The numbers of the routers' states in `Model`. Clients and batches have numbers there, too."""
        self.facts = self._part(routers, facts)
        """For each router, the facts that events read. They follow from the router's state, but are a column of their
        own, so that an event can read them alone.
        """
        self.lives = self._part(routers, plain)
        """Incarnation of each router; negative while it is dead, 0 before its first start."""
        self.pairs = self._part(routers * (routers - 1) // 2, plain)
        """The contact of each two routers."""
        self.queues = self._part(routers**2, queues)
        """The batches under way from each router to each other router."""
        self.clients = self._part(clients, plain)
        """Publishers first."""
        self.wires = self._part(clients, wires)
        """The connections of each client, oldest first. Only the last one can be in use, if it has the client's
        serial."""
        self.promised = self._part(messages, plain)
        """For each message, the subscribers to which it is promised, as bits; -1 before it is published."""
        self.missed = self._part(messages, plain)
        """For each message, the promised subscribers without which it was accepted, as no router in contact with home
        knew them.
        """
        self.knows = self._part(routers, plain)
        """For each router, the subscribers to which messages published there are promised."""
        self.faults = self._part(1 + faults, plain)
        """The faults that may still happen: in all, and of each kind."""
        self.terms = self._part(clients, plain)
        """For each client, as bits: what has ended, or will end, the promises to it (`AWAY` and so on)."""
        self.planned = self._part(routers, plain)
        """1 for a router that knows the plan of the grown mesh. Routers that join know it from the beginning."""
        self.deaf = self._part(routers, plain)
        """For a router that is about to die, the clients that receive no more of its frames, as bits; else 0."""
        self.rank = self._part(1, plain)
        """The number of attaches so far."""
        self._struct = Struct(f"={self.size}i")

    def _part(self, count: int, table: Table[T]) -> Part[T]:
        part = Part(self.size, count, table)
        self.size += count
        return part

    def pack(self, values: Values) -> World:
        return self._struct.pack(*values)

    def unpack(self, world: World) -> Values:
        return self._struct.unpack(world)


class Row(Generic[T]):
    """The columns of one kind, in a draft."""

    __slots__ = ("_draft", "_part")

    def __init__(self, draft: "Draft", part: Part[T]) -> None:
        self._draft = draft
        self._part = part

    def __len__(self) -> int:
        return self._part.count

    def __iter__(self) -> Iterator[T]:
        return (self[index] for index in range(self._part.count))

    def __getitem__(self, index: int) -> T:
        return self._part.table.value(self._draft.read(self._part.first + index))

    def __setitem__(self, index: int, value: T) -> None:
        self._draft.changes[self._part.first + index] = self._part.table.number(value)

    def changed(self) -> list[int]:
        """The indices of the columns that were written."""
        return [index for index in range(self._part.count) if self._part.first + index in self._draft.changes]


class Draft:
    """A world in use: it records the columns that were read, and those that were changed (`kernel`)."""

    def __init__(self, layout: Layout, values: Values) -> None:
        self.read_first: list[int] = []
        """The columns that were read before they were changed, in this order."""
        self.changes: dict[int, int] = {}
        self.limits = 0
        """The number of acceptances that lacked a subscriber within a known limit."""
        self._layout = layout
        self._values = values
        self.routers = Row(self, layout.routers)
        self.facts = Row(self, layout.facts)
        self.lives = Row(self, layout.lives)
        self.pairs = Row(self, layout.pairs)
        self.queues = Row(self, layout.queues)
        self.clients = Row(self, layout.clients)
        self.wires = Row(self, layout.wires)
        self.promised = Row(self, layout.promised)
        self.missed = Row(self, layout.missed)
        self.knows = Row(self, layout.knows)
        self.faults = Row(self, layout.faults)
        self.terms = Row(self, layout.terms)
        self.planned = Row(self, layout.planned)
        self.deaf = Row(self, layout.deaf)
        self._rank = Row(self, layout.rank)

    def read(self, column: int) -> int:
        if column in self.changes:
            return self.changes[column]
        if column not in self.read_first:
            self.read_first.append(column)
        return self._values[column]

    def world(self) -> World:
        return self._layout.pack(tuple(self.changes.get(place, value) for place, value in enumerate(self._values)))

    @property
    def rank(self) -> int:
        return self._rank[0]

    @rank.setter
    def rank(self, rank: int) -> None:
        self._rank[0] = rank

    def live_facts(self, router: int) -> Facts:
        facts = self.facts[router]
        assert facts is not None, "a dead router"
        return facts

    # contacts

    def status(self, one: int, other: int) -> int:
        """The state of the contact of two routers."""
        return self.pairs[self._pair(one, other)]

    def set_status(self, one: int, other: int, status: int | tuple[int, int]) -> None:
        """Set the state of the contact. A pair of `status` has the state to set if `one` is the lower router, and the
        mirrored state to set if it is the higher one."""
        self.pairs[self._pair(one, other)] = status if isinstance(status, int) else status[one > other]

    def _pair(self, one: int, other: int) -> int:
        """The index of two routers in the list of all pairs, low ones first."""
        low, high = min(one, other), max(one, other)
        return low * (2 * self._layout.count - low - 1) // 2 + high - low - 1

    def queue(self, source: int, target: int) -> tuple[int, ...]:
        return self.queues[source * self._layout.count + target]

    def push(self, source: int, target: int, batch: int) -> None:
        """Send a batch. A batch for a router out of contact is dropped, as the mesh drops it."""
        if FLOWS[self.status(source, target)][source > target]:
            self.queues[source * self._layout.count + target] += (batch,)

    def pop(self, source: int, target: int) -> int:
        batch, *rest = self.queue(source, target)
        self.queues[source * self._layout.count + target] = tuple(rest)
        return batch

    def clear(self, source: int, target: int) -> None:
        self.queues[source * self._layout.count + target] = ()

    # connections

    def unplug(self, index: int, serial: int) -> int:
        """One of a client's connections has ended. Returns its router."""
        (router,) = [wire[1] for wire in self.wires[index] if wire[0] == serial]
        self.wires[index] = tuple(wire for wire in self.wires[index] if wire[0] != serial)
        return router


def is_apart(pairs: Iterable[int], lives: Iterable[int]) -> bool:
    """Whether some router that was ever started is dead, or not in contact with all others."""
    lives = list(lives)
    started = [0 not in ends for ends in combinations(lives, 2)]
    return any(status != UP for status in compress(pairs, started)) or any(life < 0 for life in lives)
