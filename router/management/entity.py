"""Types of manageable entities. A type has the entities of the table that belong to it, at one router, and the
operations on them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeVar

import attrs
from attrs import frozen

from router.entities.observed import ObservedRouter
from router.entities.table import Entity, Where
from router.management.bounds import bounded
from router.management.requests import Request

IDENTITY: Final = "identity"
NAME: Final = "name"
TYPE: Final = "type"

T = TypeVar("T")
P = ParamSpec("P")


@frozen
class Operations(Generic[T]):
    """The operations on entities of a type. Each raises ManagementError, and returns when it is done."""

    create: Callable[[str, Mapping[Any, Any]], Awaitable[T]] | None = None
    """Creates an entity from a name and a request's body."""
    update: Callable[[T, Mapping[Any, Any]], Awaitable[T]] | None = None
    """Changes an entity as a request's body says."""
    delete: Callable[[T], Awaitable[None]] | None = None
    others: Mapping[str, Callable[[T, Request], Awaitable[Any]]] = attrs.Factory(dict)
    """Other operations, keyed by name. Each returns the body of the answer."""
    named: Callable[[str, str], T] | None = None
    """Makes a stand-in for an entity from its identity and name, so that a request can change an entity that this
    router does not know."""


READ_ONLY: Final = Operations[Any]()


def done_at_once(change: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Make an operation, which has to be asynchronous, of a function that changes an entity without waiting."""

    async def changed(*arguments: P.args, **named: P.kwargs) -> T:
        return change(*arguments, **named)

    return changed


@frozen
class EntityType(Generic[T]):
    name: str
    attributes: Mapping[str, Callable[[T], Any]]
    """The value of each attribute of an entity: a simple value, an iterable or a mapping. The attributes `identity` and
    `name` are among them."""
    entities: Callable[[], Iterable[T]]
    """Finds the present entities, in order. The search itself costs no more than one read of each entity."""
    may: Operations[T] = READ_ONLY
    says: str = ""
    """A sentence about which entities the type has."""
    schema: Mapping[str, Mapping[str, str]] = attrs.Factory(dict)
    """Maps each attribute to its `type` and its `description`."""

    @property
    def attribute_names(self) -> list[str]:
        return [TYPE, *self.attributes]

    @property
    def operations(self) -> list[str]:
        others = {"CREATE": self.may.create, "UPDATE": self.may.update, "DELETE": self.may.delete}
        return ["READ", *(name for name, operation in others.items() if operation is not None), *self.may.others]

    def row(self, entity: T, names: Sequence[str]) -> list[Any]:
        """The values of these attributes, in the same order. The value is None for an attribute that
        this type lacks."""
        known = self.attributes
        return [
            bounded(known[name](entity)) if name in known else self.name if name == TYPE else None for name in names
        ]

    def told(self, entity: T) -> dict[str, Any]:
        """All attributes of the entity, keyed by name."""
        names = self.attribute_names
        return dict(zip(names, self.row(entity, names), strict=True))


def type_of(entity: Entity[T], at: ObservedRouter, may: Operations[T] = READ_ONLY) -> EntityType[T]:
    attributes = {one.managed_name: partial(one.read, at) for one in entity.shown(Where.MANAGEMENT)}
    schema = {
        one.managed_name: {"type": one.type.in_schema, "description": one.says}
        for one in entity.shown(Where.MANAGEMENT)
    }
    return EntityType(entity.managed, attributes, partial(entity.found, at), may, entity.says, schema)
