"""The outbox of a set: the messages of its queues that wait until another address has taken them (protocol 14.11).

A queue with an address for dead letters gives it the messages that consumers reject, that have failed too often, or
whose time is over. A message in the outbox keeps its row. A row of its own says where it goes, and why. So the leader
publishes it there (`topic.queues.leader.letters`), and the next leader goes on with that.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import attrs
import msgpack

from topic.queues.operations import QueueId, unpack
from topic.queues.positions import POSITION_LENGTH, position_key
from topic.queues.rows import StateRows

LETTER: Final = b"x"
"""The first byte of the key of the row of a message in the outbox. Its position follows."""


class Why(enum.Enum):
    """Why a message goes to another address."""

    REJECTED = "rejected"
    REDELIVERIES = "redeliveries"
    """It has come back as failed more often than its queue allows."""
    EXPIRED = "expired"
    RETRIED = "retried"
    """It is a dead letter, and an operator has asked for it to go back."""


@attrs.frozen(slots=True)
class Sending:
    """Where a message goes, and why."""

    address: str
    why: Why

    @property
    def row(self) -> bytes:
        """The value of the row of the message."""
        return bytes(msgpack.packb((self.address, self.why.value)))


@attrs.frozen(slots=True)
class Letter:
    """A message in the outbox."""

    queue: QueueId
    """The queue that it is from."""
    sending: Sending


class SetOutbox:
    """The outbox of one set, by position."""

    def __init__(self, rows: StateRows) -> None:
        self._rows = rows
        self._letters: dict[int, Letter] = {}
        self._by_address: dict[str, dict[int, None]] = {}
        """The positions of the messages for each address, in the order in which they came here."""
        self._counts: dict[QueueId, int] = {}
        """How many messages each queue has here, if it has any."""

    def __len__(self) -> int:
        return len(self._letters)

    @property
    def letters(self) -> Mapping[int, Letter]:
        return self._letters

    @property
    def queues(self) -> set[QueueId]:
        """The queues that have a message here."""
        return {*self._counts}

    @property
    def addresses(self) -> list[str]:
        """The addresses that messages go to."""
        return [*self._by_address]

    def to(self, address: str) -> dict[int, None]:
        """The positions of the messages for an address, the last one last."""
        return self._by_address.get(address, {})

    def of(self, queue: QueueId) -> list[int]:
        """The positions of the messages of a queue."""
        if queue not in self._counts:
            return []
        return sorted(position for position, letter in self._letters.items() if letter.queue == queue)

    def count_of(self, queue: QueueId) -> int:
        return self._counts.get(queue, 0)

    def put(self, position: int, letter: Letter) -> None:
        """The message at this position is here now."""
        self.restore(position, letter)
        self._rows.put(LETTER + position_key(position), letter.sending.row)

    def restore(self, position: int, letter: Letter) -> None:
        """As `put`. There is a row already."""
        self._letters[position] = letter
        self._by_address.setdefault(letter.sending.address, {})[position] = None
        self._counts[letter.queue] = self.count_of(letter.queue) + 1

    def gone(self, position: int) -> None:
        """There is no message at this position any more."""
        letter = self._letters.pop(position)
        self._rows.delete(LETTER + position_key(position))
        there = self._by_address[letter.sending.address]
        del there[position]
        if not there:
            del self._by_address[letter.sending.address]
        self._counts[letter.queue] -= 1
        if not self._counts[letter.queue]:
            del self._counts[letter.queue]


def read_sendings(rows: Iterable[tuple[bytes, bytes]]) -> dict[int, Sending]:
    """The rows of the outbox among these, by position. Raises ValueError if one is wrong."""
    return dict(_read(*row) for row in rows if row[0][:1] == LETTER)


def _read(key: bytes, value: bytes) -> tuple[int, Sending]:
    parts = unpack(value, "a row of the state of a set")
    reasons = {why.value: why for why in Why}
    if [type(part) for part in parts] != [str, str] or parts[1] not in reasons or len(key) != 1 + POSITION_LENGTH:
        raise ValueError("a row of the state of a set has a message in the outbox that is none")
    return int.from_bytes(key[1:]), Sending(parts[0], reasons[parts[1]])
