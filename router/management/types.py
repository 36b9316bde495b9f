"""All types of `$management` at a router, and the operations on their entities. The table of entities has their
attributes (`router.entities`).
"""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

from router.entities.catalogue import ENTITIES
from router.entities.dispatch import CONNECTION, Peer
from router.entities.links import ORPHAN, PUBLISHER, SUBSCRIBER
from router.entities.observed import ObservedRouter
from router.entities.queues import DECLARED_QUEUE
from router.entities.replicas import SET
from router.entities.routers import PLAN_ROUTER
from router.events.kind import EventKind, event
from router.management.entity import READ_ONLY, EntityType, Operations, done_at_once, type_of
from router.management.forgetting import forget
from router.management.plan_router import join, remove
from router.management.queues import AskSets, QueueOperations, ReadSet, SetOperations
from topic.directory.entry import Role

log = logging.getLogger("oncemesh.management")


def types_at(at: ObservedRouter, ask: AskSets, read: ReadSet) -> Iterator[EntityType[Any]]:
    """All types of this router. `ask` has replica sets decide an operation, `read` reads bodies of messages."""
    may: dict[str, Operations[Any]] = {
        PUBLISHER.managed: Operations(
            delete=done_at_once(lambda stream: forget(at, (Role.PUBLISHER, stream.publisher)))
        ),
        SUBSCRIBER.managed: Operations(delete=done_at_once(lambda one: forget(at, (Role.SUBSCRIBER, one.name)))),
        ORPHAN.managed: Operations(delete=done_at_once(lambda entry: forget(at, entry.index))),
        PLAN_ROUTER.managed: Operations(
            create=done_at_once(partial(join, at)), delete=done_at_once(partial(remove, at))
        ),
        DECLARED_QUEUE.managed: QueueOperations(ask, read, at).all,
        SET.managed: SetOperations(at).all,
        CONNECTION.managed: Operations(delete=done_at_once(_close)),
    }
    return (type_of(one, at, may.get(one.managed, READ_ONLY)) for one in ENTITIES if one.managed)


def _close(peer: Peer) -> None:
    origin, container = peer.connection.origin, peer.connection.remote_container
    told = event(EventKind.CLOSED, origin=origin, container=container)
    log.info("closing the connection of %s (%s) at the request of an operator", origin, container, extra=told)
    peer.connection.close("amqp:connection:forced", "closed by management")
    peer.connection.wake()
