"""Keeps bodies until the transport to one neighbour has room (protocol 3, layer 2). Link state never waits behind data.

A shell gives its transport only as much as the transport can write at once. When the transport has written this, the
shell takes the next bodies from here. So link state waits only for the bytes that the transport already has.
"""

from collections import deque
from typing import Literal

from linkstate.mesh_actions import CHANNEL, LINKSTATE


class Outbox:
    """The waiting bodies for one neighbour, in order on each of its two lanes."""

    __slots__ = ("_channel", "_linkstate")

    def __init__(self) -> None:
        self._linkstate: list[bytes] = []
        self._channel: deque[bytes] = deque()

    def put(self, lane: Literal["linkstate", "channel"], body: bytes) -> None:
        (self._channel if lane == CHANNEL else self._linkstate).append(body)

    def take(self, room: int) -> tuple[Literal["linkstate", "channel"], list[bytes]] | None:
        """Take the bodies to send next. Returns their lane and the list of bodies, which the caller may join; None if
        nothing waits. Bodies of link state come first. Bodies of channels have at most `room` bytes together, but the
        method takes at least one body."""
        if self._linkstate:
            bodies, self._linkstate = self._linkstate, []
            return LINKSTATE, bodies
        waiting, bodies = self._channel, []
        while waiting and (not bodies or len(waiting[0]) <= room):
            bodies.append(waiting.popleft())
            room -= len(bodies[-1])
        return (CHANNEL, bodies) if bodies else None
