"""One local subscriber: its credit, its waiting records, and the homes that have joined it (protocol 6.1 to 6.7).

This module decides *when* a record may go to the subscriber. It may if the subscriber has credit, its link has room, no
gate holds the record back, and the map of its attach was complete or names the record (6.8). `topic.edge.delivery` then
changes the record.
"""

from collections import deque
from collections.abc import Container, Iterable, Mapping
from itertools import accumulate
from operator import attrgetter
from typing import Any

import attrs

from topic.delivery.gates import UNBOUNDED, UNPROVEN
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import AWAITING_HOME, OPEN, QUEUED, SENT, WITHHELD, AddressKind, Record, State
from topic.delivery.records import sizes
from topic.delivery.room import NO_ROOM, SubscriberRoom
from topic.directory.entry import Lifetime
from topic.edge.filters import Wants
from topic.identity import Epoch, LinkIdentity

ROOM = 256 * 1024
"""A new link may get this many bytes of messages, or one larger message, before it has written any of them."""
CLEAR_AWAY = 64
"""Settled records are removed from the list of waiting records when they are more than half of it, by about this
number."""


@attrs.define(slots=True)
class Gated:
    """A gate at this subscriber, with the publisher's records that wait at it."""

    home: str
    """The router whose Admit opens the gate."""
    first: int
    """The place `n` of the oldest gating record. Records before it pass. `UNBOUNDED` once the home has admitted the
    subscriber."""
    records: deque[Record]
    withheld: int = UNBOUNDED
    """The place `n` of the subscriber's oldest record that waits here for its key. Later records wait behind it."""

    @property
    def since(self) -> int:
        """The place `n` from which the gate holds records back."""
        return min(self.first, self.withheld)

    def take(self, since: int, till: int = UNBOUNDED) -> list[Record]:
        """Remove and return the waiting records from `since` on and before `till`, in order."""
        taken = sorted((record for record in self.records if since <= record.n < till), key=attrgetter("n"))
        self.records = deque(record for record in self.records if not since <= record.n < till)
        return taken


