"""A chaos script: its mesh, its clients, its faults, and its duration. `reader` reads the file.

All times are seconds from the moment at which all clients are attached.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from failover.chaos.script.targets import Target
from failover.chaos.script.times import Span, Window
from failover.chaos.script.vocabulary import Verb
from router.mesh.config import Topology

Role: TypeAlias = Literal["publisher", "subscriber"]


@attrs.frozen
class Crashes:
    """How often a client's process is killed (`rate`), and for how long it is then away (`away`). It starts again with
    its state file."""

    rate: float
    away: Span


@attrs.frozen
class ScriptClient:
    """One client. It first attaches to `router`, and goes to other routers if it loses this one."""

    name: str
    role: Role
    address: str
    router: str
    rate: float = 0.0
    """Messages per second that a publisher offers."""
    size: int = 0
    """The size of each message, in bytes."""
    settle: Literal["first", "second"] = "second"
    think: float = 0.0
    """Seconds that a subscriber takes to process a message."""
    crashes: Crashes | None = None


@attrs.frozen
class When:
    """The times of a fault: once, periodically, or at random; exactly one of the three is set."""

    window: Window
    at: Span | None = None
    every: float | None = None
    rate: float | None = None


@attrs.frozen
class FaultLine:
    """One line of the script: a fault with its targets, its times and its duration."""

    verb: Verb
    target: Target | None
    when: When
    lasting: Span | None = None
    options: Mapping[str, object] = attrs.field(factory=dict)
    line: int = attrs.field(default=0, eq=False)
    """The number of the line in the file."""


@attrs.frozen
class Script:
    name: str
    path: Path
    topology: Topology
    """The topology, with the script's timing."""
    duration: float
    clients: tuple[ScriptClient, ...]
    groups: Mapping[str, tuple[str, ...]]
    """Maps the name of a group to its clients."""
    sets: Mapping[str, tuple[str, ...]]
    """Maps the name of a set to its routers."""
    faults: tuple[FaultLine, ...]

    @property
    def offered(self) -> float:
        """Messages per second of all publishers together."""
        return sum(client.rate for client in self.clients)

    def count_of(self, client: ScriptClient) -> int:
        """Return the number of messages that this client offers."""
        return round(client.rate * self.duration)

    @property
    def count(self) -> int:
        return sum(map(self.count_of, self.clients))

    def of_role(self, role: str) -> Iterator[ScriptClient]:
        return (client for client in self.clients if client.role == role)
