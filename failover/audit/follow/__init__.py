"""A continuous audit, over a mesh that runs: `follow` reads what is written, and tells what holds so far.

`growing` reads segments as they grow; `decided` says which deliveries nothing can be added to, `forgetting` what of
links and routers is past; `fold` judges the order as deliveries come, `follower` is one step, `checkpoint` is kept
between two runs of the command. Rules are the judge's: there are none in this room but when something may be
forgotten.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from failover.audit.follow.checkpoint import Checkpoint
from failover.audit.follow.follower import Follower, FollowStatus
from failover.audit.read.files import AuditError, distinct, local_dirs
from failover.audit.report.report import Report

INTERVAL_S = 2.0
"""From one step to the next, where all was read."""


def follow(
    run_dirs: Sequence[str],
    wait: Callable[[float], bool],
    tell: Callable[[FollowStatus, Report], None],
    checkpoint: Path | None = None,
) -> Report:
    """Audit until `wait` says so, which is given for how many seconds it may wait; the last report is final. `tell` is
    told after each step. With a `checkpoint` it goes on where another has stopped that followed the same directories.
    Raises `AuditError` where there is nothing to follow, or not any more, or the checkpoint is not to be used."""
    run_dirs = distinct(run_dirs)
    if len(local_dirs(run_dirs)) < len(run_dirs):
        raise AuditError("--follow needs a local or mounted directory")
    kept = Checkpoint(checkpoint) if checkpoint is not None else None
    follower = (kept and kept.load(run_dirs)) or Follower(run_dirs)
    status = None
    while not wait(INTERVAL_S if status is not None and status.caught_up else 0):
        with _there(run_dirs):
            status = follower.step(time.time_ns() // 1000)
            tell(status, follower.report())
            if kept is not None:
                kept.save(follower)
    with _there(run_dirs):
        if kept is not None:
            kept.save(follower, now=True)
        return follower.finish(time.time_ns() // 1000)


@contextmanager
def _there(run_dirs: Sequence[str]) -> Iterator[None]:
    """What was written last in a directory that vanishes is never read: nothing is said of it as if it had been."""
    try:
        yield
    finally:
        for run_dir in run_dirs:
            if not Path(run_dir).is_dir():
                raise AuditError(
                    f"{run_dir}: the directory was removed while the audit followed it, so there is no verdict"
                )


__all__ = ["FollowStatus", "Follower", "follow"]
