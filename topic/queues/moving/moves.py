"""When the leader of a set hands it over by itself, and to whom (protocol 13.3).

    SetLeaders ── routers of consumers ─▶ SetMoves ── due, to whom ─▶ ReplicaSets ── hand over ─▶ Raft

| reason | the next leader | when |
| --- | --- | --- |
| the router is about to stop | the voter whose disk has most entries | at once |
| an operator has named a router | this router | as soon as it can lead |
| policy `prefer` | the first router of the ring | after it has been able to lead for a while |
| policy `follow` | the voter with most consumers, if there are none here | after a pause |
| policy `share` | the next voter with consumers, in the order of the names | after this router has led for `hold_s` |

The first reason that holds counts. A leader decides alone. If routers have different policies for a set, each leader
follows its own.

Never here: how a set is handed over (`topic.raft.leadership`).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from topic.queues.moving.policy import FOLLOW, PREFER, SHARE, MovePolicy
from topic.raft.configuration import Replica
from topic.raft.leadership import Leadership

RETRY_S: Final = 5.0
"""Seconds after which a router that is about to stop tries again to hand a set over: each try may stop the set for as
long as `RaftLimits.dead`."""
PAUSE_S: Final = 30.0
"""`FOLLOW`: seconds for which a router leads at least. Each time that the set comes back, they are doubled."""
MOST_PAUSE_S: Final = 960.0
"""The most seconds of that. A set that comes back later counts as one that comes for the first time."""
SEEN_S: Final = 10.0
"""Seconds for which a router counts as one with consumers. A consumer may be without credit for a moment."""


class SetMoves:
    """The moves of one set from this router."""

    def __init__(self, router: str, policy: MovePolicy, prefer_s: float) -> None:
        """`prefer_s`: seconds for which the preferred voter is able to lead before the set moves there."""
        self.policy = policy
        self.deadline = math.inf
        """When `take` is due; infinite if the set does not move."""
        self._router = router
        self._prefer_s = prefer_s
        self._is_ordered = False
        """Whether an operator has named the first router of the ring as the next leader."""
        self._leaves = self._stays = False
        """Whether the router is about to stop; whether all routers are, so the set stays."""
        self._led: Leadership | None = None
        self._since = -math.inf
        """When this router began to lead, or last tried to hand over."""
        self._tried_at = -math.inf
        self._seen: dict[str, tuple[float, int]] = {}
        """Keyed by router with consumers: when they were last seen, and how many."""
        self._pause = PAUSE_S
        self._moved_at = -math.inf
        """When the set last followed its consumers to another router."""

    def order(self) -> None:
        """An operator has put the router that is to lead at the beginning of the ring."""
        self._is_ordered, self.deadline = True, math.inf

    def leave(self, *, all_stop: bool) -> None:
        """The router is about to stop, or all routers of the mesh."""
        self._leaves, self._stays, self.deadline = True, all_stop, math.inf

    def is_over(self, led: Leadership | None) -> bool:
        """Whether the router is to hand the set over before it stops, and another router can lead."""
        return self._leaves and led is not None and self.target(led) is not None

    @property
    def watches(self) -> bool:
        """Whether `see` is to be called now and then."""
        return self.policy.kind != PREFER

    def see(self, routers: Iterable[str], now: float) -> None:
        """Consumers with room or deliveries are at these routers; a router is named for each of its consumers. If a
        leader is to follow its consumers, one that is here is enough to know."""
        counts: Counter[str] = Counter()
        for router in routers:
            counts[router] += 1
            if router == self._router and self.policy.kind == FOLLOW:
                break
        self._seen.update({router: (now, count) for router, count in counts.items()})
        self._seen = {router: seen for router, seen in self._seen.items() if seen[0] > now - SEEN_S}

    def follow(self, led: Leadership | None, now: float) -> None:
        """Something may have changed. `led`: None if this router does not lead."""
        if led is not self._led:
            self._led = led
            self._begin(now)
        if led is not None and led.ring[:1] == (self._router,):
            self._is_ordered = False
        if led is None or self.target(led) is None:
            self.deadline = math.inf
        elif self.deadline == math.inf:
            self.deadline = self._due(now)

    def _begin(self, now: float) -> None:
        """This router begins to lead, or leads no longer."""
        self._is_ordered, self._since, self.deadline = False, now, math.inf
        self._seen.clear()
        if self._led is not None:
            comes_back = now - self._moved_at < MOST_PAUSE_S
            self._pause = min(2 * self._pause, MOST_PAUSE_S) if comes_back else PAUSE_S
            self._moved_at = -math.inf

    def _due(self, now: float) -> float:
        if self._is_urgent:
            return max(now, self._tried_at + RETRY_S)
        if self.policy.kind == PREFER:
            return now + self._prefer_s
        return max(now, self._since + (self._pause if self.policy.kind == FOLLOW else self.policy.hold_s))

    @property
    def _is_urgent(self) -> bool:
        return self._leaves or self._is_ordered

    def take(self, led: Leadership, now: float) -> Replica | None:
        """The next leader. If it does not lead soon, there will be another deadline."""
        target = self.target(led) if not led.is_handing_over else None
        if target is not None and self.policy.kind == FOLLOW and not self._is_urgent:
            self._moved_at = now
        self._is_ordered, self._tried_at, self._since, self.deadline = False, now, now, math.inf
        return target

    def target(self, led: Leadership) -> Replica | None:
        """The router that is to lead; None if the set stays."""
        if self._leaves:
            return led.best if not self._stays else None
        if self._is_ordered or self.policy.kind == PREFER:
            return led.successor_at(led.ring[0]) if led.ring else None
        return next(filter(None, map(led.successor_at, self._wanted())), None)

    def _wanted(self) -> Iterator[str]:
        """The other routers that may lead, the best first."""
        here, others = self._router, sorted(self._seen.keys() - {self._router})
        if self.policy.kind == SHARE:
            yield from sorted(others, key=lambda router: router < here)
        elif here not in self._seen:
            yield from sorted(others, key=lambda router: -self._seen[router][1])
