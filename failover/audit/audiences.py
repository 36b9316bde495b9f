"""Who a router had joined when: the audience each message should have had, told from the control rows alone.

Routers log the audience they computed; this is the second opinion. A subscriber is owed what a router receives from a
publisher after its JOINED entry there and before its departure, except from publishers it was gated for.
"""

from collections.abc import Mapping, Sequence

import attrs

from failover.audit.inventory import ControlRow
from failover.audit.parties import CLOSING, FOREVER, Party, life_of
from topic.journal import Event

Gate = tuple[str, int, int]  # publisher, since, till
Who = tuple[str, int, str]  # router, incarnation, subscriber


@attrs.define(slots=True)
class Membership:
    """One subscriber's stay in the audiences of one router incarnation; places are positions in its log."""

    source: str
    incarnation: int
    address: str
    subscriber: str
    life: int
    since: int
    till: int = FOREVER
    gates: list[Gate] = attrs.field(factory=list)


def memberships(rows: Sequence[ControlRow], subscribers: Mapping[str, Party]) -> list[Membership]:
    """All stays, in the order in which they began."""
    ordered = sorted(rows, key=lambda row: (row.source, row.incarnation, row.place))
    gates = _gates(ordered)
    stays: list[Membership] = []
    current: dict[Who, Membership] = {}
    for row in ordered:
        who = _who(row)
        if who is None:
            continue
        stay = current.get(who)
        if row.event == Event.JOINED and stay:
            stay.life = max(stay.life, life_of(row))
        elif row.event == Event.JOINED and (address := row.address or _address(subscribers, who[2])):
            current[who] = Membership(*who[:2], address, who[2], life_of(row), row.place, gates=gates.get(who, []))
            stays.append(current[who])
        elif row.event in CLOSING and stay and life_of(row) >= stay.life:
            current.pop(who).till = row.place
    return stays


def _who(row: ControlRow) -> Who | None:
    if row.subscriber is None or row.role != "router":
        return None
    return row.source, row.incarnation, row.subscriber


def _address(subscribers: Mapping[str, Party], name: str) -> str | None:
    party = subscribers.get(name)
    return party.address if party else None


def _gates(rows: Sequence[ControlRow]) -> dict[Who, list[Gate]]:
    """When each subscriber was gated, from which publisher. Joining anew ends all gates; those that stay follow it."""
    since: dict[Who, dict[str, int]] = {}
    gates: dict[Who, list[Gate]] = {}
    for row in rows:
        who = _who(row)
        if who is None:
            continue
        standing = since.setdefault(who, {})
        ending: list[str] = []
        if row.event == Event.JOINED:
            ending = list(standing)
        elif row.event == Event.ADMITTED and row.publisher in standing:
            ending = [row.publisher]
        elif row.event == Event.GATED and row.publisher is not None:
            standing.setdefault(row.publisher, row.place)
        gates.setdefault(who, []).extend((name, standing.pop(name), row.place) for name in ending)
    for who, standing in since.items():
        gates.setdefault(who, []).extend((name, place, FOREVER) for name, place in standing.items())
    return gates
