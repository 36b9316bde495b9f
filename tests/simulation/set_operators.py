"""Operators of replica sets in a simulated mesh: they choose voters, begin sets anew, and recover them (protocol 13).

The operators know the state of all routers and disks: the commands ask every router before they act, and refuse harmful
steps. Some operators recover a set that is not lost, at a router that knows no leader: then entries may be lost, and
nothing else.
"""

import contextlib
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from topic.queues.replica import SetReplica
from topic.raft.errors import BusyError, NotLeaderError, NotReadyError

if TYPE_CHECKING:
    from tests.simulation.router import Router
    from tests.simulation.sets import SetWorld
    from tests.simulation.world import World


class SetOperators:
    """Runs commands on sets. Its random numbers are its own, so a run without operators stays the same."""

    def __init__(self, world: "World", sets: "SetWorld") -> None:
        self._world = world
        self._sets = sets
        self._random = Random(f"operators {world.seed}")
        self.begun_anew: set[str] = set()
        """Sets that an operator has asked to begin anew."""

    def plan(self) -> None:
        knobs, dice = self._world.knobs, self._random
        times = [0.5 + dice.random() * (knobs.turmoil - 0.5) for _ in range(knobs.voters)]
        for at in times:
            self._world.schedule.at(at, self._choose_voters)
        leaving = Random(f"leaving {self._world.seed}")
        for _ in range(knobs.leaving):
            name = leaving.choice(sorted(self._world.routers))
            stays = leaving.choice((0.05, 0.5, 3.0, 30.0)) * leaving.random()
            self._world.schedule.at(0.5 + leaving.random() * (knobs.turmoil - 0.5), self._leave, name, stays)
        if times and dice.random() < knobs.rash:
            self._world.schedule.at(0.5 + dice.random() * (knobs.turmoil - 0.5), self._recover_rashly)

    def _command(self, router: "Router", command: "Callable[[Router], None]") -> None:
        """Run the command at the router, which may refuse it."""
        router.handle(self._carry_out, router, command)

    @staticmethod
    def _carry_out(router: "Router", command: "Callable[[Router], None]") -> None:
        with contextlib.suppress(NotLeaderError, BusyError, NotReadyError, ValueError):
            command(router)

    def _leave(self, name: str, stays: float) -> None:
        """The router is about to stop, and stops after a while, if there are faults yet."""
        router, schedule = self._world.routers[name], self._world.schedule
        self._world.note("operator", f"{name} is about to stop")
        router.handle(lambda: router.node.sets.leave(schedule.now))  # type: ignore[union-attr]
        schedule.after(stays, self._world.faults.end, router)

    # voters

    def _choose_voters(self) -> None:
        self._choose(self._random.choice(list(self._sets.map.plans)))

    def _choose(self, name: str, without: str = "") -> None:
        """Choose other voters for the set, at a router that leads it."""
        leaders = [router for router, replica in self._sets.replicas(name) if replica.raft.leadership is not None]
        if not leaders:
            return
        at = self._random.choice(leaders)
        members = sorted(at.mesh.plan.members - {without})
        ring = self._random.sample(members, min(len(members), self._random.choice((1, 2, 3, 3, 3, 5))))
        self.choose_at(at, name, ring, self._sets.copies.beside(ring, members))

    def choose_at(self, at: "Router", name: str, ring: Sequence[str], copies: Sequence[str] | None) -> None:
        """Choose the voters of a set, and the routers with an asynchronous copy, at a router that leads it. `copies`:
        None to keep the present ones."""
        beside = f", with copies at {copies}" if copies is not None else ""
        self._world.note("operator", f"at {at.name}: the voters of {name} are to be {ring}{beside}")
        self._command(at, lambda at: self._choose_at(at, name, ring, copies))

    def _choose_at(self, at: "Router", name: str, ring: Sequence[str], copies: Sequence[str] | None) -> None:
        assert at.node.sets is not None
        if at.mesh.plan.members.issuperset((*ring, *(copies or ()))):
            at.node.sets.choose(name, ring, self._world.schedule.now, copies)

    def is_kept(self, router: str) -> bool:
        """Whether the router may not leave the mesh, as it is, or is to be, a voter of a set (`why_kept`). If so, other
        voters are chosen, so that it may leave later."""
        kept = [name for name in self._sets.map.plans if self._has(name, router)]
        for name in kept:
            self._choose(name, without=router)
        return bool(kept)

    def _has(self, name: str, router: str) -> bool:
        known = [replica.raft.log.configuration for _, replica in self._sets.replicas(name)]
        known += self._sets.configurations(name)
        return any(router in (*one.ring, *one.copies, *(member.router for member in one.members)) for one in known)

    # losses

    def end_losses(self) -> bool:
        """The faults are long over: begin sets anew that cannot begin, and recover sets that no router can lead.
        Returns whether a set was to begin: the command may be refused."""
        begins = [name for name in self._sets.map.plans if self._begin_anew(name)]
        for name in self._sets.map.plans:
            if name in self._sets.is_lost:
                self._recover_the_best(name)
        return bool(begins)

    def _begin_anew(self, name: str) -> bool:
        """An operator ends a beginning that cannot be completed, as a store that it names is gone (13.2)."""
        parts = [disk.store.parts[name] for disk in self._sets.disks.values()]
        if any(part.hard.begun for part in parts) or not any(part.hard.life for part in parts):
            return False
        plans = [replica.plan for _, replica in self._sets.replicas(name)]
        router = self._world.routers[plans[0].voters[0]]
        self._world.note("operator", f"begins set {name} anew at {router.name}")
        self._command(router, lambda at: at.node.sets.begin_anew(name))  # type: ignore[union-attr]
        self.begun_anew.add(name)
        return True

    def _recover_rashly(self) -> None:
        name = self._random.choice(list(self._sets.map.plans))
        chosen = [router for router, replica in self._sets.replicas(name) if self.may_recover(replica)]
        if chosen:
            self.recover(self._random.choice(chosen), name)
        elif self._world.schedule.now < self._world.knobs.turmoil:
            self._world.schedule.after(0.2, self._recover_rashly)

    @staticmethod
    def may_recover(replica: SetReplica) -> bool:
        """Whether the command to recover is not refused at this replica."""
        raft = replica.raft
        return raft.leader is None and raft.hard.begun and not raft.why_aside

    def _recover_the_best(self, name: str) -> None:
        """If no router leads, recover the set at the router whose log is the most up to date."""
        known = list(self._sets.replicas(name))
        chosen = [(router, replica.raft) for router, replica in known if self.may_recover(replica)]
        if chosen and all(replica.raft.leadership is None for _, replica in known):
            self.recover(
                max(chosen, key=lambda one: (one[1].hard.life, one[1].log.last_term, one[1].log.last))[0], name
            )

    def recover(self, router: "Router", name: str) -> None:
        """Make the store of this router the set. The command may be refused."""
        self._world.note("operator", f"recovers set {name} from {router.name}")
        self._command(router, lambda at: self._recover_at(at, name))

    def _recover_at(self, at: "Router", name: str) -> None:
        sets = at.node.sets
        assert sets is not None
        former = sets._replicas[name].raft.hard.life
        sets.recover(name, self._world.schedule.now)
        self._sets.recovered(name, former, sets._replicas[name])
