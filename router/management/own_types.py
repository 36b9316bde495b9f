"""The types that qpid-dispatch has not: who publishes and subscribes at this router, what becomes of each delivery that
is here, whom this router is in contact with, and which routers the plan has.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import trio

from router.amqp.format.values import StreamFigures
from router.edge.report import publisher_status, state_of, status_of
from router.management.bounds import MOST_ITEMS
from router.management.entity import OURS, EntityType, ManagedRouter
from router.management.forgetting import forget, orphan_type
from router.management.plan_router import plan_router
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import AWAITING_HOME, QUEUED, SENT, WITHHELD, Record, Stream
from topic.directory.entry import Role
from topic.edge.subscriber import LocalSubscriber

AT_SUBSCRIBER: Final = {QUEUED: "queued", SENT: "sent", WITHHELD: "withheld", AWAITING_HOME: "awaiting home"}
Kind = EntityType[Any]


def own_types(at: ManagedRouter) -> Iterator[Kind]:
    yield _publisher(at)
    yield _subscriber(at)
    yield orphan_type(at)
    yield _delivery(at)
    yield _contact(at)
    yield _neighbour(at)
    yield plan_router(at)


def _publisher(at: ManagedRouter) -> Kind:
    topic = at.node.topic
    return EntityType[Stream](
        f"{OURS}publisher",
        {
            "identity": lambda stream: stream.publisher.decode(),
            "name": lambda stream: str(stream.identity),
            "container": lambda stream: stream.identity.container,
            "link": lambda stream: stream.identity.link,
            "address": lambda stream: stream.identity.address,
            "user": lambda stream: stream.identity.user,
            "status": lambda stream: publisher_status(stream, topic.attaches.waiting),
            "epoch": lambda stream: stream.label,
            "timeoutSeconds": lambda stream: stream.lifetime.timeout,
            "durable": lambda stream: stream.lifetime.durable,
            "received": lambda stream: stream.received,
            "unsettled": lambda stream: stream.window.unsettled,
            "bytes": lambda stream: stream.window.held,
            "credit": lambda stream: stream.window.credit,
            "withheld": lambda stream: len(stream.withheld),
        },
        topic.home.streams.values,
        delete=lambda stream: forget(at, (Role.PUBLISHER, stream.publisher)),
    )


def _subscriber(at: ManagedRouter) -> Kind:
    return EntityType[LocalSubscriber](
        f"{OURS}subscriber",
        {
            "identity": lambda subscriber: subscriber.name.decode(),
            "name": lambda subscriber: str(subscriber.identity),
            "container": lambda subscriber: subscriber.identity.container,
            "link": lambda subscriber: subscriber.identity.link,
            "address": lambda subscriber: subscriber.identity.address,
            "user": lambda subscriber: subscriber.identity.user,
            "status": status_of,
            "epoch": lambda subscriber: str(subscriber.epoch),
            "timeoutSeconds": lambda subscriber: subscriber.lifetime.timeout,
            "durable": lambda subscriber: subscriber.lifetime.durable,
            "delivered": lambda subscriber: subscriber.delivered,
            "accepted": lambda subscriber: subscriber.accepted,
            "queued": lambda subscriber: subscriber.queued(),
            "gatedPublishers": lambda subscriber: len(subscriber.gated),
            "credit": lambda subscriber: subscriber.credit,
        },
        at.node.topic.edge.subscribers.values,
        delete=lambda subscriber: forget(at, (Role.SUBSCRIBER, subscriber.name)),
    )


def tag_text(tag: bytes) -> str:
    """A delivery-tag as its publisher would write it: as text if it is one, else as 0x and hexadecimal."""
    text = tag.decode("ascii", "replace")
    return text if text.isascii() and text.isprintable() else f"0x{tag.hex()}"


def _delivery(at: ManagedRouter) -> Kind:
    directory = at.node.topic.directory

    def named(role: Role, name: bytes) -> str:
        entry = directory.entry((role, name))
        return str(entry.identity) if entry is not None else name.decode()

    def at_subscribers(record: Record) -> Iterator[tuple[str, str]]:
        for subscriber, state in record.locals.items():
            yield str(subscriber.identity), AT_SUBSCRIBER.get(state) or DeliveryOutcome(state).name.lower()

    return EntityType[Record](
        f"{OURS}delivery",
        {
            "identity": lambda record: record.key.decode(),
            "name": lambda record: tag_text(record.tag) if record.tag else None,
            "publisher": lambda record: named(Role.PUBLISHER, record.stream.publisher),
            "address": lambda record: record.stream.address,
            "home": lambda record: record.stream.home,
            "n": lambda record: record.n,
            "state": state_of,
            "bytes": lambda record: record.size,
            "subscribers": lambda record: dict(islice(at_subscribers(record), MOST_ITEMS)),
            "unanswered": lambda record: record.open,
            "awaitedRouters": lambda record: sorted(record.awaited),
            "orphans": lambda record: (named(Role.SUBSCRIBER, name) for name in record.orphans),
        },
        at.node.topic.records.by_key.values,
    )


def _contact(at: ManagedRouter) -> Kind:
    directory = at.node.topic.directory
    return EntityType[str](
        f"{OURS}contact",
        {
            "identity": lambda name: name,
            "name": lambda name: name,
            "incarnation": lambda name: directory.contacts.get(name),
            "nextHop": lambda name: route.next_hop if (route := at.linkstate.routes.get(name)) else None,
            "cost": lambda name: route.cost if (route := at.linkstate.routes.get(name)) else None,
            "applied": lambda name: directory.applied.get(name),
            "acknowledged": lambda name: directory.members.acked[name],
        },
        lambda: directory.contacts,
    )


def _neighbour(at: ManagedRouter) -> Kind:
    neighbours, connections = at.linkstate.neighbours, at.neighbours

    def figures(name: str) -> StreamFigures | None:
        connection = connections.connections.get(name)
        return connection.measure() if connection is not None else None

    def messages(name: str) -> tuple[int | None, int | None]:
        return connections.exchanged(name) or (None, None)

    return EntityType[str](
        f"{OURS}neighbour",
        {
            "identity": lambda name: name,
            "name": lambda name: name,
            "up": lambda name: neighbours[name].up,
            "cost": lambda name: neighbours[name].cost,
            "sinceSeconds": lambda name: round(trio.current_time() - neighbours[name].since, 3),
            "messagesSent": lambda name: messages(name)[0],
            "messagesReceived": lambda name: messages(name)[1],
            "bytesSent": lambda name: seen.sent if (seen := figures(name)) else None,
            "bytesReceived": lambda name: seen.received if (seen := figures(name)) else None,
            "roundTripSeconds": lambda name: seen.rtt_s if (seen := figures(name)) else None,
        },
        lambda: sorted(neighbours),
    )
