"""Proof that a publisher is alive and attached here (protocol 6.6, Evidence).

A home may be a zombie: its publisher went on elsewhere, behind a partition, and settled there what is in doubt here, or
is still to be read here. So before a home gives anything to a subscriber that may have been elsewhere, or calls settled
what it has not got, the publisher must answer an echo that was sent after the question came up. That all routers seem
to be in contact proves nothing: one may be cut off and not be missed yet. What waits for a publisher that is suspended,
waits for its next attach.

The same answer says that it has read what it was told before (6.5, Gate). Its machine's acknowledgement does not.
"""

from collections.abc import Callable

from topic.actions import Echo
from topic.delivery.record import Doubt, Stream
from topic.delivery.records import RecordTable
from topic.outlet import Outlet


class Liveness:
    """What waits for it, at one router; per stream in `Stream.doubts`."""

    def __init__(self, outlet: Outlet, records: RecordTable, settle: Callable[[Stream, Doubt, bool], None]) -> None:
        """`settle` is told, too, whether the publisher has answered itself."""
        self.outlet = outlet
        self.records = records
        self._settle = settle

    def doubt(self, stream: Stream, doubt: Doubt) -> None:
        """`settle` is called with it when the publisher has shown that it is here: from now on, if it was asked the
        same before."""
        if doubt in stream.doubts:
            place = stream.doubts.index(doubt)
            del stream.doubts[place]
            if stream.proving is not None and place < stream.proving:
                stream.proving -= 1
        stream.doubts.append(doubt)
        self.ask(stream)

    def ask(self, stream: Stream) -> None:
        """The publisher, if it can answer and has not been asked."""
        if stream.doubts and stream.answered and stream.link is not None and stream.proving is None:
            stream.proving = len(stream.doubts)
            self.outlet.actions.append(Echo(stream.link))

    def alive(self, stream: Stream, *, answered: bool) -> None:
        """It was there after it was asked last: it has `answered`, or its machine did."""
        count, stream.proving = stream.proving or 0, None
        proven, stream.doubts = stream.doubts[:count], stream.doubts[count:]
        for doubt in proven:
            self._settle(stream, doubt, answered)
        if stream.withheld:
            self.records.freed.append(stream)
        self.ask(stream)
