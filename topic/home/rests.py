"""Lets a delivery of a balanced address rest after a subscriber has given it back (protocol 12.11).

The home offers a resting delivery to nobody. When the pause is over, the delivery waits for a subscriber with room, as
a new one does. `HomeStream.resting` has the deliveries that rest, and the end of each rest.
"""

from collections.abc import Mapping
from math import inf

from topic.delivery.kinds import AddressKinds
from topic.delivery.record import HomeStream, Record
from topic.delivery.streams import Streams
from topic.home.ttl import PAUSE_S
from topic.settings import BackOff


class Rests:
    """The rests of deliveries whose home is this router."""

    def __init__(self, streams: Streams[HomeStream], kinds: AddressKinds, pauses: Mapping[str, BackOff]) -> None:
        """`pauses`: maps a prefix of the topology to the rests of the addresses with this prefix."""
        self.due = inf
        """The time at which the next rest ends; infinity if no delivery rests."""
        self._streams = streams
        self._kinds = kinds
        self._pauses = pauses
        self._begun: list[tuple[HomeStream, Record, float]] = []
        """The rests that have begun in this event, each with its length in seconds. The home does not know the time
        yet."""

    def begin(self, stream: HomeStream, record: Record) -> bool:
        """Let a record rest, because a subscriber has given it back. Returns False if records of this address do not
        rest."""
        prefix = self._kinds.prefix_of(stream.address) if self._pauses and stream.kind.rests else None
        if prefix is None or prefix not in self._pauses:
            return False
        stream.rest([record], inf)
        self._begun.append((stream, record, self._pauses[prefix].pause(record.tries)))
        return True

    def wait(self, now: float) -> None:
        """Set the end of each rest that has begun in this event."""
        for stream, record, pause in self._begun:
            if record in stream.resting:
                stream.rest([record], now + pause)
                self.due = min(self.due, now + pause)
        self._begun.clear()

    def ended(self, now: float) -> list[tuple[HomeStream, list[Record]]]:
        """End all rests whose time is over. Returns the records that have rested, grouped by stream."""
        if now < self.due:
            return []
        found: list[tuple[HomeStream, list[Record]]] = []
        self.due = inf
        for stream in [stream for stream in self._streams.values() if stream.resting]:
            if rested := [record for record, until in stream.resting.items() if until <= now]:
                stream.wait_no_more(rested)
                found.append((stream, rested))
            self.due = min(self.due, *stream.resting.values(), inf)
        self.due = max(self.due, now + PAUSE_S)
        return found
