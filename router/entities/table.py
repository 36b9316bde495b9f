"""The parts of the table of entities: an entity, an attribute, a series.

The table has each fact of a router once: its name, type, meaning, and the source of its value. `$status`,
`$management`, `/metrics`, the console and the commands show only the facts of the table (docs/entities.md).

An attribute's name has words with `_` between them. If the value has a unit, the unit is the last word. `$status` shows
the name in this form; `$management` shows the same name in the form of AMQP (`managed_name`). Names of qpid-dispatch
stay unchanged. Each attribute stands on one line of a table, so `fmt: skip` keeps the formatter from breaking the line.
"""

from collections.abc import Callable, Iterable
from enum import Enum, Flag, StrEnum, auto
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from attrs import frozen

if TYPE_CHECKING:
    from router.entities.observed import ObservedRouter

T = TypeVar("T")

OURS: Final = "io.oncemesh."
"""The beginning of the names of types that qpid-dispatch does not have."""
DISPATCH: Final = "org.apache.qpid.dispatch."


class Type(StrEnum):
    """The type of a value. Any value may be None if it is unknown."""

    TEXT = "text"
    TEXTS = "list of texts"
    FLAG = "yes or no"
    NUMBER = "number"
    SECONDS = "seconds"
    BYTES = "bytes"
    COUNT = "number, counting up"
    CARRIED = "bytes, counting up"
    MAP = "map"
    NUMBERS = "map of numbers"
    COUNTS = "map of numbers, counting up"

    @property
    def in_schema(self) -> str:
        """The type's name in the schema of qpid-dispatch."""
        match self:
            case Type.TEXT:
                return "string"
            case Type.TEXTS:
                return "list"
            case Type.FLAG:
                return "boolean"
            case Type.MAP | Type.NUMBERS | Type.COUNTS:
                return "map"
        return "integer"

    @property
    def counts(self) -> bool:
        """Whether the value never falls, so that the difference between two measurements gives a rate."""
        return self in (Type.COUNT, Type.CARRIED, Type.COUNTS)


class Where(Flag):
    """The places that show the value of an attribute. `/metrics` also shows the series of the attribute."""

    NOWHERE = 0
    STATUS = auto()
    MANAGEMENT = auto()
    BOTH = STATUS | MANAGEMENT


class How(Enum):
    """How the samples of a series are computed from an attribute. All entities of a type contribute."""

    EACH = "of each"
    """One sample for each entity, with the entity's name as the label. A series without a label has one entity."""
    KEYS = "by key"
    """One sample for each key of the attribute's map, with the key as the label. Only a type with one entity may have
    this kind of series."""
    FACTS = "as labels"
    """One sample with the value 1, as Prometheus shows facts: its labels are the keys and values of the attribute's
    map. Only a type with one entity may have such a series."""
    SUM = "the sum"
    NUMBER = "how many"
    BY_VALUE = "how many, by value"
    OLDEST = "the longest time that an entity has been so"
    """The longest time, in seconds, for which the attribute of an entity has been true. The time begins at the first of
    the consecutive measurements that have found the attribute true."""


@frozen
class Metric:
    """A series of `/metrics`. No label has a name that a client chose, except names of a bounded number of queues. So
    the number of samples is bounded."""

    name: str
    labels: tuple[str, ...] = ()
    how: How = How.EACH
    values: tuple[str, ...] = ()
    """If `how` is `BY_VALUE`: the values of the attribute that always have a sample. The sample is 0 if no entity has
    the value."""
    says: str = ""
    """The meaning of the series. If it is empty, the series has the meaning of the attribute (`Attribute.measured`)."""


@frozen
class Attribute(Generic[T]):
    name: str
    type: Type
    says: str
    read: Callable[["ObservedRouter", T], Any]
    where: Where = Where.BOTH
    series: Metric | None = None
    may_lack: bool = False
    """True if `$status` leaves the attribute out when it is empty."""

    @property
    def is_counter(self) -> bool:
        """Whether the series is a counter. A sum over entities is no counter, because the sum falls when an entity
        goes."""
        return self.type.counts and self.series is not None and self.series.how in (How.EACH, How.KEYS)

    @property
    def measured(self) -> str:
        """The meaning of the series."""
        return (self.series.says if self.series is not None else "") or self.says

    @property
    def managed_name(self) -> str:
        """The name in `$management`: `since_s` is `sinceSeconds` there."""
        first, *words = (self.name.removesuffix("_s") + "_seconds" * self.name.endswith("_s")).split("_")
        return first + "".join(map(str.capitalize, words))


@frozen
class Entity(Generic[T]):
    name: str
    says: str
    """The meaning of the type, for people: it says which entities the type has."""
    found: Callable[["ObservedRouter"], Iterable[T]]
    """Finds the present entities, in order. The search itself costs no more than one read of each entity."""
    attributes: tuple[Attribute[T], ...]
    status: str = ""
    """The key of the type's list in `$status`; empty if `$status` has no list of it."""
    managed: str = ""
    """The name of the type in `$management`."""
    columns: tuple[str, ...] = ()
    """The columns of the type's table in `oncemesh status`, besides the link's name; empty if there is no table."""
    spared: tuple[str, ...] = ()
    """The columns that are left out first if the terminal is narrow."""

    def shown(self, where: Where) -> list[Attribute[T]]:
        return [attribute for attribute in self.attributes if where in attribute.where]

    def in_status(self, at: "ObservedRouter", one: T) -> dict[str, Any]:
        """The attributes as `$status` has them: the value of `a.b` is the value of `b` in a map `a`."""
        told: dict[str, Any] = {}
        for attribute in self.shown(Where.STATUS):
            value = attribute.read(at, one)
            if value or not attribute.may_lack:
                outer, _, inner = attribute.name.partition(".")
                (told.setdefault(outer, {}) if inner else told)[inner or outer] = value
        return told
