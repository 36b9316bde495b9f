"""Who reads the logs of a run and works on them: this process if they are here and few, else Spark.

Both do the same to them: what files say is packed by bucket of delivery keys (`segments`), and the work on buckets is
given as functions. A laptop is done with a short run long before Spark has started.
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
"""More is read by Spark, on all the cores it is given."""

Answer = TypeVar("Answer")


class Logs(Protocol):
    """What all files below the run directories say."""

    def control(self) -> list[ControlRow]:
        """What is about links, routers and files: little, so it is judged in plain Python."""

    def some(self) -> Iterable[bytes]:
        """A part of what is about deliveries, by chance, as it is packed; of a short run, all."""

    def work(self, on_bucket: OnBucket[Left], on_joined: OnJoined[Left]) -> Iterable[Left]:
        """What is left of each bucket of packed rows; and of what these leave under a name, brought together."""

    def ask(self, question: Callable[[Iterable[bytes]], Answer]) -> Iterable[Answer]:
        """What a function finds in packed rows, a part at a time."""

    def text(self, path: str) -> str | None:
        """Of another file there; None if there is none."""


class LocalLogs:
    """Read and worked on in this process. The wanted blocks are held in memory, in about twice their size."""

    def __init__(self, files: Iterable[tuple[str, bytes]], size: int, wanted: Wanted | None = None) -> None:
        """`files`: paths and contents, of `size` bytes. `wanted`: see `pack_files`."""
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
    """`spark`: Spark reads the logs also if they are local and few. `wanted`: local logs are always read by this
    process, and it keeps only these blocks; Spark keeps all. Errors about local paths are raised before Spark
    starts."""
    local = local_dirs(run_dirs)
    by_spark = wanted is None and (spark or master is not None or SUBMITTED in os.environ)
    if len(local) == len(run_dirs) and not by_spark:
        files, size = files_of(local)
        if wanted is not None or size <= LOCAL_BYTES:
            yield LocalLogs(contents(files, size, progress), size, wanted)
            return
    from failover.audit.read.spark import spark_logs  # its import alone takes as long as a short run's audit

    with spark_logs(run_dirs, master, progress) as logs:
        yield logs
