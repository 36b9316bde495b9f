"""The outbox of a set: messages of its queues that wait until another address has taken them (protocol 14.11).

If a queue has an address for dead letters, it gives this address the messages that consumers reject, that have failed
too often, or whose time is over. A message in the outbox keeps its row. Another row has its address and the reason. So
the leader publishes it there (`topic.queues.leader.letters`), and a next leader continues.
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
"""The first byte of the keys of the rows of messages in the outbox. The position follows."""


class Why(enum.Enum):
    """Why a message goes to another address."""

    REJECTED = "rejected"
    REDELIVERIES = "redeliveries"
    """The message has come back as failed more often than its queue allows."""
    EXPIRED = "expired"
    RETRIED = "retried"
    """The message is a dead letter, and an operator moves it back."""


@attrs.frozen(slots=True)
class Sending:
    """The address to which a message goes, and the reason."""

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
    """The queue that the message is from."""
    sending: Sending


class SetOutbox:
    """The outbox of one set. Messages are keyed by position."""

    def __init__(self, rows: StateRows) -> None:
        self._rows = rows
        self._letters: dict[int, Letter] = {}
        self._by_address: dict[str, dict[int, None]] = {}
        """Keyed by address: the positions of its messages, in the order in which they came here."""
        self._counts: dict[QueueId, int] = {}
        """Keyed by queue that has messages here: how many."""

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
        """The addresses to which messages go."""
        return [*self._by_address]

    def to(self, address: str) -> dict[int, None]:
        """The positions of the messages for an address, in the order in which they came here."""
        return self._by_address.get(address, {})

    def of(self, queue: QueueId) -> list[int]:
        """The positions of the messages of a queue."""
        if queue not in self._counts:
            return []
        return sorted(position for position, letter in self._letters.items() if letter.queue == queue)

    def count_of(self, queue: QueueId) -> int:
        return self._counts.get(queue, 0)

    def put(self, position: int, letter: Letter) -> None:
        """The message at this position comes into the outbox."""
        self.restore(position, letter)
        self._rows.put(LETTER + position_key(position), letter.sending.row)

    def restore(self, position: int, letter: Letter) -> None:
        """As `put`, for a message that has its row already."""
        self._letters[position] = letter
        self._by_address.setdefault(letter.sending.address, {})[position] = None
        self._counts[letter.queue] = self.count_of(letter.queue) + 1

    def gone(self, position: int) -> None:
        """The message at this position leaves the outbox."""
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
    """The address and reason of each message of the outbox in these rows, keyed by position. Raises ValueError if a row
    is wrong."""
    return dict(_read(*row) for row in rows if row[0][:1] == LETTER)


def _read(key: bytes, value: bytes) -> tuple[int, Sending]:
    parts = unpack(value, "a row of the state of a set")
    reasons = {why.value: why for why in Why}
    if [type(part) for part in parts] != [str, str] or parts[1] not in reasons or len(key) != 1 + POSITION_LENGTH:
        raise ValueError("a row of the state of a set has a message in the outbox that is none")
    return int.from_bytes(key[1:]), Sending(parts[0], reasons[parts[1]])
