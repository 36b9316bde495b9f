"""A chaos script: its mesh, its clients, its faults, and its duration. `reader` makes it from a file.

All times are in seconds, and count from the moment when all clients are attached.
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
    """How often the client's process is killed (`rate`), and for how long the client then stays away (`away`), before
    it starts again with its state file."""

    rate: float
    away: Span


@attrs.frozen
class ScriptClient:
    """One client. It first attaches to `router`, and goes to another router if it loses this one."""

    name: str
    role: Role
    address: str
    router: str
    rate: float = 0.0
    """The number of messages that a publisher offers per second."""
    size: int = 0
    """The size in bytes of each message of a publisher."""
    settle: Literal["first", "second"] = "second"
    think: float = 0.0
    """The seconds that a subscriber takes to process a message."""
    crashes: Crashes | None = None


@attrs.frozen
class When:
    """When a fault strikes: once (`at`), periodically (`every`), or at random (`rate`). Exactly one of the three is
    set."""

    window: Window
    at: Span | None = None
    every: float | None = None
    rate: float | None = None


@attrs.frozen
class FaultLine:
    """One line of the script that names a fault: its word, its targets, its times and its duration."""

    verb: Verb
    target: Target | None
    when: When
    lasting: Span | None = None
    options: Mapping[str, object] = attrs.field(factory=dict)
    line: int = attrs.field(default=0, eq=False)
    """The number of the line in the script's file."""


@attrs.frozen
class Script:
    name: str
    path: Path
    topology: Topology
    """The topology of the mesh, with the timing of the script in place of its own."""
    duration: float
    clients: tuple[ScriptClient, ...]
    groups: Mapping[str, tuple[str, ...]]
    """Maps each group to the names of its clients."""
    sets: Mapping[str, tuple[str, ...]]
    """Maps each named set of routers to the names of the routers."""
    faults: tuple[FaultLine, ...]

    @property
    def offered(self) -> float:
        """The number of messages per second that all publishers offer together."""
        return sum(client.rate for client in self.clients)

    def count_of(self, client: ScriptClient) -> int:
        """Return the number of messages that this client offers in the whole run."""
        return round(client.rate * self.duration)

    @property
    def count(self) -> int:
        return sum(map(self.count_of, self.clients))

    def of_role(self, role: str) -> Iterator[ScriptClient]:
        return (client for client in self.clients if client.role == role)
