"""When a whole mesh forgot its links: every router had ended, and none found its state store when it was started again.

Nobody is owed then what was accepted before it was back: no router knew of it (protocol 1, known limits). A single
router that remembers is enough for this to be no excuse.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

import attrs

from failover.audit.inventory import ControlRow, Log
from failover.audit.parties import log_name
from topic.journal import Event


@attrs.frozen(slots=True)
class Forgetting:
    at: int
    """The hybrid clock from which on no router knows of what was before."""
    homes: tuple[str, ...]
    """The incarnations that began with it or after it."""


def forgettings(rows: Iterable[ControlRow], logs: Sequence[Log]) -> list[Forgetting]:
    began = {
        log_name(row): row.hlc
        for row in rows
        if row.event == Event.KEPT and row.role == "router" and not row.details.get("found", True)
    }
    routers = sorted((log for log in logs if log.role == "router"), key=lambda log: (log.source, log.first_time))
    lives = [list(group) for _, group in groupby(routers, lambda log: log.source)]
    return [
        Forgetting(began[log.name], tuple(other.name for other in routers if other.first_time >= log.first_time))
        for log in routers
        if log.name in began and all(_forgot(router, log.first_time, began) for router in lives)
    ]


def _forgot(lives: Sequence[Log], at: int, began: Collection[str]) -> bool:
    """Whether this router had ended at that time, and began anew without a memory."""
    before = [log for log in lives if log.first_time < at]
    after = [log for log in lives if log.first_time >= at]
    return bool(before and after) and before[-1].last_time < at and after[0].name in began
