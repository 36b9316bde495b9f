"""A network of meshes in virtual time, with faults, and a ledger that checks the promises of channels.

    router a ──outbox, transport──▶ router b      a transport has a number; data under way on an older one is lost
    faults: loss, reordering, silence in one direction, transports cut at one end or both, restarts, pauses

The ledger numbers the contacts of each end. A payload belongs to one contact at its sender and is received in one
contact at its receiver; the ledger asserts that such contacts form pairs, and that the payloads which a contact has
received are at every moment a prefix of those sent in its partner.
"""

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from math import inf
from typing import Any, Literal

from linkstate.clock import HybridClock
from linkstate.mesh import Mesh
from linkstate.mesh_actions import ContactLost, ContactMade, Full, Loss, Received, Replanned, Room, Transmit
from linkstate.outbox import Outbox
from linkstate.plan.plan import Plan
from tests.plans import of

HELLO = 0.2
DEAD = 1.0
DELAY = 0.002
TRANSPORT_BYTES = 128 * 1024
MAX_PAYLOAD = 1 << 20

Link = tuple[str, str]
ContactId = tuple[str, str, int]  # (this router, the other router, number of the contact)


class Ledger:
    """What was sent and received in each contact, seen from outside."""

    def __init__(self) -> None:
        self.current: dict[Link, ContactId] = {}
        self.sent: dict[ContactId, list[bytes]] = defaultdict(list)
        self.received: dict[ContactId, list[bytes]] = defaultdict(list)
        self.partner: dict[ContactId, ContactId] = {}  # receiving contact -> sending contact
        self._made: dict[Link, int] = defaultdict(int)
        self._home: dict[tuple[bytes, str], ContactId] = {}

    def made(self, here: str, there: str) -> None:
        assert (here, there) not in self.current, "a contact was made twice"
        self._made[here, there] += 1
        self.current[here, there] = here, there, self._made[here, there]

    def lost(self, here: str, there: str) -> None:
        del self.current[here, there]

    def restarted(self, router: str) -> None:
        for link in [link for link in self.current if link[0] == router]:
            del self.current[link]

    def send(self, source: str, target: str, payload: bytes) -> None:
        contact = self.current[source, target]
        self.sent[contact].append(payload)
        self._home[payload, target] = contact

    def receive(self, here: str, source: str, payload: bytes) -> None:
        contact = self.current[here, source]
        sender = self._home[payload, here]
        assert sender[0] == source, "a payload came from somebody who did not send it"
        assert self.partner.setdefault(contact, sender) == sender, "payloads of two contacts in one"
        received = self.received[contact]
        received.append(payload)
        assert received == self.sent[sender][: len(received)], "not a prefix of what was sent"

    def check_pairs(self) -> None:
        assert len(set(self.partner.values())) == len(self.partner), "a contact was received in two"
        current = set(self.current.values())
        for receiving, sending in self.partner.items():
            assert (receiving in current) == (sending in current), "a contact ended at one end only"


