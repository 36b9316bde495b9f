"""The ways out of a router's core: actions for the shell, batches for other routers, entries of the delivery log.

Everything that the rules want done is appended here, in order; nothing is decided, and nothing is performed.
"""

from typing import Any

from linkstate.clock import HybridClock
from topic.actions import Action
from topic.delivery.record import Record, Stream
from topic.directory.directory import Directory
from topic.directory.entry import Change, LinkEntry
from topic.journal import Block, Event
from topic.wire.outgoing import Outgoing


class Outlet:
    """One per router incarnation, shared by all its rules."""

    def __init__(self, router: str, clock: HybridClock, journal: Block) -> None:
        self.router = router
        self.clock = clock
        self.actions: list[Action] = []
        self.batches = Outgoing()
        self.time_us = 0
        """Wall clock of the event that is being handled."""
        self._journal = journal

    def trace(self, event: Event, **columns: Any) -> None:
        """Log one entry (`topic.journal`)."""
        self._journal.append(event, time_us=self.time_us, hlc=self.clock.stamp(), **columns)

    def trace_records(self, event: Event, stream: Stream, records: list[Record], **columns: Any) -> None:
        """Log one entry about deliveries of one stream. At an edge it names the home as its peer."""
        if stream.home != self.router and "peer" not in columns and event is not Event.OUTCOME:
            columns["peer"] = stream.home
        self._journal.append(
            event,
            time_us=self.time_us,
            hlc=self.clock.stamp(),
            keys=[record.key for record in records],
            address=stream.identity.address,
            publisher=stream.publisher,
            epoch=stream.label,
            **columns,
        )

    def tell(self, directory: Directory, entry: LinkEntry) -> Change:
        """Write an entry into our own section and send the delta, so that what follows finds the contacts informed."""
        change = directory.write(entry)
        self.batches.delta(directory.contacts, directory.version, [entry], [])
        return change
