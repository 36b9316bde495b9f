"""The rows of one bucket, and what the tables beside them say of each row: whose it is, where, in which order."""

from collections.abc import Iterable, Sequence

import numpy as np

from failover.audit.read.columns import NONE, Flags, Ints, Rows
from topic.journal import Event, LoggedOutcome

ROLES = ("router", "publisher", "subscriber")


class Facts:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        role = _by_log([ROLES.index(log.role) if log.role in ROLES else NONE for log in rows.logs])[rows.log]
        self.by_router, self.by_publisher, self.by_subscriber = (role == number for number in range(len(ROLES)))
        self.at_home: Flags = self.by_router & (rows.peer == NONE)
        self.accepted: Flags = rows.outcome == LoggedOutcome.ACCEPTED
        self.incarnation = _by_log([log.incarnation for log in rows.logs])[rows.log]
        sources = _ranks(log.source for log in rows.logs)
        self.hosts = sorted({log.host for log in rows.logs} - {""})
        self.source = _by_log([sources[log.source] for log in rows.logs])[rows.log]
        self.host = _by_log([self.host_code(log.host) for log in rows.logs])[rows.log]
        """Index into `hosts`, `NONE` where it is not known."""
        self.homes, of_epoch, hlc = _epochs(rows.strings)
        """router.incarnation, sorted."""
        self.home = of_epoch[rows.epoch]
        """Index into `homes`."""
        self.epoch_hlc = hlc[rows.epoch]

    def tells(self, *events: Event) -> Flags:
        """Rows of these events."""
        return np.isin(self.rows.event, [int(event) for event in events])

    def host_code(self, host: str) -> int:
        """Index into `hosts`, or behind its end if nothing was written there."""
        if not host:
            return NONE
        return self.hosts.index(host) if host in self.hosts else len(self.hosts)

    def home_code(self, home: str) -> int:
        """Index into `homes`, or behind its end if no row names that one."""
        return self.homes.index(home) if home in self.homes else len(self.homes)


def _by_log(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)


def _ranks(texts: Iterable[str]) -> dict[str, int]:
    return {text: rank for rank, text in enumerate(sorted(set(texts)))}


def _epochs(strings: Sequence[str]) -> tuple[list[str], Ints, Ints]:
    """The homes that epochs name; and by code, the last being that of no string, which home and which clock."""
    parsed = [*(epoch_of(text) for text in strings), (None, None)]
    ranks = _ranks(home for _, home in parsed if home is not None)
    of_epoch = np.array([NONE if home is None else ranks[home] for _, home in parsed], np.int64)
    return list(ranks), of_epoch, np.array([NONE if hlc is None else hlc for hlc, _ in parsed], np.int64)


def epoch_of(text: str) -> tuple[int | None, str | None]:
    """("hlc.router.incarnation") -> hlc and "router.incarnation"; what else a log names is no epoch."""
    hlc, dot, home = text.partition(".")
    return (int(hlc), home) if dot and hlc.isdigit() and len(hlc) < 19 else (None, None)
