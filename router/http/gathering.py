"""Looks at the whole mesh from one router: it asks every router for data that `$management` shows to any client.

The router sends a management request to all routers at the same time. The look leaves out each router that does not
answer in time. `picture` makes a picture of a look, and `feed` decides when to look."""

import time
from typing import Final

import trio
from attrs import field, frozen

from router.entities.observed import ObservedRouter
from router.entities.rates import RouterLook, Row
from router.entities.routers import PLAN_ROUTER
from router.management.agent import MOST_ROWS
from router.management.node import ManagementNodes
from router.management.requests import ManagementError

PATIENCE_S: Final = 3.0
MOST_PAGES: Final = 9
"""The highest number of pages of events that one look reads from a router. They have room for all events that a router
keeps."""
FRESH_MS: Final = 900
"""A router answers with its last report of itself if this is at most this many milliseconds old. So all consoles that
ask within this time get the same report."""
OF_PLAN: Final = ("name", "standing", "neighbours", "inContact", "isHere")


@frozen
class MeshLook:
    """A look at the whole mesh, from one router."""

    mesh: str
    by: str
    time: float
    """The time of the look, in seconds since 1970."""
    plan: list[Row]
    answers: dict[str, RouterLook] = field(factory=dict)
    """The answers of the routers that have answered, by router."""
    events: list[Row] = field(factory=list)
    """The events since the last look, oldest first."""


class Gathering:
    """Makes the looks of one router."""

    def __init__(self, at: ObservedRouter, management: ManagementNodes) -> None:
        self._management = management
        self._name = at.name
        self._mesh = at.topology.mesh
        self._seen: dict[str, int] = {}
        """The number of the last event read from each router."""

    async def look(self) -> MeshLook:
        plan = await self._rows(self._name, PLAN_ROUTER.managed, OF_PLAN)
        seen = MeshLook(self._mesh, self._name, time.time(), plan)
        async with trio.open_nursery() as nursery:
            for router in plan:
                if router["isHere"] or router["inContact"]:
                    nursery.start_soon(self._ask, router["name"], seen)
        # Put the answers into the order of the plan, because they arrived in any order.
        for row in plan:
            if (answer := seen.answers.pop(row["name"], None)) is not None:
                seen.answers[row["name"]] = answer
        seen.events.sort(key=lambda happened: (happened["time"], happened["router"], happened["sequence"]))
        return seen

    async def _ask(self, router: str, seen: MeshLook) -> None:
        with trio.move_on_after(PATIENCE_S):
            try:
                look = RouterLook.read(await self._management.ask(router, "GET-LOOK", age=FRESH_MS))
                seen.answers[router] = look
                if look.last_event > self._seen.get(router, 0):
                    await self._events(router, seen)
            except ManagementError:
                # The contact with this router has just been lost, so it is left out.
                pass

    async def _rows(self, router: str, kind: str, names: tuple[str, ...]) -> list[Row]:
        """The rows of the first page of a router's answer. One page has room for a row for each router of the mesh."""
        body = {"attributeNames": list(names)}
        page = await self._management.ask(router, "QUERY", body, entityType=kind)
        return [dict(zip(page["attributeNames"], row, strict=True)) for row in page["results"]]

    async def _events(self, router: str, seen: MeshLook) -> None:
        for _ in range(MOST_PAGES):
            page = await self._management.ask(router, "GET-EVENTS", since=self._seen.get(router, 0), limit=MOST_ROWS)
            seen.events.extend(page)
            if page:
                self._seen[router] = page[-1]["sequence"]
            if len(page) < MOST_ROWS:
                return
