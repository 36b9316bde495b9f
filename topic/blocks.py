"""Reads blocks of the delivery log, for the audit, for tests and for people.

`topic.journal` writes the blocks, and describes their format. `topic.tail` has the entries that are in no block yet.
This module turns bytes into values and opens no file.
"""

import zlib
from collections.abc import Iterator
from operator import add
from typing import Any

import attrs
import msgpack

from topic.identity import KEY_LENGTH
from topic.journal import COLUMNS, HEAD, HEADER_LENGTH, MAGIC, TABLED, Event, LoggedOutcome, encode_rows
from topic.tail import Left, read_region


@attrs.frozen(slots=True)
class LogEntry:
    """One entry of the log. Texts stand in place of the indexes into the string table."""

    event: Event
    outcome: LoggedOutcome
    time: int
    hlc: int
    address: str | None
    publisher: str | None
    subscriber: str | None
    peer: str | None
    generation: str | None
    epoch: str | None
    detail: str | None
    keys: tuple[bytes, ...]
    ns: tuple[int, ...]
    tags: tuple[bytes, ...] | None


@attrs.frozen(slots=True)
class BlockView:
    """One block as columns, for fast readers. The keys of all entries are in one column, in the order of the entries.
    The number of keys of each entry tells where the keys of the next one begin."""

    source: str
    role: str
    incarnation: int
    host: str
    number: int
    strings: list[str]
    keys: bytes
    columns: dict[str, list[Any]]

    def entries(self) -> Iterator[LogEntry]:
        """Yield the entries one by one, for people and tests."""
        start = 0
        for row in zip(*(self.columns[name] for name in COLUMNS if name != "at"), strict=True):
            *numbers, count, n, ns, tags = row
            texts = [self.strings[index] if index >= 0 else None for index in numbers[4:]]
            cuts = range(start * KEY_LENGTH, (start + count) * KEY_LENGTH, KEY_LENGTH)
            keys = tuple(self.keys[at : at + KEY_LENGTH] for at in cuts)
            order = tuple(ns) if ns is not None else tuple(n + i if n >= 0 else -1 for i in range(count))
            head = (Event(numbers[0]), LoggedOutcome(numbers[1]), *numbers[2:4])
            fields: Any = (*head, *texts, keys, order, None if tags is None else tuple(tags))
            yield LogEntry(*fields)
            start += count


@attrs.frozen(slots=True)
class Damage:
    """Bytes of a segment that could not be read."""

    offset: int
    """The offset, in the segment, of the first unreadable byte."""
    skipped: int
    """The number of all unreadable bytes of the segment."""
    torn: bool
    """Whether the unreadable bytes are only the incomplete end of the file that a killed writer leaves."""


def read_blocks(data: bytes) -> tuple[list[BlockView], Damage | None]:
    """Read all whole blocks of a segment. If its tail has entries that are in no block, these make one more block at
    the end. The reader skips unreadable bytes and goes on at the next whole block."""
    region = read_region(data)
    blocks, damage = _read_all(data, region.end)
    if region.left is not None and not (blocks and region.left.number <= blocks[-1].number):
        blocks += decode_tail(region.left)
    if damage is None and region.damaged_at is not None:
        damage = Damage(region.damaged_at, region.end - region.damaged_at, torn=True)
    return blocks, damage


def decode_tail(left: Left) -> list[BlockView]:
    """The block that the writer would have made of this tail. None if the tail has no entries, or if its content shows,
    in spite of right checksums, that no writer of this project made it."""
    try:
        view = _decode(encode_rows(left.head, left.number, left.rows, left.keys))
    except (ValueError, TypeError, AttributeError):
        return []
    return [] if view is None else [view]


def _read_all(data: bytes, position: int) -> tuple[list[BlockView], Damage | None]:
    """The whole blocks from `position` on, and the unreadable bytes between or after them."""
    blocks: list[BlockView] = []
    first_bad, skipped = -1, 0
    for start, end, block in [*whole_blocks(data, position), (len(data), len(data), None)]:
        if start > position:
            first_bad = position if first_bad < 0 else first_bad
            skipped += start - position
        if block is not None:
            blocks.append(block)
        position = end
    if first_bad < 0:
        return blocks, None
    return blocks, Damage(first_bad, skipped, torn=first_bad + skipped == len(data))


