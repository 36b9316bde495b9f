"""Links that a router ended as expired while a client was attached there by them. Told from the control rows alone."""

from collections.abc import Iterable, Iterator, Mapping

import attrs

from failover.audit.mesh.clients import CLOSING, life_of
from failover.audit.mesh.presence import Presence
from failover.audit.read.inventory import ControlRow
from topic.journal import Event


@attrs.frozen(slots=True)
class EndedLink:
    """By the link's name."""

    link: str
    router: str
    reason: str
    """As that router tells it, or empty."""


def ended_in_use(rows: Iterable[ControlRow], presences: Mapping[str, Presence]) -> Iterator[EndedLink]:
    """Not those of clients that were gone, which their router need not know yet."""
    attached: dict[tuple[str, str], int] = {}
    events = (Event.ATTACHED, Event.SUSPENDED, Event.STOLEN, *CLOSING)
    for row in sorted((row for row in rows if row.role == "router" and row.event in events), key=lambda row: row.place):
        name = row.publisher or row.subscriber
        if name is None:
            continue
        if row.event == Event.ATTACHED:
            attached[row.log_name, name] = life_of(row)
            continue
        life = attached.pop((row.log_name, name), None)
        if row.event == Event.EXPIRED and life == life_of(row) and _there(presences.get(name), row.hlc):
            yield EndedLink(name, row.source, row.detail or "")


def _there(presence: Presence | None, hlc: int) -> bool:
    return presence is not None and any(since < hlc <= till for since, till in presence.there)
