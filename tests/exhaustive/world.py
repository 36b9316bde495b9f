"""The mesh as one value.

Routers are in contact in pairs; a contact begins and ends on one side first, and what was under way dies with it.
Between two routers batches are under way in order. A client has a connection, or a cut one: what it does then may still
arrive at its router until that notices.
"""

from collections.abc import Sequence
from itertools import combinations, compress
from typing import Any, NamedTuple

from tests.exhaustive.clients import Frame

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


class World(NamedTuple):
    """Plain tuples of numbers, so that it is hashed fast; routers, clients and batches by their numbers in `Model`."""

    routers: tuple[int, ...]
    lives: tuple[int, ...]
    """Incarnation of each router; negative while it is dead, 0 before its first start."""
    pairs: tuple[int, ...]
    """The contact of each two routers."""
    queues: tuple[tuple[int, ...], ...]
    """From each router to each other: batches under way."""
    clients: tuple[int, ...]
    """Publishers first."""
    wires: tuple[tuple[Wire, ...], ...]
    """Of each client, oldest first; only the last one, if it has the client's serial, is more than a memory."""
    promised: tuple[int, ...]
    """For each message, the subscribers that it is promised to, as bits; -1 before it is published."""
    missed: tuple[int, ...]
    """For each message, those of them that it was accepted without: nobody in contact with home knew them."""
    knows: tuple[int, ...]
    """For each router, the subscribers that what is published there is promised to."""
    faults: tuple[int, ...]
    """What may still happen: in all, and of each kind."""
    terms: tuple[int, ...]
    """Of each client, as bits: what ends, or has ended, the promises to it (`AWAY` and so on)."""
    planned: int
    """The routers that know the plan of the grown mesh, as bits; those that join from the first."""
    doomed: tuple[tuple[int, int], ...]
    """Routers about to die, each with a client that does not hear what they still say; sorted."""
    rank: int
    """How many attaches there were."""

    def status(self, one: int, other: int) -> int:
        """The state of the contact of two routers."""
        return self.pairs[pair(one, other, len(self.routers))]


class Draft:
    """A world being changed."""

    __slots__ = World._fields

    def __init__(self, world: World) -> None:
        self.routers = list(world.routers)
        self.lives = list(world.lives)
        self.pairs = list(world.pairs)
        self.queues = list(world.queues)
        self.clients = list(world.clients)
        self.wires = list(world.wires)
        self.promised = list(world.promised)
        self.missed = list(world.missed)
        self.knows = list(world.knows)
        self.faults = list(world.faults)
        self.terms = list(world.terms)
        self.planned = world.planned
        self.doomed = world.doomed
        self.rank = world.rank

    def world(self) -> World:
        if -1 not in self.promised and not self.planned:  # nothing will be promised any more, and nobody joins
            self.knows = [0] * len(self.knows)
        return World(
            tuple(self.routers), tuple(self.lives), tuple(self.pairs), tuple(self.queues), tuple(self.clients),
            tuple(self.wires), tuple(self.promised), tuple(self.missed), tuple(self.knows), tuple(self.faults),
            tuple(self.terms), self.planned, self.doomed, self.rank,
        )  # fmt: skip

    # contacts

    def status(self, one: int, other: int) -> int:
        return self.pairs[pair(one, other, len(self.routers))]

    def set_status(self, one: int, other: int, status: int | tuple[int, int]) -> None:
        """If there are two states that mean the same with the roles changed: that of `one`."""
        place = pair(one, other, len(self.routers))
        self.pairs[place] = status if isinstance(status, int) else status[one > other]

    def push(self, source: int, target: int, batch: int) -> None:
        """What is for a router out of contact is left out, as by the mesh."""
        if FLOWS[self.status(source, target)][source > target]:
            self.queues[source * len(self.routers) + target] += (batch,)

    def pop(self, source: int, target: int) -> int:
        place = source * len(self.routers) + target
        batch, *rest = self.queues[place]
        self.queues[place] = tuple(rest)
        return batch

    def clear(self, source: int, target: int) -> None:
        self.queues[source * len(self.routers) + target] = ()

    # connections

    def unplug(self, index: int, serial: int) -> int:
        """One of a client's connections is no more; returns its router."""
        (router,) = [wire[1] for wire in self.wires[index] if wire[0] == serial]
        self.wires[index] = tuple(wire for wire in self.wires[index] if wire[0] != serial)
        return router


def pair(one: int, other: int, count: int) -> int:
    """The place of two routers in the list of all pairs, low ones first."""
    low, high = min(one, other), max(one, other)
    return low * (2 * count - low - 1) // 2 + high - low - 1


def is_apart(pairs: Sequence[int], lives: Sequence[int]) -> bool:
    """Whether some routers of those that were ever started are not in contact, or dead."""
    started = [0 not in ends for ends in combinations(lives, 2)]
    return any(status != UP for status in compress(pairs, started)) or any(life < 0 for life in lives)
