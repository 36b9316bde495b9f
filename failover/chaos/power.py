"""A power cut at a router whose process was just killed, as its store of replica sets sees it (protocol 13.5).

The kernel has each write that the process has made. The disk has a write only if the store has synced it. With `sync:
disk` the store syncs each transaction before the mark beside the file names it. So this module takes a transaction that
the mark does not name out of the write-ahead log. It deletes the mark, which the store never syncs. Pages that the
store was merging into the file are still in the log. With `sync: memory` the disk may have nothing: the module deletes
the store.
"""

import os
from pathlib import Path

from router.disk.sqlite import UnusableError
from router.disk.wal import HEADER, ends
from router.queues.at_rest import numbers_at_rest
from router.queues.mark import read_mark
from router.queues.store import SUFFIXES, Sync


def cut_power(store: Path, sync: Sync) -> bool:
    """Set the store of a killed process back to its last sync. Returns whether the store has lost a write. A damaged
    store, or one that the process had not finished making, stays as it is. Raises OSError."""
    if not store.exists():
        return False
    if sync is Sync.MEMORY:
        for suffix in SUFFIXES:
            Path(f"{store}{suffix}").unlink(missing_ok=True)
        return True
    mark, log = read_mark(Path(f"{store}-mark")), f"{store}-wal"
    try:
        newest = numbers_at_rest(store)
    except UnusableError:
        return False
    Path(f"{store}-mark").unlink(missing_ok=True)
    is_ahead = mark is not None and any(number > mark.numbers.get(name, 0) for name, number in newest.items())
    transactions = [HEADER.size, *ends(log)]
    if not is_ahead or len(transactions) < 2:
        return False
    os.truncate(log, transactions[-2])
    return True
