"""What publishers and subscribers of the model have in common: where they attach, and how they leave.

    plain      never resumes: each attach begins afresh, its terminus ends with its connection
    resuming   keeps its unsettled map in memory, and asks for a timeout; a crash makes it forget
    durable    the same, and its map survives a crash
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.knobs import Knobs
from tests.simulation.link import Link
from tests.simulation.schedule import Schedule
from topic.directory import Lifetime
from topic.identity import Epoch, LinkIdentity

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
        self.plain = random.random() < knobs.plain
        self.durable = not self.plain and random.random() < knobs.durable
        self.lifetime = Lifetime()
        if not self.plain:
            self.lifetime = Lifetime(random.choice(knobs.timeouts), "connection-close", int(self.durable))
        self.silent = random.random() < knobs.silent
        """Echoes neither generation nor epoch."""
        self.calm = False
        """No more pranks: it stays, accepts and gives credit."""
        self.gone = False
        """It left for good."""
        self.opened: list[Link] = []
        """All its links, those that it has forgotten too."""
        self.answered = False
        self.partial = False
        """The map of this attach is incomplete: only what it names goes on, then the client attaches again."""
        self.epoch: Epoch | None = None
        """The latest that it was told of."""
        self._asleep_until = 0.0

    @property
    def seen(self) -> int:
        """What it echoes of the epoch, for the router's clock."""
        return 0 if self.epoch is None or self.silent else self.epoch.hlc

    # events that end a link, from whatever side

    def lost(self, link: Link) -> None:
        """The connection broke; only the link in use matters."""
        if link is self.link:
            self.note(self.name, f"has lost {link.router.name}")
            self.leave()

    def detached(self, link: Link) -> None:
        if link is self.link:
            self.note(self.name, "was detached")
            self.leave()

    def leave(self) -> None:
        """The link in use is no more; another follows."""
        self.link = None
        self.answered = False
        if self.plain:
            self.begin_afresh()
        self.left()
        self.later(self.attach)

    def left(self) -> None:
        """What belongs to the connection is gone."""

    def begin_afresh(self) -> None:
        """What it knew of its deliveries is gone, and it attaches with a null map next."""

    # what it does by itself

    def later(self, action: Callable[[], None]) -> None:
        self.schedule.after(self.random.random() * self.knobs.patience, action)

    def attach(self) -> None:
        if self.link is not None or self.gone:
            return
        if self.schedule.now < self._asleep_until and not self.calm:
            self.schedule.at(self._asleep_until, self.attach)
            return
        alive = [router for router in self.routers.values() if router.alive and not router.paused]
        if not alive:
            self.schedule.after(0.5, self.attach)
            return
        self.open(self.random.choice(alive))

    def open(self, router: "Router") -> None:
        raise NotImplementedError

    def perhaps_late(self, link: Link) -> None:
        """What it is about to send there, an attach with a map first, may take its time, and it goes elsewhere."""
        if not self.calm and self.random.random() < self.knobs.late:
            self.note(self.name, "prank: late")
            self._move_stalled(link, 3.0)

    def map_to_send(self, unsettled: Mapping[bytes, int]) -> dict[bytes, int]:
        """The unsettled map, or as much of it as there is room for in the attach."""
        keys = list(unsettled)
        self.partial = len(keys) > 1 and not self.calm and self.random.random() < self.knobs.partial
        most = self.random.randrange(1, len(keys)) if self.partial else len(keys)
        return {key: unsettled[key] for key in keys[:most]}

    def attach_again(self, link: Link) -> None:
        """What the incomplete map named is dealt with."""
        if link is self.link:
            self.note(self.name, "attaches again to tell more of its map")
            link.client_left(0.01)
            self.leave()

    def prank(self) -> None:
        """Close, vanish, crash, or attach again while attached."""
        link = self.link
        if link is None or self.calm:
            return
        what = self.random.choice(self.knobs.pranks)
        self.gone = self.random.random() < self.knobs.quitting
        self.note(self.name, f"prank: {what}{', for good' if self.gone else ''}")
        if self.gone:
            self._quit(link, close=what == "close")
        elif what == "close":
            self._close(link)
            self.leave()
        elif what in ("vanish", "crash", "sleep"):
            self._vanish(link, what)
        elif what == "break":
            link.broken(self.lateness())
        elif what == "again" and link.router.alive:
            self._steal(link.router)
        elif what == "stalled":
            self._move_stalled(link, 10.0)
        else:
            self._move(link)

    def lateness(self) -> float:
        """How long a router may take to notice: at once, when HELLOs would, or hardly ever (half open)."""
        return self.random.choice((0.01, 0.01, self.knobs.dead, 20.0))

    def _quit(self, link: Link, *, close: bool) -> None:
        if close:
            self._close(link)
        for opened in self.opened:
            opened.client_left(self.knobs.dead)
        self.begin_afresh()
        self.leave()

    def _close(self, link: Link) -> None:
        self.begin_afresh()
        self.judge.closing(link)
        link.to_router(link.close)

    def _vanish(self, link: Link, what: str) -> None:
        link.client_left(self.lateness())
        if what == "crash" and not self.durable:
            self.epoch = None
            self.begin_afresh()
        elif what == "sleep":
            longest = min(self.lifetime.timeout, 10) * 1.5
            self._asleep_until = self.schedule.now + self.random.random() * longest
        self.leave()

    def _move_stalled(self, link: Link, longest: float) -> None:
        """What it sends takes its time from now on, and it goes elsewhere meanwhile."""
        link.stall(longest)
        self.schedule.after(self.random.random(), self._move, link)

    def _move(self, link: Link) -> None:
        alive = [router for router in self.routers.values() if router.alive and not router.paused]
        elsewhere = [router for router in alive if router is not link.router]
        if link is self.link and elsewhere:
            self._steal(self.random.choice(elsewhere))

    def _steal(self, router: "Router") -> None:
        """The old link stays as a zombie until its router detaches it; what it brings is ignored."""
        self.link = None
        self.answered = False
        if self.plain:
            self.begin_afresh()
        self.left()
        self.open(router)

    def restless(self) -> None:
        """A prank now and then."""
        if self.calm:
            return
        if self.random.random() < self.knobs.restless * 0.25:
            self.prank()
        self.schedule.after(0.25, self.restless)
