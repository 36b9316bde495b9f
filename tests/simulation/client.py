"""What publishers and subscribers of the model have in common: where they attach, and how they leave."""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.knobs import Knobs
from tests.simulation.links import Link
from tests.simulation.schedule import Schedule
from topic.identity import LinkIdentity

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.router import Router


class Client:
    """One link identity, and the application behind it."""

    link: Link | None

    def __init__(
        self, name: str, address: str, routers: Mapping[str, "Router"], schedule: Schedule, random: Random,
        knobs: Knobs, judge: "Judge", note: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self.name = name
        self.identity = LinkIdentity(name, "link", address)
        self.routers = routers
        self.schedule = schedule
        self.random = random
        self.knobs = knobs
        self.judge = judge
        self.note = note
        self.calm = False
        """No more pranks: it stays, accepts and gives credit."""
        self.gone = False
        """It left for good."""
        self.opened: list[Link] = []
        """All its links, those that it has forgotten too."""
        self.lives = 0
        self.answered = False

    # events that end a link, from whatever side

    def lost(self, link: Link) -> None:
        """The connection broke; only the link in use matters."""
        if link is self.link:
            self.note(self.name, "has lost its router")
            self.leave()

    def detached(self, link: Link) -> None:
        link.broken = True
        if link is self.link:
            self.note(self.name, "was detached")
            self.leave()

    def leave(self) -> None:
        """The link in use is no more; another follows."""
        self.link = None
        self.answered = False
        self.forget()
        self.later(self.attach)

    def forget(self) -> None:
        """What the application knew of the old link's deliveries."""

    # what it does by itself

    def later(self, action: Callable[[], None]) -> None:
        self.schedule.after(self.random.random() * self.knobs.patience, action)

    def attach(self) -> None:
        if self.link is not None or self.gone:
            return
        alive = [router for router in self.routers.values() if router.alive]
        if not alive:
            self.schedule.after(0.5, self.attach)
            return
        self.lives += 1
        self.open(self.random.choice(alive))

    def open(self, router: "Router") -> None:
        raise NotImplementedError

    def prank(self) -> None:
        """Close, vanish, or attach again while attached."""
        link = self.link
        if link is None or self.calm:
            return
        what = self.random.choice(("close", "vanish", "elsewhere", "again"))
        self.gone = self.random.random() < self.knobs.quitting
        self.note(self.name, f"prank: {what}{', for good' if self.gone else ''}")
        if self.gone:
            for opened in self.opened:
                opened.vanish()
            self.leave()
        elif what == "close":
            link.to_router(self.close, link)
            self.leave()
        elif what == "vanish":
            link.vanish()
            self.leave()
        elif what == "again" and link.router.alive:
            self._steal(link, link.router)
        else:
            alive = [router for router in self.routers.values() if router.alive and router is not link.router]
            if alive:
                self._steal(link, self.random.choice(alive))

    def _steal(self, old: Link, router: "Router") -> None:
        """The old link stays as a zombie until its router detaches it; what it brings is ignored."""
        self.link = None
        self.answered = False
        self.forget()
        self.lives += 1
        self.open(router)

    @staticmethod
    def close(link: Link) -> None:
        link.broken = True
        link.detach()

    def restless(self) -> None:
        """A prank now and then."""
        if self.calm:
            return
        if self.random.random() < self.knobs.restless * 0.25:
            self.prank()
        self.schedule.after(0.25, self.restless)
