"""Chooses the routers that get replicas when `oncemesh apply` or `remove` lets routers come and go (protocol 11, 13.4).

A router never moves replicas by itself, because routers may read a topology at different times. The operator's command
moves them: it gives a new ring to each replica set that has to change, one set after the other. The leader of the set
then changes one voter at a time.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import attrs

from failover.cli.watch.known_queues import set_named
from failover.cli.watch.replica_sets import choose_voters
from failover.client.management import Management
from router.mesh.config import Topology
from router.mesh.errors import RunError
from router.mesh.shown.sets import ShownSet, why_kept


@attrs.frozen
class WantedSets:
    """The operator's wishes for the replica sets."""

    stays: Sequence[str]
    """The routers that may have replicas."""
    gone: Collection[str] = ()
    """The routers that leave the mesh."""
    replicas: int = 0
    """The least number of voters of a hashed set. If the mesh has fewer routers, all of them are voters."""
    named: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """For each named set whose voters the operator has chosen, these voters."""
    copies: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """Maps each set of `named` to the routers that are to keep an asynchronous copy."""
    forced: bool = False
    """Whether the routers of `gone` do not run. If a set has a majority without such a router, the router may leave
    although it stays a voter of the set in name."""

    @classmethod
    def of(cls, wanted: Topology, former: Topology, gone: Collection[str]) -> "WantedSets":
        """Read the wanted sets from a new topology file. If a named set is the same in the new file and in the former
        one, the set keeps its present voters."""
        if wanted.queues is None or former.queues is None:
            return cls([*wanted.routers], gone)
        changed = [one for one in wanted.queues.named if one not in former.queues.named]
        named, copies = {one.name: one.ring for one in changed}, {one.name: one.copies for one in changed}
        return cls([*wanted.routers], gone, wanted.queues.replicas, named, copies)

    def copies_of(self, one: ShownSet) -> list[str]:
        """The routers that are to keep an asynchronous copy of the set."""
        copies = self.copies.get(one.name, one.copies)
        return [router for router in copies if router not in self.gone]


def new_rings(sets: Collection[ShownSet], wanted: WantedSets) -> dict[str, list[str]]:
    """Return the new ring of each set whose replicas have to change. The router with the fewest replicas takes the
    place of one that leaves. Raises RunError if a set needs a router that leaves."""
    begun = [one for one in sets if one.has_begun]
    held = Counter(router for one in begun for router in one.ring)
    rings, short = dict[str, list[str]](), list[ShownSet]()
    for one in begun:
        ring = _ring(one, wanted, held)
        held.update(router for router in ring if router not in one.ring)
        leaves = any(one.has(router) for router in wanted.gone)
        if leaves and one.name not in wanted.named and len(ring) < len(one.ring):
            short.append(one)
        elif leaves or {*ring} != {*one.ring} or {*wanted.copies_of(one)} != {*one.copies}:
            rings[one.name] = ring
    whys = [why_kept(short, router, wanted.stays, forced=wanted.forced) for router in wanted.gone]
    if any(whys):
        raise RunError("; ".join(filter(None, whys)))
    return rings


def _ring(one: ShownSet, wanted: WantedSets, held: Mapping[str, int]) -> list[str]:
    """Return the new ring of one set. `held` has, for each router, how many sets it has."""
    if one.name in wanted.named:
        return list(wanted.named[one.name])
    ring = [router for router in one.ring if router not in wanted.gone]
    is_to_grow = not one.best["prefix"] and one.leader is not None
    count = max(len(one.ring), wanted.replicas if is_to_grow else 0)
    free = sorted((router for router in wanted.stays if router not in ring), key=lambda router: held.get(router, 0))
    return ring + free[: count - len(ring)]


async def move_replicas(management: Management, rings: Mapping[str, Sequence[str]], wanted: WantedSets) -> None:
    """Give each of these sets its new voters and copies, one set after the other. Raises RunError if a set cannot
    change."""
    for name, ring in rings.items():
        known = await set_named(management, name)
        copies = [router for router in wanted.copies_of(known) if router not in ring]
        await choose_voters(management, known, ring, copies)
