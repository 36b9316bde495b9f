"""The ways out of a router's core: actions for the shell, batches for other routers, entries of the delivery log.

Everything that the rules want done is appended here, in order; nothing is decided, and nothing is performed.
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
    """Whoever wants to know what happens to links."""

    def logged(self, event: Event, link: LinkIdentity, columns: Mapping[str, Any]) -> None:
        """The delivery log is told so of a link."""

    def moves(self, entry: LinkEntry, former: str) -> None:
        """A link that was at router `former` begins to attach here."""


class Outlet:
    """One per router incarnation, shared by all its rules."""

    def __init__(self, router: str, incarnation: int, clock: HybridClock, journal: Block, settle_delay: float) -> None:
        self.router = router
        self.incarnation = incarnation
        self.clock = clock
        self.actions: list[Action] = []
        self.batches = Outgoing(settle_delay)
        self.time_us = 0
        """Wall clock of the event that is being handled."""
        self.watch: LinkWatch | None = None
        self._journal = journal

    def new_epoch(self, latest: int, echoed: int = 0) -> Epoch:
        """An epoch for an attach that begins here: above the link's latest one, even if a clock too far ahead to be
        believed gave that, and if it has ended and is forgotten: else nobody would take this one for live. What its
        client has `echoed` moves our clock by little, as clients may be anybody; but it may be the link's latest."""
        self.clock.merge(echoed, ECHO_MS)
        if self.clock.believes(echoed >> COUNTER_BITS):
            latest = max(latest, echoed)
        return Epoch(max(self.clock.stamp(), latest + 1), self.router, self.incarnation)

    def leaders_epoch(self, clock: int) -> Epoch:
        """An epoch for an attach by the leader of a set, which makes the clock from its term (protocol 14.2)."""
        return Epoch(clock, self.router, self.incarnation)

    def refuses(self, epoch: Epoch, latest: int, link: Any) -> bool:
        """Whether the attach comes to nothing, and its link is told so. `latest` is the clock of the link's latest
        attach. Only the clock of a leader may be that low: a later leader has attached the link. An epoch is too high
        if a router that breaks the protocol has made up the link's last one: no other router would take it."""
        if latest < epoch.hlc < COUNTS:
            return False
        if epoch.hlc <= latest:
            why = STOLEN, "a later leader of the set has attached the link"
        else:
            why = EXCEEDED, "a faulty router has used up the epochs of this link, expected another link name"
        self.actions.append(Detach(link, *why))
        return True

    def trace(self, event: Event, of: LinkIdentity | None = None, /, **columns: Any) -> None:
        """Log one entry (`topic.journal`). What has just happened to a link names that: `of`."""
        if of is not None and self.watch is not None:
            self.watch.logged(event, of, columns)
        self._journal.append(event, time_us=self.time_us, hlc=self.clock.stamp(), **columns)

    def trace_records(self, event: Event, stream: Stream, records: list[Record], **columns: Any) -> None:
        """Log one entry about deliveries of one stream. At an edge it names the home as its peer."""
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
        """Log that home has received these, whom they are for, and where they are forwarded."""
        tags = [record.tag for record in records]
        self.trace_records(Event.RECEIVED, stream, records, n=records[0].n, tags=tags, generation=stream.generation)
        self.trace_records(Event.AUDIENCE, stream, records, detail=audience.detail)
        for router in audience.routers:
            self.trace_records(Event.FORWARDED, stream, records, peer=router)

    def tell(self, directory: Directory, entry: LinkEntry) -> Change:
        """Write an entry into our own section and send the delta, so that what follows finds the contacts informed."""
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
        """Say that our section has a new version. `departed` are no longer ours, but of the routers they moved to."""
        latest = directory.members.told_up_to
        self.batches.delta(directory.contacts, directory.version, latest, entries or [], departed or [])
