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
        "accepted", "answered", "attempts", "credit", "deadline", "delivered", "epoch", "first", "held", "identity",
        "joined", "link", "name", "ready", "sends_settled", "since", "stale",
        "unanswered",
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
            self.ready = _unsettled(self.ready)
            self.held = {name: (home, _unsettled(records)) for name, (home, records) in self.held.items()}

    def gates_of(self, home: str) -> list[bytes]:
        return [publisher for publisher, (router, _) in self.held.items() if router == home]

    def next_ready(self) -> list[Record]:
        """What credit lets go now, in order; deliveries settled while they waited are passed over."""
        now: list[Record] = []
        while self.ready and self.credit:
            record = self.ready.popleft()
            if record.state is not State.SETTLED and self in record.locals:
                self.credit -= 1
                now.append(record)
        return now

    def queued(self) -> int:
        return len(self.ready) + sum(len(records) for _, records in self.held.values())


def _unsettled(records: deque[Record]) -> deque[Record]:
    return deque(record for record in records if record.state is not State.SETTLED)
