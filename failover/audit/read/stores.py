"""Reads the stores of replica sets in run directories of this machine, if no process uses them."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from router.queues.at_rest import read_at_rest
from router.queues.store import STORE, SUFFIXES
from topic.queues.storing import SetContent

FOLDERS: Final = ("*", ".")
"""The folders in a run directory that have stores: the folder of each router, or the directory itself if it belongs to
one router."""
StoreOf = tuple[str, Mapping[str, SetContent]]
"""A router, and the content of its store for each set."""
Stamps = Mapping[Path, tuple[int, int]]
"""Maps each file to the time at which it last changed, in nanoseconds, and to its size in bytes. Both are zero if the
file does not exist."""


def find_stores(run_dirs: Iterable[str]) -> tuple[list[StoreOf], Stamps]:
    """Return the content of all stores. Also return the stamps of their files, taken before the stores were read."""
    paths = [path for one in run_dirs for folder in FOLDERS for path in sorted(Path(one).glob(f"{folder}/{STORE}"))]
    stamps = stamps_of(Path(f"{path}{suffix}") for path in paths for suffix in SUFFIXES)
    return [*_read(paths)], stamps


def _read(paths: Iterable[Path]) -> Iterator[StoreOf]:
    for path in paths:
        try:
            found = read_at_rest(path)
        except OSError:  # there is no room for a copy, or no permission: skip this store
            continue
        if found is not None:
            yield found


def stamps_of(paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    return {path: _stamp(path) for path in paths}


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size
