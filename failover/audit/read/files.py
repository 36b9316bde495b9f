"""Finds the files of runs on this machine: run directories, and the contents of their logs. It decodes nothing."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""This environment variable is set if `spark-submit` has started the program."""
LOGS = ("*/log/*.oml", "clients/*/log/*.oml", "log/*.oml")
"""The paths of segments in a run directory, as patterns. The last pattern is for a directory that belongs to one router
or client."""
NEAR_SHOWN = 3

Progress = Callable[[int, int], None]
"""A function that shows progress: it gets the number of bytes read so far, and the bytes of all files."""


class AuditError(Exception):
    """The run directories cannot be read at all."""


def ignore(read: int, size: int) -> None:
    """Show no progress: the function for callers that need none."""


def distinct(run_dirs: Sequence[str]) -> list[str]:
    """Return each of the directories once, but no directory that is inside another one. If the audit read a log twice,
    all events in the log would seem to have happened twice."""
    places: dict[str, str] = {}
    for run_dir in run_dirs:
        places.setdefault(_place(run_dir), run_dir)
    return [run_dir for place, run_dir in places.items() if not any(place.startswith(f"{other}/") for other in places)]


def _place(run_dir: str) -> str:
    return str(Path(run_dir).resolve()) if Path(run_dir).exists() else run_dir.rstrip("/")


def beside(run_dir: str) -> Path:
    """The directory for files about a run. This is the run directory, even if it is given as a `file:` URI. If the run
    directory is not on this machine, it is the current directory."""
    named = Path(run_dir)
    if not named.exists() and run_dir.startswith("file:"):
        named = Path("/" + run_dir.removeprefix("file:").lstrip("/"))
    return named if named.is_dir() else Path()


def local_dirs(run_dirs: Sequence[str]) -> list[Path]:
    """The run directories on this machine. A path with a scheme that is no directory here is left to Hadoop. Raises
    `AuditError` if one of them is no run directory."""
    found = [Path(path) for path in run_dirs if Path(path).exists() or "://" not in path]
    for path in found:
        _check(path)
    return found


def files_of(directories: Iterable[Path]) -> tuple[list[Path], int]:
    """The files below these directories, and the sum of their bytes."""
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
        raise AuditError(f"{path}: {'a file, expected a run directory' if path.exists() else 'no such directory'}")
    if _is_run(path):
        return
    near = [str(mesh.parent) for mesh in sorted(path.glob("*/mesh.json"))]
    named = ", ".join(near[:NEAR_SHOWN]) + (", …" if len(near) > NEAR_SHOWN else "")
    hint = f"; but {named} {'is one' if len(near) == 1 else 'are'}" if near else ""
    raise AuditError(f"{path}: not a run directory: it has neither mesh.json nor delivery logs{hint}")


def _is_run(path: Path) -> bool:
    return (path / "mesh.json").exists() or any(True for pattern in LOGS for _ in path.glob(pattern))
