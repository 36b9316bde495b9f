"""The behaviour that publishers and subscribers of the model share: where they attach, and how they leave.

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
"""The most entries that an unsettled map has."""


class Client:
    """One link identity, and the application behind it."""

    link: Link | None
    receives = False
    """Whether the client is a subscriber."""
    first: bool
    """Whether the client's link, or its next link, has receiver settle mode first."""

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
        """Whether the client echoes neither generation nor epoch."""
        self.lingers = False
        """The client's machine, or a proxy, keeps the socket open after the client has attached elsewhere."""
        self.calm = False
        """Whether the client plays no more pranks: it stays, accepts and gives credit."""
        self.gone = False
        """Whether the client has left for good."""
        self.stays = False
        """Whether the client never leaves for good."""
        self.opened: list[Link] = []
        """All links under the client's name, including links that the client has forgotten."""
        self.answered = False
        self.partial = False
        """Whether the map of this attach is incomplete. The client then resumes only the deliveries in it, and attaches
        again.
        """
        self.most = MOST
        """The most entries that the client's next map has."""
        self.epoch: Epoch | None = None
        """The latest epoch that a router has told the client."""
        self.generation: bytes | None = None
        """The generation of a publisher's life. None before the first answer, unless the client brings its own."""
        self.asleep_until = 0.0
        """The client does not attach before this time."""
        self._in_use_until = 0.0
        """When the client last had an answered link that it considered intact."""
        self.is_twin = False
        """Whether another client has the same name. This client then leaves when the faults stop."""
        self.together: list[Client] = [self]
        """The clients of the client's container, whose links share a connection."""
        self.changes_modes = not self.plain and bool(knobs.modes) and random.random() < knobs.modes

    def go_by_the_name_of(self, other: "Client") -> None:
        """Until the faults stop, act as a second process with the same configuration as the other client. Both echo
        their generations: otherwise each would take the other's deliveries for its own."""
        self.is_twin = True
        self.silent = other.silent = False
        self.identity, self.opened = other.identity, other.opened
        self.plain, self.durable, self.lifetime = other.plain, other.durable, other.lifetime

    @property
    def shortest(self) -> int:
        """The shortest timeout that any client asked for under this name."""
        return min([self.lifetime.timeout, *(link.timeout for link in self.opened)])

    @property
    def away(self) -> float:
        """For how long the client has had no link, or only one with a broken connection, even if nobody has noticed."""
        return self.schedule.now - self._last_in_use()

    def _last_in_use(self) -> float:
        if self.link is None or not self.answered:
            return self._in_use_until
        return min(self.schedule.now, self.link.broken_at)

    @property
    def seen(self) -> Epoch:
        """The epoch that the client echoes."""
        return NOWHERE if self.epoch is None or self.silent else self.epoch

    # events that end a link, from either side

    def lost(self, link: Link) -> None:
        """The connection and all its links broke. Only links in use matter."""
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
        """The link in use has ended. Attach again later."""
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
        """Forget the state that belongs to the connection."""

    def begin_afresh(self) -> None:
        """Forget all deliveries. The next attach has a null map."""

    # actions of the client itself

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
        """The router that the client's container is connected to, if it is alive."""
        links = [client.link for client in self.together if client.link is not None]
        return next((link.router for link in links if link.router in alive), None)

    def ask_otherwise(self) -> None:
        """Perhaps ask for another timeout or settle mode than in the last attach."""
        if self.knobs.lifetimes and not self.plain and not self.calm and self.random.random() < self.knobs.lifetimes:
            self.lifetime = attrs.evolve(self.lifetime, timeout=self.random.choice(self.knobs.timeouts))
        if self.changes_modes:
            self.first = self.random.random() < 0.5

    def open(self, router: "Router") -> None:
        raise NotImplementedError

    def perhaps_late(self, link: Link) -> None:
        """Perhaps delay everything that the client sends on this link from now on, beginning with an attach with a map,
        and move the client to another router meanwhile.
        """
        if not self.calm and self.random.random() < self.knobs.late:
            self.note(self.name, "prank: late")
            self._move_stalled(link, 3.0)

    def perhaps_late_null(self, link: Link) -> None:
        """Do what `perhaps_late` does, but with a null map."""
        if self.knobs.late_null:
            self.perhaps_late(link)

    def map_to_send(self, unsettled: Mapping[bytes, int]) -> dict[bytes, int]:
        """The unsettled map, or the part of it that fits into the attach. Entries with an outcome may come in any
        order, for example first the entries that the last attach left out."""
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
        """Attach again, because all deliveries in the incomplete map are done."""
        if link is self.link:
            self.note(self.name, "attaches again to tell more of its map")
            link.client_left(0.01)
            self.leave()

    def prank(self) -> None:
        """Do one prank, for example close, vanish, crash, or attach again while attached."""
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
        """Close the link, and attach anew."""
        self._close(link)
        self.leave()

    def lateness(self) -> float:
        """How long a router may take to notice: almost no time, the time that HELLOs need, or very long (half open)."""
        return self.random.choice((0.01, 0.01, self.knobs.dead, 20.0))

    def quit(self) -> None:
        """Leave for good, if the client has not left yet."""
        self.gone = True
        self._leave_everywhere()
        self.leave()

    def _quit(self, link: Link, *, close: bool) -> None:
        if close:
            self._close(link)
        self._leave_everywhere()
        self.leave()

    def _leave_everywhere(self) -> None:
        """End all connections of the client, including connections on which an attach is still under way."""
        for opened in [opened for opened in self.opened if opened.client is self]:
            opened.client_left(self.knobs.dead)
        self.begin_afresh()

    def _close(self, link: Link) -> None:
        self.begin_afresh()
        self.judge.closing(link)
        link.to_router(link.close)
        link.hung_up = True

    def vanish(self, what: str) -> None:
        """The client's process or machine is gone, or sleeps. It comes back, or another takes its place."""
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
        """Delay everything that the client sends on the link from now on, and move the client elsewhere meanwhile."""
        link.stall(longest)
        self.schedule.after(self.random.random(), self._move, link)

    def _move(self, link: Link) -> None:
        alive = [router for router in self.routers.values() if router.admits]
        elsewhere = [router for router in alive if router is not link.router]
        if link is self.link and elsewhere:
            self._steal(self.random.choice(elsewhere))

    def _steal(self, router: "Router") -> None:
        """Attach at another router. The old link stays as a zombie until its router detaches it; the client ignores
        what comes on it.
        """
        self._give_up_link()
        self.open(router)

    def restless(self) -> None:
        """Do a prank now and then."""
        if self.calm:
            return
        if self.random.random() < self.knobs.restless * 0.25:
            self.prank()
        self.schedule.after(0.25, self.restless)
