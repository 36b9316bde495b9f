"""The edge for AMQP clients: the node to which a link is attached, and the end that handles the link's events.

A table has the node of each special address, such as `$status`. Every other address belongs to a topic, or does not
exist. The end of a link handles its events in batches (`router.edge.ends`). This module decides nothing about
deliveries.
"""

import logging
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Any, Final, Protocol

from attrs import frozen

from router.amqp.batches import Dispositions, PostedMessage, ResumedTransfers, Transfers
from router.amqp.connection import Connection
from router.amqp.format.errors import INVALID_FIELD, NOT_FOUND, RESOURCE_LIMIT
from router.amqp.format.values import ErrorCondition
from router.amqp.handler import Handler
from router.amqp.proton.link import Link
from router.edge.attach import (
    LONGEST_NAME,
    Refusal,
    address_of,
    begins_life,
    check_names,
    is_anonymous,
    is_dynamic_source,
)
from router.edge.ends import AddressNode, ClientEnd, End, Wakeable, WrittenEnd
from router.edge.guard import Guard, Visiting
from router.edge.queue_address import address_inside
from router.edge.status_node import STATUS_ADDRESS
from router.edge.temporary.queues import forsake
from router.edge.transactions.parts import lose_part
from topic.actions import Declared, LinkAction
from topic.node import Node
from topic.properties import ROUTERS

log = logging.getLogger("oncemesh.clients")

FOR_ALL: Final = (STATUS_ADDRESS, ROUTERS)
"""The addresses of nodes that do not show the links of other clients."""
OF_ROUTERS: Final = "_topo/"
"""The addresses of single routers' nodes begin with this. Only users with permission see them (`router.management`)."""
ROUTERS_NAMED: Final = 8
"""The highest number of routers that an error names, because the error has to fit into a frame."""


class Guest(Protocol):
    """A connection, as seen by the admission that keeps its place (`router.admission`)."""

    def open(self) -> None: ...
    def admit(self) -> bool: ...


class ClientConnection(Visiting, Protocol):
    """A connection of AMQP or of MQTT, as seen by code that lists connections or ends them."""

    address: str
    cipher: tuple[str, str, int] | None
    remote_container: str
    remote_properties: Mapping[str, Any]
    opened: bool
    closing: bool

    @property
    def protocol(self) -> str: ...
    @property
    def mechanism(self) -> str: ...
    def close(self, condition: str | None = None, description: str = "") -> None: ...
    def wake(self) -> None: ...


@frozen
class Arrival:
    """A client's connection: its number since the router began, and when it opened."""

    number: int
    at: float


