"""Ends deliveries whose time to live is over before any subscriber has them (protocol 5, Time to live).

Only the home counts the time, and only as long as no subscriber can have the delivery. A subscriber can have it once
the home has forwarded it, or transferred it to a local subscriber. `HomeStream.until` has the deliveries whose time
counts. The shell reads the time to live from the message.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

from topic.delivery.record import HomeStream, Record, State
from topic.delivery.streams import Streams
from topic.home.decisions import Decisions

OVER: Final = -inf
"""The deadline of a delivery whose time to live was over when it came."""
PAUSE_S: Final = 0.1
"""The shortest pause, in seconds, between two checks of the deadlines."""


class TimeToLive:
    """The times to live of the deliveries that one router's publishers transfer."""

    def __init__(self, streams: Streams[HomeStream], home: Decisions) -> None:
        """`home` ends the deliveries whose time is over: no subscriber has them, and none gets them."""
        self.due = inf
        """The time of the next check; infinity if there is none."""
        self._streams = streams
        self._home = home

    def begin(self, stream: HomeStream, records: Sequence[Record], until: Sequence[float]) -> list[Record]:
        """Count the times of new deliveries. `until`: the deadline of each, infinity for none. Returns the deliveries
        whose time is already over.

        After an incomplete map of the publisher no time counts: each delivery may be a repeated one, which a subscriber
        may have.
        """
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
            stream.stop_time(over)
            ended = [record for record in over if record.state is State.IN_DOUBT]
            if ended:
                self._home.expire(stream, ended)
            self.due = min(self.due, *stream.until.values(), inf)
        self.due = max(self.due, now + PAUSE_S)
