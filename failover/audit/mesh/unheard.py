"""When a router can have taken a subscriber for attached, be it by the word of others: from the control rows alone.

A router that was cut off or down while a subscriber attached elsewhere does not know it. If a publisher brings to it
what that subscriber was promised, it accepts that without it: a limit (protocol 10). Who knows of an attach says so in
its log: the custodian, whoever joined it, and a router that found it in its state store. All others can have heard of
it from these, by their contacts, and nobody else. `Acquaintance.reach` is as much as a router can have known, and
`Acquaintance.spans` what it must have heard, as long as no log lacks its end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs

from failover.audit.mesh.clients import FOREVER, Client, Span, life_of
from failover.audit.mesh.clocks import COUNTER_BITS
from failover.audit.mesh.contacts import Heard, Neighbours, earliest, neighbours
from failover.audit.read.inventory import ControlRow, Log
from topic.journal import Event

DEADS: Final = 3
"""A message between two routers in contact is under way for at most so many times `timing.dead`. What was under way
when the contact was lost may be lost: the next router on the path is silent for `timing.dead` before it is given up,
and several routers on the path may be silent one after another."""
DEAD_S: Final = 1.0
"""`timing.dead`, if no log tells it."""
LONGEST_S: Final = 86_400.0
"""No router that works waits for longer."""
KNOWING = (Event.ATTACHED, Event.JOINED, Event.KEPT)
BEGINNING = (Event.BOOT, Event.CONTINUED)


@attrs.frozen
class Acquaintance:
    """Of routers with subscribers."""

    _told: Mapping[str, Mapping[int, Heard]]
    """By subscriber and life: when each router says first that it knows of it."""
    _neighbours: Neighbours
    _listening: Neighbours
    """The same without the ends of contacts that were lost."""
    _takes: int
    """How long a message is under way at most, by hybrid clock."""

    def spans(self, subscriber: Client, home: str) -> list[Span]:
        """When that incarnation of a router must have heard of the subscriber, and not that it had gone; hybrid clocks.
        Word that a router sent just before it lost the contact may not have arrived, nor what it has just sent."""
        found = []
        for life, told in self._told.get(subscriber.name, {}).items():
            ends = (at for ended, at, where in subscriber.closings if where in ("", home) and ended >= life)
            if (since := earliest(told, self._listening, takes=self._takes).get(home)) is not None:
                found.append((since, min(ends, default=FOREVER)))
        return found

    def reach(self, subscriber: Client) -> Heard:
        """The routers that can have known it, and not that it had gone, each since when."""
        found: Heard = {}
        for life, told in self._told.get(subscriber.name, {}).items():
            ended = {where for closed, _, where in subscriber.closings if closed >= life}
            for home, since in earliest(told, self._neighbours).items():
                if not ended & {"", home}:
                    found[home] = min(since, found.get(home, since))
        return found


def acquaintance(
    rows: Sequence[ControlRow], logs: Iterable[Log], before: Mapping[str, Mapping[int, Heard]] = MappingProxyType({})
) -> Acquaintance:
    """`before` is what was told by rows that are here no more."""
    told = {name: {life: dict(heard) for life, heard in lives.items()} for name, lives in before.items()}
    for row in rows:
        if row.role == "router" and row.subscriber is not None and row.event in KNOWING:
            heard = told.setdefault(row.subscriber, {}).setdefault(life_of(row), {})
            heard[row.log_name] = min(row.hlc, heard.get(row.log_name, row.hlc))
    around = neighbours([row for row in rows if row.role == "router"], logs)
    takes = int(DEADS * _dead_s(rows) * 1000) << COUNTER_BITS
    listening = {name: list(_before_it_is_deaf(spans, takes)) for name, spans in around.items()}
    return Acquaintance(told, around, listening, takes)


def _dead_s(rows: Iterable[ControlRow]) -> float:
    """The longest that any router says: all of a mesh should have the same."""
    said = (row.details.get("dead") for row in rows if row.role == "router" and row.event in BEGINNING)
    return max((dead for dead in said if isinstance(dead, int | float) and 0 < dead <= LONGEST_S), default=DEAD_S)


def _before_it_is_deaf(spans: Iterable[tuple[str, Span]], takes: int) -> Iterator[tuple[str, Span]]:
    for peer, (since, till) in spans:
        heard = till if till == FOREVER else till - takes
        if heard > since:
            yield peer, (since, heard)
