"""The listener `http` of a router: its connections, and its pages.

`router.process` imports it only if the topology has this listener: other routers do not pay for the imports.
"""

import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

from router.admission import Admission, Visitor
from router.entities.observed import ObservedRouter
from router.http.census import Census
from router.http.exchange import WebAnswer, WebCaller, WebRequest
from router.http.feed import Feed
from router.http.files import file_pages
from router.http.gathering import Gathering
from router.http.health import HealthPages
from router.http.lookup import Lookup
from router.http.metrics import Metrics
from router.http.queue_page import QueuePage
from router.http.server import WebConnection
from router.http.site import Page, Site
from router.management.node import ManagementNodes
from router.management.pace import WorkPace
from router.mesh.config import HTTP
from router.security.doors import Doors, told

log = logging.getLogger("oncemesh.http")

PLACES: Final = 32
"""The highest number of connections. Three quarters of the places are for callers with permission to see all links."""

Turn = Callable[[], Awaitable[None]]


class WebListener:
    """The listener of one router. `run` serves, for as long as the router runs."""

    def __init__(self, at: ObservedRouter, management: ManagementNodes, doors: Doors, turn: Turn) -> None:
        topology = at.topology
        address = topology.routers[at.name].http
        assert address is not None, "there is such a listener"
        self._feed = Feed(Gathering(at, management))
        health = HealthPages(at.lag, topology.timing.dead, at.unready)
        pages = {
            "/healthz": Page(health.live, for_all=True),
            "/readyz": Page(health.ready, for_all=True),
            "/metrics": Page(Metrics(Census(at, WorkPace(turn)).take).show),
            "/feed": Page(self._feed.watch),
            "/delivery": Page(Lookup(at, management).show),
            "/queue": Page(QueuePage(at, management).show),
            **file_pages(),
        }
        security = topology.security
        has_passwords = security.users is not None or security.secret is not None
        passwords = has_passwords and security.hears_passwords(address.host)
        anybody = security.admits_anybody(HTTP, address.host)
        self._site = Site(address.host, doors, pages, management.is_operator, anybody=anybody, passwords=passwords)
        self._doors = doors
        self._lag = at.lag
        self._turn = turn
        self._admission = Admission(PLACES, topology.limits.opening, turn, exceed=_refused)

    async def run(self, listener: socket.socket) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._lag.run)
            nursery.start_soon(self._feed.run)
            await self._admission.serve(listener, self._serve, nursery)

    async def _serve(self, below: trio.SocketStream, visitor: Visitor) -> None:
        with told(str(visitor)), suppress(trio.BrokenResourceError):
            stream, certified, guesses = await self._doors.let_in(below)
            caller = WebCaller(str(visitor), certified, visitor.admit, guesses.may_check, guesses.was_wrong)

            async def answer(request: WebRequest) -> WebAnswer:
                await guesses.turn()
                return await self._site.answer(request, caller)

            await WebConnection(stream, answer).run()


def _refused(limit: str, who: str, what: str) -> None:
    """Log the refusal at debug level, because browsers often open connections and send nothing."""
    log.debug("%s: limit %s: %s", who, limit, what)
