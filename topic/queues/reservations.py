"""The reserved messages of a set, and the consumers for which they are reserved (protocol 14.4).

A leader offers a message only after a `Reserve` of the message is decided. So the next leader knows which messages a
consumer may have. It asks that consumer before it offers them to another one.

Messages at consecutive positions that are reserved together have one row, which is deleted with the last of them. A
consumer has a row as long as a message is reserved for it. So the next leader knows the consumer even if no router in
contact does.
"""

from collections.abc import Iterable
from itertools import dropwhile, pairwise
from typing import Final

import attrs
import msgpack

from topic.directory.entry import LinkEntry
from topic.identity import NAME_LENGTH
from topic.queues.operations import unpack
from topic.queues.positions import POSITION_LENGTH, each_of, position_key, runs_of
from topic.queues.proposals import consumer_of
from topic.queues.rows import StateRows

RESERVED, CONSUMER = b"r", b"c"
"""The first bytes of the keys of two kinds of rows. `RESERVED` begins the key of a run of reserved messages; the
position of its first message follows. `CONSUMER` begins the key of a row about a consumer; the consumer's name
follows."""
END: Final = 1 << 8 * POSITION_LENGTH
"""A number above all positions."""


@attrs.define(eq=False, slots=True)
class _ReservedRun:
    """Messages at consecutive positions that were reserved together for one consumer."""

    first: int
    last: int
    consumer: bytes
    """The name of the consumer for which the messages of the run are reserved."""
    left: int
    """The number of messages of the run that still exist."""

    @property
    def key(self) -> bytes:
        return RESERVED + position_key(self.first)


@attrs.define(slots=True)
class _Consumer:
    entry: LinkEntry
    """The entry of the consumer's link at the time when a message was last reserved for it."""
    held: int
    """The number of messages that are reserved for the consumer."""


