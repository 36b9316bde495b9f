"""Types of manageable entities: a table of attributes each, and where the entities are."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from attrs import frozen

from linkstate.mesh import Mesh
from router.edge.clients import ClientEdge
from router.management.bounds import bounded
from router.management.recent_events import RecentEvents
from router.mesh.config import Topology
from router.neighbours import Neighbours
from topic.node import Node

IDENTITY: Final = "identity"
NAME: Final = "name"
TYPE: Final = "type"
OURS: Final = "io.oncemesh."
"""Begins the names of types that qpid-dispatch has not."""

T = TypeVar("T")


@frozen
class ManagedRouter:
    """Whose entities these are."""

    topology: Topology
    node: Node
    linkstate: Mesh
    clients: ClientEdge
    neighbours: Neighbours
    started: float
    """By the node's clock."""
    events: RecentEvents
    report: Callable[[], bytes]
    """As JSON."""

    @property
    def name(self) -> str:
        return self.node.name


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
