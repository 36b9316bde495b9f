"""The progress of a store, in a file beside the store that is written without fsync: the *mark*.

A change is acknowledged when the store has the change and the mark has the change's number. If the process is killed,
the kernel keeps the writes to both files. So a store that has fewer changes than its mark says has lost acknowledged
changes: an older file has taken its place, its write-ahead log was cut, or the last transaction of the log was damaged.
After a power failure the mark may be older, or torn. Then it says nothing about lost changes.
"""

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import msgpack

SUM: Final = 4
"""The number of bytes of the checksum, which follows the bytes of the length."""
LENGTH: Final = 4


@attrs.frozen
class Mark:
    file: bytes
    """The identity of the store's file."""
    numbers: Mapping[str, int]
    """The number of the last change of each set, by the set's name."""

    def pack(self) -> bytes:
        packed = msgpack.packb([self.file, self.numbers])
        return len(packed).to_bytes(LENGTH) + zlib.crc32(packed).to_bytes(SUM) + bytes(packed)


def read_mark(path: Path) -> Mark | None:
    """The mark in a file; None if there is no file, or the mark is torn. Raises OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    packed = data[LENGTH + SUM :][: int.from_bytes(data[:LENGTH])]
    if zlib.crc32(packed) != int.from_bytes(data[LENGTH : LENGTH + SUM]) or not packed:
        return None
    return Mark(*msgpack.unpackb(packed))


class MarkFile:
    """The mark of one store, open to be written again and again."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, mark: Mark) -> None:
        """Write the mark. Raises OSError."""
        data = mark.pack()
        if os.pwrite(self._file, data, 0) < len(data):
            raise OSError("only a part of the file was written")

    def close(self) -> None:
        os.close(self._file)
