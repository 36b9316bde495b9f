"""Decides whether the link to a neighbour works (protocol 3, layer 1).

    DOWN ──link_up──▶ SILENT ──HELLO──▶ ONE_WAY ──HELLO that names us──▶ UP
      ▲                 ▲                  │  ▲                          │
      │                 └─ silence > dead ─┴──┼───── silence > dead ─────┤
      └── link_down, from any state           └─ HELLO that does not ────┘
                                                 name us, or of another
                                                 incarnation

A link counts only when it is UP, that is, when both sides hear each other. Any bytes count as a sign of life, but only
a HELLO brings a silent neighbour back, because only a HELLO names the sender's incarnation. This module sends nothing:
it only says when a HELLO is due.
"""

from enum import Enum
from math import inf

from linkstate.mesh_actions import Loss


class NeighbourState(Enum):
    DOWN = "down"  # there is no transport
    # There is a transport, but the neighbour was never heard on it, or was not heard for `dead` seconds.
    SILENT = "silent"
    ONE_WAY = "one way"  # this router hears the neighbour, which has not said that it hears this router
    UP = "up"


class Neighbour:
    """The state of the link to one neighbour in the plan."""

    def __init__(self, name: str, cost: int = 1, *, hello: float, dead: float) -> None:
        assert cost >= 1 and 0 < hello < dead
        self.name = name
        self.cost = cost
        self.state = NeighbourState.DOWN
        self.since = 0.0  # the time when the present state began
        self.incarnation = 0  # the neighbour's incarnation, as last heard on this transport
        self.cause = Loss.CLOSED  # the cause for which the link was last lost
        self.reason = "the link has not come up yet"  # the same cause as a sentence for the log
        self.hello_at = inf  # the time when the next HELLO is due
        self._lost_at = inf
        self._hello = hello
        self._dead = dead

    @property
    def up(self) -> bool:
        return self.state is NeighbourState.UP

    @property
    def connected(self) -> bool:
        return self.state is not NeighbourState.DOWN

    @property
    def heard(self) -> int:
        """The neighbour's incarnation that this router hears at present; 0 if it hears none. This router's HELLO
        carries this value."""
        return self.incarnation if self.state in (NeighbourState.ONE_WAY, NeighbourState.UP) else 0

    def link_up(self, now: float) -> None:
        """Begin to use a new transport. Bytes that came on a former transport no longer count."""
        self.link_down(now)
        self._enter(NeighbourState.SILENT, now)
        self.hello_at = now

    def link_down(self, now: float) -> None:
        self._fall(NeighbourState.DOWN, now, Loss.CLOSED, f"the connection to router {self.name} ended")
        self.incarnation = 0
        self.hello_at = self._lost_at = inf

    def hello_sent(self, now: float) -> None:
        self.hello_at = now + self._hello

    def receive_hello(self, incarnation: int, hears_us: bool, now: float) -> None:
        assert self.connected
        if incarnation < self.incarnation:
            return  # the HELLO is from an earlier incarnation than the known one
        if incarnation != self.heard:
            self._fall(NeighbourState.ONE_WAY, now, Loss.RESTARTED, f"router {self.name} was started again")
            self.incarnation = incarnation
            self.hello_at = now  # send a HELLO, because the neighbour has to learn at once that this router hears it
        self._lost_at = now + self._dead
        if hears_us:
            self._enter(NeighbourState.UP, now)
        else:
            self._fall(
                NeighbourState.ONE_WAY, now, Loss.UNHEARD, f"router {self.name} receives nothing from this router"
            )

    def receive_traffic(self, now: float) -> bool:
        """Bytes have come from the neighbour that are not a complete HELLO. Returns False if the neighbour's
        incarnation is unknown; the caller then ignores the bytes."""
        if not self.heard:
            return False
        self._lost_at = now + self._dead
        return True

    def handle_timer(self, now: float) -> None:
        if now >= self._lost_at:
            self._fall(NeighbourState.SILENT, now, Loss.SILENT, f"router {self.name} was silent for {self._dead:g} s")
            self._lost_at = inf

    def deadline(self) -> float:
        return self.hello_at if self.hello_at < self._lost_at else self._lost_at

    def _fall(self, state: NeighbourState, now: float, cause: Loss, reason: str) -> None:
        """Enter a state below UP. If the link was UP, remember the cause and the reason. Otherwise keep the earlier
        cause, for which the link was lost."""
        if self.up:
            self.cause, self.reason = cause, reason
        self._enter(state, now)

    def _enter(self, state: NeighbourState, now: float) -> None:
        if state is not self.state:
            self.state = state
            self.since = now
