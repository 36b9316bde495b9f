"""The logs of a run read and worked on in this process."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgpack

from failover.audit.read.entries import DeliveryEntry, find_keys, pick_entries
from failover.audit.read.inventory import ControlRow
from failover.audit.read.segments import CONTROL_BUCKET, pack_files

BUCKET_BYTES = 16 << 20
"""Of logs: what is judged at a time. It takes about ten times as much memory."""


def buckets(size: int) -> int:
    """For so many bytes of logs."""
    return 1 + size // BUCKET_BYTES


Left = TypeVar("Left")


class LocalLogs:
    """See `logs.Logs`. All is held in memory, in about twice the size of the files."""

    def __init__(self, files: Iterable[tuple[str, bytes]], size: int, start: str = "") -> None:
        """Paths and contents, of so many bytes; `start`: only what is about deliveries whose keys begin so matters."""
        self._parts: dict[int, list[bytes]] = defaultdict(list)
        for bucket, part in pack_files(files, buckets(size), start.encode()):
            self._parts[bucket].append(part)
        self._control = self._parts.pop(CONTROL_BUCKET, [])

    def control(self) -> list[ControlRow]:
        return [ControlRow(*row) for part in self._control for row in msgpack.unpackb(part)]

    def some(self) -> Iterable[bytes]:
        return self._parts.get(0, [])

    def work(
        self,
        on_bucket: Callable[[Iterable[bytes]], tuple[Left, list[tuple[str, bytes]]]],
        on_joined: Callable[[str, Iterable[bytes]], Left],
    ) -> Iterator[Left]:
        to_join = defaultdict[str, list[bytes]](list)
        for parts in self._parts.values():
            left, named = on_bucket(parts)
            yield left
            for name, part in named:
                to_join[name].append(part)
        for name, joined in to_join.items():
            yield on_joined(name, joined)

    def keys(self, start: str) -> set[str]:
        return find_keys(self._all(), start)

    def entries(self, keys: Sequence[str]) -> Iterator[DeliveryEntry]:
        return pick_entries(self._all(), keys)

    def text(self, path: str) -> str | None:
        return Path(path).read_text() if Path(path).exists() else None

    def _all(self) -> Iterator[bytes]:
        return (part for parts in self._parts.values() for part in parts)
