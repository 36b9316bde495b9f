"""Computes when routers had joined subscribers. It reads only the control rows.

Homes log the audiences that they compute. The audit checks these audiences by *stays*: a home owes a subscriber each
delivery that the home receives from a publisher between the subscriber's JOINED entry and the subscriber's departure.
Deliveries of a publisher that gates the subscriber are not owed. A *period* lasts from one JOINED entry of a subscriber
at a home to the next. It has the time after which the home no longer owes the subscriber the deliveries of this period.
A stay and a period belong to one epoch: a subscriber that comes back begins new ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from failover.audit.mesh.clients import CLOSING, FOREVER, Client, life_of
from failover.audit.read.inventory import ControlRow
from topic.journal import Event

Gate = tuple[str, int, int]  # a publisher, and the beginning and the end of its gate
Who = tuple[str, int, str]  # a router, its incarnation, and a subscriber


@attrs.define(slots=True)
class Membership:
    """The stay of one subscriber in the audiences of one incarnation of a router. Places are places in that router's
    log."""

    source: str
    incarnation: int
    address: str
    subscriber: str
    life: int
    since: int
    till: int = FOREVER
    closed: int = FOREVER
    """The hybrid clock of the departure, if another router logged it.

    The stay ends when this router's hybrid clock has passed the clock of the departure, because this router cannot know
    of the departure earlier. A subscriber without a timeout also departs from a router when it attaches at another one.
    """
    gates: list[Gate] = attrs.field(factory=list)


@attrs.frozen(slots=True)
class Period:
    """The time from one JOINED entry of a subscriber at a home to the next such entry. The period of the last JOINED
    entry has no end. All times are hybrid clocks."""

    home: str
    """The home, as router.incarnation. Empty if the period lies between two attaches of the subscriber instead: it then
    counts for all homes."""
    since: int
    till: int
    ended: int
    """From this clock on, the home no longer owes the subscriber the deliveries of this period."""


def memberships(rows: Sequence[ControlRow], subscribers: Mapping[str, Client]) -> list[Membership]:
    """All stays, in the order in which they began."""
    ordered = sorted(rows, key=lambda row: (row.source, row.incarnation, row.place))
    gates, stolen = _gates(ordered), _thefts(ordered)
    stays: list[Membership] = []
    current: dict[Who, Membership] = {}
    for row in ordered:
        who = _who(row)
        if who is None:
            continue
        stay, life = current.get(who), life_of(row)
        if stay and ((row.event in CLOSING and life >= stay.life) or (row.event == Event.JOINED and life > stay.life)):
            current.pop(who).till = row.place
        if row.event == Event.JOINED and who not in current:
            client = subscribers[who[2]]
            closed = closed_at(client, life)
            if not client.timeout_s:  # an attach elsewhere ends the stay
                closed = min([closed, *(at for at in stolen[who[2], row.home] if at > life)])
            stay = Membership(*who[:2], row.address or client.address or "", who[2], life, row.place, closed=closed)
            stay.gates = gates.get(who, [])
            current[who] = stay
            stays.append(stay)
    return stays


def _thefts(rows: Iterable[ControlRow]) -> dict[tuple[str | None, str | None], list[int]]:
    """Maps each subscriber and router.incarnation to the hybrid clocks at which this router learnt that the subscriber
    had attached elsewhere."""
    found: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    for row in rows:
        if row.event == Event.STOLEN and row.subscriber is not None:
            found[row.subscriber, row.log_name].append(row.hlc)
    return found


def periods(rows: Iterable[ControlRow], subscribers: Mapping[str, Client]) -> dict[str, list[Period]]:
    """Maps each subscriber to its periods: the periods at each home that joined it, and the periods between its
    attaches, which count for all homes."""
    joins: dict[str, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.event == Event.JOINED and row.subscriber is not None and row.role == "router":
            joins[row.subscriber][row.log_name].append((row.hlc, life_of(row)))
    found: dict[str, list[Period]] = {}
    for name, client in subscribers.items():
        attaches = [(opened, life) for life, opened, _ in client.lives]
        found[name] = [period for home, begun in joins[name].items() for period in _periods_at(home, begun, client)]
        found[name] += _unjoined(joins[name], client)
        found[name] += _periods_at("", attaches, client)
    return found


def _unjoined(begun: Mapping[str, Sequence[tuple[int, int]]], client: Client) -> Iterator[Period]:
    """The periods of the subscriber at homes for which it expired before they joined it. A home may await a subscriber
    that it has not joined, if it knows the subscriber from its state store or from other routers."""
    for life, at, home in client.closings:
        if home and at <= min((since for since, _ in begun.get(home, ())), default=FOREVER):
            yield Period(home, 0, at, min(at, closed_at(client, life)))


def _periods_at(home: str, begun: Sequence[tuple[int, int]], client: Client) -> Iterator[Period]:
    ordered = sorted(begun)
    ends = [*(since for since, _ in ordered[1:]), FOREVER]
    # if the logs have the subscriber's departure but no JOINED entry, `ordered` is empty
    for (since, life), till in zip(ordered, ends, strict=False):
        expired = [at for ended, at, where in client.closings if where == home != "" and ended >= life and at > since]
        yield Period(home, since, till, min([closed_at(client, life), *expired]))


def closed_at(client: Client, life: int) -> int:
    """The hybrid clock at which this life of the subscriber, or a later one, was closed. A close ends the link for
    every home. An expiry ends the link for only one router, so it does not count here."""
    return min((at for ended, at, where in client.closings if where == "" and ended >= life), default=FOREVER)


def _who(row: ControlRow) -> Who | None:
    if row.subscriber is None or row.role != "router":
        return None
    return row.source, row.incarnation, row.subscriber


def _gates(rows: Sequence[ControlRow]) -> dict[Who, list[Gate]]:
    """The gates of each subscriber at each router incarnation. A new JOINED entry ends all gates; after it the router
    logs the gates that remain."""
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
