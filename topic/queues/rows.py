"""The state of one replica set as rows, each a key and a value in bytes (protocol 13.6).

The rows hold all that the log of a set has led to. Other objects only index them. So the digest, the changes of a
snapshot, and the pieces for another replica have one implementation for all kinds of state. The digest is a sum over
the rows, so it costs what has changed, whatever the number of rows.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgpack

from topic.queues.operations import unpack

Row = tuple[bytes, bytes]
"""Key and value."""
Changes = Mapping[bytes, bytes | None]
"""By key: the new value of a row, or None if the row has gone."""
MOST_KEY: Final = 512
"""Bytes of a key."""
PIECE: Final = 64 * 1024
"""Bytes of a piece of the state, about: a piece ends with the row that passes this."""
_DIGEST: Final = 16
"""Bytes."""
_EMPTY: Final = bytes(msgpack.packb([]))


class StateRows:
    """The rows of one set, in no order."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        """Raises ValueError if two rows have the same key."""
        self._rows: dict[bytes, bytes] = {}
        self._sum = 0
        """The sum of the digests of all rows, as the rows were when the changes were taken."""
        self._former: dict[bytes, bytes | None] = {}
        """The former values of the rows that were put or deleted since then, by key. None: there was no row."""
        self.changed = 0
        """Bytes, about, that were put or deleted since then."""
        for key, value in rows:
            if key in self._rows:
                raise ValueError("the state of a set has two rows of one key")
            self._rows[key] = value
            self._sum += _digest(key, value)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.items())

    def put(self, key: bytes, value: bytes) -> None:
        """Add a row, or give a row another value."""
        if key not in self._former:
            self._former[key] = self._rows.get(key)
        self._rows[key] = value
        self.changed += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        """Delete a row that is there."""
        value = self._rows.pop(key)
        if key not in self._former:
            self._former[key] = value
        self.changed += len(key)

    @property
    def digest(self) -> bytes:
        changed = sum(_difference(key, former, self._rows.get(key)) for key, former in self._former.items())
        return ((self._sum + changed) % 256**_DIGEST).to_bytes(_DIGEST)

    def take_changes(self) -> dict[bytes, bytes | None]:
        """The changes since the last call, or since the rows were restored. Most rows of a queue come and go in
        between: these cost nothing here, nor on the disk."""
        changes: dict[bytes, bytes | None] = {}
        for key, former in self._former.items():
            value = self._rows.get(key)
            if value != former:
                self._sum += _difference(key, former, value)
                changes[key] = value
        self._former = {}
        self.changed = 0
        return changes

    def check(self) -> None:
        """Assert what holds whenever no operation is being applied."""
        assert self.digest == StateRows(self).digest, "the digest is not that of the rows"


def _difference(key: bytes, former: bytes | None, value: bytes | None) -> int:
    """The number that a change of a row adds to the sum of the digests."""
    return (_digest(key, value) if value is not None else 0) - (_digest(key, former) if former is not None else 0)


def _digest(key: bytes, value: bytes) -> int:
    hashed = hashlib.blake2b(len(key).to_bytes(4) + key, digest_size=_DIGEST)
    hashed.update(value)
    return int.from_bytes(hashed.digest())


# pieces


def piece_of(rows: Iterable[Row]) -> tuple[bytes, bool]:
    """The next rows as bytes: as many as a piece has. Returns also whether these are the last."""
    packer = msgpack.Packer()
    parts: list[bytes] = []
    size = 0
    left = iter(rows)
    for key, value in left:
        parts += packer.pack(key), packer.pack(value)
        size += len(parts[-2]) + len(parts[-1])
        if size >= PIECE:
            break
    is_last = next(left, None) is None
    return (bytes(packer.pack_array_header(len(parts))) + b"".join(parts) if parts else _EMPTY), is_last


def read_piece(piece: bytes) -> list[Row]:
    """The rows of a piece. Raises ValueError for bytes that `piece_of` does not write."""
    parts = unpack(piece, "a piece of the state of a set")
    if len(parts) % 2 or not all(isinstance(part, bytes) for part in parts):
        raise ValueError("a piece of the state of a set is no array of keys and values")
    keys = parts[::2]
    if not all(0 < len(key) <= MOST_KEY for key in keys):
        raise ValueError(f"a piece of the state of a set has a key that is empty, or longer than {MOST_KEY} bytes")
    return list(zip(keys, parts[1::2], strict=True))
