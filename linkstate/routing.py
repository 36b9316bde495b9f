"""The link-state protocol of one router (protocol 3, layer 1). It finds the routers that this router can reach, and the
next hop to each.

HELLOs show which links work. Each router floods its working links to all routers, and all routers compute the shortest
paths. Changes of these paths are put into the list `changes`, as `Reached`, `Unreachable` and `Rerouted`.

A flood is sent once over each link. If a part of it is lost, the digest in the next HELLO shows this. The router then
sends a SUMMARY, and the other side answers with the advertisements that are newer there.

The plan of the mesh (protocol 11) has all routers and links, and spreads in the same way. When it changes, a router
sends the whole plan to all neighbours. It also sends the plan to a neighbour whose HELLO has another digest of the
plan.
"""

from collections.abc import Callable
from itertools import pairwise

from linkstate.chunks import Buffer
from linkstate.clock import HybridClock
from linkstate.flooding import Database, InstallResult, Links
from linkstate.frames import (
    Entries,
    Hello,
    LinkstateFrame,
    PeerError,
    Planned,
    Summary,
    decode_linkstate,
    encode_entries,
    encode_hello,
    encode_plan,
    encode_summary,
)
from linkstate.mesh_actions import Loss, Reachability, Reached, Rerouted, Unreachable
from linkstate.neighbours import Neighbour
from linkstate.paths import Route, is_link, shortest_paths
from linkstate.plan.plan import MOST_TAKEN, Plan

# If a router that only answers HELLOs gets none for this many HELLO intervals, it sends one by itself.
ANSWERS = 1.25
REFRESH_DEADS = 10  # an advertisement is renewed after this number of `dead` times
# An advertisement that was not renewed is forgotten after this number of `dead` times.
MAX_AGE_DEADS = 40


