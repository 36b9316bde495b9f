"""Rows with a checksum, because SQLite detects damage to its own structure, but not to the values in it."""

import zlib
from typing import Any

import msgpack


def summed(*columns: Any) -> tuple[Any, ...]:
    """One row: the columns, followed by their checksum."""
    return *columns, _sum(columns)


def is_whole(row: tuple[Any, ...]) -> bool:
    """Whether the row is unchanged since `summed` made it."""
    return bool(_sum(row[:-1]) == row[-1])


def _sum(columns: tuple[Any, ...]) -> int:
    return zlib.crc32(msgpack.packb(columns))
