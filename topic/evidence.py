"""Proof that a publisher is alive and attached here (protocol 6.2, Evidence).

A home may be a zombie: its publisher went on elsewhere, behind a partition, and settled there what is in doubt here.
So before a home gives anything old to a subscriber that comes anew, or calls settled what it has not got, the publisher
must answer an echo that was sent after the question came up. That all routers seem to be in contact proves nothing: one
may be cut off and not be missed yet. What waits for a publisher that is suspended, waits for its next attach.
"""

from collections.abc import Callable

from topic.actions import Echo
from topic.context import Context
from topic.record import Doubt, Stream


class Evidence:
    """What waits for it, at one router; per stream in `Stream.doubts`."""

    def __init__(self, context: Context, settle: Callable[[Stream, Doubt], None]) -> None:
        self.context = context
        self._settle = settle

    def doubt(self, stream: Stream, doubt: Doubt) -> None:
        """`settle` is called with it when the publisher has shown that it is here."""
        stream.doubts.append(doubt)
        self.ask(stream)

    def ask(self, stream: Stream) -> None:
        """The publisher, if it can answer and has not been asked."""
        if stream.doubts and stream.answered and stream.link is not None and not stream.proving:
            stream.proving = len(stream.doubts)
            self.context.out.append(Echo(stream.link))

    def alive(self, stream: Stream) -> None:
        """It has answered what it was asked last."""
        proven, stream.doubts = stream.doubts[: stream.proving], stream.doubts[stream.proving :]
        stream.proving = 0
        for doubt in proven:
            self._settle(stream, doubt)
        if stream.withheld:
            self.context.freed.append(stream)
        self.ask(stream)
