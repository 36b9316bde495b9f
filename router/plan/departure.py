"""Decides when a router ends: an operator tells it to stop or to drain, or the mesh's plan is without it (protocol
11)."""

import logging
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Final, Protocol

import trio

from linkstate.mesh import Mesh
from linkstate.plan.plan import Standing
from router.events.kind import EventKind, event
from router.mesh.quantities import format_duration
from router.mesh.signals import DRAIN, DRAIN_S, STOP, STOP_ALL, taken
from router.plan.request import leave
from topic.node import Node

log = logging.getLogger("oncemesh")

LOOK_S: Final = 0.01


class Leaver(Protocol):
    """The router process as this module sees it."""

    async def hand_over(self) -> None:
        """Hand the lead of replica sets to other routers that can lead."""

    def send_clients_away(self) -> None:
        """Close the listeners and the connections of clients."""


class Departure:
    """Decides when one router ends, and prepares its end."""

    def __init__(self, node: Node, mesh: Mesh, leaver: Leaver) -> None:
        self.all_stop = False
        """True once this router was told to stop together with all routers of the mesh."""
        self._node = node
        self._mesh = mesh
        self._leaver = leaver
        self._unwanted = trio.Event()
        self._was_removed = False

    def removed(self) -> None:
        """A neighbour says that the mesh has removed this router."""
        self._was_removed = True
        self._unwanted.set()

    def follow(self) -> None:
        """Check whether the plan has changed so that this router has to leave."""
        if self._is_out or self._mesh.plan.routers[self._node.name].standing is Standing.LEAVING:
            self._unwanted.set()

    @property
    def _is_out(self) -> bool:
        return self._was_removed or self._mesh.plan.is_out(self._node.name, self._node.incarnation)

    def asked(self) -> AbstractContextManager[AsyncIterator[int]]:
        """Catch the signals that end a router, for `until_told`."""
        return taken(STOP, STOP_ALL, signal.SIGINT, DRAIN)

    async def until_told(self, signals: AsyncIterator[int]) -> None:
        """Wait until the router has to end: after a stop signal at once, after a drain signal when all clients have
        moved, or when the mesh has removed the router."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_removed, nursery.cancel_scope)
            if (told := await anext(signals)) == DRAIN:
                nursery.start_soon(self._drain, nursery.cancel_scope)
                while (told := await anext(signals)) == DRAIN:
                    log.info("already draining")
            self.all_stop = told == STOP_ALL
            nursery.cancel_scope.cancel()

    async def _until_removed(self, removed: trio.CancelScope) -> None:
        """Wait until the plan is without this router, or marks it as leaving. A leaving router drains and then leaves
        the plan."""
        await self._unwanted.wait()
        log.warning("router %s was removed from the mesh", self._node.name)
        if not self._is_out:
            await self._drain()
            leave(self._node, self._mesh)
        removed.cancel()

    async def _drain(self, drained: trio.CancelScope | None = None) -> None:
        """Hand over the replica sets. Then send all clients away, and wait until other routers have them and need no
        more answers of this router."""
        log.info("draining", extra=event(EventKind.DRAINING))
        await self._leaver.hand_over()
        self._leaver.send_clients_away()
        with trio.move_on_after(DRAIN_S) as patience:
            while self._is_needed():
                await trio.sleep(LOOK_S)
        if patience.cancelled_caught:
            log.warning("some clients were not attached to another router within %s", format_duration(DRAIN_S))
        if drained is not None:
            drained.cancel()

    def _is_needed(self) -> bool:
        """Whether the router has to stay. It has to if a client's link still belongs to it, or if it still has records
        of deliveries, about which other routers may ask."""
        topic = self._node.topic
        ours = (entry for entry in topic.directory.entries() if entry.live and topic.directory.is_mine(entry))
        return bool(topic.records.by_key) or any(ours)
