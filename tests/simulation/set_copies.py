"""Asynchronous copies of the sets of a simulated mesh: operators choose them, and recover sets from them (protocol
13.4.5).

Now and then all voters of a set lose what they had of it, and an operator makes a set of a copy. In these runs leaders
send snapshots in small pieces, and replicas read few rows of a snapshot in a turn.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

import attrs

from topic.queues import replica
from topic.queues.set_map import SetPlan
from topic.raft.configuration import Configuration

if TYPE_CHECKING:
    from tests.simulation.router import Router
    from tests.simulation.sets import SetWorld
    from tests.simulation.world import World

AGAIN_S = 0.5
"""Seconds until an operator tries again to recover a set."""
PATIENCE_S = 10.0
"""Seconds after the last fault for which the operator does so."""


class SetCopies:
    """What runs with copies have more. Its random numbers are its own, so a run without copies stays the same."""

    def __init__(self, world: "World", sets: "SetWorld") -> None:
        self._world = world
        self._sets = sets
        self._random = Random(f"copies {world.seed}")
        self._count = world.knobs.copies
        self.piece = self._random.choice((1, 100, 1000)) if self._count else 1 << 30
        """The bytes, about, of a piece of a snapshot, at most."""
        self._restored = self._random.choice((1, 5, 4000))

    @contextmanager
    def slower(self) -> Iterator[None]:
        """In runs with copies: replicas read few rows of a snapshot in a turn."""
        with patch.object(replica, "RESTORED", self._restored if self._count else replica.RESTORED):
            yield

    def planned(self, plan: SetPlan, routers: Sequence[str]) -> SetPlan:
        """The plan of a named set, with fewer voters in some runs, and with copies at other routers."""
        voters = plan.voters[: self._random.choice((1, 2, 3))]
        return attrs.evolve(plan, voters=voters, copies=self.beside(voters, routers) or ())

    def beside(self, ring: Sequence[str], routers: Sequence[str]) -> tuple[str, ...] | None:
        """Draw the routers that are to keep a copy. Returns None in a run without copies."""
        if not self._count:
            return None
        others = [router for router in routers if router not in ring]
        return tuple(self._random.sample(others, min(len(others), self._random.choice((0, 1, 1, 2)))))

    def plan(self) -> None:
        turmoil, dice = self._world.knobs.turmoil, self._random
        for _ in range(self._count):
            self._world.schedule.at(0.5 + dice.random() * (turmoil - 0.5), self._choose)
        if self._count and dice.random() < 0.5:
            name = dice.choice(list(self._sets.map.plans))
            self._world.schedule.at(1.0 + dice.random() * (turmoil / 2 - 1.0), self._lose_voters, name)

    def _choose(self) -> None:
        name = self._random.choice(list(self._sets.map.plans))
        leaders = [router for router, one in self._sets.replicas(name) if one.raft.leadership is not None]
        if leaders:
            at = self._random.choice(leaders)
            assert at.node.sets is not None
            ring = at.node.sets._replicas[name].raft.log.configuration.ring
            self._sets.operators.choose_at(at, name, ring, self.beside(ring, sorted(at.mesh.plan.members)))

    # losses

    def _lose_voters(self, name: str) -> None:
        """All voters of the set lose what they had of it, if a router has a copy. They are killed."""
        if self._world.faults.calm:
            return
        known = [(one.applied, one.raft.log.configuration) for _, one in self._sets.replicas(name)]
        configuration = max(known, key=lambda one: one[0], default=(0, Configuration(())))[1]
        if not any(self._is_copy(configuration, router.name, name) for router, _ in self._sets.replicas(name)):
            self._world.schedule.after(AGAIN_S, self._lose_voters, name)
            return
        self._world.note("world", f"all voters of {name} lose what they have of it")
        for voter in configuration.voters:
            router = self._world.routers[voter.router]
            self._world.faults.end(router)
            self._sets.disks[router.name].damage(name)
        self._sets.lose([name])
        self._world.schedule.after(2 * AGAIN_S, self._recover, name)

    def _is_copy(self, configuration: Configuration, router: str, name: str) -> bool:
        """Whether this router has an asynchronous copy of some entries, and no vote."""
        sets = self._world.routers[router].node.sets
        has = sets is not None and sets._replicas[name].applied > 0
        return has and router in configuration.copies and router in [one.router for one in configuration.learners]

    def _recover(self, name: str) -> None:
        """An operator makes the set of a copy, at a router that knows no leader. The operator tries again for a while;
        later `SetOperators.end_losses` does it."""
        if name not in self._sets.is_lost or self._world.schedule.now > self._world.knobs.turmoil + PATIENCE_S:
            return
        chosen: list[Router] = [
            router
            for router, one in self._sets.replicas(name)
            if self._sets.operators.may_recover(one) and self._is_copy(one.raft.log.configuration, router.name, name)
        ]
        if chosen:
            self._world.note("operator", f"the copy at {chosen[0].name} becomes the set {name}")
            self._sets.operators.recover(self._random.choice(chosen), name)
        self._world.schedule.after(AGAIN_S, self._recover, name)
