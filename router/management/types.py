"""All types of `$management` at a router, their names, and the operations on their entities. The table of entities has
the attributes of the types (`router.entities`).

skupper-router is a fork of qpid-dispatch, and its tools differ in three ways: they use another prefix for the types of
qpid-dispatch, they ask for three types where qpid-dispatch has the one type `router`, and they expect addresses without
a phase. The tools of both routers may leave out a prefix.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import attrs

from router.entities.catalogue import ENTITIES
from router.entities.dispatch import CONNECTION, MOBILE, ROUTER, Peer
from router.entities.links import ORPHAN, PUBLISHER, SUBSCRIBER
from router.entities.observed import ObservedRouter
from router.entities.queues import DECLARED_QUEUE
from router.entities.replicas import SET
from router.entities.routers import PLAN_ROUTER
from router.entities.table import DISPATCH, OURS
from router.events.kind import EventKind, event
from router.management.entity import READ_ONLY, EntityType, Operations, done_at_once, type_of
from router.management.forgetting import forget
from router.management.plan_router import join, remove
from router.management.queues import AskSets, QueueOperations, ReadSet, SetOperations
from topic.directory.entry import Role

log = logging.getLogger("oncemesh.management")

SKUPPER: Final = "io.skupper.router."
PARTS_OF_ROUTER: Final = ("routerMetrics", "network")
ADDRESSES: Final = {"router.address": ("identity", "name", "key"), "router.link": ("owningAddr",)}
"""The attributes that contain an address with its phase, for each type that has some."""


def types_at(at: ObservedRouter, ask: AskSets, read: ReadSet) -> Iterator[EntityType[Any]]:
    """Make all types of this router. `ask` lets replica sets decide an operation; `read` reads bodies of messages."""
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


def other_names(types: Mapping[str, EntityType[Any]]) -> dict[str, EntityType[Any]]:
    """The types that skupper-router knows by other names, keyed by these names. A type in this mapping shows itself to
    clients under the other name."""
    found = {name.removeprefix(DISPATCH): kind for name, kind in types.items() if name.startswith(DISPATCH)}
    if ROUTER.managed in types:
        found |= dict.fromkeys(PARTS_OF_ROUTER, types[ROUTER.managed])
    return {f"{SKUPPER}{name}": _without_phases(f"{SKUPPER}{name}", kind, name) for name, kind in found.items()}


def full_name(name: str, types: Mapping[str, EntityType[Any]]) -> str:
    """The full name of a type. If `name` is the name of one of these types without its prefix, the prefix is added."""
    return next((full for prefix in (DISPATCH, OURS) if (full := f"{prefix}{name}") in types), name)


def _without_phases(name: str, kind: EntityType[Any], short: str) -> EntityType[Any]:
    own = {one: partial(_without_phase, kind.attributes[one]) for one in ADDRESSES.get(short, ())}
    return attrs.evolve(kind, name=name, attributes={**kind.attributes, **own})


def _without_phase(read: Callable[[Any], Any], entity: Any) -> Any:
    value = read(entity)
    is_mobile = isinstance(value, str) and value.startswith(MOBILE)
    return f"{MOBILE[0]}{value.removeprefix(MOBILE)}" if is_mobile else value
