"""Computes when a router can have known of a subscriber's attach, directly or from other routers. It reads only the
control rows.

A router that was cut off or down while a subscriber attached elsewhere does not know the subscriber. If a publisher
brings this router a delivery that the subscriber should get, the router accepts the delivery without the subscriber.
This is a limit (protocol 10).

Three kinds of routers log that they know of an attach: the custodian, each router that joined the subscriber, and a
router that found the subscriber in its state store. Any other router can only have learnt of the attach from one of
these routers, through its contacts. `Acquaintance.reach` has the routers that can have learnt of it.
`Acquaintance.spans` has the times at which a router must have known the subscriber, provided that no log lacks its end.
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
"""A message between two routers in contact is under way for at most this many times `timing.dead`.

When the contact is lost, messages under way may be lost, too. Before such a loss, the next router on the path is silent
for `timing.dead`, and then its neighbour gives it up. Several routers on the path may be silent one after another.
"""
DEAD_S: Final = 1.0
"""The value of `timing.dead`, in seconds, that is assumed if no log has it."""
LONGEST_S: Final = 86_400.0
"""The longest `timing.dead`, in seconds, that the audit believes."""
KNOWING = (Event.ATTACHED, Event.JOINED, Event.KEPT)
BEGINNING = (Event.BOOT, Event.CONTINUED)


@attrs.frozen
class Acquaintance:
    """The knowledge of routers about subscribers at each time."""

    _told: Mapping[str, Mapping[int, Heard]]
    """Maps each life of each subscriber to the hybrid clocks at which routers first logged that they know the
    subscriber."""
    _neighbours: Neighbours
    _listening: Neighbours
    """The contacts in `_neighbours`, but each without its last moments: news that a router sent in these moments may be
    lost together with the contact."""
    _takes: int
    """The longest time that a message between two routers takes, as a difference of hybrid clocks."""

    def spans(self, subscriber: Client, home: str) -> list[Span]:
        """The spans of hybrid clocks in which this incarnation of a router (`home`) must have known of the subscriber,
        and not of its ending. News that another router has only just sent, or sent just before the loss of a contact,
        may not have arrived."""
        found = []
        for life, told in self._told.get(subscriber.name, {}).items():
            ends = (at for ended, at, where in subscriber.closings if where in ("", home) and ended >= life)
            if (since := earliest(told, self._listening, takes=self._takes).get(home)) is not None:
                found.append((since, min(ends, default=FOREVER)))
        return found

    def reach(self, subscriber: Client) -> Heard:
        """The routers that can have known the subscriber and not its ending, each with the hybrid clock from which on
        this is so."""
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
    """Find in the rows when each router first knew each subscriber. `before`: what earlier rows showed, which the audit
    has forgotten since (`Past.told`)."""
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
    """The longest `timing.dead`, in seconds, that a router has logged. All routers of a mesh should have the same
    one."""
    said = (row.details.get("dead") for row in rows if row.role == "router" and row.event in BEGINNING)
    return max((dead for dead in said if isinstance(dead, int | float) and 0 < dead <= LONGEST_S), default=DEAD_S)


def _before_it_is_deaf(spans: Iterable[tuple[str, Span]], takes: int) -> Iterator[tuple[str, Span]]:
    for peer, (since, till) in spans:
        heard = till if till == FOREVER else till - takes
        if heard > since:
            yield peer, (since, heard)
