"""How the table of entities is written: an entity, an attribute, a series.

Each fact of a router is told once, here: its name, its type, what it says, where its value comes from. `$status`,
`$management`, `/metrics`, the console and the commands show what the table has, and nothing else (docs/entities.md).

An attribute's name is in words with `_` between them, a unit last, as `$status` has it; `$management` writes the same
name as AMQP does (`managed_name`). Names of qpid-dispatch are as they are there. The formatter is kept from the tables
(`fmt: skip`): an attribute is a row, not a column of arguments.
"""

from collections.abc import Callable, Iterable
from enum import Enum, Flag, StrEnum, auto
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from attrs import frozen

if TYPE_CHECKING:
    from router.entities.observed import ObservedRouter

T = TypeVar("T")

OURS: Final = "io.oncemesh."
"""Begins the names of types that qpid-dispatch has not."""
DISPATCH: Final = "org.apache.qpid.dispatch."


class Type(StrEnum):
    """Of a value; any may be None, where there is nothing to tell."""

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
    def counts(self) -> bool:
        """Whether it counts up, so that two looks at it make a rate."""
        return self in (Type.COUNT, Type.CARRIED, Type.COUNTS)


class Where(Flag):
    """Who shows an attribute as it is. Its series has `/metrics` besides."""

    NOWHERE = 0
    STATUS = auto()
    MANAGEMENT = auto()
    BOTH = STATUS | MANAGEMENT


class How(Enum):
    """What a series makes of an attribute of all entities of its type."""

    EACH = "of each"
    """A sample for each entity, whose name is its label; without a label there is one entity."""
    KEYS = "by key"
    """Of one entity: a sample for each key of a map."""
    FACTS = "as labels"
    """Of one entity: a map, the values of which are labels; the sample is 1."""
    SUM = "the sum"
    NUMBER = "how many"
    BY_VALUE = "how many, by value"
    OLDEST = "the longest time that an entity has been so"
    """Seconds, of a flag, from look to look."""


@frozen
class Metric:
    """Of `/metrics`. Labels are nothing that a client chose, but for the names of a bounded number of queues: so there
    are as many samples whatever comes to a router."""

    name: str
    labels: tuple[str, ...] = ()
    how: How = How.EACH
    values: tuple[str, ...] = ()
    """Those that there always is a sample of, if it is by value."""
    says: str = ""
    """Of a sum or a number, for which the attribute does not say it."""


@frozen
class Attribute(Generic[T]):
    name: str
    type: Type
    says: str
    read: Callable[["ObservedRouter", T], Any]
    where: Where = Where.BOTH
    series: Metric | None = None
    may_lack: bool = False
    """`$status` leaves it out where it is empty."""

    @property
    def is_counter(self) -> bool:
        """Whether its series is one: what is summed over entities falls, too, as they go."""
        return self.type.counts and self.series is not None and self.series.how in (How.EACH, How.KEYS)

    @property
    def measured(self) -> str:
        """What its series says."""
        return (self.series.says if self.series is not None else "") or self.says

    @property
    def managed_name(self) -> str:
        """`since_s` is `sinceSeconds` there."""
        first, *words = (self.name.removesuffix("_s") + "_seconds" * self.name.endswith("_s")).split("_")
        return first + "".join(map(str.capitalize, words))


@frozen
class Entity(Generic[T]):
    name: str
    says: str
    """Which ones there are."""
    found: Callable[["ObservedRouter"], Iterable[T]]
    """Those that there are now, in order. A pass over them costs no more than looking at each."""
    attributes: tuple[Attribute[T], ...]
    status: str = ""
    """The key of their list in `$status`; empty: there is none."""
    managed: str = ""
    """The name of their type in `$management`."""
    columns: tuple[str, ...] = ()
    """Of their table in `oncemesh status`, besides whose link it is; empty: there is none."""
    spared: tuple[str, ...] = ()
    """Columns that are left out first where there is no room."""

    def shown(self, where: Where) -> list[Attribute[T]]:
        return [attribute for attribute in self.attributes if where in attribute.where]

    def in_status(self, at: "ObservedRouter", one: T) -> dict[str, Any]:
        """As `$status` tells of it: `a.b` is `b` in a map `a`."""
        told: dict[str, Any] = {}
        for attribute in self.shown(Where.STATUS):
            value = attribute.read(at, one)
            if value or not attribute.may_lack:
                outer, _, inner = attribute.name.partition(".")
                (told.setdefault(outer, {}) if inner else told)[inner or outer] = value
        return told
