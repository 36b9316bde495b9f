"""Finds the attaches of subscribers, and which of them began afresh.

An attach begins afresh if the client or its router sent a null map, or if the client uses settle mode first or used it
in its previous attach. A delivery from before such an attach may be delivered again after it (protocol 1, *at least
once*), because no router knows which deliveries the subscriber has processed.
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
"""The epoch of an attach: its clock, and the text "router.incarnation"."""
UNKNOWN: Final[Life] = 0, ""
"""Stands for all attaches before the first one in a log."""
UNANSWERED: Final[Life] = 1 << 63, ""
"""Stands for all attaches after the last one in a log."""
_place = itemgetter(0)
At = TypeVar("At", bound=tuple[int, object])


@attrs.frozen
class SubscriberAttaches:
    told: Mapping[tuple[str, str], Sequence[tuple[int, Life]]]
    """Maps each router's log and subscriber to the answers to the subscriber's attaches: their places in the log, and
    the epochs."""
    begins: Mapping[tuple[str, str], Sequence[tuple[int, Life]]]
    """Maps each router's log and subscriber to the beginnings of the subscriber's attaches: their places in the log,
    and the epochs. Before the beginning of an attach, the router logs the outcomes in the attach's map."""
    afresh: Mapping[str, Sequence[Life]]
    """Maps each subscriber to the attaches that, by routers' logs, began afresh, in order."""
    own: Mapping[str, Sequence[tuple[int, int]]]
    """Maps each subscriber to the attaches that, by its own logs, began afresh, in order: the incarnation of the log,
    and the place in it."""

    def between(self, log: str, subscriber: str, since: int, till: int) -> bool:
        """Whether the router answered an attach of the subscriber between these places."""
        told = self.told.get((log, subscriber), ())
        return bisect_left(told, since, key=_place) < bisect_left(told, till, key=_place)

    def at(self, log: str, subscriber: str, place: int, *, by_map: bool) -> Life:
        """The attach to which an entry at this place of a router's log belongs: the last one that the router answered
        before.

        With `by_map`, the entry is an outcome from a map, which a router logs before the attach of this map. So the
        entry belongs to the attach that begins next, even if the router has not answered this attach. If the attach
        began afresh, the outcome is from an earlier attach, and the text of the result is empty.
        """
        if by_map:
            begins = self.begins.get((log, subscriber), ())
            following = bisect_right(begins, place, key=_place)
            life = begins[following][1] if following < len(begins) else UNANSWERED
            return (life[0], "") if life in self.afresh.get(subscriber, ()) else life
        told = self.told.get((log, subscriber), ())
        following = bisect_right(told, place, key=_place)
        return told[following - 1][1] if following else UNKNOWN

    def begun(self, subscriber: str, life: Life) -> int:
        """How often, by the routers' logs, the subscriber had begun afresh up to this attach."""
        return bisect_right(self.afresh.get(subscriber, ()), life)

    def begun_itself(self, subscriber: str, incarnation: int, place: int) -> int:
        """How often, by its own log, the subscriber had begun afresh up to this place in the log."""
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
    """The attaches of one subscriber that began afresh, according to these rows."""
    found, settled_first = list[At](), False
    for at, row in sorted(attaches, key=itemgetter(0)):
        settles_first = row.details.get("mode") == "first"
        if settles_first or settled_first or row.details.get("afresh") is True:
            found.append(at)
        settled_first = settles_first
    return found
