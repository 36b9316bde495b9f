"""The result of judging a bucket: counts, and the first few violations of each kind. Its size does not grow with the
bucket, and the tallies of several buckets can be added."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from failover.audit.judge.deliveries import Deliveries, Records
from failover.audit.judge.kinds import FINDINGS_KEPT, Violating
from failover.audit.judge.pairs import Pairs
from failover.audit.judge.publishers import Fates
from failover.audit.judge.queues.messages import QueueVerdicts
from failover.audit.judge.queues.passages import Passage
from failover.audit.judge.routers import RouterVerdicts
from failover.audit.judge.subscribers import SubscriberVerdicts
from failover.audit.judge.unattributed import Away, InVain, Without
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import Facts
from topic.identity import NAME_LENGTH

Told = tuple[str, Iterable[int]]
"""The router and the subscribers that a violation is about."""


@attrs.frozen
class Verdicts:
    """The verdicts of all rules on one bucket."""

    fates: Fates
    publishers: Violating
    unshared: Flags
    """Flags the deliveries of balanced addresses for which it is unknown whether exactly one subscriber processed
    them."""
    subscribers: SubscriberVerdicts
    routers: RouterVerdicts
    queues: QueueVerdicts | None
    """The verdicts on queues; None if the audit has not judged the entries of replicas about messages."""


@attrs.frozen(slots=True, order=True)
class Violation:
    """One violation of a rule, with the names of all parties."""

    key: str
    life: int
    router: str
    """The router of the record; empty if the rule is not about a record."""
    publisher: str
    subscribers: tuple[str, ...]


@attrs.define(slots=True)
class Tally:
    publishers: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    """Two tables of counts for the reports. `publishers` maps each publisher and each name of a count to its value.
    `pairs` has the same for each pair of publisher and subscriber."""
    addresses: dict[str, str] = attrs.field(factory=dict)
    pairs: Counter[tuple[str, str, str]] = attrs.field(factory=Counter)
    violations: Counter[str] = attrs.field(factory=Counter)
    """Maps each kind of violation to the number of violations that were found."""
    findings: dict[str, list[Violation]] = attrs.field(factory=dict)
    in_vain: InVain = attrs.field(factory=Counter)
    without: Without = attrs.field(factory=dict)
    away: Away = attrs.field(factory=Counter)
    unknown_records: int = 0
    left_out: int = 0
    """The number of deliveries that began, or may have begun, before the start of all kept logs."""
    queues: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    """The numbers of messages, keyed by the address of the queue's egress and by the name of the count."""
    passed: dict[tuple[str, str], Passage] = attrs.field(factory=dict)
    """Maps each log and set to the growth of the set's queues by this log: the messages that came, minus the messages
    that left (`Passage`)."""
    unstored: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    """Three sums for each set, as `judge.queues.passages.unstored` returns them. One is the number of messages that the
    queues should still have, but that no store has."""

    def add(self, other: "Tally") -> None:
        for whose, passage in other.passed.items():
            if whose in self.passed:
                self.passed[whose].add(passage)
            else:
                self.passed[whose] = passage
        for name in ("publishers", "pairs", "violations", "in_vain", "away", "queues", "unstored"):
            getattr(self, name).update(getattr(other, name))
        self.without |= {whose: missed.and_(self.without.get(whose)) for whose, missed in other.without.items()}
        self.addresses |= other.addresses
        self.unknown_records += other.unknown_records
        self.left_out += other.left_out
        for kind, found in other.findings.items():
            self.keep(kind, found)

    def keep(self, kind: str, found: Iterable[Violation]) -> None:
        self.findings[kind] = sorted([*self.findings.get(kind, ()), *found])[:FINDINGS_KEPT]


