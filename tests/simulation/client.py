"""What publishers and subscribers of the model have in common: where they attach, and how they leave.

plain      never resumes: each attach begins afresh, its terminus ends with its connection
resuming   keeps its unsettled map in memory, and asks for a timeout; a crash makes it forget
durable    the same, and its map survives a crash
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

import attrs

from tests.simulation.knobs import Knobs
from tests.simulation.link import Link
from tests.simulation.schedule import Schedule
from topic.directory.entry import Lifetime
from topic.identity import NOWHERE, Epoch, LinkIdentity

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.router import Router


MOST = 1000
"""Entries of an unsettled map."""


class Client:
    """One link identity, and the application behind it."""

    link: Link | None
    receives = False
    """It is a subscriber."""
    first: bool
    """Receiver settle mode of its link, or of the next."""

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
        self.lingers = False
        """Its machine, or a proxy's, keeps its socket open when it has attached elsewhere."""
        self.calm = False
        """No more pranks: it stays, accepts and gives credit."""
        self.gone = False
        """It left for good."""
        self.stays = False
        """It never leaves for good."""
        self.opened: list[Link] = []
        """All links of its name, those that it has forgotten too."""
        self.answered = False
        self.partial = False
        """The map of this attach is incomplete: only what it names goes on, then the client attaches again."""
        self.most = MOST
        """So many entries does its next map have at most."""
        self.epoch: Epoch | None = None
        """The latest that it was told of."""
        self.generation: bytes | None = None
        """Of a publisher's life; None before its first answer, unless the client brings its own."""
        self.asleep_until = 0.0
        """It attaches nowhere before."""
        self._in_use_until = 0.0
        """When it last had an answered link that it believed in."""
        self.is_twin = False
        """Another client goes by its name; it leaves when the faults stop."""
        self.together: list[Client] = [self]
        """The clients of its container: their links share a connection."""
        self.changes_modes = not self.plain and bool(knobs.modes) and random.random() < knobs.modes

    def go_by_the_name_of(self, other: "Client") -> None:
        """It is another process with the same configuration, until the faults stop. Both echo their generations: else
        either takes the other's deliveries for its own."""
        self.is_twin = True
        self.silent = other.silent = False
        self.identity, self.opened = other.identity, other.opened
        self.plain, self.durable, self.lifetime = other.plain, other.durable, other.lifetime

    @property
    def shortest(self) -> int:
        """The shortest timeout that was asked for by its name."""
        return min([self.lifetime.timeout, *(link.timeout for link in self.opened)])

    @property
    def away(self) -> float:
        """For how long it has had no link, or one whose connection is broken, noticed or not."""
        return self.schedule.now - self._last_in_use()

    def _last_in_use(self) -> float:
        if self.link is None or not self.answered:
            return self._in_use_until
        return min(self.schedule.now, self.link.broken_at)

    @property
    def seen(self) -> Epoch:
        """The epoch that it echoes."""
        return NOWHERE if self.epoch is None or self.silent else self.epoch

    # events that end a link, from whatever side

    def lost(self, link: Link) -> None:
        """The connection broke, and all links on it; only those in use matter."""
        if link is self.link:
            for client in self.together:
                if client.link is not None and client.link.router is link.router:
                    client.note(client.name, f"has lost {link.router.name}")
                    if client is not self:
                        client.link.client_left(0.01)
                    client.leave()

    def detached(self, link: Link) -> None:
        if link is self.link:
            self.note(self.name, "was detached")
            self.leave()

    def leave(self) -> None:
        """The link in use is no more; another follows."""
        self._give_up_link()
        self.later(self.attach)

    def _give_up_link(self) -> None:
        self._in_use_until = self._last_in_use()
        if self.link is not None:
            self.link.hung_up = not self.lingers
        self.link = None
        self.answered = False
        if self.plain:
            self.begin_afresh()
        self.left()

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
        if self.schedule.now < self.asleep_until and not self.calm:
            self.schedule.at(self.asleep_until, self.attach)
            return
        alive = [router for router in self.routers.values() if router.admits]
        if not alive:
            self.schedule.after(0.5, self.attach)
            return
        self.open(self._connected_to(alive) or self.random.choice(alive))

    def _connected_to(self, alive: "list[Router]") -> "Router | None":
        """Where its container is."""
        links = [client.link for client in self.together if client.link is not None]
        return next((link.router for link in links if link.router in alive), None)

    def ask_otherwise(self) -> None:
        """What it asks for with an attach may be something else than on the last one."""
        if self.knobs.lifetimes and not self.plain and not self.calm and self.random.random() < self.knobs.lifetimes:
            self.lifetime = attrs.evolve(self.lifetime, timeout=self.random.choice(self.knobs.timeouts))
        if self.changes_modes:
            self.first = self.random.random() < 0.5

    def open(self, router: "Router") -> None:
        raise NotImplementedError

    def perhaps_late(self, link: Link) -> None:
        """What it is about to send there, an attach with a map first, may take its time, and it goes elsewhere."""
        if not self.calm and self.random.random() < self.knobs.late:
            self.note(self.name, "prank: late")
            self._move_stalled(link, 3.0)

    def perhaps_late_null(self, link: Link) -> None:
        """The same, of an attach with a null map."""
        if self.knobs.late_null:
            self.perhaps_late(link)

    def map_to_send(self, unsettled: Mapping[bytes, int]) -> dict[bytes, int]:
        """The unsettled map, or as much of it as there is room for in the attach. What has an outcome may be named in
        any order, such as first what the last attach has left out."""
        keys = list(unsettled)
        most = len(keys)
        if len(keys) > 1 and not self.calm and self.random.random() < self.knobs.partial:
            most = self.random.randrange(1, len(keys))
        most = min(most, self.most)
        self.partial = most < len(keys)
        if self.partial and self.random.random() < 0.5:
            keys = [key for key in keys if not unsettled[key]] + [key for key in reversed(keys) if unsettled[key]]
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
        self.gone = self.random.random() < self.knobs.quitting and not self.stays
        self.note(self.name, f"prank: {what}{', for good' if self.gone else ''}")
        if self.gone:
            self._quit(link, close=what == "close")
        elif what == "close":
            self.end_link(link)
        elif what == "detach":
            link.to_router(link.leave)
            self.leave()
        elif what in ("vanish", "crash", "sleep"):
            for client in [client for client in self.together if client.link is not None]:
                client.vanish(what)
        elif what == "break":
            link.broken(self.lateness())
        elif what == "again" and link.router.alive:
            self._steal(link.router)
        elif what == "stalled":
            self._move_stalled(link, 10.0)
        else:
            self._move(link)

    def end_link(self, link: Link) -> None:
        """It closes the link, and attaches anew."""
        self._close(link)
        self.leave()

    def lateness(self) -> float:
        """How long a router may take to notice: at once, when HELLOs would, or hardly ever (half open)."""
        return self.random.choice((0.01, 0.01, self.knobs.dead, 20.0))

    def quit(self) -> None:
        """It leaves for good, if it has not yet."""
        self.gone = True
        self._leave_everywhere()
        self.leave()

    def _quit(self, link: Link, *, close: bool) -> None:
        if close:
            self._close(link)
        self._leave_everywhere()
        self.leave()

    def _leave_everywhere(self) -> None:
        """Its connections end with it, also those on which an attach is still under way."""
        for opened in [opened for opened in self.opened if opened.client is self]:
            opened.client_left(self.knobs.dead)
        self.begin_afresh()

    def _close(self, link: Link) -> None:
        self.begin_afresh()
        self.judge.closing(link)
        link.to_router(link.close)
        link.hung_up = True

    def vanish(self, what: str) -> None:
        """Its process or its machine is gone, or it sleeps; it comes back, or another in its place."""
        assert self.link is not None
        self.link.client_left(self.lateness())
        if what == "crash" and not self.durable:
            self.epoch = None
            self.begin_afresh()
        elif what == "sleep":
            longest = min(self.lifetime.timeout, 10) * 1.5
            self.asleep_until = self.schedule.now + self.random.random() * longest
        self.leave()

    def _move_stalled(self, link: Link, longest: float) -> None:
        """What it sends takes its time from now on, and it goes elsewhere meanwhile."""
        link.stall(longest)
        self.schedule.after(self.random.random(), self._move, link)

    def _move(self, link: Link) -> None:
        alive = [router for router in self.routers.values() if router.admits]
        elsewhere = [router for router in alive if router is not link.router]
        if link is self.link and elsewhere:
            self._steal(self.random.choice(elsewhere))

    def _steal(self, router: "Router") -> None:
        """The old link stays as a zombie until its router detaches it; what it brings is ignored."""
        self._give_up_link()
        self.open(router)

    def restless(self) -> None:
        """A prank now and then."""
        if self.calm:
            return
        if self.random.random() < self.knobs.restless * 0.25:
            self.prank()
        self.schedule.after(0.25, self.restless)
