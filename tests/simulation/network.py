"""Contacts between router incarnations, as protocol 3.2 promises them to the topic core.

    a ──FIFO, delayed──▶ b      a contact ends for both sides, each notices in its own time
    a ◀──FIFO, delayed── b      what was under way in it is gone; the next one starts anew

A side that has not noticed the loss when the next contact opens is told `lost` before it is told `contact`.
"""

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.knobs import Knobs
from tests.simulation.schedule import Schedule

if TYPE_CHECKING:
    from tests.simulation.router import Router


class Contact:
    """One contact, seen from above."""

    __slots__ = ("arrival", "broken", "ends", "factor", "heard", "incarnations")

    def __init__(self, a: "Router", b: "Router", random: Random) -> None:
        self.ends = (a.name, b.name)
        self.factor = {end: random.choice((1.0, 1.0, 1.0, 5.0)) for end in self.ends}
        """How much slower than others it is towards this end."""
        self.incarnations = {a.name: a.incarnation, b.name: b.incarnation}
        self.broken = False
        """Nothing passes any more, whether noticed or not."""
        self.arrival = dict.fromkeys(self.ends, 0.0)
        """When the last batch to this end arrives."""
        self.heard: set[str] = set()
        """Ends that a batch, hence the other's section, has reached."""

    def other(self, end: str) -> str:
        return self.ends[1] if end == self.ends[0] else self.ends[0]


class Network:
    def __init__(self, schedule: Schedule, random: Random, knobs: Knobs) -> None:
        self.schedule = schedule
        self.random = random
        self.knobs = knobs
        self.routers: dict[str, Router] = {}
        self._open: dict[tuple[str, str], Contact] = {}
        """(here, there) -> the contact that `here` believes to have."""
        self._group: dict[str, int] = {}
        self._slow: dict[str, float] = {}

    # views

    def contact(self, here: str, there: str) -> Contact | None:
        """The contact that both ends have, and in which something still passes."""
        mine, theirs = self._open.get((here, there)), self._open.get((there, here))
        return mine if mine is theirs and mine is not None and not mine.broken else None

    def joinable(self, here: str, there: str) -> bool:
        """Both are in contact and `there` has applied what `here` said of itself."""
        contact = self.contact(here, there)
        return contact is not None and there in contact.heard

    def reachable(self, a: str, b: str) -> bool:
        return self.routers[a].alive and self.routers[b].alive and self._group.get(a) == self._group.get(b)

    # batches

    def send(self, here: str, target: str, payload: bytes) -> None:
        contact = self._open.get((here, target))
        if contact is not None:
            self._transmit(contact, here, payload)

    def _transmit(self, contact: Contact, here: str, payload: bytes | None) -> None:
        if contact.broken:
            return
        there = contact.other(here)
        slow = max(self._slow.get(here, 1.0), self._slow.get(there, 1.0))
        delay = self.random.random() * self.knobs.delay * slow * contact.factor[there]
        contact.arrival[there] = at = max(contact.arrival[there], self.schedule.now + delay)
        self.schedule.at(at, self._arrive, contact, there, payload, self.routers[here].clock.read())

    def _arrive(self, contact: Contact, here: str, payload: bytes | None, clock: int) -> None:
        there = contact.other(here)
        if contact.broken:
            return
        self.routers[here].clock.merge(clock)
        if payload is None:
            self._follow(contact, here, there)
        elif self._open.get((here, there)) is contact:
            contact.heard.add(here)
            self.routers[here].receive(there, payload)

    # contacts

    def seek(self, a: str, b: str) -> None:
        """The two greet each other after a while, if they can."""
        self.schedule.after(self.random.random() * self.knobs.greet, self._meet, a, b)

    def seek_all(self) -> None:
        for a, b in combinations(self.routers, 2):
            self.seek(a, b)

    def _meet(self, a: str, b: str) -> None:
        free = [end for end in ((a, b), (b, a)) if end not in self._open]
        if not free or not self.reachable(a, b) or self.contact(a, b):
            return
        here, there = self.random.choice(free)
        contact = Contact(self.routers[here], self.routers[there], self.random)
        older = self._open.get((there, here))
        if older is not None:
            older.broken = True
        self._open[here, there] = contact
        self._transmit(contact, here, None)
        self.routers[here].contact(there, contact.incarnations[there])

    def _follow(self, contact: Contact, here: str, there: str) -> None:
        """The other side has opened a contact."""
        older = self._open.get((here, there))
        if older is not None:
            older.broken = True
            self._notice(older, here)
        if contact.broken or self._open.get((there, here)) is not contact:
            return
        self._open[here, there] = contact
        self.routers[here].contact(there, contact.incarnations[there])

    def drop(self, here: str, there: str) -> None:
        """One side declares the contact lost; the other learns of it later, and may until then hear of it."""
        contact = self._open.get((here, there))
        if contact is not None:
            self._notice_later(contact)
            self._notice(contact, here)

    def cut(self, contact: Contact) -> None:
        """Nothing passes from now on; the sides notice, each in its time."""
        contact.broken = True
        self._notice_later(contact)

    def _notice_later(self, contact: Contact) -> None:
        for end in contact.ends:
            self.schedule.after(self.random.random() * self.knobs.dead, self._notice, contact, end)

    def _notice(self, contact: Contact, here: str) -> None:
        there = contact.other(here)
        if self._open.get((here, there)) is not contact:
            return
        del self._open[here, there]
        self.routers[here].lost(there)
        self.seek(here, there)

    # faults

    def killed(self, router: str) -> None:
        for (here, there), contact in list(self._open.items()):
            if here == router:
                del self._open[here, there]
                self.cut(contact)
            elif there == router:
                self.cut(contact)

    def partition(self, groups: dict[str, int]) -> None:
        self._group = groups
        for (here, there), contact in list(self._open.items()):
            if groups.get(here) != groups.get(there):
                self.cut(contact)

    def heal(self) -> None:
        self._group = {}
        self._slow = {}
        self.seek_all()

    def slow(self, router: str, factor: float) -> None:
        self._slow[router] = factor

    def pairs(self) -> list[tuple[str, str]]:
        """(here, there) for every contact that `here` believes to have."""
        return list(self._open)