class Counting:
    """Counts the verdicts on one bucket."""

    def __init__(self, facts: Facts, found: Deliveries, pairs: Pairs, records: Records, verdicts: Verdicts) -> None:
        self._facts, self._found, self._pairs, self._records = facts, found, pairs, records
        self._verdicts, self._fates = verdicts, verdicts.fates
        names, self._publisher = np.unique(found.uses.publisher(), return_inverse=True)
        self._publishers = [name.decode() for name in names.tolist()]
        self.tally = Tally()

    def count(self) -> Tally:
        self._count_deliveries()
        self._count_pairs()
        pairs, records = self._pairs, self._records
        deliveries = np.arange(len(self._found.uses.key))
        told: tuple[tuple[Violating, Ints, Callable[[int], Told]], ...] = (
            (self._verdicts.publishers, deliveries, lambda at: ("", self._audience(at))),
            (self._verdicts.subscribers.violations, pairs.delivery, lambda at: ("", [pairs.subscriber[at]])),
            (self._verdicts.routers.violations, records.delivery, self._at_record),
        )
        for violations, of, tell in told:
            for kind, flags in violations.items():
                self._find(kind, flags, of, tell)
        self.tally.unknown_records = int(self._verdicts.routers.unseen.sum())
        if self._verdicts.queues is not None:
            self._count_messages(self._verdicts.queues)
        return self.tally

    def _count_messages(self, queues: QueueVerdicts) -> None:
        tally = self.tally
        tally.queues, tally.passed, tally.unstored = queues.counts(), dict(queues.passed), queues.unstored
        for kind, flags in queues.violations.items():
            keys = sorted(queues.messages.key[flags].tolist())
            if keys:
                tally.violations[kind] += len(keys)
                named = [(key.decode(), key[:NAME_LENGTH].decode()) for key in keys[: 2 * FINDINGS_KEPT]]
                tally.keep(kind, [Violation(key, 0, "", publisher, ()) for key, publisher in named])

    def _count_deliveries(self) -> None:
        found, fates = self._found, self._fates
        answered, queues = fates.is_accepted | found.refused | found.told_refused, self._verdicts.queues
        flags = {
            "published": fates.is_published,
            "accepted": fates.is_accepted,
            "unanswered": fates.is_published & ~answered,
            "earlier": fates.earlier,
            "unshared": self._verdicts.unshared,
            "unenqueued": queues.unknown if queues else np.zeros_like(answered),
            "alone": fates.is_accepted & found.has_audience & ~found.balanced & ~self._heard(),
        }
        _add(self.tally.publishers, [(name,) for name in self._publishers], self._publisher, flags)
        named = found.address != NONE
        for publisher, address in zip(self._publisher[named].tolist(), found.address[named].tolist(), strict=True):
            self.tally.addresses[self._publishers[publisher]] = self._facts.rows.strings[address]

    def _heard(self) -> Flags:
        """The deliveries with at least one subscriber in an audience."""
        heard = np.zeros(len(self._found.uses.key), np.bool_)
        heard[self._pairs.delivery[self._pairs.in_audience]] = True
        return heard

    def _count_pairs(self) -> None:
        pairs, verdicts = self._pairs, self._verdicts.subscribers
        both = self._publisher[pairs.delivery] * len(pairs.names) + pairs.subscriber
        distinct, which = np.unique(both, return_inverse=True)
        named = (divmod(one, len(pairs.names)) for one in distinct.tolist())
        names = [(self._publishers[publisher], pairs.names[subscriber]) for publisher, subscriber in named]
        again = self._verdicts.queues.repeated if self._verdicts.queues else {}
        flags = {
            "owed": verdicts.owed,
            "taken": verdicts.taken,
            "unknown": verdicts.unknown,
            "unplaced": verdicts.unplaced,
            **verdicts.violations,
            **{f"repeated {reason}": flag | again.get(reason, False) for reason, flag in verdicts.repeated.items()},
            **{f"unowed {reason}": flag for reason, flag in verdicts.unowed.items()},
            **{f"unprocessed {reason}": flag for reason, flag in verdicts.unprocessed.items()},
        }
        _add(self.tally.pairs, names, which, flags)

    def _find(self, kind: str, flag: Flags, deliveries: Ints, tell: Callable[[int], Told]) -> None:
        """Count the violations, and keep the ones with the lowest keys as findings."""
        at = np.flatnonzero(flag)
        if not len(at):
            return
        self.tally.violations[kind] += len(at)
        lives, of = self._found.uses, deliveries[at]
        lowest = at[np.lexsort((lives.number[of], lives.key[of]))[: 2 * FINDINGS_KEPT]]
        self.tally.keep(kind, [self._finding(int(deliveries[index]), *tell(index)) for index in lowest.tolist()])

    def _finding(self, delivery: int, router: str, subscribers: Iterable[int]) -> Violation:
        key, life = self._found.uses.name(delivery)
        names = sorted({self._pairs.names[code] for code in subscribers})
        return Violation(key, life, router, self._publishers[self._publisher[delivery]], tuple(names))

    def _audience(self, delivery: int) -> list[int]:
        pairs = self._pairs
        whom = self._verdicts.subscribers.taken if self._found.balanced[delivery] else pairs.in_audience
        found: list[int] = pairs.subscriber[(pairs.delivery == delivery) & whom].tolist()
        return found

    def _at_record(self, at: int) -> Told:
        rows, records = self._facts.rows, self._records
        local = rows.subscriber[records.groups.at[records.groups.of == at]]
        subscribers = local[local != NONE].tolist() or self._audience(int(records.delivery[at]))
        return rows.logs[records.log[at]].source, subscribers


def _add(to: Counter[Any], names: Sequence[tuple[str, ...]], which: Ints, flags: Mapping[str, Flags]) -> None:
    """Count the flagged elements of each name. Add each count to `to`, under the name and the flag. `which`: for each
    element, the index of its name in `names`."""
    for what, flag in flags.items():
        for name, number in zip(names, np.bincount(which[flag], minlength=len(names)).tolist(), strict=True):
            to[*name, what] += number
