"""The nodes `$management` of all routers, for the clients of this router.

A client attaches a sender to `$management`, or to `_topo/0/ROUTER/$management` for another router. It also attaches a
receiver with a dynamic source (`router.edge.dynamic`). The client's requests name the address of this source as
reply-to.

The cost of each connection is bounded: it has at most `MOST_LINKS` links here, `MOST_REQUESTS` requests of
`REQUEST_BYTES` each, and one answer. The router makes an answer only when the client has given credit and the last
answer is written. Connections take turns. An answer never goes to a link of another connection. `agent` makes the
answers; `relay` passes requests to other routers.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final

import trio
from attrs import frozen

from router.amqp.batches import Transfers
from router.amqp.format.errors import NOT_ALLOWED, NOT_FOUND, RESOURCE_LIMIT, AmqpError
from router.amqp.format.sections import read_message, write_message
from router.amqp.format.values import ACCEPTED
from router.amqp.proton.link import Host, Link
from router.edge.attach import Refusal
from router.edge.dynamic import DynamicLink, dynamic_source
from router.edge.ends import AddressNode, End
from router.entities.dispatch import topological
from router.entities.observed import ObservedRouter
from router.entities.report import report
from router.management.agent import RESERVED, Agent
from router.management.looks import Looks
from router.management.queues import SetRequests
from router.management.recent_events import RecentEvents
from router.management.relay import Relay
from router.management.requests import (
    BAD_REQUEST,
    FORBIDDEN,
    GOOD,
    ManagementError,
    Request,
    error_message,
    read_request,
)
from router.management.types import types_at
from router.security.operator import OPERATOR

MANAGEMENT_ADDRESS: Final = "$management"
REQUEST_BYTES: Final = 32 * 1024
MOST_REQUESTS: Final = 16
MOST_LINKS: Final = 1000
PAUSE_S: Final = 0.1


@frozen(eq=False)
class Errand:
    """A request of a client, for a router."""

    request: Request
    message: bytes
    router: str
    came_on: Link


class Caller:
    """A connection that has links to the management node."""

    def __init__(self, connection: Host) -> None:
        self.connection = connection
        self.links: dict[Link, None] = {}
        self.errands: deque[Errand] = deque()
        self.is_served = False
        self._answers = 0
        self._last: Link | None = None
        """The link on which the last answer was sent."""

    def source(self, request: Request) -> DynamicLink | None:
        """The link for the answer to this request. None if the connection does not have the link that the request
        names, or no longer has it."""
        return dynamic_source(self.connection, request.reply_to)

    @property
    def links_attached(self) -> int:
        """The number of links that have not ended. When a peer attaches a link again, its old end has ended, but is
        still in `links` until after the new attach."""
        return sum(not link.ended for link in self.links)

    @property
    def is_writing(self) -> bool:
        """Whether the last answer is not written yet."""
        last = self._last
        return last is not None and not last.ended and last.unsent > 0

    def drop(self) -> None:
        """Drop the next request, because the link for its answer is gone."""
        self.errands.popleft().came_on.flow(1)
        self.connection.wake()

    def answer(self, errand: Errand, message: bytes) -> None:
        """Send an answer. Drop the answer if its link or connection has gone, or if the client has taken back the
        link's credit."""
        errand.came_on.flow(1)
        source = self.source(errand.request)
        if source is not None and source.can_say:
            self._answers += 1
            self._last = source.link
            if not source.link.takes(message):
                told = (
                    f"the answer has {len(message)} bytes, more than the {source.link.remote_max_message_size} "
                    "bytes that its link takes"
                )
                message = error_message(errand.request, ManagementError(BAD_REQUEST, told))
            source.send_answer(self._answers.to_bytes(8, "big"), message)
        self.connection.wake()


