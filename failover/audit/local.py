"""The logs of a run read and judged in this process."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgpack

from failover.audit.case import Case
from failover.audit.counting import Tally
from failover.audit.decoding import CONTROL_BUCKET, pack_files
from failover.audit.inventory import ControlRow
from failover.audit.judging import judge_bucket
from failover.audit.metering import Frame
from failover.audit.ordering import judge_order
from failover.audit.picking import find_keys, pick_entries
from failover.audit.story import Entry
from topic.blocks import BlockView

BUCKET_BYTES = 16 << 20
"""Of logs: what is judged at a time. It takes about ten times as much memory."""


def buckets(size: int) -> int:
    """For so many bytes of logs."""
    return 1 + size // BUCKET_BYTES


class LocalLogs:
    """See `reading.Logs`. All is held in memory, in about twice the size of the files."""

    def __init__(
        self, files: Iterable[tuple[str, bytes]], size: int, wanted: Callable[[BlockView], bool] | None = None
    ) -> None:
        """Paths and contents, of so many bytes; for `wanted` see `pack_files`."""
        self._parts: dict[int, list[bytes]] = defaultdict(list)
        for bucket, part in pack_files(files, buckets(size), wanted):
            self._parts[bucket].append(part)
        self._control = self._parts.pop(CONTROL_BUCKET, [])

    def control(self) -> list[ControlRow]:
        return [ControlRow(*row) for part in self._control for row in msgpack.unpackb(part)]

    def some(self) -> Iterable[bytes]:
        return self._parts.get(0, [])

    def judge(self, case: Case, frame: Frame) -> Tally:
        tally, ordered = Tally(), defaultdict[str, list[bytes]](list)
        for parts in self._parts.values():
            found, order = judge_bucket(parts, case, frame)
            tally.add(found)
            for names, part in order:
                ordered[names].append(part)
        for names, some in ordered.items():
            tally.add(judge_order(names, some))
        return tally

    def keys(self, start: str) -> set[str]:
        return find_keys(self._all(), start)

    def entries(self, keys: Sequence[str]) -> Iterator[Entry]:
        return pick_entries(self._all(), keys)

    def text(self, path: str) -> str | None:
        return Path(path).read_text() if Path(path).exists() else None

    def _all(self) -> Iterator[bytes]:
        return (part for parts in self._parts.values() for part in parts)