def whole_blocks(data: bytes, position: int) -> Iterator[tuple[int, int, BlockView]]:
    """Yield (start, end, block) for each whole block from `position` on. Bytes between or after the blocks are damaged,
    or not yet written."""
    while found := _next_block(data, position):
        yield found
        position = found[1]


def _next_block(data: bytes, position: int) -> tuple[int, int, BlockView] | None:
    """The first whole block at or after `position`, as (start, end, block); None if there is none."""
    while (start := data.find(MAGIC, position)) >= 0:
        length = int.from_bytes(data[start + 4 : start + 8], "big")
        end = start + HEADER_LENGTH + length
        if end <= len(data):
            payload = data[start + HEADER_LENGTH : end]
            block = None
            if zlib.crc32(payload) == int.from_bytes(data[start + 8 : start + 12], "big"):
                block = _decode(payload)
            if block is not None:
                return start, end, block
        position = start + 1
    return None


def _decode(payload: bytes) -> BlockView | None:
    """Decode the block in a payload with a right checksum; None if no writer of this project made the payload."""
    try:
        fields = msgpack.unpackb(payload)
        head: Any = [fields[name] for name in HEAD]
        columns = {name: fields[name] for name in COLUMNS}
    except (ValueError, KeyError, TypeError):
        return None
    if not _is_ours(head, columns):
        return None
    *head, kept = head
    starts = columns.pop("at")
    ends = list(map(add, starts, columns["count"]))
    if max(ends) > len(kept) // KEY_LENGTH:
        return None
    keys = b"".join([kept[start * KEY_LENGTH : end * KEY_LENGTH] for start, end in zip(starts, ends, strict=True)])
    view: Any = (*head, keys, columns)
    return BlockView(*view)


_HEAD = [str, str, int, str, int, list, bytes]
_MOST = 2**63 - 1
_MOST_BLOCKS = 2**40
_BOUNDS = (
    (("event",), 0, max(Event)),
    (("outcome",), 0, max(LoggedOutcome)),
    (("time", "hlc", "count", "at"), 0, _MOST),
    (("n",), -1, _MOST),
)
"""The columns with numbers, each with its least and its greatest valid value."""


def _is_ours(head: list[Any], columns: dict[str, Any]) -> bool:
    """Whether all values have the types, and keep the bounds, of a block that a writer of this project makes."""
    if list(map(type, head)) != _HEAD or set(map(type, columns.values())) != {list}:
        return False
    rows = len(columns["event"])
    if not rows or any(len(column) != rows for column in columns.values()):
        return False
    incarnation, number, strings = head[2], head[4], head[5]
    if not head[6].isascii() or not (
        0 <= incarnation <= _MOST and 0 <= number <= _MOST_BLOCKS and set(map(type, strings)) <= {str}
    ):
        return False
    for names, least, most in (*_BOUNDS, (TABLED, -1, len(strings) - 1)):
        if not _are_within([value for name in names for value in columns[name]], least, most):
            return False
    places, tags = columns["ns"], columns["tags"]
    if places.count(None) == tags.count(None) == rows:
        return True
    return all(map(_is_listing, columns["count"], places, tags))


def _are_within(column: list[Any], least: int, most: int) -> bool:
    return set(map(type, column)) == {int} and least <= min(column) and max(column) <= most


def _is_listing(count: int, ns: Any, tags: Any) -> bool:
    """Whether an entry lists either no places, or one place for each of its deliveries; and no tags, or one tag for
    each."""
    has_places = ns is None or (type(ns) is list and len(ns) == count and (not ns or _are_within(ns, 0, _MOST)))
    return has_places and (
        tags is None or (type(tags) is list and len(tags) == count and set(map(type, tags)) <= {bytes})
    )
