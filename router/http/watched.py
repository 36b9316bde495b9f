"""The router that is looked at: what of its process the listener `http` shows."""

from collections.abc import Mapping
from typing import Protocol

from attrs import field, frozen

from router.admission import Admission
from router.edge.report import WrittenLog
from router.http.health import LoopLag
from router.management.entity import ManagedRouter
from router.management.node import ManagementNodes


class CountedLog(WrittenLog, Protocol):
    @property
    def written(self) -> int:
        """Bytes of its segments."""


class CountingGuard(Protocol):
    @property
    def exceeded(self) -> Mapping[str, int]:
        """How often each limit was."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Attaches, by condition."""


@frozen
class WatchedRouter:
    managed: ManagedRouter
    management: ManagementNodes
    log: CountedLog
    guard: CountingGuard
    doors: Admission
    """By which clients come in."""
    lag: LoopLag = field(factory=LoopLag)

    def unready(self) -> str:
        """Why clients had better go elsewhere; empty if they need not."""
        if not self.doors.is_open:
            return "this router lets no clients in: it joins the mesh, or leaves it"
        boot = self.managed.node.topic.boot
        return f"this router waits for {', '.join(boot.waiting_for)}" if boot.waiting_for else ""
