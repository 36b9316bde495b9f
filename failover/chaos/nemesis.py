"""Carries out a plan: strikes each fault when its time comes, and ends the fault after its duration.

Each strike is a task. The task chooses targets among the routers, links and clients of this moment, strikes them
(`_act`), waits, and undoes the fault (`_undo`) unless another strike has undone it. A strike that finds no target is
reported and skipped.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import cast

import attrs
import trio

from failover.chaos.carrier import Impairment
from failover.chaos.clients import RunningClients
from failover.chaos.mesh import ChaosMesh, Life
from failover.chaos.script.planner import Strike
from failover.chaos.script.script import FaultLine, Script
from failover.chaos.script.targets import Field, Named, replicas_in, resolve, sides
from failover.chaos.script.vocabulary import Aim
from router.mesh.errors import RunError
from router.mesh.quantities import format_duration

READY_S = 10.0
"""The seconds after which a rolling restart goes on to the next router, even if the restarted router is not ready."""
LED_S = 30.0
"""The seconds for which a strike at the leader or a follower of a replica set waits until a router leads the set."""
LOOK_S = 0.1


@attrs.define(eq=False)
class Struck:
    """A fault that has struck."""

    number: int
    word: str
    targets: tuple[str, ...]
    text: str
    at_us: int
    options: Mapping[str, object]
    until_us: int | None = None
    open: set[str] = attrs.field(factory=set)
    """The targets at which the fault is still in force."""


def now_us() -> int:
    return time.time_ns() // 1000


class Nemesis:
    """Strikes the faults of a run. `tell` is called with a line for each fault that strikes or ends."""

    def __init__(self, script: Script, mesh: ChaosMesh, clients: RunningClients, tell: Callable[[str], None]) -> None:
        self.script = script
        self.mesh = mesh
        self.clients = clients
        self.struck: list[Struck] = []
        self._tell = tell

    @property
    def in_force(self) -> list[Struck]:
        return [struck for struck in self.struck if struck.open]

    async def run(self, plan: Sequence[Strike]) -> None:
        """Run until the time of the script is over. Faults that are then in force stay in force until `mend`."""
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            for strike in plan:
                await trio.sleep_until(started + strike.at)
                nursery.start_soon(self._inject, strike)
            await trio.sleep_until(started + self.script.duration)
            nursery.cancel_scope.cancel()

    async def mend(self) -> None:
        """Undo all faults, except wrong clocks."""
        for struck in self.in_force:
            struck.open.clear()
            struck.until_us = now_us()
        for member in self.clients.members.values():
            member.come_back()
        await self.mesh.mend()

    # The methods from here on strike, and end faults.

    async def _inject(self, strike: Strike) -> None:
        fault = strike.fault
        if fault.verb.ends:
            await self._end_others(strike)
            return
        targets, text = await self._aim(strike)
        struck_at = trio.current_time()
        if not targets:
            self._tell(f"{fault.verb.name} {fault.target or ''}: skipped, no target is available")
            return
        text += "".join(f", {name} {_shown(name, value)}" for name, value in fault.options.items())
        struck = Struck(strike.number, fault.verb.name, targets, text, now_us(), fault.options, open=set(targets))
        self.struck.append(struck)
        self._tell(text if strike.lasting is None else f"{text}, for {format_duration(strike.lasting)}")
        await self._act(struck)
        if strike.lasting is not None:
            await trio.sleep_until(struck_at + strike.lasting)
        if strike.lasting is not None or struck.word in ("restart", "rolling-restart"):
            await self._end(struck, targets)

    async def _end_others(self, strike: Strike) -> None:
        """Carry out a strike whose word ends faults (`start`, `resume`, `free`, `heal` or `restore`)."""
        verb = strike.fault.verb
        found = [struck for struck in self.in_force if struck.word in verb.ends]
        targets = {name for struck in found for name in struck.open}
        if verb.aim is not Aim.MESH:
            targets &= set((await self._aim(strike))[0])
        if not targets:
            self._tell(f"{verb.name} {strike.fault.target or ''}: skipped, no fault of this kind is in force")
        for struck in found:
            await self._end(struck, targets)

    async def _end(self, struck: Struck, names: Collection[str]) -> None:
        ended = [name for name in struck.targets if name in names and name in struck.open]
        if not ended:
            return
        struck.open.difference_update(ended)
        await self._undo(struck, ended)
        if not struck.open:
            struck.until_us = now_us()
        self._tell(f"{struck.word} {', '.join(ended)}: ended")

    # The methods from here on choose the targets.

    async def _aim(self, strike: Strike) -> tuple[tuple[str, ...], str]:
        """Return the names of the targets, and a text for the user that contains these names. Raises RunError if a
        replica set has no leader."""
        fault, random = strike.fault, strike.random()
        verb, target = fault.verb, fault.target
        voters = {one.of: await self._voters(one.of, fault) for one in replicas_in(target)}
        field = attrs.evolve(self._field(verb.aim, verb.name), voters=voters)
        if target is None:
            return tuple(field.open), verb.name
        if verb.aim is Aim.SIDES:
            parts = sides(target, field, random)
            text = " | ".join(", ".join(part) for part in parts)
            return self.mesh.links.between(parts), f"{verb.name} {text}"
        found = resolve(target, field, random)
        told = "" if isinstance(target, Named) else f" ({target})"
        return found, f"{verb.name} {', '.join(found)}{told}"

    async def _voters(self, name: str, fault: FaultLine) -> Sequence[str]:
        """Return the voters of a replica set, beginning with the leader. Raises RunError if the set gets no leader in
        time."""
        waits = False
        with trio.move_on_after(LED_S):
            while not (voters := await self.mesh.voters(name)):
                if not waits:
                    self._tell(f"{fault.verb.name} {fault.target}: waits until a router leads set {name}")
                waits = True
                await trio.sleep(LOOK_S)
            return voters
        raise RunError(
            f"{self.script.path}:{fault.line}: {fault.verb.name} {fault.target}: no router has led set {name} for "
            f"{format_duration(LED_S)}, expected a leader, which needs a majority of its voters in contact"
        )

    def _field(self, aim: Aim, word: str) -> Field:
        mesh, sets, seats = self.mesh, self.script.sets, self.clients.routers_of_clients
        if aim is Aim.CLIENTS:
            return Field(list(self.clients.members), self.clients.running, self.script.groups)
        if aim is Aim.LINKS:
            links = mesh.links
            of_routers = {name: links.of([name]) for name in mesh.routers}
            groups = {**of_routers, **{name: links.of(members) for name, members in sets.items()}}
            return Field(links.names, links.names, groups, seats)
        if aim is Aim.SIDES:
            return Field(mesh.routers, mesh.routers, sets, seats)
        return Field(mesh.routers, mesh.routers_in_state(*_OPEN.get(word, (Life.UP,))), sets, seats)

    # The methods from here on carry out the words of a script.

    async def _act(self, struck: Struck) -> None:
        mesh, targets = self.mesh, struck.targets
        match struck.word:
            case "kill" | "kill-all":
                await mesh.kill(targets)
            case "lose-state":
                await mesh.kill(targets)
                mesh.forget(targets)
            case "power-cut":
                await mesh.cut_power(targets)
            case "disk-full":
                mesh.fill_disks(targets)
            case "restart":
                await mesh.stop(targets)
            case "drain":
                async with trio.open_nursery() as nursery:
                    for name in targets:
                        nursery.start_soon(mesh.drain, name)
            case "rolling-restart":
                await self._roll(targets)
            case "skew":
                await self._set_clocks(targets, cast(float, struck.options["by"]))
            case "pause":
                mesh.pause(targets)
            case "crash-client":
                for name in targets:
                    self.clients.members[name].leave()
            case word:
                mesh.links.impair(struck.number, targets, condition_of(word, struck.options))

    async def _undo(self, struck: Struck, names: Sequence[str]) -> None:
        mesh = self.mesh
        match struck.word:
            case "kill" | "kill-all" | "lose-state" | "power-cut" | "restart" | "drain":
                mesh.start([name for name in names if mesh.lives[name] is Life.DOWN])
            case "disk-full":
                mesh.empty_disks(names)
            case "rolling-restart":
                # There is nothing to undo, because the strike has already started all its routers again.
                pass
            case "skew":
                await self._set_clocks(names, 0.0)
            case "pause":
                mesh.resume([name for name in names if mesh.lives[name] is Life.PAUSED])
            case "crash-client":
                for name in names:
                    self.clients.members[name].come_back()
            case _:
                mesh.links.mend(struck.number, names)

    async def _roll(self, names: Sequence[str]) -> None:
        for name in names:
            if self.mesh.lives[name] is Life.UP:
                await self.mesh.drain(name)
                self.mesh.start([name])
                await self.mesh.ready(name, READY_S)

    async def _set_clocks(self, names: Collection[str], offset: float) -> None:
        """Set the clocks of routers. A process reads the setting of its clock only when it starts. So this method
        restarts routers that are up. A router that is down gets the clock when another strike starts it."""
        for name in names:
            self.mesh.set_clock(name, offset)
        running = [name for name in names if self.mesh.lives[name] is Life.UP]
        await self.mesh.stop(running)
        self.mesh.start(running)


# For some words, the states in which the word can strike a router. All other words strike only routers that are up.
_OPEN: Mapping[str, tuple[Life, ...]] = {
    "kill": (Life.UP, Life.PAUSED),
    "kill-all": (Life.UP, Life.PAUSED),
    "lose-state": (Life.UP, Life.PAUSED),
    "power-cut": (Life.UP, Life.PAUSED),
    "free": tuple(Life),
    "start": (Life.DOWN,),
    "resume": (Life.PAUSED,),
}


def condition_of(word: str, options: Mapping[str, object]) -> Impairment:
    """The impairment of a link that a word of a script and its options describe."""
    if word == "cut" and options.get("how") == "reset":
        return Impairment(severed=True)
    if word in ("cut", "partition"):
        return Impairment(silent=True)
    if word == "slow":
        return Impairment(latency=cast(float, options["latency"]), jitter=cast(float, options.get("jitter", 0.0)))
    if word == "narrow":
        return Impairment(rate=cast(float, options["rate"]))
    if word == "lossy":
        return Impairment(loss=cast(float, options["loss"]))
    return Impairment(resets=cast(float, options["resets"]))


def _shown(option: str, value: object) -> str:
    """The value of an option, as a script writes it."""
    if not isinstance(value, float):
        return str(value)
    if option == "rate":
        return f"{value / 1e6:g}MB/s"
    if option == "loss":
        return f"{100 * value:g}%"
    return f"{value:g}/s" if option == "resets" else f"{'-' if value < 0 else ''}{format_duration(abs(value))}"
