"""Finds when a whole mesh forgot its links: all routers had ended, and none found its state store when it started
again.

Until a subscriber was back, no router knew it. So the subscriber is not owed the deliveries that the mesh accepted
before then (protocol 10, Limits). If even one router finds its state store, the mesh has not forgotten its links, and
the subscriber is owed these deliveries.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import attrs

from failover.audit.mesh.clocks import HybridTimeline
from failover.audit.read.inventory import ControlRow, Log
from topic.journal import Event


@attrs.frozen(slots=True)
class StateLoss:
    at: int
    """The hybrid clock after which no router knew earlier links."""
    homes: tuple[str, ...]
    """The incarnations of routers that began at the clock `at` or later."""
    whole: bool
    """Whether the logs of all incarnations in `homes` are whole."""


class RouterLife(NamedTuple):
    """One incarnation of a router, with its beginning and end as hybrid clocks."""

    name: str
    began: int
    ended: int


def state_losses(rows: Sequence[ControlRow], logs: Iterable[Log]) -> list[StateLoss]:
    began = _stamps(row for row in rows if row.event == Event.BOOT)
    empty = _stamps(row for row in rows if row.event == Event.KEPT and not row.details.get("found", True))
    routers = sorted((log for log in logs if log.role == "router"), key=lambda log: (log.source, log.incarnation))
    hybrid = HybridTimeline(rows)
    lives = [[_life(log, began, hybrid) for log in group] for _, group in groupby(routers, lambda log: log.source)]
    instants = [began[name] for name in empty if name in began]
    return [
        _state_loss(at, [log for log in routers if began.get(log.name, 0) >= at])
        for at in instants
        if all(_forgot(router, at, empty) for router in lives)
    ]


def _state_loss(at: int, since: Sequence[Log]) -> StateLoss:
    return StateLoss(at, tuple(log.name for log in since), all(log.whole for log in since))


def _stamps(rows: Iterable[ControlRow]) -> dict[str, int]:
    return {row.log_name: row.hlc for row in rows if row.role == "router"}


def _life(log: Log, began: Mapping[str, int], hybrid: HybridTimeline) -> RouterLife:
    return RouterLife(log.name, began.get(log.name, 0), hybrid.at(log.last_time))


def _forgot(lives: Sequence[RouterLife], at: int, empty: Collection[str]) -> bool:
    """Whether this router had ended before the hybrid clock `at`, and then began again without its state store.
    `lives`: the incarnations of the router. `empty`: the logs of incarnations that found no store."""
    before = [life for life in lives if life.began < at]
    after = [life for life in lives if life.began >= at]
    return bool(before and after) and before[-1].ended < at and after[0].name in empty
