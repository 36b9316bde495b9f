"""Reads the logs of a run and runs functions on them. This process does it if the logs are local and small; otherwise
Spark does it.

Both pack the logs into buckets of delivery keys (`segments`), and run given functions on the buckets. For a short run,
this process is done long before Spark has started.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import msgpack

from failover.audit.read.files import SUBMITTED, Progress, contents, files_of, ignore, local_dirs
from failover.audit.read.inventory import ControlRow
from failover.audit.read.segments import CONTROL_BUCKET, Left, OnBucket, OnJoined, Wanted, buckets, pack_files

LOCAL_BYTES = 100 << 20
"""Logs with more bytes than this are read by Spark, on all the cores that it gets."""

Answer = TypeVar("Answer")


class Logs(Protocol):
    """The contents of all files below the run directories."""

    def control(self) -> list[ControlRow]:
        """The rows about links, routers and files. They are few, so plain Python handles them."""

    def some(self) -> Iterable[bytes]:
        """A random part of the rows about deliveries, packed. For a short run it is all of them."""

    def work(self, on_bucket: OnBucket[Left], on_joined: OnJoined[Left]) -> Iterable[Left]:
        """Let a function `on_bucket` work on each bucket of packed rows, and yield its results. The function also
        returns named parts of further results. For each name, yield the result that `on_joined` makes of all parts with
        this name."""

    def ask(self, question: Callable[[Iterable[bytes]], Answer]) -> Iterable[Answer]:
        """Apply a function to the packed rows, one part at a time, and yield its answers."""

    def text(self, path: str) -> str | None:
        """The text of another file; None if the file does not exist."""


class LocalLogs:
    """Logs that this process reads. It keeps the wanted blocks in memory, which takes about twice their size."""

    def __init__(self, files: Iterable[tuple[str, bytes]], size: int, wanted: Wanted | None = None) -> None:
        """`files`: paths and contents, of `size` bytes in total. `wanted`: as in `pack_files`."""
        self._parts: dict[int, list[bytes]] = defaultdict(list)
        for bucket, part in pack_files(files, buckets(size), wanted):
            self._parts[bucket].append(part)
        self._control = self._parts.pop(CONTROL_BUCKET, [])

    def control(self) -> list[ControlRow]:
        return [ControlRow(*row) for part in self._control for row in msgpack.unpackb(part)]

    def some(self) -> Iterable[bytes]:
        return self._parts.get(0, [])

    def work(self, on_bucket: OnBucket[Left], on_joined: OnJoined[Left]) -> Iterator[Left]:
        to_join = defaultdict[str, list[bytes]](list)
        for parts in self._parts.values():
            left, named = on_bucket(parts)
            yield left
            for name, part in named:
                to_join[name].append(part)
        for name, joined in to_join.items():
            yield on_joined(name, joined)

    def ask(self, question: Callable[[Iterable[bytes]], Answer]) -> Iterator[Answer]:
        return map(question, self._parts.values())

    def text(self, path: str) -> str | None:
        return Path(path).read_text() if Path(path).exists() else None


@contextmanager
def open_logs(
    run_dirs: Sequence[str],
    master: str | None = None,
    *,
    spark: bool = False,
    progress: Progress = ignore,
    wanted: Wanted | None = None,
) -> Iterator[Logs]:
    """Open the logs. Errors about local paths are raised before Spark starts.

    `spark`: let Spark read the logs even if they are local and small. `wanted`: which blocks are wanted. If it is
    given, this process reads local logs of any size, and keeps only these blocks; Spark keeps all blocks.
    """
    local = local_dirs(run_dirs)
    by_spark = wanted is None and (spark or master is not None or SUBMITTED in os.environ)
    if len(local) == len(run_dirs) and not by_spark:
        files, size = files_of(local)
        if wanted is not None or size <= LOCAL_BYTES:
            yield LocalLogs(contents(files, size, progress), size, wanted)
            return
    # Imported late, because the import takes as long as the audit of a short run.
    from failover.audit.read.spark import spark_logs

    with spark_logs(run_dirs, master, progress) as logs:
        yield logs