class LocalSubscriber:
    """A subscriber whose custodian is this router."""

    __slots__ = (
        "accepted",
        "answered",
        "armed",
        "attempts",
        "claims",
        "client_has_settled",
        "client_map",
        "confirmable",
        "credit",
        "delivered",
        "echo_covers",
        "epoch",
        "exempt",
        "gated",
        "identity",
        "incomplete",
        "joined",
        "kind",
        "lifetime",
        "link",
        "marker",
        "name",
        "offered",
        "overtook",
        "ready",
        "resuming",
        "room",
        "sends_settled",
        "settles_first",
        "stale",
        "unanswered",
        "unordered",
        "unread",
        "wants",
    )

    def __init__(self, name: bytes, identity: LinkIdentity, kind: AddressKind) -> None:
        self.name = name
        self.identity = identity
        self.kind = kind
        """The kind of the subscriber's address."""
        self.epoch = Epoch(0, "", 0)
        self.link: Any = None
        """The shell's object for the link; None while the subscriber is away."""
        self.settles_first = False
        """Whether the link has receiver settle mode first: the client settles a delivery when it accepts it."""
        self.sends_settled = False
        """Whether the link has sender settle mode settled: a delivery counts as accepted once it is sent (at most
        once)."""
        self.credit = 0
        """The number of transfers that the client takes at present; 0 until its attach is answered."""
        self.room = ROOM
        """The bytes of messages that the link takes at present. It is below 0 if the last message was larger than the
        room before it."""
        self.ready: deque[Record] = deque()
        """The records that wait for nothing but credit or room, in order."""
        self.gated: dict[bytes, Gated] = {}
        """The gates at this subscriber, by the name of the gated publisher."""
        self.stale = 0
        """An upper bound for the number of settled records among the waiting ones."""
        self.joined: set[str] = set()
        """The routers that have joined this subscriber. Records that they forward to all are for this subscriber,
        too."""
        self.unanswered: set[str] = set()
        """The routers in contact that have yet to answer this attach with Joined."""
        self.answered = False
        self.overtook = False
        """Whether the attach took the link from another attach of which the client did not know. If so, this attach may
        be late (6.12)."""
        self.unordered = False
        """Whether the client resumes, but has not echoed its last epoch. If so, this attach may be late. If clocks
        differ, it may also have a lower epoch than the last attach."""
        self.lifetime = Lifetime()
        """The lifetime of the link. If it has a timeout, the client may come back with a map. The edge then keeps
        settled records until the client has read their settlement (5, Forget)."""
        self.client_map: Mapping[bytes, int] | None = None
        """The client's unsettled map, by delivery key; None for a null map, and after the attach is answered."""
        self.incomplete = False
        """Whether the client's map was incomplete. The client may then have deliveries that the map lacks, so all
        deliveries that it lacks wait for the next attach."""
        self.wants: Wants | None = None
        """The subscriber's filter (protocol 5, Filters); None if it has none. Also None after an incomplete map,
        because the client then gets only the deliveries that the map names."""
        self.claims: set[bytes] = set()
        """The keys in the map of the last attach. No other subscriber may have these deliveries (protocol 12.4)."""
        self.offered: dict[str, tuple[SubscriberRoom, SubscriberRoom]] = {}
        """Maps each home to two rooms, which count the home's offers to this attach in the present contact: the room
        that the offers so far have taken, and the room that all offers together may take."""
        self.exempt: set[Record] = set()
        """The records that the map of this attach names. The filter does not apply to them."""
        self.resuming: dict[Record, int] = {}
        """The records to transfer with resume=true, with the state that each transfer has; 0 for a transfer with the
        payload."""
        self.client_has_settled: set[Record] = set()
        """The records that the client has settled with a final outcome, and the publisher has not settled yet. No later
        map of the client names them, so the edge need not keep them for it (5, Settled by S)."""
        self.unread: deque[Record] = deque()
        """The settled records whose settlement the client may not have read, the oldest first (5, Forget)."""
        self.echo_covers: int | None = None
        """How many records of `unread` were settled before the echo under way; None if no echo is under way."""
        self.armed = False
        """Whether the next record that is transferred becomes the `marker`."""
        self.marker: Record | None = None
        """A record that was transferred after the first `confirmable` settlements in `unread`. When the client gives an
        outcome for it, the client has read these settlements."""
        self.confirmable = 0
        self.attempts: dict[Record, int] = {}
        """Maps each record to the number of times that the client has released or modified it."""
        self.delivered = 0
        self.accepted = 0

    def offer(self, publisher: bytes, records: list[Record]) -> list[Record]:
        """Take new records of a publisher. Returns the records to transfer now; the others wait."""
        if self.incomplete:
            records = self._named(records)
        if publisher in self.gated:
            gate = self.gated[publisher]
            gate.records.extend(record for record in records if record.n >= gate.since)
            records = [record for record in records if record.n < gate.since]
        now = [] if self.ready else self._fitting(records)
        self.ready.extend(records[len(now) :])
        return now

    def _fitting(self, records: list[Record]) -> list[Record]:
        """Returns the records, from the first on, for which the subscriber has credit and room. Reduces its credit and
        room by these records."""
        now = records[: self.credit]
        taken = sizes(now)
        fits = self._fits(taken)
        del now[fits:], taken[fits:]
        self.credit -= len(now)
        self.room -= sum(taken)
        return now

    def _fits(self, taken: list[int]) -> int:
        """The number of messages, from the first on, that the link has room for. `sizes`: their sizes in bytes."""
        if self.room <= 0:
            return 0
        if sum(taken) <= self.room:
            return len(taken)
        return next(count for count, sum_of in enumerate(accumulate(taken), 1) if sum_of >= self.room)

    def takes(self, records: list[Record]) -> int:
        """The number of these new records, from the first on, that the subscriber can take at once."""
        first = records[: self.spare.deliveries]
        return len(first) if self.ready else self._fits(sizes(first))

    def _named(self, records: list[Record]) -> list[Record]:
        """Withhold all records that the client's incomplete map does not name. Returns the records that it names."""
        for record in records:
            if record not in self.resuming and record.key not in (self.client_map or ()):
                record.withhold(self)
        return [record for record in records if record.locals[self] == QUEUED]

    def gate(self, publisher: bytes, home: str, first: int, withheld: int = UNBOUNDED) -> None:
        """Hold back the publisher's records from the place `first` on, including a backlog, until the home admits the
        subscriber. Also hold back the records from the place `withheld` on: the record there waits until an older
        delivery with the same key is forgotten, and the others keep their order behind it."""
        assert first >= UNPROVEN
        gate = self.gated.setdefault(publisher, Gated(home, first, deque()))
        gate.first, gate.withheld = first, withheld
        self.ready.extend(gate.take(UNPROVEN, gate.since))
        behind = [record for record in self.ready if self._is_behind(record, publisher, gate.since)]
        if behind:
            gate.records.extend(behind)
            self.ready = deque(record for record in self.ready if not self._is_behind(record, publisher, gate.since))

    def _is_behind(self, record: Record, publisher: bytes, first: int) -> bool:
        """Whether the gate holds the record back. It does not if the record is abandoned, because the older delivery
        that gates it may itself wait for its key."""
        is_new = record.locals.get(self) == QUEUED and record not in self.attempts and not record.stream.abandoned
        return is_new and record.stream.publisher == publisher and record.n >= first

    def open_gate(self, publisher: bytes) -> list[Record]:
        """Remove the gate. Returns the records that waited at it, in order of `n`. The order has to be restored because
        a backlog that waited for a sign of life has come last."""
        return sorted(self.gated.pop(publisher).records, key=attrgetter("n"))

    def take_back(self, records: Container[Record]) -> None:
        """Remove these records, which are no longer for the subscriber."""
        self.ready = deque(record for record in self.ready if record not in records)
        for gate in self.gated.values():
            gate.records = deque(record for record in gate.records if record not in records)

    def hold_back(self, publishers: Iterable[bytes]) -> None:
        """Remove the records that have to wait for their home from the queue, and end the gates of their publishers.
        Settlements that the client still has to get stay in the queue."""
        self.ready = deque(r for r in self.ready if r.locals.get(self) != AWAITING_HOME or r.state is State.SETTLED)
        for publisher in publishers:
            self.gated.pop(publisher, None)

    def skip_settled(self) -> None:
        """Count one more settled record among the waiting ones. When they are many, remove all of them."""
        self.stale += 1
        if 2 * self.stale > self.queued() + CLEAR_AWAY:
            self.stale = 0
            self.ready = self._still_waiting(self.ready)
            for gate in self.gated.values():
                gate.records = self._still_waiting(gate.records)

    def _still_waiting(self, records: deque[Record]) -> deque[Record]:
        return deque(r for r in records if r.state is not State.SETTLED or r in self.resuming)

    def mark(self, records: list[Record]) -> None:
        """Make the first of these records the marker; they are transferred now. When the client answers the marker, it
        has read all earlier settlements."""
        assert self.armed and records
        self.armed = False
        self.marker = records[0]
        self.confirmable = len(self.unread)

    def unmark(self) -> None:
        """Drop the marker, because it is answered or gone."""
        self.marker = None
        self.confirmable = 0
        self.armed = bool(self.unread)

    def begin(
        self,
        link: Any,
        epoch: Epoch,
        client_map: Mapping[bytes, int] | None,
        *,
        complete: bool,
        wants: Wants | None = None,
    ) -> None:
        """Begin an attach of the client, with its unsettled map. The client may have been attached before, here or at
        another router."""
        assert epoch > self.epoch
        self.suspend()
        self.ready.clear()
        self.gated.clear()
        self.joined.clear()
        self.link = link
        self.room = ROOM
        self.epoch = epoch
        self.client_map = client_map
        self.incomplete = not complete
        self._doubt_settled(client_map or {}, complete=complete)
        self.wants = wants if complete else None
        self.exempt.clear()
        self.offered.clear()
        self.claims.clear()

    def _doubt_settled(self, client_map: Mapping[bytes, int], *, complete: bool) -> None:
        """Drop each settlement of the client that the map of a new attach does not confirm. If the map names the
        delivery, the client may have got the delivery again at another router."""
        confirmed = [r for r in self.client_has_settled if r.key not in client_map] if complete else []
        self.client_has_settled = set(confirmed)

    @property
    def spare(self) -> SubscriberRoom:
        """The number of deliveries, and of their bytes, that the subscriber can take at once."""
        takes = self.answered and not self.incomplete
        for_messages = self.room - self.room // 4  # a quarter of the room is left for the headers of frames
        return SubscriberRoom(max(0, self.credit - len(self.ready)), for_messages) if takes else NO_ROOM

    def has(self, record: Record) -> bool:
        """Whether the client may have the record, because it was sent on this link, or because the client's map named
        it."""
        known = record.locals.get(self)
        if known in (QUEUED, SENT, WITHHELD, DeliveryOutcome.ACCEPTED):
            return True
        return known in (None, AWAITING_HOME) and self.may_have([record])

    def may_have(self, records: list[Record]) -> bool:
        """Whether the client may have one of these records according to its map, whatever state the records have
        here."""
        return self.incomplete or (bool(self.claims) and any(record.key in self.claims for record in records))

    def named(self, records: Iterable[Record]) -> None:
        """Reduce the client's map to these records, which are here. All other deliveries in the map are settled, even
        if new deliveries with the same keys come before the attach is answered."""
        assert self.client_map is not None
        self.client_map = {record.key: self.client_map[record.key] for record in records}
        self.exempt.update(records if self.wants is not None else ())
        self.claims.update(self.kind.claims(self.client_map))

    def disown(self, record: Record) -> None:
        """Drop the record from the client's map, because it does not belong to the subscriber's address."""
        self.resuming.pop(record, None)
        self.exempt.discard(record)
        self.claims.discard(record.key)
        if self.client_map is not None:
            self.client_map = {key: state for key, state in self.client_map.items() if key != record.key}

    def may_pass(self, record: Record) -> bool:
        """Whether the filter decides if the subscriber gets the record. It does not if the client's map names the
        record, or if the client has already had it on this link."""
        return self.wants is not None and record not in self.exempt and record not in self.attempts

    def stop_awaiting(self, record: Record) -> None:
        """Stop awaiting the subscriber's outcome of this record. If the client has released the record, it stays on the
        link until it is settled there."""
        record.stop_awaiting(self, has_it=record in self.attempts)

    def forget_attempts(self) -> None:
        """Forget how often the client gave records back on its last link. The home may give the subscriber a record
        again that it released there."""
        for record in self.attempts:
            if record.locals.get(self) == DeliveryOutcome.RELEASED:
                record.drop(self)
        self.attempts.clear()

    def suspend(self) -> None:
        """Drop the client's connection, which is gone. The client may come back."""
        self.link = None
        self.credit = 0
        self.answered = False
        self.echo_covers = None
        self.stop_resuming()
        self.unmark()

    def owe(self, record: Record) -> None:
        """Queue a resumed transfer that only tells the client of the settlement, without a payload. The record, which
        the client's map named, was settled before the home forwarded it."""
        if not self.resuming[record] and record.locals.get(self) != QUEUED:
            self.ready.append(record)

    def stop_resuming(self) -> None:
        """End all resuming. The client may not have read the settlements of which its resumed transfers were to tell
        it."""
        self.unread.extend(record for record in self.resuming if record.state is State.SETTLED)
        self.resuming.clear()

    def gates_of(self, home: str) -> list[bytes]:
        """The publishers with home `home` that gate the subscriber."""
        return [publisher for publisher, gate in self.gated.items() if gate.home == home]

    def next_ready(self) -> list[Record]:
        """Remove and return waiting records in order, as many as credit and room allow.

        A record that was settled meanwhile, or is no longer for the subscriber, is left out. But if the client's map
        named it, it is returned, so that the client learns how it ended.
        """
        assert self.credit >= 0
        now: list[Record] = []
        while self.ready and self.credit and self.room > 0:
            record = self.ready.popleft()
            over = record.state is State.SETTLED
            waits = record.locals.get(self) == QUEUED and not over
            if waits or (record in self.resuming and (over or self.resuming[record])):
                self.credit -= 1
                self.room -= record.size
                now.append(record)
        return now

    def check(self) -> None:
        """Assert what must hold between events: no record waits twice, and the client has given an outcome of each
        delivery that it has settled."""
        for record in self.client_has_settled:
            assert record.state is not State.SETTLED and record.locals[self] not in OPEN, "kept after its settlement"
        if self.ready or self.gated:
            waiting = [*self.ready, *(record for gate in self.gated.values() for record in gate.records)]
            assert len(waiting) == len(set(waiting)), "a record waits twice"

    def queued(self) -> int:
        """The number of records that wait for credit or at a gate."""
        return len(self.ready) + sum(len(gate.records) for gate in self.gated.values())
