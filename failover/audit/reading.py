"""Where the logs of a run are, and who reads them: this process if they are here and few, else Spark.

Both do the same to them, by the same functions: what files say is packed by bucket of delivery keys (`decoding`), and
buckets are judged (`judging`). A laptop is done with a short run long before Spark has started.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from failover.audit.case import Case
from failover.audit.counting import Tally
from failover.audit.inventory import ControlRow
from failover.audit.local import LocalLogs
from failover.audit.metering import Frame
from failover.audit.story import Entry

LOCAL_BYTES = 100 << 20
"""More is read by Spark, on all the cores it is given."""
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set where `spark-submit` has started this program."""
LOGS = ("*/log/*.oml", "clients/*/log/*.oml", "log/*.oml")
"""In a run directory, the last in what is one router's or client's."""
NEAR_SHOWN = 3

Progress = Callable[[int, int], None]
"""Told of bytes read, and of how many there are."""


class AuditError(Exception):
    """The run directories cannot be read at all."""


class Logs(Protocol):
    """What all files below the run directories say."""

    def control(self) -> list[ControlRow]:
        """What is about links, routers and files: little, so it is judged in plain Python."""

    def some(self) -> Iterable[bytes]:
        """A part of what is about deliveries, by chance, as it is packed; of a short run, all."""

    def judge(self, case: Case, frame: Frame) -> Tally: ...

    def keys(self, start: str) -> set[str]:
        """Those of deliveries that begin so; some of them if they are many."""

    def entries(self, keys: Sequence[str]) -> Iterable[Entry]:
        """What is said of these deliveries."""

    def text(self, path: str) -> str | None:
        """Of another file there; None if there is none."""


def ignore(read: int, size: int) -> None:
    """For those who do not show it."""


@contextmanager
def open_logs(
    run_dirs: Sequence[str], master: str | None = None, *, spark: bool = False, progress: Progress = ignore
) -> Iterator[Logs]:
    """`spark`: also where this process would do. Errors are told before Spark starts, if they are about local paths."""
    local = local_dirs(run_dirs)
    if len(local) == len(run_dirs) and not (spark or master or SUBMITTED in os.environ):
        files, size = files_of(local)
        if size <= LOCAL_BYTES:
            yield LocalLogs(contents(files, size, progress), size)
            return
    from failover.audit.on_spark import spark_logs  # its import alone takes as long as a short run's audit

    with spark_logs(run_dirs, master, progress) as logs:
        yield logs


def distinct(run_dirs: Sequence[str]) -> list[str]:
    """Without those that are named again, or lie in another: what is read twice would look doubled."""
    places: dict[str, str] = {}
    for run_dir in run_dirs:
        places.setdefault(_place(run_dir), run_dir)
    return [run_dir for place, run_dir in places.items() if not any(place.startswith(f"{other}/") for other in places)]


def _place(run_dir: str) -> str:
    return str(Path(run_dir).resolve()) if Path(run_dir).exists() else run_dir.rstrip("/")


def local_dirs(run_dirs: Sequence[str]) -> list[Path]:
    """Those that are of this machine; what has a scheme and is no directory here is Hadoop's."""
    found = [Path(path) for path in run_dirs if Path(path).exists() or "://" not in path]
    for path in found:
        _check(path)
    return found


def files_of(directories: Iterable[Path]) -> tuple[list[Path], int]:
    """And how large they are together."""
    below = (path for directory in directories for path in sorted(directory.rglob("*")))
    found = [path for path in below if path.name == "mesh.json" or path.suffix == ".oml"]
    return found, sum(path.stat().st_size for path in found)


def contents(files: Iterable[Path], size: int, progress: Progress = ignore) -> Iterator[tuple[str, bytes]]:
    read = 0
    for path in files:
        content = path.read_bytes()
        yield str(path.absolute()), content
        read += len(content)
        progress(read, size)


def _check(path: Path) -> None:
    if not path.is_dir():
        raise AuditError(f"{path}: no such directory")
    if _is_run(path):
        return
    near = [str(mesh.parent) for mesh in sorted(path.glob("*/mesh.json"))]
    named = ", ".join(near[:NEAR_SHOWN]) + (", …" if len(near) > NEAR_SHOWN else "")
    hint = f"; but {named} {'is one' if len(near) == 1 else 'are'}" if near else ""
    raise AuditError(f"{path}: no run directory: no mesh.json and no delivery logs there{hint}")


def _is_run(path: Path) -> bool:
    return (path / "mesh.json").exists() or any(True for pattern in LOGS for _ in path.glob(pattern))