class Callers:
    """The connections with links to management, and which of them wait for an answer."""

    def __init__(self) -> None:
        self._callers: dict[Host, Caller] = {}
        self._waiting: dict[Caller, None] = {}
        """Connections with a request, in the order in which they began to wait."""
        self._come = trio.Event()

    def enter(self, link: Link) -> Caller:
        """Add a link to management. Raises Refusal if the connection has too many."""
        caller = self._callers.setdefault(link.connection, Caller(link.connection))
        if len(caller.links) >= MOST_LINKS and caller.links_attached >= MOST_LINKS:
            raise Refusal(RESOURCE_LIMIT, f"this connection has {MOST_LINKS} links to management already")
        caller.links[link] = None
        return caller

    def leave(self, caller: Caller, link: Link) -> None:
        caller.links.pop(link, None)
        if not caller.links:
            self._callers.pop(caller.connection, None)
            self._waiting.pop(caller, None)
            caller.errands.clear()

    def awaits_credit(self, connection: Host) -> bool:
        """The connection may have credit now. Returns whether one of its requests waits for an answer."""
        caller = self._callers.get(connection)
        if caller is None:
            return False
        self.look(caller)
        return caller.is_served or bool(caller.errands)

    def look(self, caller: Caller) -> None:
        """If the connection has a request and is not being served, let it wait for its turn."""
        if caller.errands and not caller.is_served:
            self._waiting[caller] = None
            self._come.set()

    async def next(self) -> Caller:
        """Wait until a connection can be answered, and return the one that has waited longest. A connection without
        credit for answers waits again when the client gives credit."""
        while True:
            for caller in list(self._waiting):
                del self._waiting[caller]
                source = caller.source(caller.errands[0].request)
                if source is None:
                    caller.drop()
                    self.look(caller)
                elif not source.can_say:
                    continue
                elif caller.is_writing:
                    self._waiting[caller] = None
                else:
                    return caller
            if self._waiting:
                await trio.sleep(PAUSE_S)
            else:
                self._come = trio.Event()
                await self._come.wait()


Answering = Callable[[Errand], Awaitable[bytes]]


class ManagementNodes:
    """The management nodes at one router. `run` answers requests."""

    def __init__(self, name: str, agent: Agent, relay: Relay, callers: Callers, *, is_closed: bool) -> None:
        """`is_closed`: only the operator may use reserved operations; otherwise every user may."""
        self._name = name
        self._agent = agent
        self._relay = relay
        self.types = agent.types
        self._is_closed = is_closed
        self._operators = {OPERATOR}
        self.callers = callers

    def table(self, routers: Collection[str]) -> dict[str, AddressNode]:
        """The management nodes for the edge, by address. `routers`: the routers of the mesh from now on."""
        self._operators = {OPERATOR, *routers}
        others = {topological(router, MANAGEMENT_ADDRESS): ForRouter(self, router) for router in routers}
        return {MANAGEMENT_ADDRESS: ForRouter(self, self._name), **others}

    def receive(self, router: str, payload: bytes) -> None:
        """Handle a payload from the nodes of another router. Raises BreachError."""
        self._relay.receive(router, payload)

    def _permit(self, connection: Host, request: Request) -> None:
        """Check whether the user may make this request to any router. Only the client's own router checks this; the
        router that executes the request does not check again. Raises ManagementError."""
        if request.operation in RESERVED and not self.is_operator(connection.user):
            raise ManagementError(FORBIDDEN, f"user {connection.user!r} may not use {request.operation}")

    def is_operator(self, user: str) -> bool:
        """Whether the user may use reserved operations."""
        return not self._is_closed or user in self._operators

    async def ask(self, router: str, operation: str, body: Any = None, **asked: Any) -> Any:
        """Make a request of this router's own pages, to this router or another. Returns the body of the answer. The
        pages have checked their reader's permission. Raises ManagementError."""
        about = {"operation": operation, **asked}
        message = write_message({"properties": {"reply-to": ""}, "application-properties": about, "value": body or {}})
        here = router == self._name
        told = await (self._agent.answer(read_request(message)) if here else self._relay.ask(router, message))
        sections = read_message(told)
        head = sections["application-properties"]
        if head["statusCode"] not in GOOD:
            raise ManagementError(head["statusCode"], head["statusDescription"])
        return sections.get("value")

    # The methods from here on are about requests.

    def take(self, caller: Caller, link: Link, message: bytes, router: str) -> None:
        """Take a request. Raises Refusal if the connection has too many."""
        if len(caller.errands) >= MOST_REQUESTS:
            raise Refusal(RESOURCE_LIMIT, f"this connection has {MOST_REQUESTS} waiting requests already")
        try:
            request = read_request(message)
        except AmqpError as error:
            raise Refusal(error.condition, error.description) from None
        if caller.source(request) is None:
            raise Refusal(NOT_FOUND, f"reply-to {request.reply_to[:100]!r} is no dynamic source of this connection")
        caller.errands.append(Errand(request, message, router, link))
        self.callers.look(caller)

    async def run(self) -> None:
        """Answer the requests of clients, for as long as the router runs."""
        with self._agent.log.listening():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._relay.run)
                await self._serve_all(nursery)

    async def _serve_all(self, nursery: trio.Nursery) -> None:
        while True:
            caller = await self.callers.next()
            caller.is_served = True
            errand = caller.errands.popleft()
            answer = self._answer_here if errand.router == self._name else self._answer_there
            nursery.start_soon(self._serve, caller, errand, answer)

    async def _serve(self, caller: Caller, errand: Errand, answer: Answering) -> None:
        try:
            self._permit(caller.connection, errand.request)
            message = await answer(errand)
        except ManagementError as error:
            message = error_message(errand.request, error)
        caller.is_served = False
        caller.answer(errand, message)
        self.callers.look(caller)

    async def _answer_here(self, errand: Errand) -> bytes:
        return await self._agent.answer(errand.request)

    async def _answer_there(self, errand: Errand) -> bytes:
        return await self._relay.ask(errand.router, errand.message)


