"""The outbox of a set: messages of its queues that wait until another address has taken them (protocol 14.11).

A queue may have an address for dead letters. It sends this address the messages that consumers reject, that have failed
too often, or whose time to live is over.

A message in the outbox keeps its own row; another row has the other address and the reason. The leader publishes the
message to that address (`topic.queues.leader.letters`). If the leader changes, the next leader continues.
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
"""The first byte of the keys of the rows about messages in the outbox. The position of the message follows."""


class Why(enum.Enum):
    """The reasons for which a message goes to another address."""

    REJECTED = "rejected"
    REDELIVERIES = "redeliveries"
    """The message has come back as failed more often than its queue allows."""
    EXPIRED = "expired"
    RETRIED = "retried"
    """The message was a dead letter, and an operator moves it back."""


@attrs.frozen(slots=True)
class Sending:
    """The address to which a message in the outbox goes, and the reason."""

    address: str
    why: Why

    @property
    def row(self) -> bytes:
        """The value of the row about a message in the outbox."""
        return bytes(msgpack.packb((self.address, self.why.value)))


@attrs.frozen(slots=True)
class Letter:
    """A message in the outbox of a set."""

    queue: QueueId
    """The queue that the message has left for the outbox."""
    sending: Sending


class SetOutbox:
    """The outbox of one set. Its messages are named by their positions."""

    def __init__(self, rows: StateRows) -> None:
        self._rows = rows
        self._letters: dict[int, Letter] = {}
        self._by_address: dict[str, dict[int, None]] = {}
        """Maps each address to the positions of the messages for it, in the order in which they came into the
        outbox."""
        self._counts: dict[QueueId, int] = {}
        """Maps each queue to the number of its messages in the outbox."""

    def __len__(self) -> int:
        return len(self._letters)

    @property
    def letters(self) -> Mapping[int, Letter]:
        return self._letters

    @property
    def queues(self) -> set[QueueId]:
        """The queues that have messages in the outbox."""
        return {*self._counts}

    @property
    def addresses(self) -> list[str]:
        """The addresses to which messages in the outbox go."""
        return [*self._by_address]

    def to(self, address: str) -> dict[int, None]:
        """The positions of the messages for an address, in the order in which they came into the outbox."""
        return self._by_address.get(address, {})

    def of(self, queue: QueueId) -> list[int]:
        """The positions of the messages in the outbox that came from this queue."""
        if queue not in self._counts:
            return []
        return sorted(position for position, letter in self._letters.items() if letter.queue == queue)

    def count_of(self, queue: QueueId) -> int:
        return self._counts.get(queue, 0)

    def put(self, position: int, letter: Letter) -> None:
        """Put the message at this position into the outbox, with a new row."""
        self.restore(position, letter)
        self._rows.put(LETTER + position_key(position), letter.sending.row)

    def restore(self, position: int, letter: Letter) -> None:
        """Put the message at this position into the outbox; its row already exists."""
        self._letters[position] = letter
        self._by_address.setdefault(letter.sending.address, {})[position] = None
        self._counts[letter.queue] = self.count_of(letter.queue) + 1

    def gone(self, position: int) -> None:
        """Remove the message at this position from the outbox."""
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
    """Read from these rows the address and the reason of each message in the outbox. The result is keyed by position.
    Raises ValueError if a row is wrong."""
    return dict(_read(*row) for row in rows if row[0][:1] == LETTER)


def _read(key: bytes, value: bytes) -> tuple[int, Sending]:
    parts = unpack(value, "a row of the state of a set")
    reasons = {why.value: why for why in Why}
    if [type(part) for part in parts] != [str, str] or parts[1] not in reasons or len(key) != 1 + POSITION_LENGTH:
        raise ValueError("a row of the state of a set has a message in the outbox that is none")
    return int.from_bytes(key[1:]), Sending(parts[0], reasons[parts[1]])
