"""The table of the page that says who got what of whom: a row for each subscriber, a column for each publisher."""

from collections.abc import Sequence

import attrs

from failover.audit.report.report import PairRow, PublisherRow, Report

COLUMNS = 8
"""Publishers that fit; more make one column of totals."""
ROWS = 200


@attrs.frozen(slots=True)
class Cell:
    """One pair, or all of a subscriber's pairs."""

    processed: int
    owed: int
    violations: int
    unknown: int

    @property
    def look(self) -> str:
        return "bad" if self.violations else "unsure" if self.unknown else "good"


@attrs.frozen(slots=True)
class Matrix:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    left_out: int
    """Subscribers beyond those that fit, none of which is worse than those shown."""


def matrix(report: Report) -> Matrix:
    short = short_names(report.publishers, report.pairs)
    publishers = sorted({row.publisher for row in report.pairs})
    groups = [[name] for name in publishers] if len(publishers) <= COLUMNS else [publishers]
    columns = tuple(short[group[0]] if len(group) == 1 else f"all {len(group)} publishers" for group in groups)
    rows = [
        (short[name], tuple(_cell([row for row in mine if row.publisher in group]) for group in groups))
        for name, mine in _by_subscriber(report.pairs)
    ]
    return Matrix(columns, tuple(sorted(rows[:ROWS], key=lambda row: row[0])), len(rows[ROWS:]))


def short_names(publishers: Sequence[PublisherRow], pairs: Sequence[PairRow]) -> dict[str, str]:
    """Links by their containers alone, where these tell them apart."""
    sending = {row.publisher for row in publishers} | {row.publisher for row in pairs}
    return _shortened(sending) | _shortened({row.subscriber for row in pairs} - sending)


def _shortened(names: set[str]) -> dict[str, str]:
    containers = {name: name.partition("/")[0] for name in names}
    return containers if len(set(containers.values())) == len(names) else {name: name for name in names}


def _by_subscriber(pairs: Sequence[PairRow]) -> list[tuple[str, list[PairRow]]]:
    """The worst first."""
    found: dict[str, list[PairRow]] = {}
    for row in pairs:
        found.setdefault(row.subscriber, []).append(row)
    worst = {
        name: (sum(sum(row.violations.values()) for row in rows), sum(row.unknown for row in rows))
        for name, rows in found.items()
    }
    return sorted(sorted(found.items()), key=lambda item: worst[item[0]], reverse=True)


def _cell(rows: Sequence[PairRow]) -> Cell | None:
    if not rows:
        return None
    violations = sum(sum(row.violations.values()) for row in rows)
    unknown = sum(row.unknown for row in rows)
    return Cell(sum(row.processed for row in rows), sum(row.owed for row in rows), violations, unknown)
