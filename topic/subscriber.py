"""One local subscriber: its credit, the records that wait for it, and who has joined it (protocol 6.1 to 6.5).

It decides *when* a record may go to the subscriber, `topic.edge` what that means for the record.
"""

from collections import deque
from typing import Any

from topic.identity import Epoch, LinkIdentity
from topic.record import Record, State

CLEAR_AWAY = 64
"""Settled records that may wait with the others before anybody looks."""


class Subscriber:
    """A subscriber whose custodian this router is."""

    __slots__ = (
        "accepted",
        "answered",
        "armed",
        "asked",
        "attempts",
        "confirmable",
        "credit",
        "deadline",
        "delivered",
        "epoch",
        "first",
        "held",
        "identity",
        "joined",
        "link",
        "marker",
        "name",
        "ready",

        "reply",
        "resuming",
        "sends_settled",
        "since",
        "stale",
        "timeout",
        "unanswered",
        "unknowing",
    )  # fmt: skip

    def __init__(self, name: bytes, identity: LinkIdentity) -> None:
        self.name = name
        self.identity = identity
        self.epoch = Epoch(0, "", 0)
        self.since = self.epoch
        """The first epoch of those in which it has been here without a break."""
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
        self.held: dict[bytes, tuple[str, deque[Record]]] = {}
        """Gated publishers: (the home that will admit, what waits behind the gate)."""
        self.stale = 0
        """How many of those that wait may have been settled meanwhile."""
        self.joined: set[str] = set()
        """Routers whose Forwards from now on are for this subscriber too."""
        self.unanswered: set[str] = set()
        """Routers in contact whose Joined for this very epoch is awaited."""
        self.answered = False
        self.deadline = 0.0
        """When the routers in `unanswered` are no longer in contact."""
        self.timeout = 0.0
        """Seconds that the terminus outlives its connection; above 0 it may come back with a map, so settlements are
        remembered until it knows of them (5, Forget)."""
        self.reply: dict[bytes, int] | None = None
        """Our unsettled map in the answer to the attach; None for a null one."""
        self.resuming: dict[Record, int] = {}
        """Waiting in `ready` to be transferred with resume=true: the state that goes with it, 0 for the payload."""
        self.unknowing: deque[Record] = deque()
        """Settled, in order, and perhaps not yet known to the client (5, Forget)."""
        self.asked = 0
        """How many of `unknowing` the echo that is under way covers."""
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
        if self.held and publisher in self.held:
            self.held[publisher][1].extend(records)
            return []
        if self.ready or not self.credit:
            self.ready.extend(records)
            return []
        now = records[: self.credit]
        self.credit -= len(now)
        self.ready.extend(records[len(now) :])
        return now

    def gate(self, publisher: bytes, home: str) -> None:
        """Nothing of the publisher goes to the subscriber until its home admits it."""
        if publisher not in self.held:
            self.held[publisher] = (home, deque())

    def open_gate(self, publisher: bytes) -> deque[Record]:
        """The gate falls: returns what it held."""
        return self.held.pop(publisher)[1]

    def pass_over(self) -> None:
        """One of the records that wait here was settled: they are cleared away before they pile up."""
        self.stale += 1
        if 2 * self.stale > self.queued() + CLEAR_AWAY:
            self.stale = 0
            self.ready = deque(r for r in self.ready if r.state is not State.SETTLED or r in self.resuming)
            self.held = {name: (home, _unsettled(records)) for name, (home, records) in self.held.items()}

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

    def suspend(self) -> None:
        """Its connection is gone; it may come back."""
        self.link = None
        self.credit = 0
        self.answered = False
        self.asked = 0
        self.stop_resuming()
        self.unmark()

    def stop_resuming(self) -> None:
        """What was settled before it was resumed, the client does not know of."""
        self.unknowing.extend(record for record in self.resuming if record.state is State.SETTLED)
        self.resuming.clear()

    def gates_of(self, home: str) -> list[bytes]:
        return [publisher for publisher, (router, _) in self.held.items() if router == home]

    def next_ready(self) -> list[Record]:
        """What credit lets go now, in order; deliveries settled while they waited are passed over."""
        now: list[Record] = []
        while self.ready and self.credit:
            record = self.ready.popleft()
            if self in record.locals and (record.state is not State.SETTLED or record in self.resuming):
                self.credit -= 1
                now.append(record)
        return now

    def queued(self) -> int:
        return len(self.ready) + sum(len(records) for _, records in self.held.values())


def _unsettled(records: deque[Record]) -> deque[Record]:
    return deque(record for record in records if record.state is not State.SETTLED)
