"""One local subscriber: its credit, the records that wait for it, and who has joined it (protocol 6.1 to 6.7).

It decides *when* a record may go to the subscriber, `topic.edge.delivery` what that means for the record.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import attrs

from topic.delivery.record import AWAITING_HOME, QUEUED, Record, State
from topic.directory.entry import Lifetime
from topic.identity import Epoch, LinkIdentity

CLEAR_AWAY = 64
"""Settled records that may wait with the others before anybody looks."""


@attrs.define(slots=True)
class Gated:
    """What waits behind a publisher's gate."""

    home: str
    """It will admit the subscriber."""
    first: int
    """`n` of the oldest gating record: what is older still may pass."""
    records: deque[Record]


class LocalSubscriber:
    """A subscriber whose custodian this router is."""

    __slots__ = (
        "accepted", "answered", "armed", "asked", "attempts", "confirmable", "credit", "deadline", "delivered", "epoch",
        "first", "gated", "identity", "joined", "lifetime", "link", "marker", "name", "partial", "ready", "resuming",
        "said", "sends_settled", "stale", "unanswered", "unknowing",
    )  # fmt: skip

    def __init__(self, name: bytes, identity: LinkIdentity) -> None:
        self.name = name
        self.identity = identity
        self.epoch = Epoch(0, "", 0)
        self.link: Any = None
        """The shell's link."""
        self.first = False
        """Receiver settle mode first: the client settles as it accepts."""
        self.sends_settled = False
        """Sender settle mode settled: what is sent counts as accepted (at most once)."""
        self.credit = 0
        """Transfers that the client takes now; 0 until its attach is answered."""
        self.ready: deque[Record] = deque()
        """Waiting for credit only, in order."""
        self.gated: dict[bytes, Gated] = {}
        """By gated publisher."""
        self.stale = 0
        """How many of those that wait may have been settled meanwhile."""
        self.joined: set[str] = set()
        """Routers whose Forwards from now on are for this subscriber too."""
        self.unanswered: set[str] = set()
        """Routers in contact whose Joined for this very epoch is awaited."""
        self.answered = False
        self.deadline = 0.0
        """When the routers in `unanswered` are no longer in contact."""
        self.lifetime = Lifetime()
        """With a timeout it may come back with a map: settlements are remembered until it knows of them (5, Forget)."""
        self.said: Mapping[bytes, int] | None = None
        """Its unsettled map, by key, until the attach is answered; None for a null one."""
        self.partial = False
        """That map was incomplete: what it does not name may be known to the client, and waits for its next attach."""
        self.resuming: dict[Record, int] = {}
        """To be transferred with resume=true: the state that goes with it, 0 for the payload."""
        self.unknowing: deque[Record] = deque()
        """Settled, in order, and perhaps not yet known to the client (5, Forget)."""
        self.asked: int | None = None
        """How many of `unknowing` the echo that is under way covers; None if none is."""
        self.armed = False
        """The next transfer is the marker."""
        self.marker: Record | None = None
        """Transferred after the settlement of the first `confirmable` of `unknowing`, which its outcome confirms."""
        self.confirmable = 0
        self.attempts: dict[Record, int] = {}
        """How often a record was released or modified."""
        self.delivered = 0
        self.accepted = 0

    def offer(self, publisher: bytes, records: list[Record]) -> list[Record]:
        """New records of a publisher: returns those to transfer now, keeps the others."""
        if self.partial:
            records = self._named(records)
        if self.gated and publisher in self.gated:
            gate = self.gated[publisher]
            gate.records.extend(record for record in records if record.n >= gate.first)
            records = [record for record in records if record.n < gate.first]
        if self.ready or not self.credit:
            self.ready.extend(records)
            return []
        now = records[: self.credit]
        self.credit -= len(now)
        self.ready.extend(records[len(now) :])
        return now

    def _named(self, records: list[Record]) -> list[Record]:
        for record in records:
            if record not in self.resuming and record.key not in (self.said or ()):
                record.withhold(self)
        return [record for record in records if record.locals[self] == QUEUED]

    def gate(self, publisher: bytes, home: str, first: int) -> None:
        """Nothing of the publisher from `first` on goes to the subscriber until its home admits it; nor its backlog."""
        gate = self.gated.setdefault(publisher, Gated(home, first, deque()))
        gate.first = first
        self.ready.extend(record for record in gate.records if record.n < first)
        gate.records = deque(record for record in gate.records if record.n >= first)
        behind = [record for record in self.ready if self._is_behind(record, publisher, first)]
        if behind:
            gate.records.extend(behind)
            self.ready = deque(record for record in self.ready if not self._is_behind(record, publisher, first))

    def _is_behind(self, record: Record, publisher: bytes, first: int) -> bool:
        """What was abandoned waits for nothing: its key may be what a delivery that gates it waits for."""
        is_new = record.locals.get(self) == QUEUED and record not in self.attempts and not record.stream.abandoned
        return is_new and record.stream.publisher == publisher and record.n >= first

    def open_gate(self, publisher: bytes) -> list[Record]:
        """The gate falls: returns what it held, in order; a backlog that waited for evidence came last."""
        return sorted(self.gated.pop(publisher).records, key=attrgetter("n"))

    def hold_back(self, publishers: Iterable[bytes]) -> None:
        """What awaits its home no longer waits for credit, nor behind the gates of these publishers, which fall.
        Settlements that it is owed do."""
        self.ready = deque(r for r in self.ready if r.locals.get(self) != AWAITING_HOME or r.state is State.SETTLED)
        for publisher in publishers:
            self.gated.pop(publisher, None)

    def pass_over(self) -> None:
        """One of the records that wait here was settled: they are cleared away before they pile up."""
        self.stale += 1
        if 2 * self.stale > self.queued() + CLEAR_AWAY:
            self.stale = 0
            self.ready = self._still_waiting(self.ready)
            for gate in self.gated.values():
                gate.records = self._still_waiting(gate.records)

    def _still_waiting(self, records: deque[Record]) -> deque[Record]:
        return deque(r for r in records if r.state is not State.SETTLED or r in self.resuming)

    def mark(self, records: list[Record]) -> None:
        """These are transferred now: whoever answers the first of them has read what was settled before."""
        self.armed = False
        self.marker = records[0]
        self.confirmable = len(self.unknowing)

    def unmark(self) -> None:
        """The marker is gone or has done its work."""
        self.marker = None
        self.confirmable = 0
        self.armed = bool(self.unknowing)

    def begin(self, link: Any, epoch: Epoch, said: Mapping[bytes, int] | None, *, complete: bool) -> None:
        """It attaches, with its unsettled map; here or elsewhere it may have been before."""
        self.suspend()
        self.ready.clear()
        self.gated.clear()
        self.joined.clear()
        self.link = link
        self.epoch = epoch
        self.said = said
        self.partial = not complete

    def suspend(self) -> None:
        """Its connection is gone; it may come back."""
        self.link = None
        self.credit = 0
        self.answered = False
        self.asked = None
        self.stop_resuming()
        self.unmark()

    def owe(self, record: Record) -> None:
        """What its map named was settled before home forwarded it: the settlement is resumed instead of the payload."""
        if not self.resuming[record] and record.locals.get(self) != QUEUED:
            self.ready.append(record)

    def stop_resuming(self) -> None:
        """What was settled before it was resumed, the client does not know of."""
        self.unknowing.extend(record for record in self.resuming if record.state is State.SETTLED)
        self.resuming.clear()

    def gates_of(self, home: str) -> list[bytes]:
        return [publisher for publisher, gate in self.gated.items() if gate.home == home]

    def next_ready(self) -> list[Record]:
        """What credit lets go now, in order; deliveries settled while they waited are passed over."""
        now: list[Record] = []
        while self.ready and self.credit:
            record = self.ready.popleft()
            waits = record.locals.get(self) == QUEUED and record.state is not State.SETTLED
            if waits or record in self.resuming:
                self.credit -= 1
                now.append(record)
        return now

    def queued(self) -> int:
        return len(self.ready) + sum(len(gate.records) for gate in self.gated.values())
