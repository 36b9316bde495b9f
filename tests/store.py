"""Replaces `router.store`: it stores data at once, and the data outlive a kill."""

from collections.abc import Iterable
from typing import Self

from linkstate.clock import AHEAD
from linkstate.plan.plan import Plan, plan_of
from topic.directory.entry import Index, LinkEntry


class MemoryStore:
    def __init__(self) -> None:
        self.entries: dict[Index, LinkEntry] = {}
        self.reserved = 0
        self.plan = Plan({}, {})

    @property
    def found(self) -> bool:
        """Whether the store was used before: every life reserves clock values."""
        return self.reserved > 0

    @property
    def remembered(self) -> list[LinkEntry]:
        """The entries, in the order of `router.store`."""
        return [entry for _, entry in sorted(self.entries.items())]

    def save(self, changed: Iterable[LinkEntry], clock: int, plan: Plan | None = None, *, whole: bool = False) -> None:
        assert not whole, "it is never behind"
        if plan is not None:
            self.plan = plan_of(plan.changed())
        for entry in changed:
            if entry.outlives_router:
                self.entries[entry.role, entry.name] = entry
            else:
                self.entries.pop((entry.role, entry.name), None)
        if clock >= self.reserved:
            self.reserved = clock + AHEAD

    def copy(self) -> Self:
        copy = type(self)()
        copy.entries, copy.reserved, copy.plan = dict(self.entries), self.reserved, self.plan
        return copy
