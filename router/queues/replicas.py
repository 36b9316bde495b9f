"""The replica sets of a router process: their content at the start, the writer of their changes, and the tasks that
wait for their answers (protocol 13).

    Node ── keep ─▶ QueueWriter ─▶ QueueStore          in a thread
         ◀─ stored, piece_read, bodies_read ──╯
    Node ── answered ─▶ SetRequests ─▶ tasks that wait
"""

import logging
import random
import secrets
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, Protocol

import trio

from router.amqp.format.errors import AmqpError
from router.amqp.format.message import acquired_before, annotation, merged, modified, with_ttl
from router.management.queues import SetRequests
from router.mesh.config import Topology
from router.mesh.errors import RunError
from router.mesh.planned import sets_of
from router.queues.boot import boot_id
from router.queues.dead_letter import dead_letter
from router.queues.delivery_time import delivery_ms
from router.queues.store import STORE, QueueStore, Sync
from router.queues.writer import QueueWriter
from topic.core import Topic
from topic.node import Node, SetPort
from topic.properties import ADDRESS
from topic.queues.actions import Answered, BodiesFound
from topic.queues.outgoing.outbox import Why
from topic.queues.sets import LeftMs, ReplicaSets
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, StoreChange, StoreRead, Write
from topic.raft.limits import RaftLimits

log = logging.getLogger("oncemesh")

TOLD_S: Final = 0.05
"""The value of `RaftLimits.told`: the seconds that a leader waits before it sends members the commit index in a message
of its own. Under load, the next entries leave sooner and carry the commit index."""
PREFER_S: Final = 60.0
"""Seconds for which the preferred voter of a set has to be in contact before it leads again."""
STORE_BYTES: Final = 16
"""The length of the identity of a store, in bytes."""


class ReplicasOwner(Protocol):
    """The router process as this module sees it. All members exist before the first call."""

    @property
    def node(self) -> Node: ...

    def step(self) -> None:
        """Pump the node, and write its outputs."""


class RouterReplicas:
    """Connects the node and the writer of the store. Problems go to the log."""

    def __init__(self, owner: ReplicasOwner, store: QueueStore, requests: SetRequests) -> None:
        self._owner = owner
        self._store = store
        self._requests = requests
        self._writer = QueueWriter(store, self)

    def port(self, topology: Topology, topic: Topic, routers: Collection[str], left_ms: LeftMs) -> SetPort:
        """The port of a node to the sets, with their content from the store. `routers`: all routers of the mesh.
        `left_ms`: as in `ReplicaSets`. Raises RunError if the topology does not fit the store."""
        assert topology.queues is not None
        try:
            sets = ReplicaSets(
                topic.directory.router,
                sets_of(topology).among(routers),
                sorted(routers),
                self._store.contents,
                RaftLimits(dead=topology.timing.dead, told=TOLD_S),
                random.random,
                topic.outlet.clock.stamp,
                _new_store,
                trio.current_time(),
                limit=topology.queues.limit,
                prefer_s=PREFER_S,
                left_ms=left_ms,
            )
        except ValueError as error:
            raise RunError(f"router {topic.directory.router} cannot start its replica sets: {error}") from None
        # The store drops its references to the content that the replicas have taken over.
        self._store.contents.clear()
        return SetPort(sets, self)

    @property
    def why_full(self) -> str:
        """The reason for which the replicas wait for room on the disk; empty if the disk has room."""
        return self._writer.why_full

    async def run(self) -> None:
        """Run the writer. Raises QueueStoreError if the store fails: the process has to end."""
        self._warn()
        await self._writer.run()

    def _warn(self) -> None:
        """Log each part that the store has set aside."""
        while self._store.notes:
            log.warning("%s", self._store.notes.pop(0))

    # The node calls the methods from here on (`topic.node.SetShell`).

    def keep(self, changes: Sequence[StoreChange | StoreRead]) -> None:
        self._writer.ask(changes)

    def answered(self, answered: Answered) -> None:
        self._requests.answered(answered)

    def found(self, found: BodiesFound) -> None:
        self._requests.found(found)

    def came_back(self, message: bytes, failures: int, annotations: bytes) -> bytes:
        return self.annotated(acquired_before(message, failures), annotations)

    def delivery_ms(self, message: bytes) -> int:
        return delivery_ms(message)

    def aged(self, message: bytes, left_ms: int) -> bytes:
        return with_ttl(message, left_ms)

    def addressed(self, message: bytes, address: str) -> bytes:
        return modified(message, 0, annotation(ADDRESS, address))

    def annotated(self, message: bytes, annotations: bytes) -> bytes:
        return modified(message, 0, annotations)

    def merged(self, annotations: bytes, more: bytes) -> bytes:
        try:
            return merged(annotations, more)
        except AmqpError as error:
            raise ValueError(str(error)) from None

    def dead_letter(self, message: bytes, queue: str, why: Why, now_ms: int, added: bytes) -> bytes | None:
        return dead_letter(message, queue, why, now_ms, added)

    # The writer calls the methods from here on (`router.queues.writer.Asker`).

    def stored(self, write: Write) -> None:
        self._owner.node.stored(write)

    def piece_read(self, piece: ReadPiece, found: FoundPiece | None) -> None:
        self._owner.node.piece_read(piece, found)

    def bodies_read(self, read: ReadBodies, found: FoundBodies) -> None:
        self._owner.node.bodies_read(read, found)

    def damaged(self, name: str, why: str) -> None:
        self._owner.node.damaged(name, why)

    def noted(self, text: str) -> None:
        log.warning("%s", text)

    def results_reported(self) -> None:
        self._warn()
        self._owner.step()


def open_store(topology: Topology, router: str, folder: Path) -> QueueStore:
    """The router's store of replica sets. Raises QueueStoreError."""
    assert topology.queues is not None
    sets, sync = sets_of(topology).plans, Sync(topology.queues.sync)
    return QueueStore(folder / STORE, topology.mesh, router, sets, sync, boot_id(), _new_store)


def _new_store() -> bytes:
    return secrets.token_bytes(STORE_BYTES)
