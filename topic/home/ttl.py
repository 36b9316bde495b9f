"""Deliveries whose time is over before anybody has them (protocol 5, Time to live).

Home alone counts, and only as long as nobody can have the delivery: it was forwarded nowhere, and transferred to no
subscriber here. `HomeStream.until` has what that is true of, as far as a time was given. What a message says of its
time is the shell's to read.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

from topic.delivery.record import HomeStream, Record, State
from topic.delivery.streams import Streams
from topic.home.decisions import Decisions

OVER: Final = -inf
"""The time of a delivery that comes too late."""
PAUSE_S: Final = 0.1
"""Between two looks at what is over."""


class TimeToLive:
    """Of what the publishers of one router transfer."""

    def __init__(self, streams: Streams[HomeStream], home: Decisions) -> None:
        """`home` ends deliveries that are over: nobody has them, and nobody is to be given them."""
        self.due = inf
        """When to look next; infinity if never."""
        self._streams = streams
        self._home = home

    def begin(self, stream: HomeStream, records: Sequence[Record], until: Sequence[float]) -> list[Record]:
        """Take new deliveries, and when the time of each is over: infinity for never. Returns those that come too late.
        After an incomplete map any may be one that was sent before, and that somebody has."""
        if stream.incomplete:
            return []
        waiting = {record: at for record, at in zip(records, until, strict=True) if OVER < at < inf}
        stream.count_time(waiting)
        self.due = min(self.due, *waiting.values(), inf)
        return [record for record, at in zip(records, until, strict=True) if at == OVER]

    def handle_timer(self, now: float) -> None:
        if now < self.due:
            return
        self.due = inf
        for stream in [stream for stream in self._streams.values() if stream.until]:
            over = [record for record, at in stream.until.items() if at <= now]
            stream.had(over)
            ended = [record for record in over if record.state is State.IN_DOUBT]
            if ended:
                self._home.expire(stream, ended)
            self.due = min(self.due, *stream.until.values(), inf)
        self.due = max(self.due, now + PAUSE_S)
