"""Finds wall clocks that disagree, by events that two hosts have logged, and corrects these clocks before the audit
compares times.

Two routers log their contact at almost the same time. A router and a client log an attach at almost the same time. If
the times of two such entries differ by more than `SKEW_US`, one clock is wrong, even if both logs name the same host.
Clocks that agree within `SKEW_US` are not corrected. All times are converted to the clock that most clients have.
Hybrid clocks need no correction, but they are ahead of the wall clock by as much as the fastest clock of the mesh; see
`HybridTimeline`.

The audit cannot correct a clock that was set while its log was written, or that disagrees with other clocks of its
host. The audit does not *order* entries by such a clock: for the audit, each entry of the clock's log may have happened
at any time. If a client has such a clock, the audit sets the times of the client's entries about its link to 0.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from statistics import median_low
from typing import Final

import attrs
import numpy as np

from failover.audit.read.columns import Ints, Rows
from failover.audit.read.inventory import ControlRow, Log
from topic.journal import Event

SET_BACK_US = 100_000
"""A clock that was set back by less than this (in µs) counts as right."""
COUNTER_BITS = 16
"""The number of bits of a hybrid clock below its milliseconds (protocol 2)."""
SKEW_US = 1_000_000
"""Times of two hosts count as equal if they differ by no more than this (in µs)."""
BELIEVED_US: Final = 10_000_000
"""A router believes an epoch that a client echoes if it is no more than this (in µs) ahead of the router's clock
(protocol 2)."""
Differences = Mapping[tuple[str, str], int]
"""Maps two clocks, or the names of two logs, to the difference of their clocks: how far the second one is ahead of the
first one, in µs."""


@attrs.frozen(slots=True)
class Disagreement:
    """Two logs, by name, whose clocks disagree."""

    one: str
    other: str
    us: int
    """How far the clock of the second log is ahead, in µs."""


@attrs.frozen
class Clocks:
    """The wall clocks of all logs. `clock`: the name of each log's clock; "" if unknown. `ahead_us`: how far each log's
    clock is ahead, in µs. A log is named source.incarnation."""

    clock: Mapping[str, str]
    ahead_us: Mapping[str, int]
    unordered: Mapping[str, str] = attrs.field(factory=dict)
    """The logs whose clock cannot be used, each with the reason. Each entry of such a log may have happened at any
    time."""
    met: Differences = attrs.field(factory=dict)
    """Maps the names of two logs that noted the same events to the difference of their clocks, as in `Differences`."""

    def differ(self, names: Iterable[str]) -> bool:
        """Whether the clocks of these logs differ, or may differ, very much: if a client echoes an epoch of one router,
        another router does not believe the epoch."""
        logs = {name for name in names if name in self.clock}
        ahead = [self.ahead_us.get(name, 0) for name in logs]
        return bool(logs & self.unordered.keys()) or (bool(ahead) and max(ahead) - min(ahead) > BELIEVED_US - SKEW_US)

    def align_rows(self, rows: Iterable[ControlRow]) -> list[ControlRow]:
        return [self._aligned_row(row) for row in rows]

    def _aligned_row(self, row: ControlRow) -> ControlRow:
        if row.log_name in self.unordered:
            return attrs.evolve(row, time=0, host="")
        ahead = self.ahead_us.get(row.log_name, 0)
        return attrs.evolve(row, time=row.time - ahead, host=self.clock[row.log_name]) if ahead else row

    def align_logs(self, logs: Iterable[Log]) -> tuple[Log, ...]:
        return tuple(map(self._aligned, logs))

    def _aligned(self, log: Log) -> Log:
        if log.name in self.unordered:
            return attrs.evolve(log, host="", ordered=False)
        ahead = self.ahead_us.get(log.name, 0)
        host, first, last = self.clock.get(log.name, log.host), log.first_time - ahead, log.last_time - ahead
        return attrs.evolve(log, host=host, first_time=first, last_time=last) if ahead else log


NO_CLOCKS: Final = Clocks({}, {})
Compare = Callable[[Clocks], Sequence[Disagreement]]


def find_clocks(
    rows: Sequence[ControlRow], logs: Sequence[Log], before: Clocks = NO_CLOCKS, compare: Compare = lambda _: ()
) -> Clocks:
    """Find the clocks of all logs. `before`: the clocks of logs whose rows are forgotten. `compare`: a function that
    finds, by deliveries, further disagreements of corrected clocks."""
    met = {**dict(_met(rows, {log.name: log.host for log in logs})), **before.met}
    unordered = {log.name: _set_back(log) for log in logs if log.set_back_us >= SET_BACK_US}
    # Each further round leaves out the blamed logs, because their clocks must not correct others.
    while True:
        trusted = {pair: us for pair, us in met.items() if not unordered.keys() & {*pair}}
        clock = {**_clocks(logs, trusted), **before.clock}
        ahead = _ahead(_references(logs, clock), _between(trusted, clock))
        exactly = {name: ahead.get(of, 0) for name, of in clock.items()}
        ahead_us = {name: us if abs(us) > SKEW_US else 0 for name, us in exactly.items()}
        found = Clocks(clock, {**ahead_us, **before.ahead_us}, unordered, met)
        blamed = _blamed(found, [*_contradictions(trusted, exactly, logs), *compare(found)], logs)
        if not blamed:
            return attrs.evolve(found, unordered={**unordered, **_cut_off(found, ahead, trusted, logs)})
        unordered = {**unordered, **blamed}


def _cut_off(found: Clocks, ahead: Mapping[str, int], trusted: Differences, logs: Sequence[Log]) -> dict[str, str]:
    """The logs whose clock disagrees with the reference clock by an unknown difference, each with the reason. All
    comparisons with the reference clock go through logs whose own clock is unusable, so they show the disagreement, but
    not how far the clock is ahead."""
    references = _references(logs, found.clock)[:1]
    known = _ahead(references, _between(trusted, found.clock))
    guessed = _ahead(references, _between(found.met, found.clock))
    return {
        log.name: "its clock is known by logs alone by which nothing is ordered"
        for log in logs
        if (of := found.clock[log.name]) not in known
        and log.name not in found.unordered
        and abs(guessed.get(of, 0) - ahead.get(of, 0)) > SKEW_US
    }


def _set_back(log: Log) -> str:
    return f"the clock of {log.source} was set back by {log.set_back_us / 1e6:.1f} s while its log was written"


def _contradictions(met: Differences, ahead_us: Mapping[str, int], logs: Sequence[Log]) -> Iterator[Disagreement]:
    """The pairs of logs that, even after the correction, noted the same event at different times. So one of their
    clocks was set. Two routers may note their contact a second apart, and a client may read the answer to its attach
    late."""
    here, routers = {log.name for log in logs}, {log.name for log in logs if log.role == "router"}
    for (one, other), us in met.items():
        if {one, other} <= here:
            apart = us + ahead_us[one] - ahead_us[other]
            if abs(apart) > 2 * SKEW_US if {one, other} <= routers else apart < -SKEW_US:
                yield Disagreement(one, other, apart)


def _blamed(clocks: Clocks, found: Sequence[Disagreement], logs: Sequence[Log]) -> dict[str, str]:
    """The logs that are to blame for disagreements, each with the reason. A log is to blame if its clock disagrees with
    the most other clocks. If two logs with the same clock disagree, only disagreements between logs of one clock
    count."""
    host = {log.name: log.host for log in logs}
    clock = {log.name: clocks.clock[log.name] or log.name for log in logs}
    trusted = [each for each in found if not {each.one, each.other} & {*clocks.unordered}]
    blamed = {}
    for log, each in _most(each for each in trusted if clock[each.one] == clock[each.other]):
        one, other = (name.rpartition(".")[0] for name in (each.one, each.other))
        apart = _seconds(each.us)
        whose = f"although both run on the host {host[log]}"
        blamed[log] = f"the clocks of {one} and {other} disagree by at least {apart}, {whose}"
    if blamed:
        return blamed
    for of, each in _most(attrs.evolve(each, one=clock[each.one], other=clock[each.other]) for each in trusted):
        hosts = sorted({host[log] or "unknown" for log in host if clock[log] in (each.one, each.other)})
        whose = f"{'hosts' if hosts[1:] else 'host'} {' and '.join(hosts)}"
        said = f"the clocks of the {whose} disagree by at least {_seconds(each.us)}"
        blamed |= {log: said for log in host if clock[log] == of and log not in clocks.unordered}
    return blamed


def _most(found: Iterable[Disagreement]) -> Iterator[tuple[str, Disagreement]]:
    """The logs or clocks that disagree with the highest number of others, by name, each with its largest disagreement.
    If several of them disagree with equally many others, all of them are returned, because no log shows which of them
    is right."""
    worst: dict[str, dict[str, Disagreement]] = {}
    for each in sorted(found, key=lambda each: abs(each.us)):
        worst.setdefault(each.one, {})[each.other] = worst.setdefault(each.other, {})[each.one] = each
    most = max(map(len, worst.values()), default=0)
    yield from ((name, [*others.values()][-1]) for name, others in sorted(worst.items()) if len(others) == most)


def _seconds(us: int) -> str:
    return f"{round(abs(us) / 1_000_000, 3):g} s"


def _met(rows: Sequence[ControlRow], hosts: Mapping[str, str]) -> Iterator[tuple[tuple[str, str], int]]:
    """Yields each pair of logs that noted the same event, and how much later, by their clocks, the second one noted it,
    in µs."""
    noted: dict[tuple[str, str], list[ControlRow]] = {}
    attached: dict[tuple[bool, str], list[ControlRow]] = {}
    first_told = (row for row in rows if row.event in (Event.CONTACT, Event.ATTACHED) and not row.details.get("again"))
    for row in sorted(first_told, key=lambda row: (row.source, row.incarnation, row.place)):
        if row.event == Event.CONTACT and row.role == "router":
            noted.setdefault((row.log_name, f"{row.peer}.{row.details.get('incarnation')}"), []).append(row)
        elif row.event == Event.ATTACHED and (name := row.publisher or row.subscriber):
            attached.setdefault((row.role == "router", name), []).append(row)
    for (one, other), told in noted.items():
        if one < other in hosts and one in hosts and (same := _same_contacts(told, noted.get((other, one), []))):
            yield (one, other), median_low(b.time - a.time for a, b in same)
    heard: dict[tuple[str, str], list[int]] = {}
    for (by_router, name), told in attached.items():
        for a, b in _same_attaches(told, attached.get((False, name), [])) if by_router else ():
            heard.setdefault((a.log_name, b.log_name), []).append(b.time - a.time)
    yield from ((logs, min(later)) for logs, later in heard.items())  # a client may read an answer late, never early


def _same_attaches(told: Sequence[ControlRow], own: Sequence[ControlRow]) -> Iterator[tuple[ControlRow, ControlRow]]:
    """The attaches that both a router (`told`) and a client (`own`) have logged, matched by their epochs.

    Some attaches are in only one of the logs, because the client gave up before the answer, or the router's machine
    went down. If the client's entries have no epochs, attaches are matched by their order, and only if both logs have
    the same number of attaches.
    """
    by_epoch = {(row.epoch_hlc, row.home): row for row in told}
    if any(row.epoch_hlc is not None for row in own):
        yield from ((by_epoch[epoch], row) for row in own if (epoch := (row.epoch_hlc, row.home)) in by_epoch)
    elif len(own) == len(told):
        yield from zip(sorted(told, key=lambda row: row.hlc), own, strict=True)


def _same_contacts(told: Sequence[ControlRow], others: Sequence[ControlRow]) -> list[tuple[ControlRow, ControlRow]]:
    """The contacts that both routers have logged, matched by their hybrid clocks, which agree when a contact begins.
    Some contacts are in only one of the logs."""
    nearest = [_nearest(one, others) for one in told]
    pairs = [(one, other) for one, other in zip(told, nearest, strict=True) if other is not None]
    return [(one, other) for one, other in pairs if _nearest(other, told) is one and _apart(one, other) <= SKEW_US]


def _nearest(row: ControlRow, others: Sequence[ControlRow]) -> ControlRow | None:
    """The row of `others` whose hybrid clock is nearest. `others`: rows of one log, in the order of hybrid clocks."""
    at = bisect_right(others, row.hlc, key=lambda other: other.hlc)
    return min(others[max(at - 1, 0) : at + 1], key=partial(_apart, row), default=None)


def _apart(one: ControlRow, other: ControlRow) -> int:
    """The difference between the hybrid clocks of two rows, in µs."""
    return abs(wall_us(other.hlc) - wall_us(one.hlc))


def _clocks(logs: Sequence[Log], met: Differences) -> dict[str, str]:
    """The clock of each log. All logs of a host have the same clock, except logs that disagree with most other logs of
    the host."""
    apart: Counter[str] = Counter()
    together: Counter[str] = Counter()
    host = {log.name: log.host for log in logs}
    for names, difference in met.items():
        if host.get(names[0]) == host.get(names[1]):
            (apart if abs(difference) > SKEW_US else together).update(names)
    return {name: f"{of} {name}" if apart[name] > together[name] else of for name, of in host.items()}


def _between(met: Differences, clock: Mapping[str, str]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], list[int]] = {}
    for (one, other), difference in met.items():
        names = clock.get(one, ""), clock.get(other, "")
        if all(names) and names[0] != names[1]:
            found.setdefault(names, []).append(difference)
            found.setdefault(names[::-1], []).append(-difference)
    return {names: median_low(differences) for names, differences in found.items()}


def _references(logs: Sequence[Log], clock: Mapping[str, str]) -> list[str]:
    """All clocks. They are sorted by how many logs of clients have them, then by how many logs have them at all; the
    most frequent first."""
    clients = Counter(clock[log.name] for log in logs if log.role != "router")
    all_logs = Counter(clock[log.name] for log in logs)
    return sorted({*clock.values()}, key=lambda of: (-clients[of], -all_logs[of], of))


def _ahead(references: Sequence[str], between: Differences) -> dict[str, int]:
    """Maps each clock to the time, in µs, by which it is ahead of its reference clock: the first clock in `references`
    with which it can be compared, directly or through other clocks.

    If there are several ways through other clocks, the way with the smallest differences counts, because two logs may
    note one event up to a second apart.
    """
    others: dict[str, list[tuple[str, int]]] = {}
    for (one, other), us in between.items():
        others.setdefault(one, []).append((other, us))
    found: dict[str, int] = {}
    for reference in references:
        waiting = [(0, reference, 0)]
        while waiting:
            way_us, clock, ahead = heappop(waiting)
            if clock not in found:
                found[clock] = ahead
                for other, us in others.get(clock, ()):
                    heappush(waiting, (way_us + abs(us), other, ahead + us))
    return found


def aligned(rows: Rows, clocks: Clocks) -> Rows:
    """Correct the wall clocks of the rows. Changes and returns `rows`."""
    ahead = np.array([clocks.ahead_us.get(log.name, 0) for log in rows.logs], np.int64)
    if ahead.any():
        rows.time = rows.time - ahead[rows.log]
    rows.logs = [
        log._replace(host="" if log.name in clocks.unordered else clocks.clock.get(log.name, log.host))
        for log in rows.logs
    ]
    rows.undated = np.array([log.name in clocks.unordered for log in rows.logs], np.bool_)[rows.log]
    return rows


class HybridTimeline:
    """Converts times of wall clock to hybrid clocks of the mesh, by the entries of routers around each time."""

    def __init__(self, rows: Iterable[ControlRow]) -> None:
        """`rows`: control rows with corrected clocks."""
        told = sorted((row.time, wall_us(row.hlc) - row.time) for row in rows if row.role == "router" and row.time > 0)
        self._times = [time for time, _ in told]
        lags = [max(lag, 0) for _, lag in told]
        around = zip([0, *lags], [*lags, 0], strict=True)
        self._ahead = [max(pair) if max(pair) > SKEW_US else 0 for pair in around]

    def at(self, time_us: int) -> int:
        return wall_hlc(time_us + self._ahead[bisect_right(self._times, time_us)])

    def latest(self, time_us: Ints) -> Ints:
        """For each time, the highest hybrid clock that a router can have had within the same millisecond."""
        ahead = np.array(self._ahead, np.int64)[np.searchsorted(self._times, time_us, side="right")]
        found: Ints = ((time_us + ahead) // 1000 << 16) + 65535
        return found


def wall_hlc(time_us: int) -> int:
    """The lowest hybrid clock for a time of wall clock. The mesh has this clock or a higher one, because a router with
    a faster clock may have raised it."""
    return time_us // 1000 << 16


def wall_us(hlc: int) -> int:
    """The wall clock that a hybrid clock contains, in µs, exact to the millisecond."""
    return (hlc >> COUNTER_BITS) * 1000
