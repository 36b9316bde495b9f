"""Types of manageable entities: those of the table that have a type, at one router, and what may be done to them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from attrs import frozen

from router.entities.observed import ObservedRouter
from router.entities.table import Entity, Where
from router.management.bounds import bounded

IDENTITY: Final = "identity"
NAME: Final = "name"
TYPE: Final = "type"

T = TypeVar("T")


@frozen
class EntityType(Generic[T]):
    name: str
    attributes: Mapping[str, Callable[[T], Any]]
    """What each says of an entity: a simple value, an iterable or a mapping. `identity` and `name` are among them."""
    entities: Callable[[], Iterable[T]]
    """Those that there are now, in order. A pass over them may cost no more than looking at each."""
    delete: Callable[[T], None] | None = None
    create: Callable[[str, Mapping[Any, Any]], T] | None = None
    """From a name and a request's body. Both raise ManagementError."""

    @property
    def attribute_names(self) -> list[str]:
        return [TYPE, *self.attributes]

    @property
    def operations(self) -> list[str]:
        others = {"CREATE": self.create, "DELETE": self.delete}
        return ["READ", *(name for name, operation in others.items() if operation is not None)]

    def row(self, entity: T, names: Sequence[str]) -> list[Any]:
        """The values of these attributes; None for those of other types."""
        known = self.attributes
        return [
            bounded(known[name](entity)) if name in known else self.name if name == TYPE else None for name in names
        ]

    def told(self, entity: T) -> dict[str, Any]:
        """All its attributes."""
        names = self.attribute_names
        return dict(zip(names, self.row(entity, names), strict=True))


def type_of(
    entity: Entity[T],
    at: ObservedRouter,
    delete: Callable[[T], None] | None = None,
    create: Callable[[str, Mapping[Any, Any]], T] | None = None,
) -> EntityType[T]:
    attributes = {one.managed_name: partial(one.read, at) for one in entity.shown(Where.MANAGEMENT)}
    return EntityType(entity.managed, attributes, partial(entity.found, at), delete, create)
