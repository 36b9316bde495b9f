"""The replica sets of a mesh, each once, from the reports of all routers (`router.entities.replicas`).

The reports about a set may differ for a moment, or while routers are cut off. This module shows the report with the
latest term. If several reports have this term, it shows the report of the leader.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from router.entities.replicas import LEADER, is_redundant, life_parts
from router.mesh.status import RouterView

Row = Mapping[str, Any]


@frozen
class ShownSet:
    name: str
    rows: Mapping[str, Row]
    """Maps each router that has reported about the set to its report."""
    by: str
    """The router whose report counts."""

    @property
    def best(self) -> Row:
        return self.rows[self.by]

    @property
    def leader(self) -> str | None:
        """The router that leads, whether it has answered or not."""
        leader: str | None = self.best["leader"]
        return leader

    @property
    def ring(self) -> list[str]:
        """The routers that are to be voters, after the change of members that is under way."""
        return list(self.best["ring"])

    @property
    def copies(self) -> list[str]:
        """The routers that are to keep an asynchronous copy, after the change of members that is under way."""
        return list(self.best["async"])

    @property
    def members(self) -> list[str]:
        """The routers that are members of the set, or become members by the change under way."""
        row = self.best
        return list(dict.fromkeys((*row["ring"], *row["voters"], *row["learners"], *row["async"])))

    def has_members(self, voters: Iterable[str]) -> bool:
        """Whether these routers are the voters, and no change of members is under way."""
        row = self.best
        return {*row["voters"]} == {*voters} and {*row["learners"]} <= {*row["async"]}

    @property
    def has_begun(self) -> bool:
        return self.best["life"] is not None

    def has(self, router: str) -> bool:
        """Whether the set has begun, and the router is a member, or is to be one."""
        return self.has_begun and router in self.members

    def first_new(self, routers: Iterable[str]) -> str | None:
        """The first of these routers that is not in the ring; None if all are."""
        return next((router for router in routers if router not in self.ring), None)

    def can_spare(self, router: str) -> bool:
        """Whether the set has a leader that answers, and keeps a majority without this router."""
        row = self.best
        return row["role"] == LEADER and (router in row["may_stop"] or router not in row["voters"])

    @property
    def needed(self) -> list[str]:
        """The voters whose loss would leave the set without a majority, in order. Empty if the set has no leader."""
        row = self.best
        if row["role"] != LEADER or is_redundant(row["voters"], row["may_stop"]):
            return []
        return [voter for voter in row["voters"] if voter not in row["may_stop"]]


def why_kept(sets: Iterable[ShownSet], router: str, others: Sequence[str], *, forced: bool) -> str:
    """The reason for which a router may not leave the mesh: it is, or will be, a voter of at least one set. Empty if
    the router may leave. `others`: the routers that stay. `forced`: the router does not run; it may then leave a set
    that keeps a majority without it."""
    held = [one for one in sets if one.has(router) and not (forced and one.can_spare(router))]
    if not held:
        return ""
    what = f"router {router} is a voter of {in_words(one.name for one in held)}"
    if forced:
        return f"{what}, and no majority is left without it: start the other voters first, see oncemesh queue sets"
    return f"{what}: choose others first, for example with {replacement_commands(held, router, others)}"


def replacement_commands(sets: Iterable[ShownSet], old: str, others: Sequence[str]) -> str:
    """The command for the operator that replaces the voter `old` in these sets. The command is `oncemesh queue replace`
    with the new voters: for each set, the first router of `others` that is no voter of the set yet. If all routers of
    `others` are already voters of one of the sets, the command is instead `oncemesh queue voters` for this set without
    `old`."""
    news = dict[str, None]()
    for one in sets:
        if (new := one.first_new(others)) is None:
            left = (router for router in one.ring if router != old)
            return f"oncemesh queue voters {one.name} {' '.join(left)}"
        news[new] = None
    return f"oncemesh queue replace {old} {' '.join(news)}"


def members_of(one: ShownSet) -> str:
    """The voters, then each learner with a `+`, or with a `~` if it keeps an asynchronous copy. A router that the
    leader brings up to date is shown with its progress in per cent."""
    row = one.best
    members = {router: router for router in row["voters"]} | {
        router: f"~{router}" if router in row["async"] else f"+{router}" for router in row["learners"]
    }
    copied = row["copied"]
    return ", ".join(f"{text} {copied[name]}%" if name in copied else text for name, text in members.items())


def in_words(names: Iterable[str]) -> str:
    first, *more = names
    return f"replica set{'s' if more else ''} {', '.join([first, *more])}"


def _knowledge(row: Row) -> tuple[tuple[int, str], int, bool, int]:
    return life_parts(row["life"]), row["term"], row["role"] == LEADER, row["commit"]


def needed_by(sets: Iterable[ShownSet]) -> dict[str, list[str]]:
    """Router -> the sets that have no majority without it."""
    found: dict[str, list[str]] = {}
    for one in sets:
        for router in one.needed:
            found.setdefault(router, []).append(one.name)
    return found


def stops(sets: Iterable[ShownSet], running: Iterable[str]) -> list[str]:
    """Returns sentences: which of these routers may be stopped without loss of a set's majority, and why the others may
    not."""
    sets = list(sets)
    needed = needed_by(sets)
    leaderless = [one.name for one in sets if one.has_begun and one.leader is None]
    free = [router for router in running if router not in needed]
    told = [
        f"do not stop router {router}: no majority is left of {in_words(names)}"
        for router, names in sorted(needed.items())
    ]
    if leaderless:
        return [*told, f"stop no router: no router leads {in_words(leaderless)}"]
    if free:
        which = f"any one of routers {', '.join(free)}" if len(free) > 1 else f"router {free[0]}"
        told.append(f"you may stop {which} now: each replica set keeps its majority")
    return told


def sets_in(rows: Iterable[tuple[str, Row]]) -> list[ShownSet]:
    """Group rows by set, in the order in which the sets first appear."""
    by_name: dict[str, dict[str, Row]] = {}
    for router, row in rows:
        by_name.setdefault(row["name"], {})[router] = row
    return [
        ShownSet(name, known, max(known, key=lambda router: _knowledge(known[router])))
        for name, known in by_name.items()
    ]


def shown_sets(views: Iterable[RouterView]) -> list[ShownSet]:
    """The sets in the reports of all routers that have answered; empty in a mesh without queues."""
    return sets_in(rows_of(views))


def queues_in(sets: Iterable[ShownSet], rows: Iterable[tuple[str, Row]]) -> tuple[list[tuple[str, Row]], int]:
    """Returns each reported queue once as (leader, row), the deepest first, and the number of further queues of the
    sets. Only the rows of one router count for each set, because a former leader, which believes that it still leads,
    may also report rows."""
    sets = list(sets)
    by = {one.name: one.by for one in sets}
    found = [(router, row) for router, row in rows if by.get(row["set"]) == router]
    found.sort(key=lambda one: (-one[1]["messages"], one[1]["name"]))
    return found, max(0, sum(one.best["queues"] for one in sets) - len(found))


def shown_queues(views: Iterable[RouterView], sets: Iterable[ShownSet]) -> tuple[list[tuple[str, Row]], int]:
    """The deepest queues in the reports of all routers that have answered, and how many more there are
    (`queues_in`)."""
    return queues_in(sets, _rows_of(views, "queues"))


def rows_of(views: Iterable[RouterView]) -> Iterator[tuple[str, Row]]:
    return _rows_of(views, "sets")


def _rows_of(views: Iterable[RouterView], key: str) -> Iterator[tuple[str, Row]]:
    for view in views:
        yield from ((view.name, row) for row in (view.status.get(key, ()) if view.status is not None else ()))
