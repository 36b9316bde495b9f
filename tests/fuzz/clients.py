"""Clients that send anything: damaged frames, and well-formed frames that make no sense.

`frames` sends damaged frames. `maps` damages only unsettled maps. So its input reaches the topic core: links that
resume, steal and close each other, tags and keys that are used again, and outcomes for any delivery.
"""

from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from typing import Any

from router.amqp.format.message import data_message
from tests.fuzz.mesh import FuzzMesh, Guest
from tests.fuzz.mutation import damaged
from tests.router.amqp.frames import (
    ATTACH,
    BEGIN,
    CLOSE,
    COORDINATOR,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    HEADER,
    OPEN,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    Raw,
    Symbol,
    encode,
    frame,
    ubyte,
)
from topic.properties import ANSWERS, EPOCH, GENERATION, TOLD

CONTAINERS = ("x", "y", "z")
LINKS = ("in", "out", "l")
ADDRESSES = ("topic/f0", "topic/f1")
CREDITS = (0, 1, 1, 5, 100, 2**31 - 1, 2**31, 2**32 - 1)
STATES = (0x23, 0x24, 0x24, 0x25, 0x26, 0x27)
"""AMQP's received, accepted (twice as often), rejected, released, modified."""
POLICIES = ("session-end", "link-detach", "connection-close", "never")
ACTS = 30


class Talk:
    """The frames of one client. It knows the deliveries that its router knows, to use odd names and real ones."""

    def __init__(self, rng: Random, mesh: FuzzMesh, guest: Guest) -> None:
        """`guest`: the client's connection, as its router has it."""
        self._rng = rng
        self._mesh = mesh
        self._guest = guest
        self._next = 0
        """The next delivery-id."""
        self._links: dict[int, tuple[str, bool]] = {}
        """Keyed by handle: the link's name, and whether it receives."""

    def beginning(self) -> bytes:
        rng = self._rng
        name, idle = rng.choice(CONTAINERS), rng.choice((None, None, None, 0, 1000))
        opened = frame(OPEN, name, None, rng.choice((512, 4096, 2**32 - 1)), None, idle)
        return HEADER + opened + frame(BEGIN, None, 0, rng.choice((1, 100, 2**31 - 1)), 1000)

    def act(self) -> bytes:
        rng = self._rng
        if not self._links and rng.random() < 0.99:
            return self._attach()
        say: Callable[[], bytes] = rng.choices(
            (self._attach, self._transfer, self._disposition, self._flow, self._detach, self._session),
            weights=(4, 8, 8, 5, 3, 0.3),
        )[0]
        return say()

    def _handle(self) -> int:
        return self._rng.choice(list(self._links) or [0]) if self._rng.random() < 0.995 else self._rng.randrange(9)

    def _tag(self) -> bytes:
        rng = self._rng
        keys = [key for router in self._mesh.routers.values() for key in router.node.topic.records.by_key]
        if keys and rng.random() < 0.6:
            return rng.choice(keys)
        return rng.choice((b"%d" % rng.randrange(5), rng.randbytes(32), b""))

    def _state(self) -> Any:
        code = self._rng.choice(STATES)
        fields = (0, 0) if code == 0x23 else (True, self._rng.random() < 0.5) if code == 0x27 else ()
        return Described(code, *fields)

    def _map(self) -> Any:
        """An unsettled map, or a broken one."""
        rng = self._rng
        if rng.random() < 0.3:
            return None
        stated = {self._tag(): rng.choice((None, self._state())) for _ in range(rng.randrange(5))}
        encoded = encode(stated)
        return Raw(damaged(rng, encoded)) if rng.random() < 0.1 else Raw(encoded)

    def _properties(self) -> Any:
        rng = self._rng
        entries = [
            (e.generation, str(e.epoch)) for r in self._mesh.routers.values() for e in r.node.topic.directory.entries()
        ]
        known = rng.choice(entries or [(b"", "")])
        offered: dict[str, Any] = {
            GENERATION: rng.choice((known[0], rng.randbytes(8))),
            EPOCH: rng.choice((known[1], "1-a-1", "")),
            ANSWERS: True,
            TOLD: True,
        }
        return {Symbol(name): value for name, value in offered.items() if rng.random() < 0.3} or None

    def _terminus(self, code: int) -> Described:
        rng = self._rng
        timeout = rng.choice((0, 2, 5, 2**32 - 1))
        address = rng.choice(ADDRESSES) if rng.random() < 0.97 else rng.choice(("", "queue/x", "$status", None))
        if rng.random() < 0.02:
            return Described(COORDINATOR)
        return Described(code, address, rng.choice((0, 0, 1, 2)), Symbol(rng.choice(POLICIES)), timeout)

    def _attach(self) -> bytes:
        rng = self._rng
        taken = self._links.values() if rng.random() < 0.98 else ()
        free = [link for link in product(LINKS, (True, False)) if link not in taken]
        handles = [handle for handle in range(7) if handle not in self._links]
        if not (free and handles):
            return self._detach()
        name, receives = rng.choice(free)
        handle = rng.choice(handles)
        self._links[handle] = name, receives
        credit = frame(FLOW, 0, 1000, 0, 1000, handle, 0, 10) if receives and rng.random() < 0.7 else b""
        modes = Raw(ubyte(rng.choice((0, 1, 2, 2)))), Raw(ubyte(rng.randrange(2)))
        fields = (self._terminus(SOURCE), self._terminus(TARGET), self._map(), rng.choice((None, None, True)), 0)
        return frame(ATTACH, name, handle, receives, *modes, *fields, None, None, None, self._properties()) + credit

    def _transfer(self) -> bytes:
        rng = self._rng
        senders = [handle for handle, (_, receives) in self._links.items() if not receives]
        if not senders and rng.random() < 0.99:
            return self._flow()
        handle = rng.choice(senders) if senders and rng.random() < 0.995 else self._handle()
        number = self._next if rng.random() < 0.97 else rng.choice((None, 0, 2**32 - 1))
        self._next += 1
        more, resume, aborted = (rng.random() < share for share in (0.05, 0.3, 0.05))
        state = self._state() if rng.random() < 0.2 else None
        payload = data_message(rng.randbytes(rng.choice((0, 3, 3000)))) if rng.random() < 0.95 else rng.randbytes(20)
        settled = rng.random() < 0.2
        return frame(
            TRANSFER, handle, number, self._tag(), 0, settled, more, None, state, resume, aborted, payload=payload
        )

    def _disposition(self) -> bytes:
        rng = self._rng
        first = rng.choice((0, 0, 1, rng.randrange(self._next + 4)))
        last = rng.choice((None, first, first + rng.randrange(5), first + 50))
        if rng.random() < 0.01:
            first, last = rng.choice((first, 2**32 - 1)), rng.choice((0, 2**32 - 1))
        state = self._state() if rng.random() < 0.85 else None
        return frame(DISPOSITION, rng.random() < 0.7, first, last, rng.random() < 0.4, state)

    def _flow(self) -> bytes:
        rng = self._rng
        link = (self._handle(), rng.choice((0, None)), rng.choice(CREDITS)) if rng.random() < 0.95 else (None,) * 3
        return frame(
            FLOW,
            self._next,
            1000,
            0,
            rng.choice((1000, 2**31 - 1, 1)),
            *link,
            None,
            *(rng.random() < 0.3 for _ in "de"),
        )

    def _detach(self) -> bytes:
        handle = self._handle()
        self._links.pop(handle, None)
        return frame(DETACH, handle, self._rng.random() < 0.4)

    def _session(self) -> bytes:
        self._links.clear()
        last = self._rng.choice(((), (frame(CLOSE),), (frame(BEGIN, None, 0, 1000, 1000),)))
        return frame(END) + b"".join(last)


