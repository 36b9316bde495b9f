"""Attaches of subscribers, and which of them began afresh: with a null map, the client's or its router's; or as it
settles first, or did before.

Across such a one a subscriber is promised to get what it is owed at least once, not exactly once (protocol 1): nobody
knows what it had processed before.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final, TypeVar

import attrs

from failover.audit.mesh.clients import life_of
from failover.audit.read.inventory import ControlRow
from topic.journal import Event

Life = tuple[int, str]
"""The epoch of an attach: its clock, and router.incarnation."""
UNKNOWN: Final[Life] = 0, ""
"""Before the first that a log tells of."""
UNANSWERED: Final[Life] = 1 << 63, ""
"""Behind the last."""
_place = itemgetter(0)
At = TypeVar("At", bound=tuple[int, object])


@attrs.frozen
class SubscriberAttaches:
    told: Mapping[tuple[str, str], Sequence[tuple[int, Life]]]
    """By router's log and subscriber: the places of the answers to its attaches, and their epochs."""
    begins: Mapping[tuple[str, str], Sequence[tuple[int, Life]]]
    """The same of the places where its attaches begin, right behind the outcomes that its map states."""
    afresh: Mapping[str, Sequence[Life]]
    """By subscriber: those that routers say began so, in order."""
    own: Mapping[str, Sequence[tuple[int, int]]]
    """The same by its own logs: incarnation and place."""

    def between(self, log: str, subscriber: str, since: int, till: int) -> bool:
        """Whether it attached there between these places."""
        told = self.told.get((log, subscriber), ())
        return bisect_left(told, since, key=_place) < bisect_left(told, till, key=_place)

    def at(self, log: str, subscriber: str, place: int, *, by_map: bool) -> Life:
        """The attach that this place of a router's log is of: the last one answered before. An outcome that its map
        states is of the attach that begins next, answered or not. If that began afresh, the outcome is older."""
        if by_map:
            begins = self.begins.get((log, subscriber), ())
            following = bisect_right(begins, place, key=_place)
            life = begins[following][1] if following < len(begins) else UNANSWERED
            return (life[0], "") if life in self.afresh.get(subscriber, ()) else life
        told = self.told.get((log, subscriber), ())
        following = bisect_right(told, place, key=_place)
        return told[following - 1][1] if following else UNKNOWN

    def begun(self, subscriber: str, life: Life) -> int:
        """How often it had begun afresh by then, as routers tell."""
        return bisect_right(self.afresh.get(subscriber, ()), life)

    def begun_itself(self, subscriber: str, incarnation: int, place: int) -> int:
        """The same by this place of its own log."""
        return bisect_right(self.own.get(subscriber, ()), (incarnation, place))


def find_attaches(rows: Iterable[ControlRow]) -> SubscriberAttaches:
    told: dict[tuple[str, str], list[tuple[int, Life]]] = {}
    begins: dict[tuple[str, str], list[tuple[int, Life]]] = {}
    by_life: dict[str, list[tuple[Life, ControlRow]]] = {}
    by_place: dict[str, list[tuple[tuple[int, int], ControlRow]]] = {}
    for row in rows:
        if row.subscriber is None:
            continue
        where, life = (row.log_name, row.subscriber), (life_of(row), row.home or row.log_name)
        if row.event == Event.JOINED and row.role == "router" and row.peer is None:
            begins.setdefault(where, []).append((row.place, life))
        if row.event != Event.ATTACHED:
            continue
        if row.role == "router":
            told.setdefault(where, []).append((row.place, life))
            by_life.setdefault(row.subscriber, []).append((life, row))
        else:
            by_place.setdefault(row.subscriber, []).append(((row.incarnation, row.place), row))
    return SubscriberAttaches(
        {where: sorted(attaches) for where, attaches in told.items()},
        {where: sorted(attaches) for where, attaches in begins.items()},
        {name: _afresh(attaches) for name, attaches in by_life.items()},
        {name: _afresh(attaches) for name, attaches in by_place.items()},
    )


def _afresh(attaches: Iterable[tuple[At, ControlRow]]) -> list[At]:
    """Of all of one subscriber."""
    found, settled_first = list[At](), False
    for at, row in sorted(attaches, key=itemgetter(0)):
        settles_first = row.details.get("mode") == "first"
        if settles_first or settled_first or row.details.get("afresh") is True:
            found.append(at)
        settled_first = settles_first
    return found
