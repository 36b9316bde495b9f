"""The faults of routers and of the links between them. `client` has the faults of clients."""

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.knobs import Knobs
from tests.simulation.router import Router
from tests.simulation.schedule import Schedule
from tests.simulation.wires import Wire

if TYPE_CHECKING:
    from tests.simulation.world import World


class Faults:
    def __init__(self, world: "World") -> None:
        self.random: Random = world.random
        self.knobs: Knobs = world.knobs
        self.schedule: Schedule = world.schedule
        self.routers: dict[str, Router] = world.routers
        self.wires: list[Wire] = world.wires
        self.unstarted = world.unstarted
        self._membership = world.membership
        self.calm = False
        self._note = world.note
        self._kinds = {
            "kill": self._kill,
            "kill all": self._kill_all,
            "pause": self._pause,
            "cut": self._cut,
            "cut silently": self._cut_silently,
            "stall": self._stall,
            "one-sided": self._one_sided,
            "partition": self._partition,
            "flap": self._flap,
            "slow": self._slow,
        }
        if world.sets is not None:
            self._kinds |= {"disk hangs": world.sets.hang, "disk slows": world.sets.slow_down}

    def plan(self) -> None:
        for kind in self.knobs.faults:
            self.schedule.at(0.3 + self.random.random() * (self.knobs.turmoil - 0.3), self._kinds[kind])

    def stop(self) -> None:
        """End all faults, and inject no more."""
        self._note("world", "the faults stop")
        self.calm = True
        for wire in self.wires:
            wire.heal()
        for router in self.routers.values():
            router.go_on()
            self.start(router)

    def start(self, router: Router) -> None:
        if not router.alive and router.name != self.unstarted and router.name in self._membership.wanted:
            router.boot(store=self.random.random() >= self.knobs.store_loss)

    def _after(self, most: float, action: object, *arguments: object) -> None:
        self.schedule.after(self.random.random() * most, self._unless_calm, action, arguments)

    def _unless_calm(self, action: object, arguments: tuple[object, ...]) -> None:
        if not self.calm:
            assert callable(action)
            action(*arguments)

    def _router(self) -> Router:
        return self.random.choice(list(self.routers.values()))

    def _wire(self) -> Wire:
        return self.random.choice(self.wires)

    # routers

    def _kill(self) -> None:
        self._kill_one(self._router())

    def _kill_one(self, router: Router) -> None:
        """Kill the router. Its sockets close at once, or, if its host dies with it, peers notice only by silence."""
        router.kill(self.random.choice((0.01, 0.01, 2 * self.knobs.dead)))
        if self.random.random() < self.knobs.restart:
            self._after(self.random.choice((0.05, 3.0)), self.start, router)

    def end(self, router: Router) -> None:
        """The router is told to stop, and ends."""
        self._unless_calm(self._kill_one, (router,))

    def _kill_all(self) -> None:
        self._note("world", "all routers are killed")
        for router in self.routers.values():
            self._kill_one(router)

    def _pause(self) -> None:
        router = self._router()
        if router.alive and not router.paused:
            router.pause()
            for link in list(router.links):
                if self.random.random() < 0.8:  # its clients give up when their patience ends
                    self._after(2 * self.knobs.dead, link.given_up)
            self._after(4 * self.knobs.dead, router.go_on)

    # links

    def _both(self, most: float) -> tuple[float, float]:
        return self.random.random() * most, self.random.random() * most

    def _cut(self) -> None:
        wire = self._wire()
        self._note("world", f"the link {wire.ends} is cut")
        wire.cut = True
        wire.break_off(self._both(0.05))
        self._after(3.0, wire.heal)

    def _cut_silently(self) -> None:
        wire = self._wire()
        self._note("world", f"the link {wire.ends} is cut, silently")
        wire.cut = True
        wire.break_off(self._both(3 * self.knobs.dead))
        self._after(3.0, wire.heal)

    def _stall(self) -> None:
        wire = self._wire()
        self._note("world", f"the link {wire.ends} stalls")
        wire.stall()
        self._after(3 * self.knobs.dead, wire.heal)

    def _one_sided(self) -> None:
        wire = self._wire()
        late = [0.01, 4 * self.knobs.dead]
        self.random.shuffle(late)
        self._note("world", f"the link {wire.ends} breaks for one side first: {late}")
        wire.break_off((late[0], late[1]))

    def _partition(self) -> None:
        groups = {name: self.random.randrange(2) for name in self.routers}
        self._note("world", f"partition {groups}")
        between = [wire for wire in self.wires if groups[wire.ends[0]] != groups[wire.ends[1]]]
        how = self.random.choice(("stall", "at once", "silently"))
        for wire in between:
            if how == "stall":
                wire.stall()
            else:
                wire.cut = True
                wire.break_off(self._both(0.05 if how == "at once" else 3 * self.knobs.dead))
        self._after(self.random.choice(self.knobs.apart), self._heal, between)

    def _heal(self, wires: list[Wire]) -> None:
        self._note("world", f"healed: {[wire.ends for wire in wires]}")
        for wire in wires:
            wire.heal()

    def _flap(self) -> None:
        """A router drops a contact that works."""
        router = self._router()
        if router.alive and router.topic.directory.contacts:
            there = self.random.choice(sorted(router.topic.directory.contacts))
            self._note("world", f"{router.name} takes {there} for lost")
            router.handle(router.drop, there)

    def _slow(self) -> None:
        wire, factor = self._wire(), self.random.choice((5.0, 20.0))
        self._note("world", f"the link {wire.ends} is {factor:g} times slower")
        wire.slow = factor
        self._after(4.0, wire.heal)