class Network:
    """Meshes, the transports between them and the data under way."""

    def __init__(self, links: Mapping[Link, int], seed: int = 0, file: Plan | None = None) -> None:
        """`file`: the plan in the topology files. None: all `links`."""
        self.now = 0.0
        self.links = dict(links)
        self.routers = sorted({router for link in links for router in link})
        self.file = file or of(self.routers, links)
        self.random = random.Random(seed)
        self.loss = 0.0
        self.jitter = 0.0
        self.deaf: set[Link] = set()  # (from, to) that silently loses everything
        self.ledger = Ledger()
        self.transmitted: list[tuple[str, Transmit]] = []
        self.received: list[tuple[str, Received]] = []
        self.losses: list[tuple[str, ContactLost]] = []
        self.filled: list[tuple[str, Full | Room]] = []
        self._transport: dict[Link, int] = dict.fromkeys(self._directions(), 0)  # number at this end, 0 if none
        self._serial = 0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.rate = inf
        """Bytes a second that a transport carries in each direction."""
        self._outboxes = {direction: Outbox() for direction in self._directions()}
        self._busy: set[Link] = set()
        self._paused: dict[str, float] = {}
        self._incarnations = {router: 1000 + i for i, router in enumerate(self.routers)}
        self._skew_ms = {router: self.random.randrange(-1000, 1000) for router in self.routers}
        self._clocks: dict[str, HybridClock] = {}
        self.meshes: dict[str, Mesh] = {}
        for router in self.routers:
            self._boot(router)

    def connect(self, a: str, b: str) -> None:
        """Make a new transport between two neighbours. Data in the old one is lost."""
        if b not in self.meshes[a].neighbours or a not in self.meshes[b].neighbours:
            return
        self._serial += 1
        self._transport[a, b] = self._transport[b, a] = self._serial
        self._outboxes[a, b], self._outboxes[b, a] = Outbox(), Outbox()
        for here, there in ((a, b), (b, a)):
            self.meshes[here].link_up(there, self.now)
            self._drain(here)

    def connect_all(self) -> None:
        for a, b in self.links:
            self.connect(a, b)

    def cut(self, here: str, there: str, *, both: bool = True) -> None:
        """Close the transport. If not `both`, the other end does not notice."""
        for a, b in ((here, there), (there, here)) if both else ((here, there),):
            if self._transport[a, b]:
                self._transport[a, b] = 0
                self._outboxes[a, b] = Outbox()
                self.meshes[a].link_down(b, self.now)
                self._drain(a)

    def _closed(self, here: str, there: str) -> None:
        """The other end, which is no longer a neighbour, has closed the transport."""
        self.cut(here, there, both=False)

    def restart(self, router: str, *, noticed: bool = True, later: int = 10) -> None:
        """Replace the process by a new incarnation without transports."""
        self.ledger.restarted(router)
        self._incarnations[router] += later
        self._boot(router)
        for neighbour in self.neighbours(router):
            self._transport[router, neighbour] = 0
            self._outboxes[router, neighbour] = Outbox()
            if noticed:
                self.cut(neighbour, router, both=False)

    def pause(self, router: str, seconds: float) -> None:
        self._paused[router] = max(self._paused.get(router, 0.0), self.now + seconds)

    def send(self, source: str, targets: Iterable[str], payload: bytes) -> None:
        mesh = self.meshes[source]
        targets = list(targets)
        for target in targets:
            if target in mesh.contacts:
                self.ledger.send(source, target, payload)
        mesh.send(targets, payload, self.now)
        self._drain(source)

    def replan(self, here: str, wanted: Plan, *, forced: str = "") -> None:
        """An operator gives the router another topology file."""
        self._advance(here)
        mesh = self.meshes[here]
        mesh.replan(mesh.plan.revised(wanted, (self._clocks[here].stamp(), here), forced), self.now)
        self._drain(here)

    def drop_contact(self, here: str, there: str) -> None:
        self.meshes[here].drop_contact(there, self.now, Loss.SILENT, "a test says so")
        self._drain(here)

    def doubt(self, here: str, there: str) -> None:
        self.meshes[here].doubt(there, "owes an answer", self.now)
        self._drain(here)

    def heal(self) -> None:
        """End all faults. Intact transports stay, with the contacts over them."""
        self.loss = self.jitter = 0.0
        self.rate = inf
        self.deaf.clear()
        for a, b in self.links:
            if not self._transport[a, b] or self._transport[a, b] != self._transport[b, a]:
                self.connect(a, b)

    def clock(self, router: str) -> HybridClock:
        return self._clocks[router]

    def skew(self, router: str, milliseconds: int) -> None:
        """Set the wall clock of a router off by this much."""
        self._skew_ms[router] = milliseconds

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while (at := self._next()) <= until:
            self.now = max(self.now, at)
            self._step()
        self.now = until

    def neighbours(self, router: str) -> dict[str, int]:
        there = {b: cost for (a, b), cost in self.links.items() if a == router}
        return there | {a: cost for (a, b), cost in self.links.items() if b == router}

    def all_in_contact(self) -> bool:
        return all(
            dict(mesh.contacts) == {r: i for r, i in self._incarnations.items() if r != router}
            for router, mesh in self.meshes.items()
        )

    def _directions(self) -> list[Link]:
        return [link for a, b in self.links for link in ((a, b), (b, a))]

    def _boot(self, router: str) -> None:
        clock = self._clocks[router] = HybridClock()
        incarnation = self._incarnations[router]
        self.meshes[router] = Mesh(
            router, incarnation, self.file, clock, hello=HELLO, dead=DEAD, max_payload=MAX_PAYLOAD
        )

    def _resumes(self, router: str) -> float:
        return self._paused.get(router, 0.0)

    def _next(self) -> float:
        timers = [max(mesh.deadline(), self._resumes(router)) for router, mesh in self.meshes.items()]
        return min([*timers, self._queue[0][0] if self._queue else inf])

    def _step(self) -> None:
        if self._queue and self._queue[0][0] <= self.now:
            _, _, event, arguments = heapq.heappop(self._queue)
            event(*arguments)
            return
        for router, mesh in self.meshes.items():
            if max(mesh.deadline(), self._resumes(router)) <= self.now:
                self._advance(router)
                mesh.handle_timer(self.now)
                assert mesh.deadline() > self.now, "a timer that does not advance spins"
                self._drain(router)

    def _at(self, at: float, event: Callable[..., None], *arguments: Any) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (at, self._serial, event, arguments))

    def _deliver(self, source: str, here: str, transport: int, link: str, body: bytes) -> None:
        """Deliver a body. An empty one stands for a part of a body."""
        if self._resumes(here) > self.now:
            self._at(self._resumes(here), self._deliver, source, here, transport, link, body)
        elif self._transport[here, source] == transport:
            self._advance(here)
            if body:
                self.meshes[here].receive(source, link, memoryview(body), self.now)
            else:
                self.meshes[here].bytes_received(source, self.now)
            self._drain(here)

    def _advance(self, router: str) -> None:
        self._clocks[router].advance(1_000_000 + int(self.now * 1000) + self._skew_ms[router])

    def _drain(self, router: str) -> None:
        mesh = self.meshes[router]
        actions, mesh.out = mesh.out, []
        for action in actions:
            match action:
                case Transmit():
                    self._transmit(router, action)
                case Received():
                    self.received.append((router, action))
                    self.ledger.receive(router, action.router, action.payload)
                case ContactMade():
                    self.ledger.made(router, action.router)
                case ContactLost():
                    self.losses.append((router, action))
                    self.ledger.lost(router, action.router)
                case Full() | Room():
                    self.filled.append((router, action))
                case Replanned():
                    assert action.plan is mesh.plan
        for neighbour in self.neighbours(router):
            self._fill((router, neighbour))
            if neighbour not in mesh.neighbours and self._transport[router, neighbour]:
                self._transport[router, neighbour] = 0
                self._at(self.now + DELAY, self._closed, neighbour, router)

    def _transmit(self, source: str, action: Transmit) -> None:
        neighbour = self.meshes[source].neighbours.get(action.neighbour)
        assert neighbour is None or neighbour.connected, "sent without a transport"
        self.transmitted.append((source, action))
        if self._transport[source, action.neighbour]:
            self._outboxes[source, action.neighbour].put(action.lane, action.body)

    def _fill(self, direction: Link) -> None:
        """Send what the transport has room for. Bodies to the same place travel together, as in production."""
        while direction not in self._busy and (taken := self._outboxes[direction].take(TRANSPORT_BYTES)):
            link, bodies = taken
            self._carry(direction, link, b"".join(bodies))

    def _carry(self, direction: Link, link: str, body: bytes) -> None:
        (source, here), transport = direction, self._transport[direction]
        takes = len(body) / self.rate
        if takes:
            self._busy.add(direction)
            self._at(self.now + takes, self._free, direction)
        if direction in self.deaf or self.random.random() < self.loss:
            return
        came = self.now + DELAY + self.random.random() * self.jitter
        for hello in range(int(takes / HELLO)):
            self._at(came + hello * HELLO, self._deliver, source, here, transport, link, b"")
        self._at(came + takes, self._deliver, source, here, transport, link, body)

    def _free(self, direction: Link) -> None:
        self._busy.discard(direction)
        self._fill(direction)

    def bodies(self, source: str, neighbour: str, link: Literal["linkstate", "channel"]) -> list[bytes]:
        """The bodies transmitted so far on one link in one direction."""
        return [
            action.body for router, action in self.transmitted if router == source and action[:2] == (neighbour, link)
        ]


def line(*routers: str) -> dict[Link, int]:
    return dict.fromkeys(pairwise(routers), 1)


def ring(*routers: str) -> dict[Link, int]:
    return line(*routers) | {(routers[0], routers[-1]): 1}
