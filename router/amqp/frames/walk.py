"""Skips the incoming frames that need no parsing: the hot half of the tap.

Most frames equal the frame before them, except for size and content, so comparing is cheaper than decoding. The
compared bytes show that a frame needs no parsing: it is a disposition that settles; or it is a transfer with an
attached handle, a delivery-id and a delivery-tag, whose message-format is 0 and whose state is null. The walk reads
nothing else, except the delivery-ids of settlements that the router answers (`settlements`).

`tap` handles the other frames.
"""

import re
import struct
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from router.amqp.format.codec import skip
from router.amqp.format.errors import AmqpError
from router.amqp.format.performative import DISPOSITION, NULL, TRANSFER, TRUE
from router.amqp.format.values import MAX_TAG
from router.amqp.frames.forms import MESSAGE_FORMAT, RESUME, STATE

# The first bytes of a frame, up to and including the field count of a short list.
HEAD: Final = 14
# Constructor of a list -> the offset of its field count, and the offset of its first field.
_FIELDS: Final = {0xC0: (13, HEAD), 0xD0: (16, 20)}
_UNTRUE: Final = b"\x40\x42"  # the encodings of a boolean that is null or false
_BINARY, _ZERO = 0xA0, b"\x43"  # the constructor of a tag; the encoding of a uint that is 0
_UINTS: Final = {NULL[0]: 1, _ZERO[0]: 1, 0x52: 2, 0x70: 5}  # constructor of a uint -> the bytes of the encoded uint

_LEAST: Final = 15
# Reads a frame's size, and the bytes after it that have to equal the same bytes of the frame before.
_begins: Final = [struct.Struct(f">I{length}s").unpack_from for length in range(32)]
_is_transfer: Final = re.compile(rb"\x02\0..\0\x53\x14[\xc0\xd0]", re.DOTALL).match
# A sender's disposition in the most common form: first, last or null, then `settled`.
_is_settlement: Final = re.compile(rb"\x02\0..\0\x53\x15\xc0.[\x04-\x06]\x42\x70", re.DOTALL).match
_settlement: Final = struct.Struct(">I12xIBB").unpack_from
_of_more: Final = struct.Struct(">21xIB").unpack_from
_SETTLEMENT, _MORE = 22, 26
# Longer dispositions need parsing: with 36 bytes or more, their state may have an array of many values.
_PLAIN: Final = 35
_ID = 16  # the offset of a settlement's first delivery-id
# The bytes of a disposition up to the constructor of its first delivery-id, in a short list and in a long one.
# The role is the byte before the constructor of the first delivery-id.
_LIST8, _SHORT, _LONG = 0xC0, 16, 22
_is_disposition: Final = re.compile(
    rb"\x02\0..\0\x53\x15(?:\xc0.|\xd0....\0\0\0)[\x04-\x06][\x41\x42][\x43\x52\x70]\Z", re.DOTALL
).match


Row: TypeAlias = Callable[[bytes, int], re.Match[bytes] | None]


def _any(count: int) -> bytes:
    """The pattern of `count` arbitrary bytes; for few bytes, a pattern that matches faster."""
    return b"." * count if count < 9 else b".{%d}" % count


def _alike(begin: bytes, size: int, places: tuple[tuple[int, int], ...]) -> Row:
    """A function that matches consecutive frames. Each of the frames has `size` bytes, begins with `begin`, and has the
    given byte at each of the given `places`."""
    parts, at = [re.escape(begin)], len(begin)
    for place, byte in places:
        parts.append(_any(place - at) + re.escape(bytes((byte,))))
        at = place + 1
    # A possessive `++` would match too far before Python 3.11.5 (python/cpython#106052).
    return re.compile(b"(?:%b%b)+" % (b"".join(parts), _any(size - at)), re.DOTALL).match


MOST_ROWS: Final = 256
# The highest number of patterns that one input may compile, because a pattern costs as much as hundreds of frames.
MOST_NEW: Final = 8
# The latest patterns, at most MOST_ROWS.
_rows: Final[dict[tuple[bytes, int, tuple[tuple[int, int], ...]], Row]] = {}
# A lock, because each thread of a process may have connections that add patterns.
_adds_row: Final = threading.Lock()


@lru_cache(maxsize=64)
def _delivery_ids(size: int) -> Callable[[memoryview], Iterator[tuple[int]]]:
    """A function that reads the delivery-ids of consecutive settlements, each of `size` bytes."""
    return struct.Struct(f">{_ID}xI{size - _ID - 4}x").iter_unpack


class _Shape(NamedTuple):
    """The bytes that a transfer has in common with the transfer before it."""

    begin: Callable[[bytes, int], tuple[int, bytes]]
    # The bytes after the frame's size, up to the constructor of the delivery-id.
    head: bytes
    tag_at: int  # the offset of the byte with the tag's length
    tag: int  # the length of the tag, in bytes
    rest_at: int
    rest_end: int
    # The bytes after the tag: the message-format and the fields up to the state, as far as the transfer has them.
    rest: bytes


