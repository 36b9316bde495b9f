"""When a router could hear what a publisher has settled: told from the control rows alone.

The publisher's home knows, and tells those in contact with it. While the publisher is at none, nobody knows: what a
router holds of it rests there until it comes back, or its life has ended for certain (protocol 8).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from failover.audit.mesh.clients import FOREVER, Client, Span
from failover.audit.mesh.contacts import contacts
from failover.audit.read.inventory import ControlRow, Log
from topic.journal import Event

Hearing = Mapping[tuple[str, str], Sequence[Span]]
"""By log of a router and publisher; µs of wall clock."""


def hearing(
    rows: Sequence[ControlRow], logs: Sequence[Log], publishers: Iterable[Client]
) -> dict[tuple[str, str], list[Span]]:
    """At the last home of each publisher, as long as it was attached there or had closed its link."""
    routers = {log.name: log for log in logs if log.role == "router"}
    met = contacts(rows, routers)
    lost = _suspended(rows)
    found: dict[tuple[str, str], list[Span]] = {}
    for client in (client for client in publishers if client.lives):
        life, _, home = max(client.lives)
        if home in routers and not routers[home].ordered:
            continue
        attached = client.opened[life], lost.get((home, client.name), FOREVER)
        for log in routers.values():
            own = [(log.first_time, log.last_time)] if log.name == home else met.get((log.name, home), ())
            if spans := list(_clipped(own, attached)):
                found[log.name, client.name] = spans
    return found


def _suspended(rows: Iterable[ControlRow]) -> dict[tuple[str, str], int]:
    """By router's log and publisher: when its link was lost there for the last time, if it did not come back."""
    found: dict[tuple[str, str], int] = {}
    told = (row for row in rows if row.publisher is not None and row.role == "router")
    for row in sorted(told, key=lambda row: row.place):
        where = row.log_name, row.publisher or ""
        if row.event == Event.SUSPENDED:
            found[where] = row.time
        elif row.event in (Event.ATTACHED, Event.CLOSED):
            found.pop(where, None)
    return found


def _clipped(spans: Iterable[Span], to: Span) -> Iterator[Span]:
    for span in spans:
        since, till = max(span[0], to[0]), min(span[1], to[1])
        if since < till:
            yield since, till
