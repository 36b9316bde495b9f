"""The state of one replica set as rows, each with a key and a value in bytes (protocol 13.6).

The rows have the whole state; all other objects are only indexes to them. So there is only one implementation of the
digest, of the changes for a snapshot, and of the pieces for another replica, whatever the kind of row. The digest is a
sum over the rows, so its cost depends on the number of changes, not on the number of rows.

The rows of messages are many, and most of their bytes are in bodies. So `topic.queues.bodies.message_rows` handles
them.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import chain
from typing import Final

import msgpack

from topic.queues.bodies.message_rows import MESSAGE, MessageRows

Row = tuple[bytes, bytes]
"""A row of a set's state: its key and its value."""
Changes = Mapping[bytes, bytes | None]
"""Maps the key of each changed row to the row's new value; None if the row is deleted."""
PACKED: Final = 4096
"""The number of keys and values that are packed together."""
_DIGEST: Final = 16
"""The number of bytes of the digest of a state."""


class StateRows:
    """The rows of one set, apart from the bodies of messages."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        """`rows`: all rows but the bodies of messages. The rows about messages must come in the order of their keys.
        Raises ValueError if two rows have the same key, or a row about a message is wrong."""
        self.messages = MessageRows()
        """The rows about messages."""
        self._rows: dict[bytes, bytes] = {}
        """The rows that are not about messages."""
        self._sum = 0
        """The sum of the digests of all rows, as of the last call of `take_changes`."""
        self._former: dict[bytes, bytes | None] = {}
        """The rows of `_rows` that were put or deleted since the last call of `take_changes`. Maps the key of each row
        to the value that the row had at that call; None if the row did not exist."""
        self._changed = 0
        """An estimate of the bytes of the rows in `_rows` that were put or deleted since the last call of
        `take_changes`."""
        self.read(rows)

    def read(self, rows: Iterable[Row]) -> int:
        """Add these rows of a state. This object has none of them yet, and the conditions of `__init__` hold for them.
        Returns the number of rows."""
        before = len(self)
        for key, value in rows:
            if key[:1] == MESSAGE:
                self.messages.read(key, value)
            elif key in self._rows:
                raise ValueError("the state of a set has two rows of one key")
            else:
                self._rows[key] = value
            self._sum += _digest(key, value)
        return len(self) - before

    def __len__(self) -> int:
        return len(self._rows) + len(self.messages)

    def __iter__(self) -> Iterator[Row]:
        return chain(self._rows.items(), self.messages)

    @property
    def small(self) -> Iterable[Row]:
        """All rows that are not about messages, in no particular order."""
        return self._rows.items()

    def put(self, key: bytes, value: bytes) -> None:
        """Add a row, or change its value. Rows about messages are not handled here."""
        if key not in self._former:
            self._former[key] = self._rows.get(key)
        self._rows[key] = value
        self._changed += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        """Delete a row, which must exist. Rows about messages are not handled here."""
        value = self._rows.pop(key)
        if key not in self._former:
            self._former[key] = value
        self._changed += len(key)

    @property
    def changed(self) -> int:
        """An estimate of the bytes that were put or deleted since the last call of `take_changes`."""
        return self._changed + self.messages.changed

    @property
    def digest(self) -> bytes:
        changed = sum(_difference(*change) for change in self._changes())
        return ((self._sum + changed) % 256**_DIGEST).to_bytes(_DIGEST)

    def _changes(self) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        """Yields key, former value and present value of each row that may have changed."""
        yield from ((key, former, self._rows.get(key)) for key, former in self._former.items())
        yield from self.messages.changes()

    def take_changes(self) -> dict[bytes, bytes | None]:
        """Take all changes since the last call, or since this object was made, including bodies of messages. Most rows
        of a queue are added and deleted between two calls; such rows cost nothing here, nor on the disk."""
        changes: dict[bytes, bytes | None] = {}
        for key, former, value in self._changes():
            if value != former:
                self._sum += _difference(key, former, value)
                changes[key] = value
        self._former = {}
        self._changed = 0
        return changes | self.messages.take_bodies()

    def check(self) -> None:
        """Assert the invariants that hold between two operations."""
        self.messages.check()
        assert self.digest == StateRows(self).digest, "the digest is not that of the rows"


def _difference(key: bytes, former: bytes | None, value: bytes | None) -> int:
    """The number that must be added to the sum of the digests for this change of a row."""
    return (_digest(key, value) if value is not None else 0) - (_digest(key, former) if former is not None else 0)


def _digest(key: bytes, value: bytes) -> int:
    return int.from_bytes(blake2b(len(key).to_bytes(4) + key + value, digest_size=_DIGEST).digest())


class PackedRows:
    """A list of rows that takes little memory. It keeps the order in which rows were appended. For the rows of a state
    this is the order of the keys."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.size = 0
        """The approximate number of bytes that the rows take."""
        self._packed: list[bytes] = []
        self._last: list[bytes] = []
        """The keys and values that are not packed yet."""
        self._count = 0
        for key, value in rows:
            self.append(key, value)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        for packed in (*self._packed, msgpack.packb(self._last)):
            parts = iter(msgpack.unpackb(packed))
            yield from zip(parts, parts, strict=True)

    def __eq__(self, other: object) -> bool:
        return [*self] == [*other] if isinstance(other, PackedRows) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def append(self, key: bytes, value: bytes) -> None:
        self._last += key, value
        self._count += 1
        self.size += len(key) + len(value)
        if len(self._last) >= PACKED:
            self._packed.append(msgpack.packb(self._last))
            self._last.clear()
