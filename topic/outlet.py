"""The outputs of a router's core: actions for the shell, batches for other routers, entries of the delivery log.

The rules append their outputs here, in order. This module decides nothing and performs nothing.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from linkstate.clock import COUNTER_BITS, ECHO_MS, HybridClock
from topic.actions import EXCEEDED, STOLEN, Action, Detach
from topic.delivery.record import Record, Stream
from topic.directory.directory import Directory
from topic.directory.entry import AddressAudience, Change, LinkEntry
from topic.identity import COUNTS, NOWHERE, Epoch, LinkIdentity
from topic.journal import Block, Event
from topic.wire.outgoing import Outgoing


class LinkWatch(Protocol):
    """An observer of links."""

    def logged(self, event: Event, link: LinkIdentity, columns: Mapping[str, Any]) -> None:
        """The delivery log gets an entry about this link."""

    def moves(self, entry: LinkEntry, former: str) -> None:
        """The link `entry` was attached at router `former`, and begins to attach here."""


class Outlet:
    """The outputs of one router incarnation. All its rules share them."""

    def __init__(self, router: str, incarnation: int, clock: HybridClock, journal: Block, settle_delay: float) -> None:
        self.router = router
        self.incarnation = incarnation
        self.clock = clock
        self.actions: list[Action] = []
        self.batches = Outgoing(settle_delay)
        self.time_us = 0
        """The wall clock of the present event, in microseconds since the epoch."""
        self.watch: LinkWatch | None = None
        self._journal = journal

    @property
    def time_ms(self) -> int:
        """The same in milliseconds: the unit of the times in the state of a set."""
        return self.time_us // 1000

    def new_epoch(self, latest: int, echoed: int = 0) -> Epoch:
        """A new epoch for an attach that begins here. Its clock is above `latest`, the clock of the link's latest
        attach, even if that attach has ended or its clock is too far ahead; otherwise other routers would not take the
        new attach for live. A client may echo any clock, so `echoed` moves our clock by little. But if the echoed clock
        is credible, the epoch is above it, too (protocol 2)."""
        self.clock.merge(echoed, ECHO_MS)
        if self.clock.believes(echoed >> COUNTER_BITS):
            latest = max(latest, echoed)
        return Epoch(max(self.clock.stamp(), latest + 1), self.router, self.incarnation)

    def leaders_epoch(self, clock: int) -> Epoch:
        """An epoch for an attach by the leader of a set. The leader makes `clock` from its term (protocol 14.2)."""
        return Epoch(clock, self.router, self.incarnation)

    def refuses(self, epoch: Epoch, latest: int, link: Any) -> bool:
        """Whether the router refuses the attach with this epoch; if so, it detaches `link`. `latest` is the clock of
        the link's latest attach. Only the clock of a leader can be as low as `latest`: then a later leader has attached
        the link. An epoch is too high if a faulty router has made up the link's last epoch: no other router would
        accept a higher one."""
        if latest < epoch.hlc < COUNTS:
            return False
        if epoch.hlc <= latest:
            why = STOLEN, "a later leader of the set has attached the link"
        else:
            why = EXCEEDED, "a faulty router has used up the epochs of this link, expected another link name"
        self.actions.append(Detach(link, *why))
        return True

    def trace(self, event: Event, of: LinkIdentity | None = None, /, **columns: Any) -> None:
        """Write one entry to the delivery log (`topic.journal`). `of`: the link that the entry is about, for the
        observer of links."""
        if of is not None and self.watch is not None:
            self.watch.logged(event, of, columns)
        self._journal.append(event, time_us=self.time_us, hlc=self.clock.stamp(), **columns)

    def trace_records(self, event: Event, stream: Stream, records: list[Record], **columns: Any) -> None:
        """Write one entry about deliveries of one stream. If this router is not their home, the entry names the home as
        its peer."""
        if stream.home != self.router and event is not Event.OUTCOME:
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

    def trace_received(self, stream: Stream, records: list[Record], audience: AddressAudience) -> None:
        """Log that this home has received these deliveries, their audience, and the routers to which they are
        forwarded."""
        tags = [record.tag for record in records]
        self.trace_records(Event.RECEIVED, stream, records, n=records[0].n, tags=tags, generation=stream.generation)
        self.trace_records(Event.AUDIENCE, stream, records, detail=audience.detail)
        for router in audience.routers:
            self.trace_records(Event.FORWARDED, stream, records, peer=router)

    def write_entry(self, directory: Directory, entry: LinkEntry) -> Change:
        """Write an entry into this router's section and send the delta to all contacts, so that they know of it before
        they read any later message."""
        change = directory.write(entry)
        old = change.old
        was_elsewhere = old is not None and old.live and old.router not in (self.router, NOWHERE.router)
        if self.watch is not None and entry.live and old is not None and was_elsewhere:
            self.watch.moves(entry, old.router)
        self.send_delta(directory, [entry])
        return change

    def send_delta(
        self, directory: Directory, entries: list[LinkEntry] | None = None, departed: list[LinkEntry] | None = None
    ) -> None:
        """Send the contacts a new version of this router's section. `departed`: entries that left this section, as
        their subscribers moved to other routers."""
        latest = directory.members.told_up_to
        self.batches.delta(directory.contacts, directory.version, latest, entries or [], departed or [])
