"""Bodies that wait until the transport to one neighbour has room (protocol 3, layer 2): link state never waits behind
data.

A shell gives its transport no more than the transport can write at once. When that is written, the shell takes the next
bodies from here. So link state waits only for the bytes that the transport already has.
"""

from collections import deque
from typing import Literal

from linkstate.mesh_actions import CHANNEL, LINKSTATE


class Outbox:
    """Bodies for one neighbour, in order on each of its two lanes."""

    __slots__ = ("_channel", "_linkstate")

    def __init__(self) -> None:
        self._linkstate: list[bytes] = []
        self._channel: deque[bytes] = deque()

    def put(self, lane: Literal["linkstate", "channel"], body: bytes) -> None:
        (self._channel if lane == CHANNEL else self._linkstate).append(body)

    def take(self, room: int) -> tuple[Literal["linkstate", "channel"], list[bytes]] | None:
        """The bodies to send next, to be joined into one, and their lane: at most `room` bytes of data, but at least
        one body. None if nothing waits."""
        if self._linkstate:
            bodies, self._linkstate = self._linkstate, []
            return LINKSTATE, bodies
        waiting, bodies = self._channel, []
        while waiting and (not bodies or len(waiting[0]) <= room):
            bodies.append(waiting.popleft())
            room -= len(bodies[-1])
        return (CHANNEL, bodies) if bodies else None
