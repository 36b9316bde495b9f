"""A mesh that grows and shrinks (protocol 11): operators at some routers, and routers that follow the plan.

An operator knows only what its router knows. Two operators on the two sides of a partition change the plan
independently.
"""

from random import Random
from typing import TYPE_CHECKING

from linkstate.plan.plan import Plan, Standing
from tests.plans import of
from tests.store import MemoryStore

if TYPE_CHECKING:
    from tests.simulation.router import Router
    from tests.simulation.world import World

TIDY_S = 1.0
COSTS = (1, 1, 3, 5)


class Membership:
    """Changes the plan. Its random numbers are its own, so a run without changes of the plan stays the same."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = Random(f"plan {world.seed}")
        self.wanted = list(world.routers)[: world.knobs.routers]
        """Routers that are to run, according to the operators."""
        self._changes = {"join": self._join, "leave": self._leave, "costs": self._change_costs}

    def file(self) -> Plan:
        """The plan in the routers' topology files."""
        costs = {wire.ends: wire.cost for wire in self._world.wires if set(wire.ends) <= set(self.wanted)}
        return of(self.wanted, costs)

    def plan(self) -> None:
        knobs, schedule = self._world.knobs, self._world.schedule
        for change in knobs.changes:
            schedule.at(0.3 + self._random.random() * (knobs.turmoil - 0.3), self._changes[change])

    def tidy(self) -> None:
        """After the faults, remove routers by force that were killed while they left."""
        for at in self._operators():
            dead = [name for name in sorted(at.mesh.plan.listed) if not self._world.routers[name].alive]
            gone = [name for name in dead if at.mesh.plan.routers[name].standing is Standing.LEAVING]
            if gone:
                self._apply(at, sorted(at.mesh.plan.members), forced=gone)
                break
        self._world.schedule.after(TIDY_S, self.tidy)

    def _operators(self) -> "list[Router]":
        return [router for router in self._world.routers.values() if router.admits]

    def _apply(self, at: "Router", names: list[str], forced: list[str] | None = None, *, costs: bool = False) -> None:
        plan, wires = at.mesh.plan, [wire for wire in self._world.wires if set(wire.ends) <= set(names)]
        known = {wire.ends: plan.links[wire.ends].cost for wire in wires if wire.ends in plan.links}
        wanted = {
            ends: self._random.choice(COSTS) if costs else known.get(ends) or 1
            for ends in (wire.ends for wire in wires)
        }
        self._world.note("operator", f"at {at.name}: {names}, {wanted}, by force {forced}")
        file = of(names, wanted)
        for name in names:  # no router starts with a file that does not list it
            self._world.routers[name].file = file  # the router starts with it if its store is lost
        at.handle(at.replan, file, forced or [])

    def _join(self) -> None:
        """Let a router join: a new one, or one that has left."""
        operators = self._operators()
        fresh = [router for name, router in self._world.routers.items() if name not in self.wanted and not router.alive]
        if not (operators and fresh):
            return
        at, router = self._random.choice(operators), self._random.choice(fresh)
        if router.name in at.mesh.plan.listed:
            return  # it is still leaving
        self.wanted.append(router.name)
        self._apply(at, sorted({*at.mesh.plan.members, router.name}))
        router.store = MemoryStore()
        router.incarnation = max(router.incarnation, at.wall_us() // 1000, *self._times())
        router.boot(store=True, joins=True)

    def _times(self) -> list[int]:
        return [time for router in self._operators() for time in router.mesh.plan.times_ms()]

    def _leave(self) -> None:
        """Let a router leave, unless few are left, or the others would not reach each other."""
        operators = self._operators()
        if len(self.wanted) <= 2 or not operators:
            return
        at = self._random.choice(operators)
        members = sorted(at.mesh.plan.members)
        name = self._random.choice(members)
        rest = [member for member in members if member != name]
        sets = self._world.sets
        if sets is not None and sets.operators.is_kept(name):
            return
        if name in self.wanted and at.name != name and self._connected(rest):
            self.wanted.remove(name)
            self._apply(at, rest)

    def _change_costs(self) -> None:
        operators = self._operators()
        if operators:
            at = self._random.choice(operators)
            self._apply(at, sorted(at.mesh.plan.members), costs=True)

    def _connected(self, names: list[str]) -> bool:
        reached, pairs = {names[0]}, [wire.ends for wire in self._world.wires]
        for _ in names:
            reached |= {end for pair in pairs for end in pair if reached & set(pair) and set(pair) <= set(names)}
        return reached >= set(names)
