"""The reports of outcomes to other homes, and when they have to wait (protocol 5, Edge).

No outcome of a delivery may be under way when home adds a local subscriber to the delivery: home would count the
outcome for that subscriber, too. So an outcome waits in two cases: home has not joined all local subscribers, or home
may still forward a backlog to one of them (6.6). The record has the outcome itself.
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
        """`lapsed`: names of lapsed subscribers, which no home awaits."""
        self.outlet = outlet
        self.passed: dict[Stream, deque[Record]] = {}
        """Keyed by stream: records that no local subscriber wants, in order, while other records of the stream are not
        answered. Their acceptance goes with the outcomes of those, in ranges, or a little later."""
        self.due = inf
        self.unjoined: dict[str, set[bytes]] = {}
        """Keyed by home in contact: the local subscribers that it has not joined in this contact."""
        self.unreported: dict[str, list[Record]] = {}
        """Keyed by home: the finished records whose outcome has to wait."""
        self._unproven: dict[bytes, dict[bytes, None]] = {}
        """Keyed by publisher whose home may still forward older deliveries: the local subscribers whose backlog the
        home has put off."""
        self._subscribers = subscribers
        self._lapsed = lapsed

    def contact(self, home: str) -> None:
        """A contact begins: the home has to join all local subscribers."""
        assert home not in self.unjoined
        self.unjoined[home] = set(self._subscribers)

    def contact_lost(self, home: str) -> None:
        """A contact is over, and with it the joins of the home and the outcomes that waited for it."""
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

    def joined(self, home: str, subscriber: bytes) -> bool:
        """`home` has joined the subscriber, or need not join it any more. When it has none left to join, the outcomes
        that waited are reported. Returns whether there were any."""
        self.unjoined.get(home, set()).discard(subscriber)
        self._count_unproven()
        waited = self.unreported.pop(home, []) if not self.unjoined.get(home) else []
        self._report_waited(waited)
        return bool(waited)

    def _report_waited(self, waited: Iterable[Record]) -> None:
        """Report records that waited. By now a record may have other subscribers, or be settled: then it is left
        out."""
        for stream, records in by_stream(r for r in dict.fromkeys(waited) if not r.open and r.state is State.IN_DOUBT):
            self.report(stream, records)

    def put_off(self, stream: Stream, passed: list[Record]) -> None:
        """No local subscriber wants these records, while other records of the stream wait for outcomes: put their
        report off."""
        self.passed.setdefault(stream, deque()).extend(passed)

    def wait(self, now: float, delay: float) -> None:
        """Limit the wait of the reports that were put off to `delay` seconds."""
        self.due = min(self.due, now + delay) if self.passed else inf

    def handle_timer(self, now: float) -> None:
        if now >= self.due:
            passed, self.passed, self.due = self.passed, {}, inf
            self._report_waited(record for records in passed.values() for record in records)

    def _with_passed(self, stream: Stream, records: list[Record]) -> list[Record]:
        """These records, together with those that were put off and come before the last of them."""
        waited, found = self.passed[stream], dict.fromkeys(records)
        while waited and waited[0].n < records[-1].n:
            record = waited.popleft()
            if record.n >= 0 and not record.open and record.state is State.IN_DOUBT:
                found[record] = None
        if not waited:
            del self.passed[stream]
        return sorted(found, key=attrgetter("n"))

    def subscriber_ended(self, subscriber: bytes) -> list[str]:
        """A subscriber is gone: no home need join it. Returns the homes that outcomes which waited are reported to."""
        for put_off in self._unproven.values():
            put_off.pop(subscriber, None)
        return [home for home in list(self.unjoined) if self.joined(home, subscriber)]

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
        """Whether home has joined the subscriber here again, and then named it in each delivery that it is to have. A
        JOINED that has crossed the subscriber's lapse does not count."""
        is_joined = name in self._subscribers and home in self._subscribers[name].joined
        return is_joined and name not in self._lapsed

    def report(self, stream: Stream, records: list[Record]) -> None:
        """Report records for which all local subscribers have a final outcome. Unconfirmed records wait until home has
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
