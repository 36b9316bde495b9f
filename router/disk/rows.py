"""Rows with a checksum: SQLite sees damage of its own structure, but not of what it carries."""

import zlib
from typing import Any

import msgpack


def summed(*columns: Any) -> tuple[Any, ...]:
    """The columns and their sum, as one row."""
    return *columns, _sum(columns)


def is_whole(row: tuple[Any, ...]) -> bool:
    """Whether it is as `summed` made it."""
    return bool(_sum(row[:-1]) == row[-1])


def _sum(columns: tuple[Any, ...]) -> int:
    return zlib.crc32(msgpack.packb(columns))
