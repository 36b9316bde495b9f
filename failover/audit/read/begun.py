"""Leaves out the deliveries that cannot be judged because routers keep only the latest segments of their logs.

A delivery is left out in three cases: one of its entries is older than the beginning of all kept logs; no log shows its
beginning; or it has a record in a log that lacks its own beginning, and the beginning of this record is missing.
"""

from collections.abc import Collection

import numpy as np

from failover.audit.read.columns import NONE, Rows, chosen
from failover.audit.read.facts import Groups, by_key
from topic.journal import Event

BEGINNINGS = (Event.RECEIVED, Event.PLACEHOLDER)
"""The events with which a router's record of a delivery can begin."""


def begun_since(rows: Rows, since: int, cut: Collection[str]) -> tuple[Rows, int]:
    """Return the rows without the deliveries that are left out, and the number of these deliveries. `since`: in µs of
    wall clock; 0 leaves nothing out. `cut`: the names of the logs that lack their beginning."""
    if not since or not len(rows):
        return rows, 0
    group, keys = by_key(rows.key)
    groups, everywhere = Groups(group, len(keys)), np.ones(len(rows), np.bool_)
    by_router = np.array([log.role == "router" for log in rows.logs], np.bool_)[rows.log]
    at_home = by_router & (rows.peer == NONE) & (rows.event == Event.RECEIVED)
    judged = groups.lowest(everywhere, np.where(rows.undated, 0, rows.time)) >= since
    judged &= groups.any(at_home | (rows.event == Event.PUBLISHED))
    in_cut = np.array([log.name in cut for log in rows.logs], np.bool_)[rows.log]
    records = Groups(group * len(rows.logs) + rows.log, len(keys) * len(rows.logs))
    first = records.lowest(in_cut, rows.place)
    begins = (rows.place == first[records.of]) & ~np.isin(rows.event, [int(event) for event in BEGINNINGS])
    judged &= ~groups.any(in_cut & begins)
    return chosen(rows, judged[group]), int((~judged).sum())
