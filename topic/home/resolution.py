"""Answers routers that ask a home whether a publisher has settled certain deliveries (protocol 6.1, 7.4).

*A delivery is in doubt if and only if its publisher says so*: its unsettled map names the delivery, or it has
transferred the delivery. Any other delivery is settled, or never existed. The home says so only after a sign of the
publisher's life, for which `topic.home.liveness` asks.
"""

from topic.delivery.record import HomeStream, Record, State, Stream
from topic.edge.edge import Edge
from topic.home.decisions import Decisions
from topic.home.liveness import Liveness


class Resolution:
    """The questions of other routers, and of this router's own edge, to one home."""

    def __init__(self, edge: Edge, liveness: Liveness, home: Decisions) -> None:
        """This object reports to `home` which routers have subscribers that may have a delivery."""
        self._home = home
        self.outlet = edge.outlet
        self.records = edge.records
        self.edge = edge
        self._liveness = liveness

    def resolve(self, router: str, stream: HomeStream, keys: list[bytes]) -> None:
        """Answer which of these keys are settled.

        A key is settled if its delivery is in doubt neither here nor in the publisher's map, or if the publisher
        settled it before its attach. The router gets a further answer whenever one of the other keys is settled later.
        """
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
        """Whether the delivery is in doubt.

        The publisher's map says this until the publisher has transferred the delivery again; then this router's record
        does. A withheld transfer proves nothing while a question about the same key waits for a sign of life.
        """
        record = self.records.by_key.get(key)
        ours = record is not None and record.stream is stream and record.state is not State.SETTLED
        withheld = any(record.key == key for record in stream.withheld) and not stream.is_questioned(key)
        transferred = withheld or (ours and key not in stream.unconfirmed)
        return transferred or key in stream.expected or stream.incomplete

    def hand_over(self, stream: HomeStream, settled: list[bytes], new: Stream) -> None:
        """Tell the publisher's new home the keys of deliveries that the publisher has settled, if other routers may
        still hold these deliveries in doubt.

        If the publisher's map at the new home names such a key, the map means a later delivery with the same key. If
        this home had answered the publisher's attach here, it leaves out keys that were settled before that attach: by
        then, the other routers had asked about all older records.
        """
        keys = settled if stream.answered else sorted(stream.settled_before.union(settled))
        if isinstance(new, HomeStream):
            new.hand_over(keys)
        elif keys and new.home in self.edge.directory.contacts:
            self.outlet.batches.resolved(new.home, new, keys)

    def handed_over(self, stream: HomeStream, keys: list[bytes]) -> None:
        """Take the keys of settled deliveries that a former home hands over.

        A former home in contact does this before it acknowledges the attach. After the answer to the attach the keys
        may belong to new transfers, so keys that come later are ignored.
        """
        if stream.answered:
            return
        stream.hand_over(keys)
        stream.expect_no_more(keys)
        self.edge.settlement.resolved(stream, keys)
        self.tell_askers(stream, keys)

    def settled_late(self, stream: Stream, records: list[Record]) -> None:
        """Handle deliveries that the publisher settled at a former home before its attach. This router learns of the
        settlements only now.

        If the publisher's map names one of the keys, the map usually means a later delivery with the same key. But if
        this router has already answered the attach, it has treated the entry in the map as the settled delivery. This
        cannot change any more, so the method ignores the key.
        """
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
        """Tell the router that has asked that these keys are settled."""
        if router == self.outlet.router:
            self.edge.settlement.resolved(stream, keys)
        else:
            self.outlet.batches.resolved(router, stream, keys)

    def tell_askers(self, stream: HomeStream, keys: list[bytes]) -> None:
        """Tell all routers that have asked about these keys that the deliveries are settled now."""
        for key in keys:
            for router in stream.take_askers(key):
                if router != self.outlet.router:
                    self.outlet.batches.resolved(router, stream, [key])