class RequestEnd(End):
    """The end of a link to management. Requests come on it, one at a time."""

    __slots__ = ("_router", "caller", "nodes")

    def __init__(self, link: Link, nodes: ManagementNodes, router: str) -> None:
        super().__init__(link)
        self.nodes = nodes
        self.caller = nodes.callers.enter(link)
        self._router = router

    def gone(self, now: float, *, closed: bool) -> None:
        self.nodes.callers.leave(self.caller, self.link)

    def on_transfers(self, transfers: Transfers) -> None:
        for handle, _, message, _ in transfers:
            try:
                self.nodes.take(self.caller, self.link, message, self._router)
            except Refusal as refusal:
                self.link.flow(1)
                if handle is not None:
                    self.link.reject(handle, refusal.condition, str(refusal), settle=True)
            else:
                if handle is not None:
                    self.link.update(handle, ACCEPTED, settle=True)


class ForRouter:
    """The node `$management` of a router."""

    def __init__(self, nodes: ManagementNodes, router: str) -> None:
        self._nodes = nodes
        self._router = router

    def attach(self, link: Link) -> None:
        if link.is_sender:
            raise Refusal(
                NOT_ALLOWED, f"{MANAGEMENT_ADDRESS} only accepts requests; receive the answers from a dynamic source"
            )
        link.context = RequestEnd(link, self._nodes, self._router)
        link.answer(max_message_size=REQUEST_BYTES)
        link.flow(1)


def management_of(
    at: ObservedRouter,
    events: RecentEvents,
    requests: SetRequests,
    turn: Callable[[], Awaitable[None]],
    callers: Callers,
) -> ManagementNodes:
    """Make the management nodes of a router. `turn`: awaited before work. If the topology has users, only the operator
    may use reserved operations."""

    def nodes() -> list[str]:
        routers = [at.name, *at.linkstate.routes]
        return [f"amqp:/{topological(router, MANAGEMENT_ADDRESS)}" for router in routers]

    ask, read = partial(requests.ask, at.node), partial(requests.read, at.node)
    kinds, told = tuple(types_at(at, ask, read)), partial(report, at)
    agent = Agent(kinds, nodes, events, told, Looks(kinds, told, events), turn)
    security = at.topology.security
    is_closed = security.users is not None or security.closes_mesh
    return ManagementNodes(at.name, agent, Relay(at.node, agent.answer), callers, is_closed=is_closed)
