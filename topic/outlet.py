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
    """An observer of links, which learns of their log entries and moves."""

    def logged(self, event: Event, link: LinkIdentity, columns: Mapping[str, Any]) -> None:
        """Called when the delivery log gets an entry about this link."""

    def moves(self, entry: LinkEntry, former: str) -> None:
        """Called when a link that was attached at router `former` begins to attach here. `entry`: its new entry."""


class Outlet:
    """The outputs of one router incarnation. All modules with rules share this object."""

    def __init__(self, router: str, incarnation: int, clock: HybridClock, journal: Block, settle_delay: float) -> None:
        self.router = router
        self.incarnation = incarnation
        self.clock = clock
        self.actions: list[Action] = []
        self.batches = Outgoing(settle_delay)
        self.time_us = 0
        """The wall clock at the present event, in microseconds since 1970."""
        self.watch: LinkWatch | None = None
        self._journal = journal

    @property
    def time_ms(self) -> int:
        """The wall clock at the present event, in milliseconds since 1970. The times in the state of a set have this
        unit."""
        return self.time_us // 1000

    def new_epoch(self, latest: int, echoed: int = 0) -> Epoch:
        """Make the epoch of an attach that begins here (protocol 2).

        Its clock is above `latest`, the clock of the link's latest attach, even if that attach has ended or its clock
        is too far ahead. Otherwise other routers would take the new attach for an older one. `echoed`: the clock that
        the client echoes. A client may echo any number, so it moves this router's clock only a little. But if it is
        credible, the new epoch is above it, too.
        """
        self.clock.merge(echoed, ECHO_MS)
        if self.clock.believes(echoed >> COUNTER_BITS):
            latest = max(latest, echoed)
        return Epoch(max(self.clock.stamp(), latest + 1), self.router, self.incarnation)

    def leaders_epoch(self, clock: int) -> Epoch:
        """The epoch of an attach by the leader of a set. The leader makes `clock` from its term (protocol 14.2)."""
        return Epoch(clock, self.router, self.incarnation)

    def refuses(self, epoch: Epoch, latest: int, link: Any) -> bool:
        """Whether the router refuses the attach with this epoch. If so, it detaches `link`. `latest`: the clock of the
        link's latest attach.

        The epoch is too low if it is not above `latest`. This happens only to the leader of a set, after a later leader
        has attached the link. The epoch is too high if a faulty router has made up the link's last epoch, so that no
        other router would accept a higher one.
        """
        if latest < epoch.hlc < COUNTS:
            return False
        if epoch.hlc <= latest:
            why = STOLEN, "a later leader of the set has attached the link"
        else:
            why = EXCEEDED, "a faulty router has used up the epochs of this link, expected another link name"
        self.actions.append(Detach(link, *why))
        return True

    def trace(self, event: Event, of: LinkIdentity | None = None, /, **columns: Any) -> None:
        """Write one entry into the delivery log (`topic.journal`). `of`: the link that the entry is about, which the
        observer of links gets."""
        if of is not None and self.watch is not None:
            self.watch.logged(event, of, columns)
        self._journal.append(event, time_us=self.time_us, hlc=self.clock.stamp(), **columns)

    def trace_records(self, event: Event, stream: Stream, records: list[Record], **columns: Any) -> None:
        """Write one entry about deliveries of one stream into the delivery log. If this router is not their home, the
        entry names the home as its peer."""
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
        """Write into the delivery log that this home has received these deliveries, with their audience, and the
        routers to which it forwards them."""
        tags = [record.tag for record in records]
        self.trace_records(Event.RECEIVED, stream, records, n=records[0].n, tags=tags, generation=stream.generation)
        self.trace_records(Event.AUDIENCE, stream, records, detail=audience.detail)
        for router in audience.routers:
            self.trace_records(Event.FORWARDED, stream, records, peer=router)

    def write_entry(self, directory: Directory, entry: LinkEntry) -> Change:
        """Write an entry into this router's section. Send the change to all contacts, which learn of it before they
        read any later message."""
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
        """Send the contacts a new version of this router's section. `departed`: the new entries of links that have left
        this section, because their subscribers have moved to other routers."""
        latest = directory.members.told_up_to
        self.batches.delta(directory.contacts, directory.version, latest, entries or [], departed or [])
