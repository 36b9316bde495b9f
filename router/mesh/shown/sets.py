"""Replica sets of a mesh, of what each router says of them (`router.entities.replicas`): each set once.

Routers may differ for a moment, or for as long as they are cut off. The one in the latest term knows best, and of
those the leader.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from router.entities.replicas import LEADER, is_redundant
from router.mesh.status import RouterView

Row = Mapping[str, Any]


@frozen
class ShownSet:
    name: str
    rows: Mapping[str, Row]
    """By router, what it says."""
    by: str
    """The router that knows best."""

    @property
    def best(self) -> Row:
        return self.rows[self.by]

    @property
    def leader(self) -> str | None:
        """The router that leads, whether it has answered or not."""
        leader: str | None = self.best["leader"]
        return leader

    @property
    def needed(self) -> list[str]:
        """Voters whose stop takes the majority from the set, in order; none without a leader."""
        row = self.best
        if row["role"] != LEADER or is_redundant(row["voters"], row["may_stop"]):
            return []
        return [voter for voter in row["voters"] if voter not in row["may_stop"]]


def _knowledge(row: Row) -> tuple[int, int, bool, int]:
    return int(row["life"] or "0", 16), row["term"], row["role"] == LEADER, row["commit"]


def sets_in(rows: Iterable[tuple[str, Row]]) -> list[ShownSet]:
    """Of routers and rows, in the order in which sets are met."""
    by_name: dict[str, dict[str, Row]] = {}
    for router, row in rows:
        by_name.setdefault(row["name"], {})[router] = row
    return [
        ShownSet(name, known, max(known, key=lambda router: _knowledge(known[router])))
        for name, known in by_name.items()
    ]


def shown_sets(views: Iterable[RouterView]) -> list[ShownSet]:
    """Of all routers that have answered; empty in a mesh without queues."""
    return sets_in(rows_of(views))


def rows_of(views: Iterable[RouterView]) -> Iterator[tuple[str, Row]]:
    for view in views:
        yield from ((view.name, row) for row in (view.status.get("sets", ()) if view.status is not None else ()))
