"""What home says of deliveries that others ask about (protocol 6.1, 7.4): whether their publisher has settled them.

*A delivery is in doubt if and only if its publisher says so*: by its unsettled map, or by having transferred it. All
else is settled, or was never a delivery; that is answered by absence, and only on evidence.
"""

from topic.edge import Edge
from topic.evidence import Evidence
from topic.record import Record, State, Stream


class Resolving:
    """The questions that came to one home."""

    def __init__(self, edge: Edge, evidence: Evidence) -> None:
        self.context = edge.context
        self.edge = edge
        self._evidence = evidence
        edge.limbo.ask_here = self._resolve_here

    def resolve(self, router: str, stream: Stream, keys: list[bytes]) -> None:
        """Answer which of these are settled: all that is neither held in doubt nor in doubt by the publisher's map; by
        absence only on evidence (6.2). Of the others the asker is told later."""
        settled: list[bytes] = []
        for key in keys:
            if self._is_doubted(stream, key):
                stream.asked.setdefault(key, set()).add(router)
            else:
                settled.append(key)
        if settled:
            self._evidence.doubt(stream, (router, settled))

    def _is_doubted(self, stream: Stream, key: bytes) -> bool:
        record = self.context.records.get(key)
        here = record is not None and record.stream is stream and record.n >= 0 and record.state is not State.SETTLED
        return here or key in stream.expected or stream.partial

    def _resolve_here(self, stream: Stream, keys: list[bytes]) -> None:
        self.resolve(self.context.router, stream, keys)

    def answer(self, router: str, stream: Stream, keys: list[bytes]) -> None:
        if router == self.context.router:
            self.edge.resolved(stream, keys)
        else:
            self.context.outgoing.resolved(router, stream, keys)

    def tell_askers(self, stream: Stream, records: list[Record]) -> None:
        for record in records:
            for router in sorted(stream.asked.pop(record.key, ())):
                if router != self.context.router:
                    self.context.outgoing.resolved(router, stream, [record.key])

    def not_in_doubt(self, stream: Stream, key: bytes) -> None:
        """The publisher uses the key for a new delivery: who asked about an older one need not wait for evidence."""
        for place, doubt in enumerate(stream.doubts):
            if not isinstance(doubt, bytes) and key in doubt[1] and key not in stream.expected:
                stream.doubts[place] = doubt[0], [other for other in doubt[1] if other != key]
                self.answer(doubt[0], stream, [key])
