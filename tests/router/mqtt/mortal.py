"""Routers that die and are started again, and that hear of each other when the dice say so."""

import sys
from random import Random

from tests.fuzz.mesh import FuzzRouter, GoodClient
from tests.router.mqtt.bench import MqttBench
from topic.settings import Settings

KILLED = "abc"
STEP_US = 1000
RESERVED_US = 1_000_000
"""How far clocks go on with each step, and at a start, which is what the router has reserved of its clock: so of two
attaches of a client the later one has the higher epoch (protocol 10)."""


class MortalBench(MqttBench):
    def __init__(self, seed: int, settings: Settings) -> None:
        super().__init__(*KILLED, "w", settings=settings)
        self.dice = Random(seed)
        self.trace: list[str] = []
        self.stores = {name: router.store for name, router in self.routers.items()}
        self.unnoticed: list[tuple[str, str]] = []
        """Who has not noticed yet that another is no more."""
        self.are_heard_out = False
        """Routers are, before they are killed."""
        self.says_all = False
        """Also what waits for something else to travel with."""
        self._lives = dict.fromkeys(KILLED, 1)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:8.3f} {text}")

    def bring(self, here: str, there: str, most: int = sys.maxsize) -> None:
        if there in self.routers:
            super().bring(here, there, most)
        else:  # it was on its way to who is no more
            self.wires[here, there].clear()

    def some_router_hears(self) -> None:
        if wires := [index for index, wire in self.wires.items() if wire and index[1] in self.routers]:
            here, there = self.dice.choice(wires)
            self.note(f"{there} hears of {here}")
            self.bring(here, there, self.dice.randint(1, 3))
            self.flow()

    def somebody_notices(self) -> None:
        if self.unnoticed:
            self.notice(self.dice.randrange(len(self.unnoticed)))

    def notice(self, nth: int) -> None:
        here, there = self.unnoticed.pop(nth)
        self.wires[there, here].clear()
        self.wires[here, there].clear()
        if here in self.routers:
            self.note(f"{here} has lost {there}")
            with self.acting(self.routers[here]):
                self.routers[here].contacts.lost(there)
            self.flow()

    def some_router_dies(self) -> None:
        name = self.dice.choice(KILLED)
        if name not in self.routers or len(self.routers) < len(self.names) - 1:
            return
        if self.are_heard_out:
            self._hear_out(name)
        self.note(f"{name} is killed")
        router = self.routers.pop(name)
        for guest in router.guests:
            if isinstance(guest, GoodClient):
                guest.engine.release()
        for other in self.routers:
            self.wires[other, name].clear()
            wire = self.wires[name, other]
            for _ in range(self.dice.randint(0, len(wire))):
                wire.pop()
            self.unnoticed.append((other, name))

    def _hear_out(self, name: str) -> None:
        self.note(f"all that {name} has said is heard")
        if self.says_all:
            with self.acting(self.routers[name]):
                self.routers[name].node.topic.outlet.batches.hurry()
                self.routers[name].node.pump()
        for other in self.routers:
            if other != name:
                self.bring(name, other)
        self.flow()

    def some_router_boots(self) -> None:
        if dead := [name for name in KILLED if name not in self.routers]:
            self.boot(self.dice.choice(dead))

    def boot(self, name: str) -> None:
        while found := [nth for nth, pair in enumerate(self.unnoticed) if name in pair]:
            self.notice(found[0])
        self._lives[name] += 1
        self.wall_us += RESERVED_US
        self.note(f"{name} is started again")
        router = self.routers[name] = FuzzRouter(self, name, self._lives[name], self.stores[name])
        self.edges[name] = self.edge(router)
        for other in self.routers:
            if other != name:
                self._meet(name, other)
        self.flow()
