"""Routers that die and start again, lose contacts, and get each other's payloads when the dice say so."""

import sys
from random import Random

from tests.fuzz.mesh import FuzzRouter, GoodClient
from tests.router.mqtt.bench import MqttBench
from topic.settings import Settings

KILLED = "abc"
STEP_US = 1000
RESERVED_US = 1_000_000
"""How far clocks advance with each step, and at a start, where the router has reserved that much of its clock. So of
two attaches of a client the later one has the higher epoch (protocol 10)."""


class MortalBench(MqttBench):
    def __init__(self, seed: int, settings: Settings) -> None:
        self.unnoticed: list[tuple[str, str]] = []
        """(router, other): the router has not noticed yet that the other is dead or has lost the contact."""
        self.apart: set[tuple[str, str]] = set()
        """Pairs of living routers without a contact; the lower name is first."""
        self._over: set[tuple[str, str]] = set()
        """Contacts that the first router has lost: it sends nothing more to the other."""
        self._apart_until: dict[tuple[str, str], int] = {}
        """Keyed by pair: when they last came into contact again, in µs."""
        super().__init__(*KILLED, "w", settings=settings)
        self.dice = Random(seed)
        self.trace: list[str] = []
        self.stores = {name: router.store for name, router in self.routers.items()}
        self.are_heard_out = False
        """Whether all payloads of a router arrive before it is killed."""
        self.says_all = False
        """Whether it sends even data that waits for a payload to travel with."""
        self.parts = False
        """Whether living routers lose their contacts, and make them again."""
        self._lives = dict.fromkeys(KILLED, 1)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:8.3f} {text}")

    def carry(self, here: str, there: str, payload: bytes) -> None:
        if (here, there) not in self._over:
            super().carry(here, there, payload)

    def _meet(self, here: str, there: str) -> None:
        self._over -= {(here, there), (there, here)}
        super()._meet(here, there)

    def _lose(self, here: str, there: str) -> None:
        """One end of a contact is lost."""
        self._over.add((here, there))
        with self.acting(self.routers[here]):
            self.routers[here].contacts.lost(there)

    def bring(self, here: str, there: str, most: int = sys.maxsize) -> None:
        if there in self.routers and (here, there) not in self.unnoticed:
            super().bring(here, there, most)
        else:  # the data was for a router that is dead, or no longer in contact
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
            self._lose(here, there)
            self.flow()

    def some_contact_is_lost(self) -> None:
        """A router loses one contact, or all its contacts."""
        name = self.dice.choice(sorted(self.routers))
        if others := [one for one in sorted(self.routers) if one != name and _pair(one, name) not in self.apart]:
            is_cut_off = self.dice.random() < 0.3
            for other in others if is_cut_off else self.dice.sample(others, 1):
                self._part_by_and_by(*self.dice.sample((name, other), 2))

    def _part_by_and_by(self, here: str, there: str) -> None:
        """One end loses the contact first. Some of its data still arrives."""
        self.note(f"{here} loses {there}")
        self.apart.add(_pair(here, there))
        self._lose(here, there)
        self._is_cut_short(here, there)
        self.unnoticed.append((there, here))
        self.flow()

    def some_contact_is_made(self) -> None:
        if self.apart:
            self._meet_again(*self.dice.choice(sorted(self.apart)))

    def are_in_contact(self, here: str, there: str) -> bool:
        """Whether both ends are in contact, or are one router."""
        are_there = here in self.routers and there in self.routers
        return are_there and _pair(here, there) not in self.apart

    def were_apart(self, here: str, there: str, since_us: int) -> bool:
        """Whether the routers are apart, or were since that time."""
        pair = _pair(here, there)
        return pair in self.apart or self._apart_until.get(pair, 0) >= since_us

    def come_together(self) -> None:
        while self.unnoticed:
            self.notice(0)
        while self.apart:
            self._meet_again(*min(self.apart))

    def _meet_again(self, here: str, there: str) -> None:
        self._notice_between(here, there)
        self.apart.discard((here, there))
        self._apart_until[here, there] = self.wall_us
        self.note(f"{here} and {there} are in contact again")
        self._meet(here, there)
        self.flow()

    def _notice_between(self, here: str, there: str) -> None:
        while found := [nth for nth, pair in enumerate(self.unnoticed) if {*pair} == {here, there}]:
            self.notice(found[0])

    def _is_cut_short(self, here: str, there: str) -> None:
        """Data under way is lost: all data to the router, and some from it."""
        self.wires[there, here].clear()
        wire = self.wires[here, there]
        for _ in range(self.dice.randint(0, len(wire))):
            wire.pop()

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
            if _pair(name, other) not in self.apart:
                self._is_cut_short(name, other)
                self.unnoticed.append((other, name))
        self._apart_until |= {pair: self.wall_us for pair in self.apart if name in pair}
        self.apart = {pair for pair in self.apart if name not in pair}

    def _hear_out(self, name: str) -> None:
        self.note(f"all that {name} has said is heard")
        if self.says_all:
            with self.acting(self.routers[name]):
                self.routers[name].node.topic.outlet.batches.end_delays()
                self.routers[name].node.pump()
        for other in self.routers:
            if other != name:
                self.bring(name, other)
        self.flow()

    @property
    def dead(self) -> list[str]:
        return [name for name in KILLED if name not in self.routers]

    def some_router_boots(self) -> None:
        if self.dead:
            self.boot(self.dice.choice(self.dead))

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


def _pair(one: str, other: str) -> tuple[str, str]:
    return min(one, other), max(one, other)
