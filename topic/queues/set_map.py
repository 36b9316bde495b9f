"""The replica sets of a mesh: which set has a queue, and which routers a set has (protocol 13.2).

A queue belongs to the first named set whose prefix the queue's name has, or else to a hashed set, chosen by the hash of
the name. This map never changes during the life of a mesh: a set keeps the digest of the map, and ignores routers with
another map.

A set begins with the routers of its plan. After that, its own log says which routers are its voters, whatever routers
join or leave the mesh.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import msgpack

from topic.queues.moving.policy import PREFERS, MovePolicy

DIGEST: Final = 16
"""The number of bytes of the digest of the map."""


@attrs.frozen(slots=True)
class SetPlan:
    """The plan of one replica set: the routers with which the set begins."""

    name: str
    voters: tuple[str, ...]
    """The routers that are to be voters, in order of preference."""
    prefix: str = ""
    """The prefix of the names of the set's queues; empty for a hashed set."""
    policy: MovePolicy = PREFERS
    copies: tuple[str, ...] = ()
    """The routers that are to keep an asynchronous copy of the set."""


class SetMap:
    """All replica sets of a mesh."""

    def __init__(self, plans: Sequence[SetPlan], prefixes: Sequence[str] = ("",), replicas: int = 3) -> None:
        """`plans`: the named sets, in the order in which their prefixes are tried, then the hashed sets. `prefixes`:
        the name of a queue begins with one of these. `replicas`: the number of routers of a hashed set; a smaller mesh
        has all its routers in each hashed set."""
        self._replicas = replicas
        self.plans = {plan.name: plan for plan in plans}
        self._named = [plan for plan in plans if plan.prefix]
        self._hashed = [plan for plan in plans if not plan.prefix]
        self.prefixes = tuple(prefixes if self._hashed else [plan.prefix for plan in self._named])
        """The prefixes of all names that a queue may have."""
        packed = msgpack.packb([[[plan.name, plan.prefix] for plan in some] for some in (self._named, self._hashed)])
        self.digest = hashlib.blake2b(packed, digest_size=DIGEST).digest()

    def among(self, routers: Iterable[str]) -> "SetMap":
        """The same map for a mesh of these routers. All routers of the mesh take the names from the plan. So hashed
        sets have the same voters everywhere, even if a router's topology file is old."""
        hashed = hashed_plans(sorted(routers), len(self._hashed), self._replicas)
        return SetMap([*self._named, *hashed], self.prefixes, self._replicas)

    def plan_of(self, queue: str) -> SetPlan | None:
        """The plan of the set that has a queue of this name; None if no set may have it."""
        if not queue.startswith(self.prefixes):
            return None
        for plan in self._named:
            if queue.startswith(plan.prefix):
                return plan
        number = int.from_bytes(hashlib.blake2b(queue.encode(), digest_size=8).digest())
        return self._hashed[number % len(self._hashed)]


def hashed_plans(routers: Iterable[str], sets: int, replicas: int) -> list[SetPlan]:
    """Make the plans of the hashed sets `q0`, `q1` and so on. Set number i has its replicas at routers i, i + 1, …, in
    the given order."""
    ring = list(routers)
    count = min(replicas, len(ring))
    return [SetPlan(f"q{i}", tuple(ring[(i + n) % len(ring)] for n in range(count))) for i in range(sets)]
