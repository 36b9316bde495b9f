"""The mesh as one value: a number in each of a few dozen columns.

Routers are in contact in pairs; a contact begins and ends on one side first, and what was under way dies with it.
Between two routers batches are under way in order. A client has a connection, or a cut one: what it does then may still
arrive at its router until that notices.
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
"""States of the contact of two routers, the lower and the higher: who noticed its end, or has begun the next, first."""
LOST, BEGUN = (LOW_LOST, HIGH_LOST), (LOW_UP, HIGH_UP)
IN_CONTACT = ((True, True), (False, True), (True, False), (False, False), (True, False), (False, True))
"""By state: whether the lower, and the higher, is in contact by what it knows."""
FLOWS = ((True, True), (False, False), (False, False), (False, False), (True, False), (False, True))
"""By state: whether what the lower, and the higher, says is not lost for certain."""

AWAY, APART, GONE, UNTOLD, ENDED = 1, 2, 4, 8, 16
"""When its time ran out last, the client was not connected, or some routers were not in contact; it was not connected,
and no attach of it has been answered since; something was accepted without it, and it has not been told; the present
life of this publisher is over for a router."""

Event = tuple[Any, ...]
Wire = tuple[int, int, tuple[Frame, ...]]
"""A client's connection: its serial, the router, and what the client sent that has not arrived."""
Values = tuple[int, ...]
"""What stands in each column."""
World = bytes
"""The same, packed, so that it is hashed fast."""

T = TypeVar("T")


class Table(Protocol[T]):
    def number(self, value: T) -> int: ...
    def value(self, number: int) -> T: ...


class _Plain:
    """Of what is a number."""

    def number(self, value: int) -> int:
        return value

    def value(self, number: int) -> int:
        return number


@attrs.frozen
class Part(Generic[T]):
    """Columns of one kind: the first, how many, and the table of their values."""

    first: int
    count: int
    table: Table[T]


class Layout:
    """Which columns the worlds of a scope have."""

    def __init__(self, routers: int, clients: int, messages: int, faults: int, facts: Numbers[Facts | None]) -> None:
        self.size = 0
        plain = _Plain()
        queues: Numbers[tuple[int, ...]] = Numbers()
        wires: Numbers[tuple[Wire, ...]] = Numbers()
        assert queues.number(()) == wires.number(()) == 0, "a world of zeros has nothing under way, and no connection"
        self.count = routers
        self.routers = self._part(routers, plain)
        """By their numbers in `Model`, as clients and batches are."""
        self.facts = self._part(routers, facts)
        """What others look at of each router: it follows from the one above, and is a column to be looked at alone."""
        self.lives = self._part(routers, plain)
        """Incarnation of each router; negative while it is dead, 0 before its first start."""
        self.pairs = self._part(routers * (routers - 1) // 2, plain)
        """The contact of each two routers."""
        self.queues = self._part(routers**2, queues)
        """From each router to each other: batches under way."""
        self.clients = self._part(clients, plain)
        """Publishers first."""
        self.wires = self._part(clients, wires)
        """Of each client, oldest first; only the last one, if it has the client's serial, is more than a memory."""
        self.promised = self._part(messages, plain)
        """For each message, the subscribers that it is promised to, as bits; -1 before it is published."""
        self.missed = self._part(messages, plain)
        """For each message, those of them that it was accepted without: nobody in contact with home knew them."""
        self.knows = self._part(routers, plain)
        """For each router, the subscribers that what is published there is promised to."""
        self.faults = self._part(1 + faults, plain)
        """What may still happen: in all, and of each kind."""
        self.terms = self._part(clients, plain)
        """Of each client, as bits: what ends, or has ended, the promises to it (`AWAY` and so on)."""
        self.planned = self._part(routers, plain)
        """1 for a router that knows the plan of the grown mesh; those that join do from the first."""
        self.deaf = self._part(routers, plain)
        """For a router that is about to die, the clients that do not hear what it still says, as bits; else 0."""
        self.rank = self._part(1, plain)
        """How many attaches there were."""
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
        """Those that were written."""
        return [index for index in range(self._part.count) if self._part.first + index in self._draft.changes]


class Draft:
    """A world that is looked at, and changed: it keeps what was looked at, and what was changed (`kernel`)."""

    def __init__(self, layout: Layout, values: Values) -> None:
        self.read_first: list[int] = []
        """The columns that were looked at, in this order, before they were changed."""
        self.changes: dict[int, int] = {}
        self.limits = 0
        """Acceptances that a subscriber was missed in and excused."""
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
        """If there are two states that mean the same with the roles changed: that of `one`."""
        self.pairs[self._pair(one, other)] = status if isinstance(status, int) else status[one > other]

    def _pair(self, one: int, other: int) -> int:
        """The place of two routers in the list of all pairs, low ones first."""
        low, high = min(one, other), max(one, other)
        return low * (2 * self._layout.count - low - 1) // 2 + high - low - 1

    def queue(self, source: int, target: int) -> tuple[int, ...]:
        return self.queues[source * self._layout.count + target]

    def push(self, source: int, target: int, batch: int) -> None:
        """What is for a router out of contact is left out, as by the mesh."""
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
        """One of a client's connections is no more; returns its router."""
        (router,) = [wire[1] for wire in self.wires[index] if wire[0] == serial]
        self.wires[index] = tuple(wire for wire in self.wires[index] if wire[0] != serial)
        return router


def is_apart(pairs: Iterable[int], lives: Iterable[int]) -> bool:
    """Whether some routers of those that were ever started are not in contact, or dead."""
    lives = list(lives)
    started = [0 not in ends for ends in combinations(lives, 2)]
    return any(status != UP for status in compress(pairs, started)) or any(life < 0 for life in lives)
