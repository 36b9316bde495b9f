"""Outcomes for other homes, and when they have to wait (protocol 5, Edge).

An outcome must not be under way when home adds a local subscriber to the delivery: home would take it for that
subscriber's, too. So it waits while home has not joined all local subscribers, and while home may still forward a
backlog for one (6.6). What the outcome is, the record knows.
"""

from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter

from topic.delivery.gates import UNPROVEN
from topic.delivery.record import Record, State, Stream, accept
from topic.delivery.records import by_stream
from topic.edge.subscriber import LocalSubscriber
from topic.outlet import Outlet


class Reports:
    """The outcomes that one edge owes to other homes."""

    def __init__(self, outlet: Outlet, subscribers: Mapping[bytes, LocalSubscriber]) -> None:
        self.outlet = outlet
        self.unjoined: dict[str, set[bytes]] = {}
        """By home in contact: local subscribers that it has not joined in this contact."""
        self.unreported: dict[str, list[Record]] = {}
        """By home: finished records whose outcome has to wait."""
        self._unproven: dict[bytes, dict[bytes, None]] = {}
        """Publishers whose home may still forward older deliveries, and the local subscribers that it has put off."""
        self._subscribers = subscribers

    def contact(self, home: str) -> None:
        """A contact begins: the home has to join everybody here."""
        assert home not in self.unjoined
        self.unjoined[home] = set(self._subscribers)

    def lost(self, home: str) -> None:
        """A contact is over, and with it its joins and the outcomes that waited."""
        self.unjoined.pop(home, None)
        self.unreported.pop(home, None)
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
            waited = dict.fromkeys(self.unreported.pop(home, ()))
            for stream, records in by_stream(r for r in waited if not r.open and r.state is State.IN_DOUBT):
                self.report(stream, records)

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
        """Whether home counts on the subscriber here again. One that has lapsed may have come back, but is not waited
        for."""
        return name in self._subscribers and home in self._subscribers[name].joined

    def report(self, stream: Stream, records: list[Record]) -> None:
        """Report records of which all local subscribers have a final outcome. Unconfirmed ones wait until home has
        forwarded them again."""
        assert not any(map(attrgetter("open"), records))
        home = stream.home
        confirmed = [record for record in records if record.n >= 0]
        if confirmed and (self.unjoined.get(home) or stream.publisher in self._unproven):
            self.unreported.setdefault(home, []).extend(confirmed)
            return
        accept(confirmed)
        for (left, refusals), run in groupby(confirmed, key=attrgetter("moved", "refusals")):
            ns = [record.n for record in run]
            moved = [name for name in left if not self._is_back(name, home)]
            if moved or refusals is not None:
                for n in ns:
                    self.outlet.batches.outcome_in_full(home, stream, n, refusals, moved)
            else:
                self.outlet.batches.outcome(home, stream, ns)
