"""A continuous audit of a running mesh: `follow` reads the logs as they grow, and reports the verdict so far.

`growing` reads segments as they grow. `decided` finds the deliveries whose verdict no later entry can change.
`forgetting` finds the rows about links and routers that the audit no longer needs. `fold` judges order as deliveries
come. `follower` makes one step; `checkpoint` keeps the audit's state between two runs of the command. The rules are
the rules of `judge`; this package only decides when the audit may forget a delivery.
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
"""The seconds between two steps, if the earlier step has read everything."""


def follow(
    run_dirs: Sequence[str],
    wait: Callable[[float], bool],
    tell: Callable[[FollowStatus, Report], None],
    checkpoint: Path | None = None,
) -> Report:
    """Audit until `wait` returns True, and return the final report.

    `wait` gets the number of seconds that it may wait. `tell` gets the status and the report after each step. With a
    `checkpoint`, the audit continues where an earlier audit of the same directories stopped. Raises `AuditError` if a
    directory cannot be read, if it is removed meanwhile, or if the checkpoint does not fit.
    """
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
    """Raise `AuditError` if a run directory has been removed, because the audit may not have read its last entries."""
    try:
        yield
    finally:
        for run_dir in run_dirs:
            if not Path(run_dir).is_dir():
                raise AuditError(
                    f"{run_dir}: the directory was removed while the audit followed it, so there is no verdict"
                )


__all__ = ["FollowStatus", "Follower", "follow"]
