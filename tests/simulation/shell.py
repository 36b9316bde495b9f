"""What a simulated router gives its node: virtual time, wires, clients' links, and a judge that sees every event."""

from typing import TYPE_CHECKING

from linkstate.mesh_actions import ContactLost, ContactMade, Loss, Received, Replanned, Transmit
from tests.deaf import Deaf
from tests.simulation.link import Link
from tests.simulation.wires import Body
from topic.actions import LinkAction
from topic.node import Happening, Node, SetPort
from topic.queues.wire import SETS
from topic.queues.wire import decode as decode_for_sets
from topic.wire.segments import Segment, decode, split_keys

if TYPE_CHECKING:
    from tests.simulation.router import Router


MOST_BYTES = 25
"""The limit of the bytes of a transaction: room for few messages of clients of the model."""


class Shell(Deaf):
    def __init__(self, router: "Router") -> None:
        self.router = router
        self._bodies: dict[str, list[Body]] = {}

    def wall_us(self) -> int:
        return self.router.wall_us()

    def now(self) -> float:
        return self.router.schedule.now

    def perform(self, action: LinkAction) -> None:
        assert isinstance(action.link, Link), f"{type(action).__name__} for a link that is gone"
        action.link.perform(action)

    def transmit(self, action: Transmit) -> None:
        self._bodies.setdefault(action.neighbour, []).append((action.lane, action.body))

    def flush(self) -> None:
        bodies, self._bodies = self._bodies, {}
        for neighbour, waiting in bodies.items():
            self.router.wires[neighbour].transmit(self.router.name, waiting)
        self.router.set_timer()

    def note(self, happening: Happening) -> None:
        router = self.router
        if isinstance(happening, ContactMade):
            router.note(router.name, f"in contact with {happening.router}")
            router.makes_contact(happening.router)
        elif isinstance(happening, ContactLost):
            assert happening.cause is not Loss.BROKEN, f"at {router.name}: {happening.reason}"
            router.note(router.name, f"loses {happening.router}: {happening.reason}")
            router.loses_contact(happening.router)
        elif isinstance(happening, Replanned):
            router.note(router.name, f"has plan {happening.plan.digest:x}")
            router.planned()
        elif router.verbose:
            router.note(router.name, happening.text)


class Watched(Node):
    """The node, with a count of the payloads that it has received."""

    def __init__(self, router: "Router", shell: Shell, sets: SetPort | None) -> None:
        super().__init__(router.mesh, router.topic, router.store, shell, sets)
        if self.transactions is not None:
            self.transactions._most_bytes = MOST_BYTES
        self._router = router

    def receive(self, received: Received, now: float) -> None:
        router = self._router
        if received.router in self.topic.directory.contacts:
            if router.verbose and received.payload.startswith(SETS):
                name, message = decode_for_sets(received.payload)
                router.note(router.name, f"<- {received.router} {name} {message!r:.500}")
            elif router.verbose:
                for kind, *columns in decode(received.payload):
                    router.note(router.name, f"<- {received.router} {Segment(kind).name} {columns!r:.300}")
            if router.knobs.back_off is not None and not received.payload.startswith(SETS):
                for kind, *columns in decode(received.payload):
                    if kind == Segment.RESOLVE:
                        router.judge.balanced.asked(split_keys(columns[2]))
            super().receive(received, now)
            router.heard[received.router] += 1
