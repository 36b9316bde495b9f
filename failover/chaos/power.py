"""What a power cut does to the store of a router's replica sets, once its process is killed (protocol 13.5).

The kernel has each write that the process has made. The disk has it if the store has synced it: with `sync: disk` each
transaction is, before the mark beside the file names it. So a transaction that the mark does not name is taken out of
the write-ahead log. The mark is synced never, so it goes. Pages that were being merged into the file are in that log
yet. With `sync: memory` nothing need be on the disk, and the store goes.
"""

import os
from pathlib import Path

from router.disk.sqlite import UnusableError
from router.disk.wal import HEADER, ends
from router.queues.at_rest import numbers_at_rest
from router.queues.mark import read_mark
from router.queues.store import SUFFIXES, Sync


def cut_power(store: Path, sync: Sync) -> bool:
    """Set the store of a process that is killed back to its last sync. Returns whether it has lost something of what
    was written. A store that the process was about to make, or that is damaged, stays. Raises OSError."""
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