def frames(rng: Random) -> None:
    """A few connections whose frames are damaged now and then, and cut anywhere."""
    _play(rng, lambda said: damaged(rng, said) if rng.random() < 0.08 else said)


def maps(rng: Random) -> None:
    """The same with no damage except in maps."""
    _play(rng, lambda said: said)


def _play(rng: Random, bend: Callable[[bytes], bytes]) -> None:
    mesh = FuzzMesh("a", "b", "c")
    visit(rng, mesh, bend)
    mesh.check()
    mesh.meet()
    mesh.check_forgotten()
    mesh.end()


def visit(
    rng: Random,
    mesh: FuzzMesh,
    bend: Callable[[bytes], bytes] = lambda said: said,
    talk: Callable[[Random, Any, Guest], Talk] = Talk,
) -> None:
    """A few clients connect to routers, act at the same time, and leave. Now and then c loses a contact."""
    guests = [mesh.guest(rng.choice(list(mesh.routers))) for _ in range(rng.randint(3, 6))]
    there = [(guest, _said(rng, talk(rng, mesh, guest), bend)) for guest in guests]
    while there:
        at = rng.randrange(len(there))
        guest, said = there[at]
        data = next(said, b"")
        if data and not guest.connection.closed:
            cut = rng.randrange(len(data) + 1) if rng.random() < 0.2 else 0
            for part in filter(None, (data[:cut], data[cut:])):
                guest.say(part)
        else:
            del there[at]
            guest.leave()
        if rng.random() < 0.05:
            mesh.time(rng.choice((0.1, 1.0, 3.0)))
        if rng.random() < 0.03 and "c" in mesh.routers:
            mesh.part(rng.choice("ab"), "c")


def _said(rng: Random, talk: Talk, bend: Callable[[bytes], bytes]) -> Iterator[bytes]:
    yield bend(talk.beginning() + talk.act())
    for _ in range(rng.randrange(ACTS)):
        yield bend(b"".join(talk.act() for _ in range(rng.choice((1, 1, 1, 4)))))
