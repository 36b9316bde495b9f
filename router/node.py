"""One router: its cores, and the loop that carries what each of them says to the others (architecture: the process).

A message's walk: a read from a client's socket → `router.clients` → `Topic` → `Mesh` → `router.neighbours` → the next
router's socket, and there back up. All of it synchronous and in batches; `pump` is the one place where the cores meet.
Nothing here awaits; what connections have to write is written by their own tasks after `pump`.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import trio

from linkstate.clock import HybridClock
from linkstate.events import ContactLost, ContactMade, Received, Transmit
from linkstate.mesh import Mesh
from router.store import StateStore
from topic.actions import DropContact, LinkAction, Note
from topic.core import Settings, Topic
from topic.directory import Role
from topic.errors import PeerError as BrokenBatch
from topic.journal import Block, Event

log = logging.getLogger("oncemesh")

LOOK_S = 1.0
"""The cores are told the time at least so often."""


class Clients(Protocol):
    """The AMQP edge, as seen from here."""

    def perform(self, action: LinkAction) -> None:
        """Do on a client's link what the topic core asks."""


class Transmitter(Protocol):
    """The transports to the neighbours, as seen from here."""

    def transmit(self, action: Transmit) -> None:
        """Queue a body for a neighbour; dropped if there is no transport to it just now."""

    def flush(self) -> None:
        """Hand what is queued to the connections."""


class Node:
    """The cores of one router incarnation."""

    clients: Clients
    neighbours: Transmitter

    def __init__(
        self,
        name: str,
        incarnation: int,
        routers: Collection[str],
        links: Mapping[str, int],
        block: Block,
        settings: Settings,
        store: StateStore,
        *,
        hello: float,
        dead: float,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.clock = HybridClock(store.reserved)
        self.clock.advance(time.time_ns() // 1_000_000)
        self.mesh = Mesh(name, incarnation, routers, links, self.clock, hello=hello, dead=dead)
        now = trio.current_time()
        self.topic = Topic(name, incarnation, routers, self.clock, block, settings, now, store.remembered)
        self._store = store
        self._tell_what_was_kept()
        self._look = now + LOOK_S
        self.on_deadline: Callable[[float], None] | None = None
        """Told after every pump when `handle_timer` is next due."""

    def _tell_what_was_kept(self) -> None:
        """In the delivery log: whether the state store was there, and which subscribers it had."""
        trace = self.topic.context.trace
        trace(Event.KEPT, detail=json.dumps({"found": self._store.found}))
        for entry in self._store.remembered:
            if entry.role is Role.SUBSCRIBER:
                trace(Event.KEPT, subscriber=entry.name, address=entry.identity.address, epoch=str(entry.epoch))

    def now(self) -> float:
        """The time for an event that is about to be handled; tells the cores the wall clock as well."""
        self.topic.advance(time.time_ns() // 1000)
        return trio.current_time()

    def handle_timer(self) -> None:
        now = self.now()
        self._look = now + LOOK_S
        self.mesh.handle_timer(now)
        self.topic.handle_timer(now)
        self.pump()

    def deadline(self) -> float:
        return min(self.mesh.deadline(), self.topic.deadline(), self._look)

    # what the transports report

    def link_up(self, neighbour: str) -> None:
        self.mesh.link_up(neighbour, self.now())
        self.pump()

    def link_down(self, neighbour: str) -> None:
        self.mesh.link_down(neighbour, self.now())
        self.pump()

    def receive(self, neighbour: str, link: str, body: bytes) -> None:
        """A body from a neighbour; raises linkstate's PeerError if it is none. `pump` follows, once per read."""
        if link == "channel":
            self.mesh.receive_channel(neighbour, body, trio.current_time())
        else:
            self.mesh.receive_linkstate(neighbour, body, trio.current_time())

    # the loop

    def pump(self) -> None:
        """Carry actions and batches to where they belong until the cores have nothing more to say."""
        now = trio.current_time()
        topic, mesh = self.topic, self.mesh
        while True:
            if topic.out:
                self.perform()
            elif topic.context.outgoing:
                for targets, payload in topic.take_outgoing():
                    mesh.send(targets, payload, now)
            elif mesh.out:
                self._drain_mesh(now)
            else:
                break
        self._save()
        self.neighbours.flush()
        if self.on_deadline is not None:
            self.on_deadline(self.deadline())

    def _save(self) -> None:
        """Before anything of this pump leaves: nobody must know of what a router that dies now would not remember."""
        unsaved, clock = self.topic.directory.unsaved, self.clock.read()
        if unsaved or clock >= self._store.reserved:
            self._store.save(unsaved, clock)
            unsaved.clear()

    def perform(self) -> None:
        """Carry out the topic core's actions so far; before any other event of a client's link is handled."""
        topic = self.topic
        while topic.out:
            actions, topic.out[:] = topic.out[:], []
            for action in actions:
                if isinstance(action, DropContact):
                    log.warning("router %s %s: contact dropped", action.router, action.reason)
                    self.mesh.drop_contact(action.router, trio.current_time())
                elif isinstance(action, Note):
                    log.warning("%s", action.text)
                else:
                    self.clients.perform(action)

    def _drain_mesh(self, now: float) -> None:
        actions, self.mesh.out[:] = self.mesh.out[:], []
        for action in actions:
            if isinstance(action, Transmit):
                self.neighbours.transmit(action)
            elif isinstance(action, Received):
                self._receive_batch(action, now)
            elif isinstance(action, ContactMade):
                log.info("contact with router %s (incarnation %d)", action.router, action.incarnation)
                self.topic.contact(action.router, action.incarnation, now)
            else:
                assert isinstance(action, ContactLost)
                log.info("contact with router %s lost", action.router)
                self.topic.lost(action.router)

    def _receive_batch(self, received: Received, now: float) -> None:
        if received.router not in self.topic.directory.contacts:
            return
        try:
            self.topic.receive(received.router, received.payload)
        except BrokenBatch as error:
            log.error("router %s broke the protocol, contact dropped: %s", received.router, error)
            self.mesh.drop_contact(received.router, now)
