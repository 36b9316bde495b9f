"""Attaches of subscribers, and which of them began afresh: with a null map, the client's or its router's answer.

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
Of = TypeVar("Of")
At = TypeVar("At", bound=tuple[int, object])


@attrs.frozen
class Attaches:
    told: Mapping[tuple[str, str], Sequence[tuple[int, Life]]]
    """By router's log and subscriber: the places of the answers to its attaches, and their epochs."""
    afresh: Mapping[str, Sequence[Life]]
    """By subscriber: those that routers say began so, in order."""
    own: Mapping[str, Sequence[tuple[int, int]]]
    """The same by its own logs: incarnation and place."""

    def between(self, log: str, subscriber: str, since: int, till: int) -> bool:
        """Whether it attached there between these places."""
        told = self.told.get((log, subscriber), ())
        return bisect_left(told, since, key=_place) < bisect_left(told, till, key=_place)

    def at(self, log: str, subscriber: str, place: int, *, by_map: bool) -> Life:
        """The attach that this place of a router's log is of: the last one answered before, but of what its map says
        the one answered next, if it was."""
        told = self.told.get((log, subscriber), ())
        following = bisect_right(told, place, key=_place)
        if by_map:
            return told[following][1] if following < len(told) else UNANSWERED
        return told[following - 1][1] if following else UNKNOWN

    def begun(self, subscriber: str, life: Life) -> int:
        """How often it had begun afresh by then, as routers tell."""
        return bisect_right(self.afresh.get(subscriber, ()), life)

    def begun_itself(self, subscriber: str, incarnation: int, place: int) -> int:
        """The same by this place of its own log."""
        return bisect_right(self.own.get(subscriber, ()), (incarnation, place))


def find_attaches(rows: Iterable[ControlRow]) -> Attaches:
    told: dict[tuple[str, str], list[tuple[int, Life]]] = {}
    afresh: dict[str, list[Life]] = {}
    own: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        name, begins = row.subscriber, row.details.get("afresh") is True
        if row.event != Event.ATTACHED or name is None:
            continue
        if row.role == "router":
            life = life_of(row), row.home or row.log_name
            told.setdefault((row.log_name, name), []).append((row.place, life))
            if begins:
                afresh.setdefault(name, []).append(life)
        elif begins:
            own.setdefault(name, []).append((row.incarnation, row.place))
    return Attaches(_sorted(told), _sorted(afresh), _sorted(own))


def _sorted(found: Mapping[Of, Iterable[At]]) -> dict[Of, Sequence[At]]:
    return {of: sorted(at) for of, at in found.items()}
