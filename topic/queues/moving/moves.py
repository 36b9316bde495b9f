"""Decides when the leader of a set hands its leadership over by itself, and to which router (protocol 13.3).

    SetLeaders ── routers of consumers ─▶ SetMoves ── due, to whom ─▶ ReplicaSets ── hand over ─▶ Raft

| reason | the next leader | when |
| --- | --- | --- |
| the router is about to stop | the voter whose disk has most entries | at once |
| an operator has named a router | the named router | as soon as it can lead |
| policy `prefer` | the first router of the ring | after it has been able to lead for a while |
| policy `follow` | the voter with most consumers, if this router has none | after a pause |
| policy `share` | the next voter with consumers, in the order of the names | after this router has led for `hold_s` |

If several reasons hold, the first one in this table counts. A leader decides alone. If routers have different policies
for a set, each leader follows its own policy. `topic.raft.leadership` hands the leadership over.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from topic.queues.moving.policy import FOLLOW, PREFER, SHARE, MovePolicy
from topic.raft.configuration import Replica
from topic.raft.leadership import Leadership

RETRY_S: Final = 5.0
"""The seconds after which a router that is about to stop tries to hand a set over again. It does not try more often,
because each try may stop the set for as long as `RaftLimits.dead`."""
PAUSE_S: Final = 30.0
"""With policy `follow`, a router leads for at least this many seconds. The time doubles each time the set comes back to
it."""
MOST_PAUSE_S: Final = 960.0
"""The highest value to which the time in `PAUSE_S` grows, in seconds. If a set comes back only after this time, the
router leads for `PAUSE_S` again."""
SEEN_S: Final = 10.0
"""The seconds for which a router counts as having consumers after one was seen, because a consumer may be without
credit for a moment."""


class SetMoves:
    """Decides when the leadership of one set moves away from this router."""

    def __init__(self, router: str, policy: MovePolicy, prefer_s: float) -> None:
        """`prefer_s`: the seconds for which the preferred voter has to be able to lead before the set moves to it."""
        self.policy = policy
        self.deadline = math.inf
        """When `take` is due; infinite if the set does not move away."""
        self._router = router
        self._prefer_s = prefer_s
        self._is_ordered = False
        """Whether an operator has ordered that the first router of the ring leads next."""
        self._leaves = self._stays = False
        """`_leaves`: whether this router is about to stop. `_stays`: whether all routers are about to stop, so that the
        set stays."""
        self._led: Leadership | None = None
        self._since = -math.inf
        """When this router began to lead, or last tried to hand over."""
        self._tried_at = -math.inf
        self._seen: dict[str, tuple[float, int]] = {}
        """Maps each router with consumers to the time when the consumers were last seen, and to their number at that
        time."""
        self._pause = PAUSE_S
        self._moved_at = -math.inf
        """When the set last followed its consumers to another router."""

    def order(self) -> None:
        """Handle an operator's change of the ring: the first router of the ring is to lead next."""
        self._is_ordered, self.deadline = True, math.inf

    def leave(self, *, all_stop: bool) -> None:
        """This router is about to stop. `all_stop`: whether all routers of the mesh are about to stop."""
        self._leaves, self._stays, self.deadline = True, all_stop, math.inf

    def is_over(self, led: Leadership | None) -> bool:
        """Whether this router has to hand the set over before it stops, and another router is able to lead."""
        return self._leaves and led is not None and self.target(led) is not None

    @property
    def watches(self) -> bool:
        """Whether the policy depends on the consumers. If so, `see` has to be called from time to time."""
        return self.policy.kind != PREFER

    def see(self, routers: Iterable[str], now: float) -> None:
        """Count the consumers with room or deliveries at each router. `routers`: for each such consumer, its router.
        With policy `follow`, the set stays if this router has such a consumer, so the method then reads no further."""
        counts: Counter[str] = Counter()
        for router in routers:
            counts[router] += 1
            if router == self._router and self.policy.kind == FOLLOW:
                break
        self._seen.update({router: (now, count) for router, count in counts.items()})
        self._seen = {router: seen for router, seen in self._seen.items() if seen[0] > now - SEEN_S}

    def follow(self, led: Leadership | None, now: float) -> None:
        """Compute the deadline again, because another replica may lead, or the members may have changed. `led`: None if
        this router does not lead."""
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
        """Reset the times and the counts of consumers, because this router has begun or ceased to lead. Forget an
        order."""
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
        """The router to which this router hands over now; None if it hands over to none. If that router does not lead
        soon, this router tries again at a later deadline."""
        target = self.target(led) if not led.is_handing_over else None
        if target is not None and self.policy.kind == FOLLOW and not self._is_urgent:
            self._moved_at = now
        self._is_ordered, self._tried_at, self._since, self.deadline = False, now, now, math.inf
        return target

    def target(self, led: Leadership) -> Replica | None:
        """The router that is to lead next; None if the set stays."""
        if self._leaves:
            return led.best if not self._stays else None
        if self._is_ordered or self.policy.kind == PREFER:
            return led.successor_at(led.ring[0]) if led.ring else None
        return next(filter(None, map(led.successor_at, self._wanted())), None)

    def _wanted(self) -> Iterator[str]:
        """The names of the other routers that could lead, the best one first."""
        here, others = self._router, sorted(self._seen.keys() - {self._router})
        if self.policy.kind == SHARE:
            yield from sorted(others, key=lambda router: router < here)
        elif here not in self._seen:
            yield from sorted(others, key=lambda router: -self._seen[router][1])