class ClientEdge(Handler):
    """The handler of all clients' connections. A link's context is its `End`, a connection's context its `Guest`."""

    def __init__(self, node: Node, topics: AddressNode, guard: Guard) -> None:
        self.node = node
        self._guard = guard
        self.nodes: Mapping[str, AddressNode] = {}
        self.connections: dict[ClientConnection, Arrival] = {}
        """All open connections, in the order in which they opened."""
        self._numbers = count(1)
        self._topics = topics
        self._full: dict[Wakeable, dict[WrittenEnd, None]] = {}

    # The methods from here on are about connections.

    def on_open(self, connection: Connection) -> None:
        if why := self._guard.opens(connection):
            connection.refuse(RESOURCE_LIMIT, why)
            return
        if len(connection.remote_container) > LONGEST_NAME:
            connection.refuse(INVALID_FIELD, f"container-id: expected {LONGEST_NAME} characters at most")
            return
        guest: Guest = connection.context
        guest.open()
        self.enter(connection)
        connection.open()

    def enter(self, connection: ClientConnection) -> None:
        """Add a connection that the router has accepted."""
        self.connections[connection] = Arrival(next(self._numbers), self.node.now())

    def leave(self, connection: ClientConnection) -> None:
        self._guard.closed(connection)
        self.connections.pop(connection, None)
        self._full.pop(connection, None)

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        ends: list[End] = [link.context for link in connection.links if link.context is not None]
        for end in ends:
            # Separate the ends from their links, because no link can attach again on this connection.
            end.part()
        self.node.put_off(partial(self._left, end) for end in ends)
        self.leave(connection)

    def _left(self, end: End) -> None:
        end.gone(self.node.now(), closed=False)

    def close(self, condition: str, description: str) -> None:
        """Close every client's connection; their links end without closing detaches."""
        for connection in list(self.connections):
            connection.close(condition, description)
            connection.wake()

    # The methods from here on are about links.

    def on_attach(self, link: Link) -> None:
        """Attach the link. If the attach may be late, it waits for a proof that its client is still here (protocol
        7.8).
        """
        if link.connection.can_prove and self._begins_life(link):
            link.connection.prove(partial(self._attach, link))
        else:
            self._attach(link)

    def _begins_life(self, link: Link) -> bool:
        try:
            address = address_inside(self.node, address_of(link), receives=link.is_sender)
        # The attach will be refused, so it begins no life.
        except Refusal:
            return False
        return begins_life(link, address, self.node.topic.generations)

    def _attach(self, link: Link) -> None:
        if link.ended:
            return
        guest: Guest = link.connection.context
        try:
            self._guard.begins(link.connection, self.node.now())
            check_names(link)
            address = address_of(link)
            node = None if is_anonymous(link) else self.nodes.get(address)
            if node is not None and address not in FOR_ALL:
                self._guard.looks(link.connection)
            if node is None and address.startswith(OF_ROUTERS):
                self._check_router(link.connection, address)
            # A dynamic source may be for management, so it needs no place among the topic clients.
            if node is None and not is_dynamic_source(link) and not guest.admit():
                full = self._guard.exceed(
                    "connections", link.connection.origin, "this router has as many clients as it may have"
                )
                link.connection.close(RESOURCE_LIMIT, full)
                return
            (node or self._topics).attach(link)
            link.forget_map()
        except Refusal as refusal:
            self._guard.refuses(link, address_of(link), refusal)
            link.refuse(refusal.condition, str(refusal))
        self.node.perform()

    def _check_router(self, connection: Visiting, address: str) -> None:
        """Check the address of a single router's node. Raises Refusal if there is no such router. The refusal names the
        routers of the mesh, if the user may see them."""
        known = sorted(one for one in self.nodes if one.startswith(OF_ROUTERS))
        if known and self._guard.may_look(connection):
            more = f"; there are {len(known)} of these" if len(known) > ROUTERS_NAMED else ""
            raise Refusal(NOT_FOUND, f"no node {address!r}, expected one of {', '.join(known[:ROUTERS_NAMED])}{more}")

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        if condition is not None:
            who = f"{link.connection.remote_container}, {link.connection.origin}"
            log.warning("client %s: link %s: %s: %s", who, link.name, condition.name, condition.description)
            self._guard.detached(condition)
        self._gone(link, closed=closed)
        self.node.perform()

    def _gone(self, link: Link, *, closed: bool) -> None:
        """Handle the end of the link. A closing detach ends the terminus. Any other end of the link suspends a terminus
        with a timeout."""
        now = self.node.now()
        end: End | None = link.context
        if end is not None:
            if closed or not end.lasts:
                # The link keeps its end if the terminus lasts, because the client may re-attach the link.
                end.part()
            end.gone(now, closed=closed)

    def on_credit(self, link: Link) -> None:
        end: End | None = link.context
        if end is not None:
            end.on_credit()
            self._look(end)

    def on_echo(self, link: Link) -> None:
        end: End = link.context
        end.on_echo()
        self.node.perform()

    def state_of(self, link: Link) -> Mapping[str, int] | None:
        end: End | None = link.context
        return end.state() if end is not None else None

    # The methods from here on are about deliveries. They are hot.

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        end: End = link.context
        end.on_transfers(transfers)
        self.node.perform()

    def on_resumed(self, link: Link, resumed: ResumedTransfers) -> None:
        end: End = link.context
        end.on_resumed(resumed)
        self.node.perform()

    def on_posted(self, link: Link, posted: PostedMessage) -> None:
        end: End = link.context
        end.on_posted(posted)
        if link.ended:
            lose_part(link.connection, self.node, posted.transaction)
        self.node.perform()

    def on_part_lost(self, connection: Connection, transaction: bytes) -> None:
        lose_part(connection, self.node, transaction)
        self.node.perform()

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        end: End = link.context
        end.on_dispositions(dispositions)
        self.node.perform()

    def written(self, connection: Wakeable) -> None:
        """Let links that were full continue, because the engine is about to write its output."""
        if (full := self._full.pop(connection, None)) is not None:
            self.node.now()
            for end in full:
                end.written()
                self._look(end)
            self.node.pump()

    def _look(self, end: WrittenEnd) -> None:
        if end.awaits_writing and not end.link.ended:
            self._full.setdefault(end.link.connection, {})[end] = None

    # The core calls the methods from here on.

    def perform(self, action: LinkAction) -> None:
        end: ClientEnd = action.link
        if not end.link.ended:
            connection: Wakeable = end.link.connection
            # The action may end the link.
            end.perform(action)
            self._look(end)
            connection.wake()
        elif isinstance(action, Declared):
            forsake(self.node, action)
