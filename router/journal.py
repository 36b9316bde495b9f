"""Writes a source's delivery log to its segment files (docs/architecture.md; the format is `topic.journal`'s).

The log is evidence, never state: a router never reads what is in it.
"""

from pathlib import Path
from typing import BinaryIO

from topic.journal import SEGMENT_LIMIT, Block, parse_segment_name, segment_name


def has_segments(directory: Path) -> bool:
    """Whether an earlier incarnation has written here."""
    return directory.is_dir() and any(parse_segment_name(path.name) for path in directory.iterdir())


class JournalFile:
    """The segments of one incarnation, in one directory."""

    def __init__(self, directory: Path, incarnation: int, block: Block) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.block = block
        self._directory = directory
        self._incarnation = incarnation
        self._number = 0
        self._size = 0
        self._file: BinaryIO | None = None

    def flush(self) -> None:
        """Append what the block holds as one block, if anything; every 50 ms and at the end."""
        if not len(self.block):
            return
        data = self.block.encode()
        if self._file is not None and self._size + len(data) > SEGMENT_LIMIT:
            self._next_segment()
        if self._file is None:
            self._file = (self._directory / segment_name(self._incarnation, self._number)).open("xb", buffering=0)
        self._write(data)

    def pumped(self) -> None:
        """An event was handled, and what came of it has not left yet: a router that is killed the next moment must
        have written without whom it accepted, or the audit cannot tell."""
        if self.block.urgent:
            self.flush()

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) or 0 :]
        self._size += len(data)

    def _next_segment(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        self._number += 1
        self._size = 0

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
