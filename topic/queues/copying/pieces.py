"""The pieces in which a leader sends its snapshot to a member (protocol 13.6).

A snapshot is sent as rows, in this order:

1. the messages, by position: the row about a message, then its body;
2. the *runs*: the positions of all messages of the snapshot;
3. all other rows.

Each piece has some of these rows, and the key of its last row says where the piece ends. A message never changes, and a
message that is gone does not come back. So if a member has the messages of an earlier snapshot up to some position, the
leader sends it only the messages after this position. The runs show which of the earlier messages are gone.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from itertools import chain, takewhile
from typing import Final

import msgpack

from topic.queues.bodies.message_rows import MESSAGE, about_key, body_digest, body_key, body_of, is_body, position_in
from topic.queues.operations import unpack
from topic.queues.positions import POSITION_LENGTH, Run, position_key, position_of
from topic.queues.rows import PackedRows, Row
from topic.raft.messages import PIECE

MOST_KEY: Final = 512
"""The highest number of bytes of the key of a row."""
RUN: Final = b"r"
"""The key of a row that stands for a run of positions ends with this byte."""
_RUN_LENGTH: Final = len(about_key(0)) + len(RUN)
_EMPTY: Final = bytes(msgpack.packb([]))


class Section(IntEnum):
    """A section of the rows of a snapshot, in the order in which they are sent."""

    MESSAGES = 0
    RUNS = 1
    OTHERS = 2


def section_of(key: bytes) -> Section:
    """The section to which the row with this key belongs. An empty key belongs to the first section."""
    if not key or position_in(key) is not None:
        return Section.MESSAGES
    return Section.RUNS if _is_run(key) else Section.OTHERS


def order_of(key: bytes) -> tuple[Section, bytes]:
    """The place of the row with this key in the order of the rows of a snapshot (see the module)."""
    return section_of(key), key


def begins_behind(index: int, has: int, end: bytes) -> bytes:
    """The key after which the leader begins to send the rows of the snapshot at `index` to a member; empty to begin
    with the first row. The member has the rows of the snapshot at `has` up to the key `end`, or all these rows if `end`
    is empty. If `has` is 0, the member has no rows."""
    if not has or has == index or (end and section_of(end) is Section.MESSAGES):
        return end
    return body_key(position_of(has + 1, 0) - 1)


# The functions and the class from here on are about runs.


def run_row(run: Run) -> Row:
    """The row of a run of positions. Its key has the last position of the run, because a piece ends at the key of its
    last row."""
    first, last = run
    return about_key(last) + RUN, position_key(first)


def run_end(key: bytes) -> int:
    """The last position of the run with this key."""
    return int.from_bytes(key[-POSITION_LENGTH - len(RUN) : -len(RUN)])


def _is_run(key: bytes) -> bool:
    return len(key) == _RUN_LENGTH and key.startswith(MESSAGE) and key.endswith(RUN)


class SnapshotRuns:
    """The positions of all messages of a snapshot."""

    def __init__(self) -> None:
        self._firsts, self._lasts = array("Q"), array("Q")

    @property
    def count(self) -> int:
        """The number of messages of the snapshot."""
        return sum(self._lasts) - sum(self._firsts) + len(self._lasts)

    @property
    def size(self) -> int:
        """The number of bytes that the runs take in memory."""
        return 2 * self._firsts.itemsize * len(self._firsts)

    def add(self, key: bytes, value: bytes) -> None:
        """Add the next run. Raises ValueError if the row is no run, or if the run is out of order."""
        first, last = int.from_bytes(value), run_end(key)
        before = self._lasts[-1] if self._lasts else -1
        if len(value) != POSITION_LENGTH or not before < first <= last < 1 << 64:
            raise ValueError("a piece of the state of a set has a run that is none, or out of order")
        self._firsts.append(first)
        self._lasts.append(last)

    def reader(self) -> Callable[[bytes], bool]:
        """A function that tells for a row whether the snapshot has its message. Callers have to pass the keys of rows
        in the order of their positions."""
        runs = zip(self._firsts, self._lasts, strict=True)
        first = last = -1

        def has(key: bytes) -> bool:
            nonlocal first, last
            position = position_in(key)
            assert position is not None
            while position > last:
                first, last = next(runs, (1 << 64, 1 << 64))
            return position >= first

        return has


# The class and the functions from here on are about pieces.


class SnapshotRows:
    """The rows of a leader's snapshot, collected from its pieces. Each body is compared with the row about its message.
    It is not kept here, because the disk of this router has the pieces."""

    def __init__(self) -> None:
        self._index = 0
        """The log index of the snapshot to which the last piece belongs."""
        self._messages = PackedRows()
        """The rows about messages in all pieces, of this snapshot and of earlier ones."""
        self._first: bytes | None = None
        """The key of the first row in `_messages`; None if there is none."""
        self._begin(0)
        self._bytes = 0
        """The number of bytes of all pieces."""
        self._about: tuple[bytes, bytes] | None = None
        """The key and the digest of the body that has to come next; None if another row may come next."""
        self._why_wrong = ""

    def _begin(self, index: int) -> None:
        self._index = index
        self._runs = SnapshotRuns()
        self._others = PackedRows()

    @property
    def size(self) -> int:
        """The approximate number of bytes that the rows take in memory."""
        return self._messages.size + self._runs.size + self._others.size

    @property
    def came(self) -> str:
        """For the log: what has come in the pieces."""
        return f"{len(self._messages)} messages in {self._bytes} bytes"

    def add(self, index: int, piece: bytes) -> None:
        """Take the next piece, of the snapshot at this index. If earlier pieces are of another snapshot, only their
        rows about messages are kept."""
        if index != self._index:
            self._begin(index)
        self._bytes += len(piece)
        try:
            for key, value in read_piece(piece):
                self._add(key, value)
        except ValueError as error:
            self._why_wrong = self._why_wrong or str(error)

    def _add(self, key: bytes, value: bytes) -> None:
        expected, self._about = self._about, None
        if is_body(key) or expected is not None:
            if expected != (key, body_digest(value)):
                raise ValueError("a message has no body, or another one")
        elif position_in(key) is not None:
            self._about = body_of(key, value)
            self._first = self._first or key
            self._messages.append(key, value)
        elif _is_run(key):
            self._runs.add(key, value)
        else:
            self._others.append(key, value)

    def read(self, own: Iterable[Row] = ()) -> Iterator[Row]:
        """Yield all rows of the snapshot, except bodies. `own`: the rows about messages of this replica's former state,
        in the order of the positions. A row of `own` is yielded if its message is in the snapshot, and comes before
        the first message in the pieces. Raises ValueError if a piece was malformed, if a body is missing or
        differs, or, at the end, if a message is missing."""
        if self._about is not None or self._why_wrong:
            raise ValueError(self._why_wrong or "the last message has no body")
        first, has = self._first, self._runs.reader()
        before = own if first is None else takewhile(lambda row: row[0] < first, own)
        messages = (row for row in chain(before, self._messages) if has(row[0]))
        count = 0
        for row in messages:
            count += 1
            yield row
        if count != self._runs.count:
            raise ValueError(f"of {self._runs.count} messages {count} are there")
        yield from self._others


def piece_of(rows: Iterable[Row | None], size: int = PIECE) -> tuple[bytes, bool]:
    """Make a piece of the first rows. It ends with the row that reaches `size` bytes, or with the body after that row.
    A None among the rows ends the piece, too. Returns the bytes of the piece, and whether the piece has all rows."""
    packer = msgpack.Packer()
    parts: list[bytes] = []
    has = 0
    is_last = True
    for row in rows:
        if row is None or (has >= size and not is_body(row[0])):
            is_last = False
            break
        parts += map(packer.pack, row)
        has += len(parts[-2]) + len(parts[-1])
    return (bytes(packer.pack_array_header(len(parts))) + b"".join(parts) if parts else _EMPTY), is_last


def read_piece(piece: bytes) -> list[Row]:
    """Decode a piece into its rows. Raises ValueError for bytes that `piece_of` does not write."""
    parts = unpack(piece, "a piece of the state of a set")
    if len(parts) % 2 or not all(isinstance(part, bytes) for part in parts):
        raise ValueError("a piece of the state of a set is no array of keys and values")
    keys = parts[::2]
    if not all(0 < len(key) <= MOST_KEY for key in keys):
        raise ValueError(f"a piece of the state of a set has a key that is empty, or longer than {MOST_KEY} bytes")
    return list(zip(keys, parts[1::2], strict=True))
