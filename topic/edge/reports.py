"""Reports outcomes to other homes, and delays a report where necessary (protocol 5, Edge).

A report must not be under way while the home adds a local subscriber to the same delivery: the home would count the
outcome for the new subscriber, too. So the edge delays reports in two cases: the home has not joined all local
subscribers, or the home may still forward a backlog to one of them (6.6). The record keeps the outcome meanwhile.
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
    """The outcomes that one edge still has to report to other homes."""

    def __init__(self, outlet: Outlet, subscribers: Mapping[bytes, LocalSubscriber], lapsed: Container[bytes]) -> None:
        """`lapsed`: the names of lapsed subscribers. No home awaits them."""
        self.outlet = outlet
        self.passed: dict[Stream, deque[Record]] = {}
        """Maps each stream to the records that no local subscriber's filter lets pass, in order. Their report waits for
        a short time while other records of the stream have no outcome, so that one report can cover whole ranges."""
        self.due = inf
        self.unjoined: dict[str, set[bytes]] = {}
        """Maps each home in contact to the local subscribers that the home has yet to join in this contact."""
        self.unreported: dict[str, list[Record]] = {}
        """Maps each home to the finished records whose report is delayed."""
        self._unproven: dict[bytes, dict[bytes, None]] = {}
        """Maps each publisher to the local subscribers whose backlog the publisher's home has delayed. The home may
        still forward older deliveries of the publisher to them."""
        self._subscribers = subscribers
        self._lapsed = lapsed

    def contact(self, home: str) -> None:
        """Begin a contact: the home has not joined any local subscriber yet."""
        assert home not in self.unjoined
        self.unjoined[home] = set(self._subscribers)

    def contact_lost(self, home: str) -> None:
        """End a contact: drop the joins of this home, and the reports that were delayed for it."""
        self.unjoined.pop(home, None)
        self.unreported.pop(home, None)
        self.passed = {stream: records for stream, records in self.passed.items() if stream.home != home}
        self._count_unproven()

    def attaches(self, subscriber: bytes) -> None:
        """Called when a subscriber attaches. Every home has to join it, and until then the edge delays its reports."""
        for unjoined in self.unjoined.values():
            unjoined.add(subscriber)

    def unproven(self, publisher: bytes, subscriber: bytes) -> None:
        """The publisher's home delays the backlog of a local subscriber."""
        self._unproven.setdefault(publisher, {})[subscriber] = None

    def rehomed(self, publisher: bytes) -> None:
        """Drop all reports about this publisher to its former home, which no longer needs them."""
        self._unproven.pop(publisher, None)
        self.passed = {stream: records for stream, records in self.passed.items() if stream.publisher != publisher}
        for home, records in list(self.unreported.items()):
            self.unreported[home] = [record for record in records if record.stream.publisher != publisher]
            if not self.unreported[home]:
                del self.unreported[home]

    def joined(self, home: str, subscriber: bytes) -> bool:
        """`home` has joined the subscriber, or need not join it any more. If it has now joined all subscribers, send it
        the delayed reports. Returns whether there were any."""
        self.unjoined.get(home, set()).discard(subscriber)
        self._count_unproven()
        waited = self.unreported.pop(home, []) if not self.unjoined.get(home) else []
        self._report_waited(waited)
        return bool(waited)

    def _report_waited(self, waited: Iterable[Record]) -> None:
        """Report records whose report was delayed. A record that now has a new subscriber, or is settled, is left
        out."""
        for stream, records in by_stream(r for r in dict.fromkeys(waited) if not r.open and r.state is State.IN_DOUBT):
            self.report(stream, records)

    def put_off(self, stream: Stream, passed: list[Record]) -> None:
        """Delay the report of these records, which no local subscriber's filter lets pass. Other records of the stream
        still wait for outcomes."""
        self.passed.setdefault(stream, deque()).extend(passed)

    def wait(self, now: float, delay: float) -> None:
        """Send the reports that `put_off` has delayed after `delay` seconds at the latest."""
        self.due = min(self.due, now + delay) if self.passed else inf

    def handle_timer(self, now: float) -> None:
        if now >= self.due:
            passed, self.passed, self.due = self.passed, {}, inf
            self._report_waited(record for records in passed.values() for record in records)

    def _with_passed(self, stream: Stream, records: list[Record]) -> list[Record]:
        """Returns these records together with the earlier records whose report `put_off` has delayed, in order."""
        waited, found = self.passed[stream], dict.fromkeys(records)
        while waited and waited[0].n < records[-1].n:
            record = waited.popleft()
            if record.n >= 0 and not record.open and record.state is State.IN_DOUBT:
                found[record] = None
        if not waited:
            del self.passed[stream]
        return sorted(found, key=attrgetter("n"))

    def subscriber_ended(self, subscriber: bytes) -> list[str]:
        """Handle the end of a subscriber: no home has to join it any more. Returns the homes to which delayed reports
        are sent now."""
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
        """Whether the home has joined the subscriber here again, so that it has named the subscriber in each delivery
        for the subscriber. False for a lapsed subscriber, because the home may have joined it before the home learnt of
        the lapse."""
        is_joined = name in self._subscribers and home in self._subscribers[name].joined
        return is_joined and name not in self._lapsed

    def report(self, stream: Stream, records: list[Record]) -> None:
        """Report records for which all local subscribers have a final outcome. An unconfirmed record is reported only
        after the home has forwarded it again."""
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
