"""Reads a write-ahead log of SQLite, and finds a gap in it, before SQLite opens the file.

A damaged log looks shorter to SQLite: SQLite stops at the first frame with a wrong checksum, and silently drops all
transactions after it. If each transaction was on the disk before the next one began, a power failure can tear only the
last one. So a bad frame is damage if two transactions end at or after it. Damage inside the last transaction looks like
a tear. A store that has to distinguish the two also keeps a mark with its last acknowledged change.

Format: https://www.sqlite.org/fileformat2.html, section 4.
"""

import struct
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final

HEADER: Final = struct.Struct(">8I")
"""The fields of the log's header: magic, version, page size, number of checkpoints, two salts, two checksums."""
FRAME: Final = struct.Struct(">6I")
"""The fields of a frame's header: page number, size of the file in pages at the end of a transaction (else 0), two
salts, two checksums."""
MAGIC: Final = 0x377F0682
"""If the lowest bit of the magic number is set, checksums are computed over big-endian words."""
PAGE: Final = 4096
"""The bytes of a page that are assumed if the log's header is damaged: SQLite's default."""

Sums = tuple[int, int]


def gap(log: str) -> str:
    """The reason for which the log counts as damaged. Empty if the log is sound, or if there is none.
    Raises OSError."""
    try:
        data = Path(log).read_bytes()
    except FileNotFoundError:
        return ""
    if len(data) <= HEADER.size:
        return ""
    magic, *_, first, second = HEADER.unpack_from(data)
    words = "<" if magic == MAGIC else ">"
    is_whole = magic | 1 == MAGIC | 1 and _add((0, 0), data[:24], words) == (first, second)
    if not is_whole:
        ends = sum(end > 0 for _, end, *_ in _headers(data, PAGE))
        return f"damaged: the header of the write-ahead log, before {ends} transactions" if ends > 1 else ""
    bad = ends = 0
    for number, (is_sound, is_end) in enumerate(_frames(data), 1):
        if not is_sound:
            bad = bad or number
            ends += is_end
    return f"damaged: frame {bad} of the write-ahead log, before the ends of {ends} transactions" if ends > 1 else ""


def ends(log: str) -> list[int]:
    """The byte offsets in the log at which its transactions end. Transactions after the first damaged frame do not
    count. Empty if there is no log. Raises OSError."""
    try:
        data = Path(log).read_bytes()
    except FileNotFoundError:
        return []
    if len(data) <= HEADER.size:
        return []
    step, sound = FRAME.size + HEADER.unpack_from(data)[2], takewhile(lambda frame: frame[0], _frames(data))
    return [HEADER.size + number * step for number, (_, is_end) in enumerate(sound, 1) if is_end]


def _frames(data: bytes) -> Iterator[tuple[bool, bool]]:
    """Yields two flags for each frame: whether this frame and all frames before it are intact frames of this log, and
    whether a transaction of this log ends with it."""
    magic, _, page, _, *salts, first, second = HEADER.unpack_from(data)
    words, sums, at, is_sound = "<" if magic == MAGIC else ">", (first, second), HEADER.size, True
    for _, end, one, other, *found in _headers(data, page):
        is_own = [one, other] == salts
        if is_sound:
            sums = _add(sums, data[at : at + 8], words)
            sums = _add(sums, data[at + FRAME.size : at + FRAME.size + page], words)
            is_sound = is_own and sums == tuple(found)
        at += FRAME.size + page
        yield is_sound, end > 0 and is_own


def _headers(data: bytes, page: int) -> Iterator[tuple[int, ...]]:
    """The headers of all complete frames."""
    step = FRAME.size + page
    for start in range(HEADER.size, len(data) - step + 1, step):
        yield FRAME.unpack_from(data, start)


def _add(sums: Sums, data: bytes, words: str) -> Sums:
    """SQLite's checksum, continued with these bytes."""
    first, second = sums
    values = iter(struct.unpack(f"{words}{len(data) // 4}I", data))
    for one, other in zip(values, values, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
