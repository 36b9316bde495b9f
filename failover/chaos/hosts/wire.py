"""Carries packets between two interfaces, and makes this connection bad as a script demands. The kernel's own TCP
reacts.

A wire stands for `tc netem`, which not every kernel has; and it can reset connections, as a device between hosts may.
A wire takes on all of an `Impairment` at once:

- *silent*: no packet gets through, as when a cable is pulled. TCP tries again, at growing intervals.
- *severed*: every packet of TCP is answered by a reset.
- *loss*: a share of the packets gets lost, by chance.
- *latency*, *jitter*: every packet comes later, by a time that may vary. Packets never overtake each other.
- *rate*: the wire carries at most this number of bytes per second in each direction; a packet that would wait for
  longer than `WAITING_S` is lost, as at a full switch.
"""

import contextlib
import math
import os
from collections import deque
from random import Random
from typing import Final

import trio

from failover.chaos.carrier import Impairment
from failover.chaos.hosts.packets import connection_of, reset_of

LARGEST: Final = 1 << 16
TURN: Final = 64
"""The number of packets that a wire reads from one end before it lets other tasks run."""
UNDER_WAY: Final = 10_000
"""The highest number of packets that a slow wire holds in each direction. Further packets are lost."""
WAITING_S: Final = 0.5
CONNECTIONS: Final = 1000
"""The highest number of connections that a wire remembers, so that it can reset them."""


class Wire:
    """A wire. `ends` are the descriptors of the two interfaces that it joins (`Namespace.tunnel`). The wire closes them
    when it ends."""

    def __init__(self, ends: tuple[int, int], random: Random) -> None:
        self.condition = Impairment()
        self._ends = ends
        self._random = random
        self._known: set[bytes] = set()
        self._doomed: set[bytes] = set()

    def become(self, condition: Impairment) -> None:
        self.condition = condition

    def reset(self) -> None:
        """Reset all connections. Each end of a connection gets the reset when it next sends a packet."""
        self._doomed, self._known = self._known, set()

    async def run(self) -> None:
        """Carry packets until this task is cancelled."""
        here, there = self._ends
        try:
            async with trio.open_nursery() as nursery:
                for one, other in ((here, there), (there, here)):
                    under_way: deque[tuple[float, bytes]] = deque()
                    news = trio.lowlevel.ParkingLot()
                    nursery.start_soon(self._read, one, other, under_way, news)
                    nursery.start_soon(self._write, other, under_way, news)
        finally:
            for end in self._ends:
                os.close(end)

    async def _read(
        self, here: int, there: int, under_way: deque[tuple[float, bytes]], news: trio.lowlevel.ParkingLot
    ) -> None:
        last = free = -math.inf
        while True:
            await trio.lowlevel.wait_readable(here)
            now, condition = trio.current_time(), self.condition
            for packet in _read_some(here):
                if self._resets(packet, here) or condition.silent or self._random.random() < condition.loss:
                    continue
                sent = now
                if condition.rate < math.inf:
                    sent = max(free, now) + len(packet) / condition.rate
                    if sent - now > WAITING_S:
                        continue
                    free = sent
                due = last = max(last, sent + condition.latency + self._random.uniform(0, condition.jitter))
                if due <= now and not under_way:
                    _write(there, packet)
                elif len(under_way) < UNDER_WAY:
                    under_way.append((due, packet))
                    news.unpark_all()

    def _resets(self, packet: bytes, here: int) -> bool:
        """Whether the wire answers the packet with a reset, and does not carry it."""
        connection = connection_of(packet)
        if connection is None:
            return False
        if self.condition.severed or connection in self._doomed:
            if answer := reset_of(packet):
                _write(here, answer)
            return True
        if len(self._known) < CONNECTIONS:
            self._known.add(connection)
        return False

    async def _write(self, there: int, under_way: deque[tuple[float, bytes]], news: trio.lowlevel.ParkingLot) -> None:
        while True:
            while not under_way:
                await news.park()
            await trio.sleep_until(under_way[0][0])
            now = trio.current_time()
            while under_way and under_way[0][0] <= now:
                _write(there, under_way.popleft()[1])


def _read_some(end: int) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while len(found) < TURN:
            found.append(os.read(end, LARGEST))
    return found


def _write(end: int, packet: bytes) -> None:
    # If the interface is full or down, the packet is lost.
    with contextlib.suppress(OSError):
        os.write(end, packet)