class _Outcome(NamedTuple):
    """The bytes that a disposition has in common with the disposition before it."""

    # The bytes from the frame's size to the constructor of the first delivery-id.
    head: bytes
    head_end: int
    size: int
    last_at: int  # the offset of the constructor of the last delivery-id
    last: int  # the constructor of the last delivery-id, as a number
    settled_at: int
    is_receivers: bool


@lru_cache(maxsize=256)
def _outcome_of(head: bytes, last: int) -> _Outcome | None:
    if not _is_disposition(head, 4) or last not in _UINTS:
        return None
    size, last_at = int.from_bytes(head[:4], "big"), len(head) - 1 + _UINTS[head[-1]]
    settled_at = last_at + _UINTS[last]
    if not settled_at < size <= _PLAIN:
        return None
    return _Outcome(head, len(head), size, last_at, last, settled_at, head[-2] == TRUE[0])


NO_TRANSFER: Final = _Shape(_begins[11], b"", 0, 0, 0, 0, b"")
NO_OUTCOME: Final = _Outcome(b"", 1, 0, 0, 0, 0, False)


class Walk:
    """Skips the incoming frames of one connection that need no parsing."""

    def __init__(self, max_frame: int, told: Callable[[bytes], list[int] | None]) -> None:
        """`told`: returns the list for the settlements on a channel, to which the walk adds the first and the last
        delivery-id of each (`Settlements.told`); None if they need no answer."""
        self.attached: dict[tuple[bytes, int], tuple[bytes, str, bool]] = {}
        """Channel and handle of the peer's end -> the channel, the link's name, and whether the peer sends."""
        # Channels of sessions that we have ended and the peer has not ended yet.
        self.ended: set[bytes] = set()
        # A transfer with more fields than this needs parsing.
        self.fields = 255
        self.max_frame = max_frame
        self.settles = False
        """Whether a receiver's disposition in this input has settled deliveries. If so, a disposition that does not
        settle needs parsing, because the settlement has to be handled before it."""
        # The number of patterns that this input may still compile.
        self._new = 0
        self._told = told
        self.forget()

    def forget(self) -> None:
        """Forget the earlier frames, because the attached links or the recorded settlements have changed."""
        self._shape_before, self._outcome_before = NO_TRANSFER, NO_OUTCOME
        self._settlement, self._noted = b"", list[int]()

    def expect_resumed(self) -> None:
        """Transfers may resume a delivery from now on."""
        self.fields = RESUME
        self.forget()

    def end(self, channel: bytes) -> None:
        """Forget a session that has ended."""
        for end in [end for end in self.attached if end[0] == channel]:
            del self.attached[end]
        self.forget()

    def begin(self) -> None:
        """Begin a new input."""
        self._new = MOST_NEW
        self.settles = False

    def _row(self, begin: bytes, size: int, *places: tuple[int, int]) -> Row | None:
        row = _rows.get((begin, size, places))
        if row is None and self._new:
            self._new -= 1
            row = _alike(begin, size, places)
            with _adds_row:
                if len(_rows) >= MOST_ROWS:
                    del _rows[next(iter(_rows))]
                _rows[begin, size, places] = row
        return row

    def past(self, data: bytes, at: int) -> int:
        """The offset of the first frame, from `at` on, that needs parsing, or whose beginning is incomplete."""
        begin, head, tag_at, tag, rest_at, rest_end, rest = shape = self._shape_before
        outcome, outcome_end, outcome_size, last_at, last_form, settled_at, receives = whole = self._outcome_before
        settlement, told, settles = self._settlement, self._noted, self.settles
        # The size of the frame before this one.
        former = 0
        max_frame, end = self.max_frame, len(data)
        last = end - _LEAST
        while at <= last:
            code = data[at + 10]
            if code == TRANSFER and at + rest_end <= end:
                size, known = begin(data, at)
                if known != head or data[at + tag_at] != tag or data[at + rest_at : at + rest_end] != rest:
                    found = self._shape(data, at)
                    if found is None:
                        break
                    begin, head, tag_at, tag, rest_at, rest_end, rest = shape = found
            elif code != DISPOSITION:
                break
            elif settlement and data[at + 4 : at + 16] == settlement and at + _SETTLEMENT <= end:
                size, first, form, settled = _settlement(data, at)
                # `outcome` is not set: settlements are noted one by one, while other dispositions are skipped in a row.
                known, second = settlement, first
                if form == 0x70 and at + _MORE <= end:
                    second, settled = _of_more(data, at)
                elif form != NULL[0]:
                    break
                if settled != TRUE[0]:
                    break
                if told and first == told[-1] + 1:
                    told[-1] = second
                else:
                    told += first, second
                if form == NULL[0] and _SETTLEMENT <= size <= _PLAIN:
                    after = at + size
                    if data[after : after + _ID] == data[at : at + _ID]:
                        at = self._past_settlements(data, after, size, told)
                        continue
            else:
                if data[at : at + outcome_end] != outcome or at + outcome_size > end or data[at + last_at] != last_form:
                    of_this = self._outcome(data, at)
                    if of_this is None:
                        there, begun = self._told(data[at + 6 : at + 8]), data[at + 4 : at + 16]
                        if there is None or begun == settlement or not _is_settlement(begun):
                            break
                        settlement, told = begun, there
                        continue
                    outcome, outcome_end, outcome_size, last_at, last_form, settled_at, receives = whole = of_this
                settled = data[at + settled_at]
                if settled == TRUE[0]:
                    settles = settles or receives
                elif settles or not receives or settled not in _UNTRUE:
                    break
                size, known = outcome_size, outcome
            if not HEAD <= size <= max_frame or (size > _PLAIN and code == DISPOSITION):
                break
            at += size
            if size != former:
                former = size
                continue
            # After two frames of the same size, the walk looks for a whole row of them.
            here = at - size
            row = None
            if code == DISPOSITION and known == outcome:
                row = self._row(outcome, size, (last_at, last_form), (settled_at, settled))
            elif code == TRANSFER and rest_end <= size:
                row = self._row(data[here : here + 4 + len(head)], size, (tag_at, tag), *enumerate(rest, rest_at))
            alike = row(data, at) if row is not None else None
            at = at if alike is None else alike.end()
            former = 0
        self._shape_before, self._outcome_before = shape, whole
        self._settlement, self._noted, self.settles = settlement, told, settles
        return at

    def _past_settlements(self, data: bytes, at: int, size: int, told: list[int]) -> int:
        """A settlement ends at `at`. Note all settlements directly after it that are equal but for their delivery-ids,
        which rise by one each time. Returns the offset after them."""
        tail = [(place, data[at - size + place]) for place in range(_ID + 4, size)]
        pattern = self._row(data[at - size : at - size + _ID], size, *tail)
        row = pattern(data, at) if pattern is not None else None
        if row is None:
            return at
        settled = [number for (number,) in _delivery_ids(size)(memoryview(data)[at : row.end()])]
        expected, follow = range(told[-1] + 1, told[-1] + 1 + len(settled)), len(settled)
        if settled != list(expected):
            follow = next(i for i in range(follow) if settled[i] != expected[i])
        told[-1] += follow
        return at + follow * size

    def _outcome(self, data: bytes, at: int) -> _Outcome | None:
        """The bytes with which later frames are compared, if this frame is a disposition that needs no parsing as long
        as it settles. None if it needs parsing, is incomplete, or has an unusual form."""
        head = data[at : at + (_SHORT if data[at + 11] == _LIST8 else _LONG)]
        last_at = at + len(head) - 1 + _UINTS.get(head[-1], 0)
        found = _outcome_of(head, data[last_at]) if last_at < len(data) else None
        if found is None or at + found.size > len(data) or (channel := head[6:8]) in self.ended:
            return None
        return found if found.is_receivers or self._told(channel) is None else None

    def _shape(self, data: bytes, at: int) -> _Shape | None:
        """The bytes with which later frames are compared, if this frame is a transfer that needs no parsing. None if it
        needs parsing, is incomplete, or has an unusual form."""
        start = data[at + 4 : at + 12]
        if not _is_transfer(start):
            return None
        try:
            return self._of_transfer(data, at, *_FIELDS[start[-1]])
        except (IndexError, KeyError, AmqpError):
            return None

    def _of_transfer(self, data: bytes, at: int, count_at: int, handle_at: int) -> _Shape | None:
        handle_at += at
        id_at = handle_at + _UINTS[data[handle_at]]
        tag_at = id_at + _UINTS[data[id_at]]
        if NULL[0] in (data[handle_at], data[id_at]) or data[tag_at] != _BINARY or data[tag_at + 1] > MAX_TAG:
            return None
        tag_at += 1
        rest_at = tag_at + 1 + data[tag_at]
        handle = data[at + 6 : at + 8], int.from_bytes(data[handle_at + 1 : id_at], "big")
        fields = int.from_bytes(data[at + count_at : handle_at], "big")
        if not MESSAGE_FORMAT < fields <= self.fields or handle not in self.attached:
            return None
        rest_end = rest_at + 1
        if data[rest_at:rest_end] not in (_ZERO, NULL):
            return None
        if fields > STATE:
            for _ in range(MESSAGE_FORMAT + 1, STATE):
                rest_end = skip(data, rest_end)
            rest_end += 1
            if data[rest_end - 1 : rest_end] != NULL:
                return None
        head, rest = data[at + 4 : id_at + 1], data[rest_at:rest_end]
        return _Shape(_begins[len(head)], head, tag_at - at, data[tag_at], rest_at - at, rest_end - at, rest)
