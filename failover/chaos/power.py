"""Gives a killed router's store of replica sets the state that it would have after a power cut (protocol 13.5).

The kernel has each write that the process has made. The disk has a write only if the store has synced it. With `sync:
disk` the store first syncs each transaction, and then names it in the mark, a file beside the store. So this module
removes each transaction that the mark does not name from the write-ahead log. It also deletes the mark, because the
store never syncs the mark. Pages that the store was merging into its main file need no change, because they are still
in the log. With `sync: memory` the disk may have nothing: the module deletes the store.
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
