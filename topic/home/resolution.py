"""What home says of deliveries that others ask about (protocol 6.1, 7.4): whether their publisher has settled them.

*A delivery is in doubt if and only if its publisher says so*: by its unsettled map, or by having transferred it. All
else is settled, or was never a delivery. That is answered by absence, and only on a sign of life, which
`topic.home.liveness` asks for.
"""

from topic.delivery.record import HomeStream, Record, State, Stream
from topic.edge.edge import Edge
from topic.home.decisions import Decisions
from topic.home.liveness import Liveness


class Resolution:
    """The questions that came to one home."""

    def __init__(self, edge: Edge, liveness: Liveness, home: Decisions) -> None:
        """`home` is told of routers whose subscribers may have a delivery."""
        self._home = home
        self.outlet = edge.outlet
        self.records = edge.records
        self.edge = edge
        self._liveness = liveness

    def resolve(self, router: str, stream: HomeStream, keys: list[bytes]) -> None:
        """Answer which of these keys are settled: those neither held in doubt nor in doubt by the publisher's map, or
        settled before its attach. Of the others the asker is told when they are settled."""
        assert stream.begun
        settled: list[bytes] = []
        for key in keys:
            if key not in stream.settled_before and self._is_doubted(stream, key):
                record = self.records.by_key.get(key)
                if record is not None and record.stream is stream and record.n >= 0:
                    stream.kind.claimed(self._home, stream, record, router)
                stream.asked(key, router)
            else:
                settled.append(key)
        if settled:
            self._liveness.question(stream, (router, settled))

    def _is_doubted(self, stream: HomeStream, key: bytes) -> bool:
        """Whether the publisher holds the delivery in doubt. Its map counts until it has transferred it again; then,
        what is held here. A transfer that waits for a sign of life of the same key proves nothing."""
        record = self.records.by_key.get(key)
        ours = record is not None and record.stream is stream and record.state is not State.SETTLED
        withheld = any(record.key == key for record in stream.withheld) and not stream.is_questioned(key)
        transferred = withheld or (ours and key not in stream.unconfirmed)
        return transferred or key in stream.expected or stream.incomplete

    def hand_over(self, stream: HomeStream, settled: list[bytes], new: Stream) -> None:
        """The publisher has a new attach. What it has settled on this one, and others may not have heard of, its new
        home has to know: they hold that in doubt, and what the publisher has in doubt under such a key is another
        delivery. When an attach has been answered they have asked about all that they held before."""
        keys = settled if stream.answered else sorted(stream.settled_before.union(settled))
        if isinstance(new, HomeStream):
            new.hand_over(keys)
        elif keys and new.home in self.edge.directory.contacts:
            self.outlet.batches.resolved(new.home, new, keys)

    def handed_over(self, stream: HomeStream, keys: list[bytes]) -> None:
        """A former home has handed these over. It has before it acknowledges the attach, or is not in contact any more:
        then the publisher may have transferred what is new."""
        if stream.answered:
            return
        stream.hand_over(keys)
        stream.expect_no_more(keys)
        self.edge.settlement.resolved(stream, keys)
        self.tell_askers(stream, keys)

    def settled_late(self, stream: Stream, records: list[Record]) -> None:
        """The publisher had settled these deliveries before the attach, at a former home. What its map has under such a
        key is another one; if the attach has been answered, that has been taken for the older one, and stays that."""
        if not isinstance(stream, HomeStream):
            self.edge.settlement.resolved(stream, [record.key for record in records])
            return
        keys = [record.key for record in records if not (stream.answered and record.key in stream.expected)]
        if not stream.answered:
            self.handed_over(stream, keys)
        elif keys:
            self.edge.settlement.resolved(stream, keys)
            self.tell_askers(stream, keys)

    def answer(self, router: str, stream: HomeStream, keys: list[bytes]) -> None:
        """Tell the asker that these are settled."""
        if router == self.outlet.router:
            self.edge.settlement.resolved(stream, keys)
        else:
            self.outlet.batches.resolved(router, stream, keys)

    def tell_askers(self, stream: HomeStream, keys: list[bytes]) -> None:
        """Tell who asked that these are settled now."""
        for key in keys:
            for router in stream.take_askers(key):
                if router != self.outlet.router:
                    self.outlet.batches.resolved(router, stream, [key])
