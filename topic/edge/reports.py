"""Outcomes for other homes, and when they have to wait (protocol 5, Edge).

An outcome must not be under way when home adds a local subscriber to the delivery: home would take it for that
subscriber's, too. So it waits while home has not joined all local subscribers, and while home may still forward a
backlog for one (6.6). What the outcome is, the record knows.
"""

from collections import deque
from collections.abc import Container, Iterable, Mapping
from itertools import groupby
from math import inf
from operator import attrgetter

from topic.delivery.gates import UNPROVEN
from topic.delivery.record import Record, State, Stream, accept
from topic.delivery.records import by_stream
from topic.edge.subscriber import LocalSubscriber
from topic.outlet import Outlet


class Reports:
    """The outcomes that one edge owes to other homes."""

    def __init__(self, outlet: Outlet, subscribers: Mapping[bytes, LocalSubscriber], lapsed: Container[bytes]) -> None:
        """`lapsed` are names: nobody waits for these."""
        self.outlet = outlet
        self.passed: dict[Stream, deque[Record]] = {}
        """What nobody here wants, in order, while what came with it is not answered: told with that, in ranges, or a
        little later."""
        self.due = inf
        self.unjoined: dict[str, set[bytes]] = {}
        """By home in contact: local subscribers that it has not joined in this contact."""
        self.unreported: dict[str, list[Record]] = {}
        """By home: finished records whose outcome has to wait."""
        self._unproven: dict[bytes, dict[bytes, None]] = {}
        """Publishers whose home may still forward older deliveries, and the local subscribers that it has put off."""
        self._subscribers = subscribers
        self._lapsed = lapsed

    def contact(self, home: str) -> None:
        """A contact begins: the home has to join everybody here."""
        assert home not in self.unjoined
        self.unjoined[home] = set(self._subscribers)

    def lost(self, home: str) -> None:
        """A contact is over, and with it its joins and the outcomes that waited."""
        self.unjoined.pop(home, None)
        self.unreported.pop(home, None)
        self.passed = {stream: records for stream, records in self.passed.items() if stream.home != home}
        self._count_unproven()

    def attaches(self, subscriber: bytes) -> None:
        """A subscriber attaches: every home has to join it."""
        for unjoined in self.unjoined.values():
            unjoined.add(subscriber)

    def unproven(self, publisher: bytes, subscriber: bytes) -> None:
        """The publisher's home puts off the backlog of a local subscriber."""
        self._unproven.setdefault(publisher, {})[subscriber] = None

    def rehomed(self, publisher: bytes) -> None:
        """The publisher's former home needs no outcomes any more."""
        self._unproven.pop(publisher, None)
        self.passed = {stream: records for stream, records in self.passed.items() if stream.publisher != publisher}
        for home, records in list(self.unreported.items()):
            self.unreported[home] = [record for record in records if record.stream.publisher != publisher]
            if not self.unreported[home]:
                del self.unreported[home]

    def joined(self, home: str, subscriber: bytes) -> None:
        """`home` need not join the subscriber any more. When it need join nobody, the outcomes that waited are
        reported."""
        self.unjoined.get(home, set()).discard(subscriber)
        self._count_unproven()
        if not self.unjoined.get(home):
            self._report_waited(self.unreported.pop(home, ()))

    def _report_waited(self, waited: Iterable[Record]) -> None:
        """They may be for others, too, by now, or settled."""
        for stream, records in by_stream(r for r in dict.fromkeys(waited) if not r.open and r.state is State.IN_DOUBT):
            self.report(stream, records)

    def put_off(self, stream: Stream, passed: list[Record]) -> None:
        """Nobody here wants these, and somebody what came with them."""
        self.passed.setdefault(stream, deque()).extend(passed)

    def wait(self, now: float, delay: float) -> None:
        """What was put off waits so long at most."""
        self.due = min(self.due, now + delay) if self.passed else inf

    def handle_timer(self, now: float) -> None:
        if now >= self.due:
            passed, self.passed, self.due = self.passed, {}, inf
            self._report_waited(record for records in passed.values() for record in records)

    def _with_passed(self, stream: Stream, records: list[Record]) -> list[Record]:
        """With what was put off and comes before the last of these."""
        waited, found = self.passed[stream], dict.fromkeys(records)
        while waited and waited[0].n < records[-1].n:
            record = waited.popleft()
            if record.n >= 0 and not record.open and record.state is State.IN_DOUBT:
                found[record] = None
        if not waited:
            del self.passed[stream]
        return sorted(found, key=attrgetter("n"))

    def left(self, subscriber: bytes) -> None:
        """A subscriber is gone: no home need join it."""
        for put_off in self._unproven.values():
            put_off.pop(subscriber, None)
        for home in list(self.unjoined):
            self.joined(home, subscriber)

    def _count_unproven(self) -> None:
        for publisher, put_off in list(self._unproven.items()):
            while put_off and not self._is_put_off(first := next(iter(put_off)), publisher):
                del put_off[first]
            if not put_off:
                del self._unproven[publisher]

    def _is_put_off(self, name: bytes, publisher: bytes) -> bool:
        gate = self._subscribers[name].gated.get(publisher) if name in self._subscribers else None
        return gate is not None and gate.first == UNPROVEN

    def _is_back(self, name: bytes, home: str) -> bool:
        """Whether home counts on the subscriber here again, and has named it again where it is to have a delivery. A
        JOINED that has crossed its lapse says nothing of what it left."""
        is_joined = name in self._subscribers and home in self._subscribers[name].joined
        return is_joined and name not in self._lapsed

    def report(self, stream: Stream, records: list[Record]) -> None:
        """Report records of which all local subscribers have a final outcome. Unconfirmed ones wait until home has
        forwarded them again."""
        assert not any(map(attrgetter("open"), records))
        home = stream.home
        confirmed = [record for record in records if record.n >= 0]
        if confirmed and stream in self.passed:
            confirmed = self._with_passed(stream, confirmed)
        if confirmed and (self.unjoined.get(home) or stream.publisher in self._unproven):
            self.unreported.setdefault(home, []).extend(confirmed)
            return
        accept(confirmed)
        stream.kind.sum_up(confirmed)
        for (left, refusals), run in groupby(confirmed, key=attrgetter("moved", "refusals")):
            moved = [name for name in left if not self._is_back(name, home)]
            if moved or refusals is not None:
                for record in run:
                    self.outlet.batches.outcome_in_full(home, record, moved)
            else:
                self.outlet.batches.outcome(home, stream, [record.n for record in run])
