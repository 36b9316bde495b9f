"""Finds a delivery by its key or its publisher's tag, at every router in contact.

Only the home knows the tag. If the search has a tag, the home returns the key, and this router then asks all routers
for the key. A router drops a record once it knows that all routers have settled the delivery. From then on only the
delivery log has the delivery.
"""

import json
from typing import Any, Final

import trio

from router.entities.deliveries import DELIVERY
from router.entities.observed import ObservedRouter
from router.http.exchange import WebAnswer, WebCaller, WebRefusal, WebRequest
from router.management.node import ManagementNodes
from router.management.requests import BAD_REQUEST, NOT_FOUND, ManagementError

PATIENCE_S: Final = 8.0
LONGEST: Final = 256


class Lookup:
    """Finds deliveries. It makes one search at a time, because a search for a tag reads all records."""

    def __init__(self, at: ObservedRouter, management: ManagementNodes) -> None:
        self._at = at
        self._management = management
        self._lock = trio.Lock()

    async def show(self, request: WebRequest, caller: WebCaller) -> WebAnswer:
        sought = request.query.get("key") or request.query.get("tag") or ""
        if not 0 < len(sought) <= LONGEST:
            raise WebRefusal(400, "expected ?key=, the delivery's key, or ?tag=, its publisher's delivery-tag")
        found: dict[str, Any] = {}
        async with self._lock:
            with trio.move_on_after(PATIENCE_S) as patience:
                if "key" in request.query:
                    await self._ask_all({"identity": sought}, found)
                else:
                    await self._by_tag(sought, found)
        if patience.cancelled_caught and not found:
            raise WebRefusal(504, "the routers have not answered in time")
        answer = {"sought": sought, "routers": {router: found[router] for router in sorted(found)}}
        return WebAnswer(200, json.dumps(answer).encode(), "application/json")

    async def _by_tag(self, tag: str, found: dict[str, Any]) -> None:
        at_home: dict[str, Any] = {}
        await self._ask_all({"name": tag}, at_home)
        found |= at_home
        keys = {record["identity"] for record in at_home.values() if "identity" in record}
        if len(keys) == 1:
            await self._ask_all({"identity": keys.pop()}, found)

    async def _ask_all(self, by: dict[str, str], found: dict[str, Any]) -> None:
        async with trio.open_nursery() as nursery:
            for router in (self._at.name, *sorted(self._at.node.topic.directory.contacts)):
                nursery.start_soon(self._ask, router, by, found)

    async def _ask(self, router: str, by: dict[str, str], found: dict[str, Any]) -> None:
        try:
            found[router] = await self._management.ask(router, "READ", type=DELIVERY.managed, **by)
        except ManagementError as error:
            # The router answers with BAD_REQUEST if several publishers use this tag.
            if error.status == BAD_REQUEST:
                found[router] = {"problem": str(error)}
            elif error.status != NOT_FOUND:
                found[router] = {"problem": f"no answer: {error}"}
