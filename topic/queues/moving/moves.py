"""When the leader of a set hands it over by itself, and to whom (protocol 13.3).

    SetMoves ── due, to whom ─▶ ReplicaSets ── hand over ─▶ Raft

| reason | the next leader | when |
| --- | --- | --- |
| the router is about to stop | the voter whose disk has most | at once |
| an operator has named a router | this router | at once |
| another router is preferred | the first router of the ring | after it has been able to lead for a while |

The first reason that holds counts.

Never here: how a set is handed over (`topic.raft.leadership`). A leader decides alone, by what it knows.
"""

import math
from typing import Final

from topic.raft.configuration import Replica
from topic.raft.leadership import Leadership

RETRY_S: Final = 5.0
"""Seconds after which a router that is about to stop tries again to hand a set over: each try may stop the set for as
long as `RaftLimits.dead`."""


class SetMoves:
    """The moves of one set from this router."""

    def __init__(self, prefer_s: float) -> None:
        """`prefer_s`: seconds for which the preferred voter is able to lead before the set moves there."""
        self.deadline = math.inf
        """When `take` is due; infinite if the set does not move."""
        self._prefer_s = prefer_s
        self._is_ordered = False
        """An operator has named a router as the next leader, the first one of the ring."""
        self._leaves = self._stays = False
        """The router is about to stop; all routers are, so the set stays."""
        self._tried_at = -math.inf

    def order(self) -> None:
        """An operator has put the router that is to lead at the beginning of the ring."""
        self._is_ordered, self.deadline = True, math.inf

    def leave(self, *, all_stop: bool) -> None:
        """The router is about to stop, or all routers of the mesh."""
        self._leaves, self._stays, self.deadline = True, all_stop, math.inf

    def is_over(self, led: Leadership | None) -> bool:
        """Whether the router is to hand the set over before it stops, and another router can lead."""
        return self._leaves and led is not None and self.target(led) is not None

    def follow(self, led: Leadership | None, now: float) -> None:
        """Something may have changed. `led`: None if this router does not lead."""
        if led is None:
            self._is_ordered = False
        if led is None or self.target(led) is None:
            self.deadline = math.inf
        elif self.deadline == math.inf:
            is_urgent = self._leaves or self._is_ordered
            self.deadline = max(now, self._tried_at + RETRY_S) if is_urgent else now + self._prefer_s

    def take(self, led: Leadership, now: float) -> Replica | None:
        """The next leader. If it does not lead soon, there will be another deadline."""
        target = self.target(led) if not led.is_handing_over else None
        self._is_ordered, self._tried_at, self.deadline = False, now, math.inf
        return target

    def target(self, led: Leadership) -> Replica | None:
        """The router that is to lead; None if the set stays."""
        if self._leaves:
            return led.best if not self._stays else None
        return led.successor_at(led.ring[0]) if led.ring else None