class Reservations:
    """The reservations of messages in all queues of a set."""

    def __init__(self, rows: StateRows, positions: Iterable[int]) -> None:
        """Read the reservations from `rows`, and keep all later ones there. `positions`: the positions of all messages,
        in ascending order. Raises ValueError if a row is wrong."""
        self._rows = rows
        self._runs: dict[int, _ReservedRun] = {}
        """Maps the position of each reserved message to the run of the message."""
        self._consumers: dict[bytes, _Consumer] = {}
        """The consumers for which messages are reserved, keyed by name."""
        for key, value in rows.small:
            if key[:1] == CONSUMER:
                entry = consumer_of(unpack(value, "a row of the state of a set"))
                if key[1:] != entry.name:
                    raise ValueError("a row of the state of a set has the key of another consumer")
                self._consumers[entry.name] = _Consumer(entry, 0)
        found = sorted(_read(key, value) for key, value in rows.small if key[:1] == RESERVED)
        if any(first <= before for (_, before, _), (first, *_) in pairwise(found)):
            raise ValueError("two rows of the state of a set reserve one message")
        left = dropwhile(lambda position: position < found[0][0], positions) if found else iter(())
        position = next(left, END)
        for first, last, consumer in found:
            if consumer not in self._consumers:
                raise ValueError("a row of the state of a set is for a consumer that it does not have")
            there: list[int] = []
            while position <= last:
                if position >= first:
                    there.append(position)
                position = next(left, END)
            self._add(there, first, last, consumer)
        if not all(consumer.held for consumer in self._consumers.values()):
            raise ValueError("a row of the state of a set is of a consumer that has no message")

    @property
    def consumers(self) -> list[LinkEntry]:
        """The entries of the consumers for which messages are reserved, as of the last reservation."""
        return [consumer.entry for consumer in self._consumers.values()]

    @property
    def count(self) -> int:
        """The number of reserved messages."""
        return len(self._runs)

    def has(self, position: int) -> bool:
        """Whether the message at this position is reserved."""
        return position in self._runs

    def at(self, position: int) -> bytes:
        """The name of the consumer for which the message at this position is reserved."""
        return self._runs[position].consumer

    def holds(self, consumer: bytes) -> bool:
        """Whether messages are reserved for the consumer of this name."""
        known = self._consumers.get(consumer)
        return known is not None and known.held > 0

    def reserve(self, positions: list[int], consumer: LinkEntry) -> int:
        """Reserve the messages at these positions for this consumer and no other. The messages must exist. Returns how
        many of them were already reserved."""
        freed = self.free(positions)
        if not positions:
            return freed
        known = self._consumers.setdefault(consumer.name, _Consumer(consumer, 0))
        if not known.held or known.entry != consumer:
            known.entry = consumer
            self._rows.put(CONSUMER + consumer.name, msgpack.packb(consumer.pack()))
        self._put(positions, consumer.name)
        return freed

    def _put(self, positions: list[int], consumer: bytes) -> None:
        for first, last in runs_of(positions):
            run = self._add(range(first, last + 1), first, last, consumer)
            self._rows.put(run.key, msgpack.packb((last, consumer)))

    def _add(self, positions: Iterable[int], first: int, last: int, consumer: bytes) -> _ReservedRun:
        run = _ReservedRun(first, last, consumer, 0)
        for position in positions:
            assert position not in self._runs, "a message is reserved twice"
            self._runs[position] = run
            run.left += 1
            self._consumers[consumer].held += 1
        if not run.left:
            raise ValueError("a row of the state of a set reserves no message")
        return run

    def free(self, positions: Iterable[int]) -> int:
        """End the reservations of the messages at these positions. Returns how many of them were reserved.

        The messages still exist, and a run may have only reserved messages. So the messages of a run that stay reserved
        become new runs.
        """
        freed = {position: self._runs[position] for position in positions if position in self._runs}
        for run in dict.fromkeys(freed.values()):
            self._rows.delete(run.key)
            there = [position for position in each_of([(run.first, run.last)]) if self._runs.get(position) is run]
            for position in there:
                del self._runs[position]
            self._consumers[run.consumer].held -= len(there)
            self._put([position for position in there if position not in freed], run.consumer)
            self._drop(run.consumer)
        return len(freed)

    def gone(self, position: int) -> bool:
        """The message at this position no longer exists. Returns whether it was reserved."""
        run = self._runs.pop(position, None)
        if run is None:
            return False
        run.left -= 1
        if not run.left:
            self._rows.delete(run.key)
        self._consumers[run.consumer].held -= 1
        self._drop(run.consumer)
        return True

    def _drop(self, consumer: bytes) -> None:
        """Forget the consumer if no message is reserved for it any more."""
        if not self._consumers[consumer].held:
            del self._consumers[consumer]
            self._rows.delete(CONSUMER + consumer)

    def check(self, positions: Iterable[int]) -> None:
        """Assert the invariants that hold between two proposals. `positions`: the positions of all messages, in
        ascending order."""
        fresh = Reservations(StateRows(self._rows), positions)
        found = [{at: (run.first, run.last, run.consumer) for at, run in one._runs.items()} for one in (self, fresh)]
        assert found[0] == found[1], "the rows are not those of the reservations"
        assert fresh._consumers == self._consumers, "the rows are not those of the consumers"


def _read(key: bytes, value: bytes) -> tuple[int, int, bytes]:
    """Read the first position, the last position and the consumer's name from a row. Raises ValueError if the row is
    malformed."""
    parts = unpack(value, "a row of the state of a set")
    if [type(part) for part in parts] != [int, bytes] or len(key) != len(RESERVED) + POSITION_LENGTH:
        raise ValueError("a row of the state of a set has a reservation that is none")
    if len(parts[1]) != NAME_LENGTH:
        raise ValueError(f"a row of the state of a set has a consumer that is no {NAME_LENGTH} bytes")
    return int.from_bytes(key[len(RESERVED) :]), parts[0], parts[1]