class LinkState:
    """Takes link state from neighbours, and computes the routes."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        plan: Plan,
        clock: HybridClock,
        transmit: Callable[[str, bytes], None],
        *,
        hello: float,
        dead: float,
    ) -> None:
        self.plan = plan
        self.neighbours: dict[str, Neighbour] = {}
        self.routes: dict[str, Route] = {}
        self.changes: list[Reachability] = []  # changes of the routes; the owner takes them after each call
        self.database = Database(
            name, incarnation, plan, clock.believes, refresh=REFRESH_DEADS * dead, max_age=MAX_AGE_DEADS * dead
        )
        self._name = name
        self._incarnation = incarnation
        self._clock = clock
        self._transmit = transmit
        self._early = hello / 2
        self._dead = dead
        # The neighbour with the higher name only answers HELLOs, so that it seldom has to wake by itself.
        answering = ANSWERS * hello
        self._hello_as_lower, self._hello_as_higher = hello, min(answering, (hello + dead) / 2)
        self._meet_neighbours()

    def follow(self, plan: Plan, now: float) -> None:
        """Follow a changed plan, and send it to all neighbours, including former ones."""
        self.plan = plan
        body = encode_plan(self._clock.read(), plan)
        for neighbour in self.neighbours.values():
            if neighbour.connected:
                self._transmit(neighbour.name, body)
        self._meet_neighbours()
        self.database.follow(plan)
        self._update(now)

    def _meet_neighbours(self) -> None:
        """Make the list of neighbours that the plan gives this router, in the order of their names."""
        costs = self.plan.costs_of(self._name)
        self.neighbours = {name: self.neighbours.get(name) or self._meet(name) for name in costs}
        for name, cost in costs.items():
            self.neighbours[name].cost = cost

    def _meet(self, name: str) -> Neighbour:
        hello = self._hello_as_lower if self._name < name else self._hello_as_higher
        return Neighbour(name, hello=hello, dead=self._dead)

    def link_up(self, name: str, now: float) -> None:
        neighbour = self.neighbour(name)
        if neighbour.connected:
            self.link_down(name, now)  # the new transport replaces the old one
        neighbour.link_up(now)
        self._update(now)

    def link_down(self, name: str, now: float) -> None:
        if name in self.neighbours:  # the plan may have removed the neighbour before its transport ended
            self.neighbours[name].link_down(now)
            self._update(now)

    def receive(self, name: str, body: Buffer, now: float) -> None:
        neighbour = self.neighbour(name)
        frames = decode_linkstate(body)
        for frame in frames:
            if isinstance(frame, Hello) and frame.name != name:
                raise PeerError(f"the peer is router {frame.name!r}, expected router {name!r}")
            if isinstance(frame, Hello) and not self._clock.believes(frame.incarnation):
                raise PeerError(
                    f"the incarnation {frame.incarnation} lies in the future: the clocks of the two routers differ"
                )
        if neighbour.connected:
            # Only the last HELLO of the body counts, and only its last SUMMARY, because the answer to each may be long.
            last = {type(frame): frame for frame in frames}
            for frame in frames:
                if isinstance(frame, Entries) or frame is last[type(frame)]:
                    self._receive_frame(neighbour, frame, now)
            self._update(now)

    def receive_traffic(self, name: str, now: float) -> bool:
        """Traffic on the other lane, or a part of a body, has come: a sign of life. Returns False if the caller has to
        ignore it."""
        return self.neighbour(name).receive_traffic(now)

    def handle_timer(self, now: float) -> None:
        for neighbour in self.neighbours.values():
            neighbour.handle_timer(now)
        self.database.expire(now)
        self._update(now)

    def deadline(self) -> float:
        due = self.database.deadline()
        for neighbour in self.neighbours.values():
            if (at := neighbour.deadline()) < due:
                due = at
        return due

    def neighbour(self, name: str) -> Neighbour:
        try:
            return self.neighbours[name]
        except KeyError:
            raise PeerError(f"{name!r} is not a neighbour of {self._name!r}") from None

    def _receive_frame(self, neighbour: Neighbour, frame: LinkstateFrame, now: float) -> None:
        self._clock.merge(frame.clock)
        if isinstance(frame, Hello) and not self.plan.admits(frame.name, frame.incarnation):
            # The mesh has removed the neighbour, which learns this from the plan.
            self._transmit(neighbour.name, encode_plan(self._clock.read(), self.plan))
        elif isinstance(frame, Hello):
            neighbour.receive_hello(frame.incarnation, frame.heard == self._incarnation, now)
            self._say_hello(now)
            if frame.plan != self.plan.digest:
                self._transmit(neighbour.name, encode_plan(self._clock.read(), self.plan))
            if self._advertised(neighbour) and frame.digest != self.database.digest():
                summary = encode_summary(self._clock.read(), self.database.versions())
                self._transmit(neighbour.name, summary)
        elif neighbour.receive_traffic(now):
            if isinstance(frame, Planned):
                self._learn_plan(frame, now)
            elif isinstance(frame, Summary):
                self._send_entries([neighbour.name], self.database.newer_than(frame.versions), now)
            else:
                self._receive_entries(neighbour, frame, now)

    def _learn_plan(self, frame: Planned, now: float) -> None:
        if not all(map(self._clock.believes, frame.plan.times_ms())):
            raise PeerError("the plan has a time in the future: the clocks of the two routers differ")
        merged = self.plan.merge(frame.plan)
        if merged == self.plan:
            return
        # A larger plan is refused, because neighbours, and this router after a restart, would not accept it.
        if merged.size > MOST_TAKEN:
            raise PeerError(
                f"merged with the plan of this router, the plan would have more than {MOST_TAKEN} routers or links"
            )
        self.follow(merged, now)

    def _receive_entries(self, neighbour: Neighbour, frame: Entries, now: float) -> None:
        verdicts = [(entry.origin, self.database.install(entry, now)) for entry in frame.entries]
        if any(verdict is InstallResult.DISPUTED for _, verdict in verdicts):
            self._flood_own(now)
        self._send_entries([neighbour.name], [o for o, v in verdicts if v is InstallResult.OLDER], now)
        others = [n.name for n in self.neighbours.values() if n.up and n is not neighbour]
        self._send_entries(others, [o for o, v in verdicts if v is InstallResult.NEWER], now)

    def _update(self, now: float) -> None:
        """Follow a change: send the HELLOs that are due, then flood this router's advertisement and compute the routes
        again if this is necessary."""
        if any(now >= neighbour.hello_at for neighbour in self.neighbours.values()):
            self._say_hello(now)
        self._advertise(now)
        if self.database.topology_changed:
            self.database.topology_changed = False
            self._recompute()

    def _say_hello(self, now: float) -> None:
        """Send a HELLO to each neighbour for which one is due soon. In this way the router wakes only once for the
        HELLOs of all links."""
        for neighbour in self.neighbours.values():
            if now >= neighbour.hello_at - self._early:
                self._send_hello(neighbour, now)

    def _send_hello(self, neighbour: Neighbour, now: float) -> None:
        digests = self.database.digest(), self.plan.digest
        hello = Hello(self._name, self._incarnation, self._clock.read(), neighbour.heard, *digests)
        self._transmit(neighbour.name, encode_hello(hello))
        neighbour.hello_sent(now)

    def _working_links(self) -> Links:
        return tuple((n.name, n.incarnation, n.cost) for n in self.neighbours.values() if n.up)

    def _advertised(self, neighbour: Neighbour) -> bool:
        own = self.database.own
        assert own is not None, "we advertise before any neighbour is up"
        return (neighbour.name, neighbour.incarnation, neighbour.cost) in own.links

    def _advertise(self, now: float) -> None:
        """Flood this router's advertisement if its links have changed, or if it has to be renewed. A new neighbour also
        gets the whole database."""
        own = self.database.own
        links = self._working_links()
        if own is not None and own.links == links and now < self.database.refresh_at:
            return
        fresh = [n.name for n in self.neighbours.values() if n.up and not self._advertised(n)]
        self._flood_own(now)
        self._send_entries(fresh, [o for o in self.database.entries if o != self._name], now)

    def _flood_own(self, now: float) -> None:
        self.database.originate(self._working_links(), now)
        self._send_entries([n.name for n in self.neighbours.values() if n.up], [self._name], now)

    def _send_entries(self, neighbours: list[str], origins: list[str], now: float) -> None:
        if not neighbours or not origins:
            return
        body = encode_entries(self._clock.read(), self.database.export(origins, now))
        for neighbour in neighbours:
            self._transmit(neighbour, body)

    def _recompute(self) -> None:
        old, new = self.routes, shortest_paths(self._name, self.database.entries)
        self.routes = new
        for router, route in old.items():
            if router not in new:
                self.changes.append(Unreachable(router, *self._why_unreachable(route)))
            elif new[router].incarnation != route.incarnation:
                self.changes.append(Unreachable(router, Loss.RESTARTED, f"router {router} was started again"))
        for router, route in new.items():
            if router not in old or old[router].incarnation != route.incarnation:
                self.changes.append(Reached(router, route.incarnation))
            elif old[router].path != route.path:
                self.changes.append(Rerouted(router))

    def _why_unreachable(self, route: Route) -> tuple[Loss, str]:
        """Returns the reason why the former path to a router no longer exists: the first link on it that is down, as
        far as this router knows."""
        first = self.neighbours.get(route.next_hop)
        if first is None:
            return Loss.REMOVED, f"the plan no longer has a link to router {route.next_hop}"
        if not first.up:
            return first.cause, first.reason
        for here, there in pairwise((self._name, *route.path)):
            if not is_link(here, there, self.database.entries):
                return Loss.NO_PATH, f"the link between routers {here} and {there} is down"
        return Loss.NO_PATH, "no path to the router is left"
