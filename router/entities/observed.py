"""All parts of a router's process from which the management entities take their values."""

import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import trio
from attrs import field, frozen

from linkstate.mesh import Mesh
from router.disk.room import DiskRoom, room_of
from router.entities.survey import Survey
from router.mesh.config import Topology
from topic.node import Node

if TYPE_CHECKING:
    from router.edge.clients import ClientEdge
    from router.neighbours import Neighbours

LOOK_S: Final = 1.0
LOOKS: Final = 10
"""The lag that is shown is the greatest of the last `LOOKS` measurements."""


class WrittenLog(Protocol):
    """The delivery log of the router."""

    why: str
    """The reason for which the log cannot be written; empty if it can be."""
    missing: int
    """The number of entries that the log lacks so far."""

    @property
    def written(self) -> int:
        """The bytes of the log's segments."""


class CountingGuard(Protocol):
    @property
    def exceeded(self) -> Mapping[str, int]:
        """How often each limit was exceeded, by limit."""

    @property
    def refused(self) -> Mapping[str, int]:
        """The number of refused attaches, by condition."""


class WaitingReplicas(Protocol):
    """The replica sets of the router."""

    @property
    def why_full(self) -> str:
        """The reason for which the replicas wait for room on the disk; empty if they do not wait."""


class OpenDoors(Protocol):
    """The part of the router that admits clients."""

    is_open: bool


class CountedEvents(Protocol):
    @property
    def counts(self) -> Mapping[str, int]:
        """The number of events so far, by kind."""

    @property
    def last(self) -> int:
        """The number of the last event."""


class LoopLag:
    """How late the loop wakes a task, in seconds: the greatest lag of the last looks."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque([0.0], maxlen=LOOKS)

    @property
    def most(self) -> float:
        return max(self._seen)

    async def run(self) -> None:
        while True:
            # All timers of a process end at whole seconds, so that an idle router wakes only once.
            at = (trio.current_time() // LOOK_S + 1) * LOOK_S
            await trio.sleep_until(at)
            self._seen.append(trio.current_time() - at)


@frozen(eq=False)
class ObservedRouter:
    topology: Topology
    node: Node
    linkstate: Mesh
    clients: "ClientEdge"
    neighbours: "Neighbours"
    log: WrittenLog
    guard: CountingGuard
    doors: OpenDoors
    events: CountedEvents
    folder: Path
    """The folder of the router's files."""
    replicas: WaitingReplicas | None
    """The store of replica sets; None in a mesh without queues."""
    lag: LoopLag = field(factory=LoopLag)
    survey: Survey = field(factory=Survey)
    started: float = field(factory=trio.current_time)
    epoch: float = field(factory=lambda: time.time() - trio.current_time())
    """The wall-clock time at which trio's clock was 0. Later changes of the wall clock do not count."""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def uptime_s(self) -> float:
        return trio.current_time() - self.started

    @property
    def room(self) -> DiskRoom | None:
        """The room on the disk that has the router's files; None if the system does not tell."""
        return room_of(self.folder)

    def unready(self) -> str:
        """The reason for which clients should use another router; empty if there is none."""
        if not self.doors.is_open:
            return "this router accepts no clients, because it joins or leaves the mesh"
        boot = self.node.topic.boot
        return f"this router waits for {', '.join(boot.waiting_for)}" if boot.waiting_for else ""
