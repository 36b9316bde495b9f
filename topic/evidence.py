"""Proof that a publisher is alive and attached here (protocol 6.2, Evidence).

While some router of the topology is out of contact, a home may be a zombie: its publisher went on elsewhere, behind a
partition, and settled there what is in doubt here. So before such a home gives anything old to a subscriber that comes
anew, or calls settled what it has not got, the publisher must answer an echo that was sent after the question came up.
Once all routers are in contact the highest epoch is known, and no proof is needed.
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

    def doubts(self, stream: Stream, doubt: Doubt) -> bool:
        """Whether `doubt` has to wait; then `settle` is called with it when it need not any longer."""
        if self.context.directory.complete:
            return False
        stream.doubts.append(doubt)
        self.ask(stream)
        return True

    def ask(self, stream: Stream) -> None:
        """The publisher, if it can answer and has not been asked."""
        if stream.doubts and stream.answered and stream.link is not None and not stream.proving:
            stream.proving = len(stream.doubts)
            self.context.out.append(Echo(stream.link))

    def alive(self, stream: Stream) -> None:
        """It has answered what it was asked last."""
        self.settle(stream, stream.proving)
        self.ask(stream)

    def settle(self, stream: Stream, count: int) -> None:
        """The `count` oldest doubts are none."""
        proven, stream.doubts = stream.doubts[:count], stream.doubts[count:]
        stream.proving = max(0, stream.proving - count)
        for doubt in proven:
            self._settle(stream, doubt)
