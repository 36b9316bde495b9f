"""One local subscriber: its credit, its waiting records, and the homes that have joined it (protocol 6.1 to 6.7).

This module decides *when* a record may go to the subscriber: it has credit, its link has room, no gate holds the record
back, and the map of its attach was complete or names the record (6.8). `topic.edge.delivery` then changes the record.
"""

from collections import deque
from collections.abc import Container, Iterable, Mapping
from itertools import accumulate
from operator import attrgetter
from typing import Any

import attrs

from topic.delivery.gates import UNBOUNDED, UNPROVEN
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import AWAITING_HOME, QUEUED, SENT, WITHHELD, AddressKind, Record, State
from topic.delivery.records import sizes
from topic.delivery.room import NO_ROOM, SubscriberRoom
from topic.directory.entry import Lifetime
from topic.edge.filters import Wants
from topic.identity import Epoch, LinkIdentity

ROOM = 256 * 1024
"""Bytes of messages that a link gets before it has written any of them; or one message, whatever its size."""
CLEAR_AWAY = 64
"""How many settled records may be among the waiting ones before they are removed."""


@attrs.define(slots=True)
class Gated:
    """The records of a publisher that wait at a gate."""

    home: str
    """The router that will admit the subscriber."""
    first: int
    """The `n` of the oldest gating record: records with a smaller `n` pass. `UNBOUNDED` if home has admitted the
    subscriber."""
    records: deque[Record]
    withheld: int = UNBOUNDED
    """The `n` of the oldest record for the subscriber that waits here for its key: records with a larger `n` wait
    behind it."""

    @property
    def since(self) -> int:
        """The `n` from which records are held back."""
        return min(self.first, self.withheld)

    def take(self, since: int, till: int = UNBOUNDED) -> list[Record]:
        """Take out the waiting records from `since` on and before `till`, in order."""
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
        """The kind of its address."""
        self.epoch = Epoch(0, "", 0)
        self.link: Any = None
        """The shell's link; None while the subscriber is away."""
        self.settles_first = False
        """Receiver settle mode first: the client settles as it accepts."""
        self.sends_settled = False
        """Sender settle mode settled: a sent delivery counts as accepted (at most once)."""
        self.credit = 0
        """The number of transfers that the client takes at present; 0 until its attach is answered."""
        self.room = ROOM
        """The bytes of messages that its link takes at present; below 0 if the last message was larger than the room
        before it."""
        self.ready: deque[Record] = deque()
        """The records that wait only for credit or room, in order."""
        self.gated: dict[bytes, Gated] = {}
        """Its gates, keyed by the gated publisher."""
        self.stale = 0
        """An upper bound for the settled records among the waiting ones."""
        self.joined: set[str] = set()
        """The routers that have joined this subscriber: their Forwards are for it, too."""
        self.unanswered: set[str] = set()
        """The routers in contact whose Joined for this epoch is awaited."""
        self.answered = False
        self.overtook = False
        """Its attach took the link from another attach, of which the client had not heard: it may be late (6.12)."""
        self.unordered = False
        """It resumes, and has not echoed its last epoch. So this attach may be late, or, if clocks differ, have a lower
        epoch than the last one."""
        self.lifetime = Lifetime()
        """If it has a timeout, the client may come back with a map, so settlements are kept until it has read them (5,
        Forget)."""
        self.client_map: Mapping[bytes, int] | None = None
        """The client's unsettled map, keyed by delivery key, until the attach is answered; None for a null map."""
        self.incomplete = False
        """Whether the map was incomplete. The client may then have deliveries that the map lacks, so these wait for its
        next attach."""
        self.wants: Wants | None = None
        """Its filter (protocol 5, Filters). Also None after an incomplete map: then the client gets the deliveries that
        the map names."""
        self.claims: set[bytes] = set()
        """The keys that the map of its last attach named: no other subscriber may have these deliveries (protocol
        12.4)."""
        self.offered: dict[str, tuple[SubscriberRoom, SubscriberRoom]] = {}
        """Keyed by home: the room that its offers to this attach have taken in the present contact, and the room that
        all of them together may take."""
        self.exempt: set[Record] = set()
        """The records that the map of this attach named: the filter does not apply to them."""
        self.resuming: dict[Record, int] = {}
        """The records that are to be transferred with resume=true, and the state of each transfer; 0 for a transfer
        with the payload."""
        self.unread: deque[Record] = deque()
        """The settled records whose settlement the client may not have read, in order (5, Forget)."""
        self.echo_covers: int | None = None
        """How many of `unread` were settled before the echo under way; None if no echo is."""
        self.armed = False
        """Whether the next transfer becomes the marker."""
        self.marker: Record | None = None
        """A record that was transferred after the first `confirmable` settlements of `unread`: its outcome shows that
        the client has read them."""
        self.confirmable = 0
        self.attempts: dict[Record, int] = {}
        """How often the client has released or modified a record."""
        self.delivered = 0
        self.accepted = 0

    def offer(self, publisher: bytes, records: list[Record]) -> list[Record]:
        """Take new records of a publisher. Returns the records to transfer now, and keeps the others."""
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
        """The first of these records, as many as credit and room allow; takes credit and room for them."""
        now = records[: self.credit]
        taken = sizes(now)
        fits = self._fits(taken)
        del now[fits:], taken[fits:]
        self.credit -= len(now)
        self.room -= sum(taken)
        return now

    def _fits(self, taken: list[int]) -> int:
        """How many messages of these sizes, in bytes, find room, counted from the first."""
        if self.room <= 0:
            return 0
        if sum(taken) <= self.room:
            return len(taken)
        return next(count for count, sum_of in enumerate(accumulate(taken), 1) if sum_of >= self.room)

    def takes(self, records: list[Record]) -> int:
        """How many of these new records the subscriber can take at once, counted from the first."""
        first = records[: self.spare.deliveries]
        return len(first) if self.ready else self._fits(sizes(first))

    def _named(self, records: list[Record]) -> list[Record]:
        """After an incomplete map the client gets only the deliveries that the map names: withhold the others. Returns
        the named ones."""
        for record in records:
            if record not in self.resuming and record.key not in (self.client_map or ()):
                record.withhold(self)
        return [record for record in records if record.locals[self] == QUEUED]

    def gate(self, publisher: bytes, home: str, first: int, withheld: int = UNBOUNDED) -> None:
        """Hold back the publisher's records from `first` on, also its backlog, until its home admits the subscriber.
        Hold back its records from `withheld` on until that record goes on."""
        assert first >= UNPROVEN
        gate = self.gated.setdefault(publisher, Gated(home, first, deque()))
        gate.first, gate.withheld = first, withheld
        self.ready.extend(gate.take(UNPROVEN, gate.since))
        behind = [record for record in self.ready if self._is_behind(record, publisher, gate.since)]
        if behind:
            gate.records.extend(behind)
            self.ready = deque(record for record in self.ready if not self._is_behind(record, publisher, gate.since))

    def _is_behind(self, record: Record, publisher: bytes, first: int) -> bool:
        """Whether the gate holds the record back. An abandoned record passes, because a delivery that gates it may wait
        for its key."""
        is_new = record.locals.get(self) == QUEUED and record not in self.attempts and not record.stream.abandoned
        return is_new and record.stream.publisher == publisher and record.n >= first

    def open_gate(self, publisher: bytes) -> list[Record]:
        """Remove the gate. Returns the records that it held, sorted by `n`: a backlog that waited for a sign of life
        has come last."""
        return sorted(self.gated.pop(publisher).records, key=attrgetter("n"))

    def take_back(self, records: Container[Record]) -> None:
        """Remove these records: they are not for the subscriber any more."""
        self.ready = deque(record for record in self.ready if record not in records)
        for gate in self.gated.values():
            gate.records = deque(record for record in gate.records if record not in records)

    def hold_back(self, publishers: Iterable[bytes]) -> None:
        """Records that await their home no longer wait for credit, and the gates of these publishers end. Settlements
        that the client is owed still wait."""
        self.ready = deque(r for r in self.ready if r.locals.get(self) != AWAITING_HOME or r.state is State.SETTLED)
        for publisher in publishers:
            self.gated.pop(publisher, None)

    def skip_settled(self) -> None:
        """A waiting record was settled. When there are many settled ones, they are removed."""
        self.stale += 1
        if 2 * self.stale > self.queued() + CLEAR_AWAY:
            self.stale = 0
            self.ready = self._still_waiting(self.ready)
            for gate in self.gated.values():
                gate.records = self._still_waiting(gate.records)

    def _still_waiting(self, records: deque[Record]) -> deque[Record]:
        return deque(r for r in records if r.state is not State.SETTLED or r in self.resuming)

    def mark(self, records: list[Record]) -> None:
        """These records are transferred now. If the client answers the first of them, it has read all earlier
        settlements."""
        assert self.armed and records
        self.armed = False
        self.marker = records[0]
        self.confirmable = len(self.unread)

    def unmark(self) -> None:
        """The marker is gone, or has done its work."""
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
        """The client attaches with its unsettled map. It may have been attached before, here or at another router."""
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
        self.wants = wants if complete else None
        self.exempt.clear()
        self.offered.clear()
        self.claims.clear()

    @property
    def spare(self) -> SubscriberRoom:
        """The room of the subscriber: the deliveries, and their bytes, that it takes at once."""
        takes = self.answered and not self.incomplete
        for_messages = self.room - self.room // 4  # their frames take the rest, at least
        return SubscriberRoom(max(0, self.credit - len(self.ready)), for_messages) if takes else NO_ROOM

    def has(self, record: Record) -> bool:
        """Whether the client may have the record: the record was sent on this link, or the map named it."""
        known = record.locals.get(self)
        if known in (QUEUED, SENT, WITHHELD, DeliveryOutcome.ACCEPTED):
            return True
        return known in (None, AWAITING_HOME) and self.may_have([record])

    def may_have(self, records: list[Record]) -> bool:
        """Whether, by its map, the client may have one of these records, whatever the records say."""
        return self.incomplete or (bool(self.claims) and any(record.key in self.claims for record in records))

    def named(self, records: Iterable[Record]) -> None:
        """The client's map names these records here. Everything else in the map is settled, whatever comes under these
        keys before the attach is answered."""
        assert self.client_map is not None
        self.client_map = {record.key: self.client_map[record.key] for record in records}
        self.exempt.update(records if self.wants is not None else ())
        self.claims.update(self.kind.claims(self.client_map))

    def disown(self, record: Record) -> None:
        """The map named this record, but the record is no delivery of the subscriber's address: ignore that part of the
        map."""
        self.resuming.pop(record, None)
        self.exempt.discard(record)
        self.claims.discard(record.key)
        if self.client_map is not None:
            self.client_map = {key: state for key, state in self.client_map.items() if key != record.key}

    def may_pass(self, record: Record) -> bool:
        """Whether the filter applies to the record. It does not if the client has the record by its map, or had it on
        this link."""
        return self.wants is not None and record not in self.exempt and record not in self.attempts

    def stop_awaiting(self, record: Record) -> None:
        """The record awaits the subscriber no longer. If the subscriber had released it, the record is still on its
        link, and is settled there in the end."""
        record.stop_awaiting(self, has_it=record in self.attempts)

    def forget_attempts(self) -> None:
        """Forget the redeliveries of the last link. Home may name the subscriber again in a record that it had released
        there."""
        for record in self.attempts:
            if record.locals.get(self) == DeliveryOutcome.RELEASED:
                record.drop(self)
        self.attempts.clear()

    def suspend(self) -> None:
        """The client's connection is gone. The client may come back."""
        self.link = None
        self.credit = 0
        self.answered = False
        self.echo_covers = None
        self.stop_resuming()
        self.unmark()

    def owe(self, record: Record) -> None:
        """A record that the map named was settled before home forwarded it. The resumed transfer then has the
        settlement, not the payload."""
        if not self.resuming[record] and record.locals.get(self) != QUEUED:
            self.ready.append(record)

    def stop_resuming(self) -> None:
        """End all resuming. The client may not have read the settlements that waited for it."""
        self.unread.extend(record for record in self.resuming if record.state is State.SETTLED)
        self.resuming.clear()

    def gates_of(self, home: str) -> list[bytes]:
        """The publishers whose home at this router gates the subscriber."""
        return [publisher for publisher, gate in self.gated.items() if gate.home == home]

    def next_ready(self) -> list[Record]:
        """Take the waiting records that credit and room allow, in order. A record that was settled meanwhile, or is not
        for the subscriber any more, is left out. But if the client's map named it, it is taken, so that the client
        learns of its end."""
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
        """Assert what must hold between events: no record waits twice."""
        if self.ready or self.gated:
            waiting = [*self.ready, *(record for gate in self.gated.values() for record in gate.records)]
            assert len(waiting) == len(set(waiting)), "a record waits twice"

    def queued(self) -> int:
        """How many records wait, for credit or at a gate."""
        return len(self.ready) + sum(len(gate.records) for gate in self.gated.values())
