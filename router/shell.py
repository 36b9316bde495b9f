"""The parts of the process that a node uses: the clocks, the outputs, the log (architecture: the process).

The way of a message: read from a client's socket → `router.edge.clients` → `topic.node` → `router.neighbours` → the
next router's socket. At the next router the message takes the same way from the socket up to the node. All of this is
synchronous and in batches. A step begins with a read, and ends with the writes to all sockets (`router.amqp.driven`).
"""

import logging
import time
from typing import Final, Protocol

import trio

from linkstate.mesh_actions import ContactLost, ContactMade, Loss, Replanned, Transmit
from router.events.kind import EventKind, event
from topic.actions import LinkAction
from topic.node import Happening
from topic.queues.actions import SetChange, SetEvent

log = logging.getLogger("oncemesh.notes")

SEVERE: Final = {Loss.LATE: logging.WARNING, Loss.BROKEN: logging.ERROR}
"""The log level of a lost contact, by the reason of the loss. Other losses have the level INFO."""
SETS: Final = {
    SetChange.LEADS: (logging.INFO, EventKind.LEADING),
    SetChange.LEADS_NO_MORE: (logging.INFO, EventKind.NOT_LEADING),
    SetChange.LEADERLESS: (logging.WARNING, EventKind.LEADERLESS),
    SetChange.ASIDE: (logging.WARNING, EventKind.ASIDE),
}
"""Maps a change of a replica set to the log level and the kind of the event."""


class Clients(Protocol):
    """The AMQP edge, as the shell uses it."""

    def perform(self, action: LinkAction) -> None:
        """Perform an action of the topic core on a client's link."""


class Transmitter(Protocol):
    """The transports to the neighbours, as the shell uses them."""

    def transmit(self, action: Transmit) -> None:
        """Queue a body for a neighbour. Drop the body if there is no transport to the neighbour now."""

    def flush(self) -> None:
        """Hand the queued bodies to the connections."""


class ShellOwner(Protocol):
    """The process, as the shell uses it. All its parts exist before the node performs any action."""

    @property
    def clients(self) -> Clients: ...

    @property
    def neighbours(self) -> Transmitter: ...

    def pumped(self) -> None:
        """Called at the end of a pump, when the connections have got all outputs for neighbours."""

    def planned(self) -> None:
        """Called when the plan of the mesh has changed."""

    def parted(self, router: str) -> None:
        """Called when the contact with this router is about to be lost."""

    def receive_from_shell(self, router: str, payload: bytes) -> None:
        """Take a payload that another router's process has sent, and that is not for the topics. Raises BreachError if
        it is malformed."""


class Shell:
    def __init__(self, owner: ShellOwner) -> None:
        self._owner = owner

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def now(self) -> float:
        return trio.current_time()

    def perform(self, action: LinkAction) -> None:
        self._owner.clients.perform(action)

    def transmit(self, action: Transmit) -> None:
        self._owner.neighbours.transmit(action)

    def flush(self) -> None:
        self._owner.neighbours.flush()
        self._owner.pumped()

    def receive_from_shell(self, router: str, payload: bytes) -> None:
        self._owner.receive_from_shell(router, payload)

    def note(self, happening: Happening) -> None:
        if isinstance(happening, ContactMade):
            met = {"peer": happening.router, "incarnation": happening.incarnation}
            log.info("in contact with router %s (incarnation %d)", *met.values(), extra=event(EventKind.CONTACT, **met))
        elif isinstance(happening, ContactLost):
            fields = {"peer": happening.router, "cause": happening.cause.value, "why": happening.reason}
            lost = event(EventKind.CONTACT_LOST, **fields)
            level = SEVERE.get(happening.cause, logging.INFO)
            log.log(level, "lost contact with router %s: %s", happening.router, happening.reason, extra=lost)
            self._owner.parted(happening.router)
        elif isinstance(happening, Replanned):
            plan = happening.plan
            told = event(EventKind.PLAN, digest=f"{plan.digest:x}", routers=sorted(plan.listed))
            log.info("new plan %x", plan.digest, extra=told)
            self._owner.planned()
        elif isinstance(happening, SetEvent):
            level, kind = SETS[happening.kind]
            told = event(kind, set=happening.set, term=happening.term or None, why=happening.why or None)
            log.log(level, "%s", happening.text, extra=told)
        else:
            log.warning("%s", happening.text)
