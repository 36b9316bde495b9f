"""Who reads the logs of a run and works on them: this process if they are here and few, else Spark.

Both do the same to them: what files say is packed by bucket of delivery keys (`segments`), and the work on buckets is
given as functions. A laptop is done with a short run long before Spark has started.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from failover.audit.read.entries import DeliveryEntry
from failover.audit.read.files import SUBMITTED, Progress, contents, files_of, ignore, local_dirs
from failover.audit.read.inventory import ControlRow
from failover.audit.read.local import LocalLogs

LOCAL_BYTES = 100 << 20
"""More is read by Spark, on all the cores it is given."""

Left = TypeVar("Left")


class Logs(Protocol):
    """What all files below the run directories say."""

    def control(self) -> list[ControlRow]:
        """What is about links, routers and files: little, so it is judged in plain Python."""

    def some(self) -> Iterable[bytes]:
        """A part of what is about deliveries, by chance, as it is packed; of a short run, all."""

    def work(
        self,
        on_bucket: Callable[[Iterable[bytes]], tuple[Left, list[tuple[str, bytes]]]],
        on_joined: Callable[[str, Iterable[bytes]], Left],
    ) -> Iterable[Left]:
        """What is left of each bucket of packed rows; and of what these leave under a name, brought together."""

    def keys(self, start: str) -> set[str]:
        """Those of deliveries that begin so; some of them if they are many."""

    def entries(self, keys: Sequence[str]) -> Iterable[DeliveryEntry]:
        """What is said of these deliveries."""

    def text(self, path: str) -> str | None:
        """Of another file there; None if there is none."""


@contextmanager
def open_logs(
    run_dirs: Sequence[str],
    master: str | None = None,
    *,
    spark: bool = False,
    progress: Progress = ignore,
    key: str | None = None,
) -> Iterator[Logs]:
    """`spark`: also where this process would do. With a `key`, blocks that tell of other deliveries only are searched
    for it, and no more: so much of logs this process always does. Errors are told before Spark starts, if they are
    about local paths."""
    local = local_dirs(run_dirs)
    by_spark = key is None and (spark or master is not None or SUBMITTED in os.environ)
    if len(local) == len(run_dirs) and not by_spark:
        files, size = files_of(local)
        if key is not None or size <= LOCAL_BYTES:
            yield LocalLogs(contents(files, size, progress), size, key or "")
            return
    from failover.audit.read.spark import spark_logs  # its import alone takes as long as a short run's audit

    with spark_logs(run_dirs, master, progress) as logs:
        yield logs
