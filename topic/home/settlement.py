"""Settlements of publishers at their home (protocol 5, Settle and Credit). This code runs for every message.

This module tells other routers of a settlement. `topic.edge.settlement` tells the local subscribers. The caller knows
whether the publisher had got an outcome before.
"""

from itertools import groupby
from operator import attrgetter

from topic.actions import Credit
from topic.delivery.record import HomeStream, Record, State, answered_by, await_settlement
from topic.delivery.records import in_ranges, sizes
from topic.edge.edge import Edge
from topic.home.audiences import Audiences
from topic.home.resolution import Resolution
from topic.journal import Event


class HomeSettlement:
    """Handles the settlements of one router's publishers."""

    def __init__(self, edge: Edge, audiences: Audiences, resolution: Resolution) -> None:
        self.outlet = edge.outlet
        self._edge = edge
        self._audiences = audiences
        self._resolution = resolution

    def settle(self, stream: HomeStream, records: list[Record]) -> None:
        """Take the publisher's settlement of these records. It abandons each record that has no outcome yet.

        Abandoned records come first: the settlement of the others opens gates, after which further deliveries may be
        accepted and answered.
        """
        stream.stop_time(records)
        stream.wait_no_more(records)
        abandoned = [record for record in records if record.state is State.IN_DOUBT]
        settled = records if not abandoned else [r for r in records if r.state is State.ACCEPTED]
        for event, run in ((Event.ABANDONED, abandoned), (Event.SETTLED, settled)):
            if run:
                self._settle(stream, run, event)
        self.free_window(stream, settled + abandoned)

    def _settle(self, stream: HomeStream, records: list[Record], event: Event) -> None:
        assert stream.begun
        self.outlet.trace_records(event, stream, records)
        self._edge.settlement.settle_locals(records)
        forwarded = [record for record in records if record.routers]
        await_settlement(records)
        for routers, run in groupby(forwarded, key=attrgetter("routers")):
            self.outlet.batches.settle(routers, stream, [record.n for record in run])
        self._edge.records.settled += records
        known = [record for record in records if not record.routers and not record.unread]
        if stream.askers:
            self._resolution.tell_askers(stream, [record.key for record in records])
        if stream.gates:
            self._audiences.open_gates(stream, records)
        if known:
            self._edge.receipts.forget(known)

    def settled(self, router: str, stream: HomeStream, ranges: list[int]) -> None:
        """Take a router's answer to Settle: all subscribers at `router` have read the settlement. The home forgets a
        record when the last router has answered."""
        records = [record for record in in_ranges(stream, ranges) if record.state is State.SETTLED]
        answered_by(router, records)
        known = [record for record in records if not record.awaited and not record.unread]
        if known:
            self._edge.receipts.forget(known)

    def answer_askers(self, stream: HomeStream, key: bytes) -> None:
        """Tell the routers that have asked about this key that its delivery is settled. If a newer delivery has the
        same tag, it has another key."""
        if stream.askers:
            self._resolution.tell_askers(stream, [key])

    def free_window(self, stream: HomeStream, records: list[Record]) -> None:
        """Stop counting these deliveries against the publisher's window, because they are settled."""
        if stream.link is not None:
            stream.window.give_back(sizes(records))
            self.grant(stream)

    def grant(self, stream: HomeStream) -> None:
        """Grant the publisher the credit that its window allows."""
        if stream.link is not None and (credit := stream.window.due()):
            self.outlet.actions.append(Credit(stream.link, credit))
