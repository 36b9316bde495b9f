"""The last events of a router, kept for `$management`.

The events have two sources: lines of the router's log that carry an event, and events of links in the delivery log. No
code of this module runs for a single message. The router keeps a limited number of events. A reader that comes too late
sees a gap in the numbers of the events.
"""

import json
import logging
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from router.events.kind import EVENT, EventKind
from router.management.bounds import bounded
from router.text.printable import printable
from topic.directory.entry import LinkEntry
from topic.identity import LinkIdentity
from topic.journal import Event
from topic.outlet import Outlet

MOST_EVENTS: Final = 4096
PER_MS: Final = 1000
"""Each incarnation numbers its events from its start time, in milliseconds since 1970, times PER_MS. No incarnation has
more than PER_MS events a millisecond, so its numbers are above all numbers of earlier incarnations. The numbers stay
below 2^53: a browser represents integers exactly only up to there."""
OF_LINKS: Final = {
    Event.ATTACHED: EventKind.ATTACHED,
    Event.SUSPENDED: EventKind.SUSPENDED,
    Event.CLOSED: EventKind.DETACHED,
    Event.STOLEN: EventKind.STOLEN,
    Event.EXPIRED: EventKind.EXPIRED,
    Event.FENCED: EventKind.FENCED,
}


class RecentEvents(logging.Handler):
    """The events of one router. `sequence`, the number of an event, rises by one from event to event, and jumps up when
    the router starts again."""

    def __init__(self, router: str, incarnation: int) -> None:
        super().__init__(logging.INFO)
        self._router = router
        self._sequence = incarnation * PER_MS
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self.counts: Counter[str] = Counter()
        """The number of events so far, by kind."""
        self._fenced: object = None
        """The link, epoch and peer of the last fence event. When the router drops further batches with the same link,
        epoch and peer, it adds no event."""

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._sequence

    def since(self, sequence: int, limit: int) -> list[dict[str, Any]]:
        """The oldest `limit` events after the event with the number `sequence`, in their order. Each has `sequence`,
        `time` (in seconds since 1970), `router`, `kind`, and the fields of its kind."""
        newer = min(max(0, self._sequence - sequence), len(self._events))
        first = len(self._events) - newer
        return list(islice(self._events, first, first + limit))

    def tell(self, kind: EventKind, fields: Mapping[str, Any]) -> None:
        """Add an event. Fields without a value are left out."""
        self._sequence += 1
        known = {name: bounded(value) for name, value in fields.items() if value not in (None, "")}
        head = {"sequence": self._sequence, "time": time.time(), "router": self._router, "kind": kind.value}
        self._events.append(head | known)
        self.counts[kind.value] += 1

    @contextmanager
    def listening(self, outlet: Outlet) -> Iterator[None]:
        """Record events while this context is entered. The events are lines of the router's log, and events of links
        that pass through `outlet`."""
        logger = logging.getLogger("oncemesh")
        logger.addHandler(self)
        outlet.watch = self
        try:
            yield
        finally:
            outlet.watch = None
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        kind, fields = getattr(record, EVENT, (None, {}))
        if kind is not None:
            self.tell(kind, fields)
        elif record.levelno >= logging.WARNING:
            text = printable(record.getMessage())
            self.tell(EventKind.WARNING, {"level": record.levelname.lower(), "text": text})

    def logged(self, event: Event, link: LinkIdentity, columns: Mapping[str, Any]) -> None:
        role = "publisher" if "publisher" in columns else "subscriber"
        if event is Event.FENCED:
            fenced = link, columns["epoch"], columns["peer"]
            if fenced == self._fenced:
                return
            self._fenced = fenced
        detail: str = columns.get("detail") or ""
        fields = {"role": role, **link.shown(), "peer": columns.get("peer")}
        if event is Event.ATTACHED:
            fields["timeoutSeconds"] = json.loads(detail)["timeout"]
        elif event is Event.EXPIRED:
            fields["why"] = detail
        self.tell(OF_LINKS[event], fields)

    def moves(self, entry: LinkEntry, former: str) -> None:
        self.tell(EventKind.MOVED, {"role": entry.role.name.lower(), **entry.identity.shown(), "former": former})
