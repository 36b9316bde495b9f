"""What is left of a bucket once it is judged: counts, and the first few violations of each kind. Little, whatever the
size of the bucket; what several buckets left is added up."""

from collections import Counter
from collections.abc import Callable, Iterable

import attrs
import numpy as np

from failover.audit.astray import Astray, InVain
from failover.audit.checks import Judged, JudgedRecords
from failover.audit.deliveries import Deliveries
from failover.audit.facts import Facts
from failover.audit.metering import Metered
from failover.audit.packing import NONE, Flags, Ints
from failover.audit.pair_checks import JudgedPairs
from failover.audit.pairs import Pairs
from failover.audit.records import Records
from failover.audit.report import FINDINGS_KEPT

# The flags of the rules, and the kinds of the report they stand for.
PAIR_KINDS = {
    "lost": "lost",
    "duplicated": "duplicated",
    "early": "accepted too early",
    "overruled": "accepted though refused",
    "unasked": "never published",
}
PAIR_COUNTS = ("owed", "taken", *PAIR_KINDS, "unknown", "unplaced")
RECORD_KINDS = {"settled_early": "settled before accepted", "kept": "never forgotten"}
Told = tuple[str, Iterable[int]]
"""The router and the subscribers that a violation is about."""


@attrs.frozen(slots=True, order=True)
class Found:
    """One violation, everybody by name."""

    key: str
    life: int
    router: str
    """Empty where a rule is not about one router's record."""
    publisher: str
    subscribers: tuple[str, ...]


@attrs.define(slots=True)
class Tally:
    publishers: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    """By publisher and what is counted; pairs by both and that."""
    addresses: dict[str, str] = attrs.field(factory=dict)
    pairs: Counter[tuple[str, str, str]] = attrs.field(factory=Counter)
    violations: Counter[str] = attrs.field(factory=Counter)
    """By kind."""
    findings: dict[str, list[Found]] = attrs.field(factory=dict)
    in_vain: InVain = attrs.field(factory=Counter)
    cut_off: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    unknown_records: int = 0
    metered: Metered = attrs.field(factory=Metered)

    def add(self, other: "Tally") -> None:
        for name in ("publishers", "pairs", "violations", "in_vain", "cut_off"):
            getattr(self, name).update(getattr(other, name))
        self.addresses |= other.addresses
        self.metered.add(other.metered)
        self.unknown_records += other.unknown_records
        for kind, found in other.findings.items():
            self.keep(kind, found)

    def keep(self, kind: str, found: Iterable[Found]) -> None:
        self.findings[kind] = sorted([*self.findings.get(kind, ()), *found])[:FINDINGS_KEPT]


class Counting:
    """Of one bucket."""

    def __init__(self, facts: Facts, found: Deliveries, judged: Judged, pairs: Pairs) -> None:
        self._facts, self._found, self._judged, self._pairs = facts, found, judged, pairs
        names, self._publisher = np.unique(found.lives.publisher(), return_inverse=True)
        self._publishers = [name.decode() for name in names.tolist()]
        self.tally = Tally()

    def count(self, judged: JudgedPairs, records: Records, judged_records: JudgedRecords, astray: Astray) -> Tally:
        self._count_deliveries()
        self._count_pairs(judged)
        every, of_pairs = np.arange(len(self._judged.misreported)), self._pairs.delivery
        self._find("misreported", self._judged.misreported, every, lambda at: ("", self._audience(at)))
        for flag, kind in PAIR_KINDS.items():
            self._find(kind, getattr(judged, flag), of_pairs, lambda at: ("", [self._pairs.subscriber[at]]))
        for flag, kind in RECORD_KINDS.items():
            self._find(kind, getattr(judged_records, flag), records.delivery, lambda at: self._at_record(records, at))
        self.tally.unknown_records = int(judged_records.kept_unknown.sum())
        self.tally.in_vain = astray.unaddressed()
        self.tally.cut_off = astray.cut_off(judged)
        return self.tally

    def _count_deliveries(self) -> None:
        found, judged = self._found, self._judged
        answered = judged.is_accepted | found.refused | found.told_refused
        flags = {
            "published": judged.is_published,
            "accepted": judged.is_accepted,
            "unanswered": judged.is_published & ~answered,
        }
        for what, flag in flags.items():
            for name, number in zip(self._publishers, self._by_publisher(flag), strict=True):
                self.tally.publishers[name, what] += number
        named = found.address != NONE
        for publisher, address in zip(self._publisher[named].tolist(), found.address[named].tolist(), strict=True):
            self.tally.addresses[self._publishers[publisher]] = self._facts.rows.strings[address]

    def _by_publisher(self, flag: Flags) -> list[int]:
        counted: list[int] = np.bincount(self._publisher[flag], minlength=len(self._publishers)).tolist()
        return counted

    def _count_pairs(self, judged: JudgedPairs) -> None:
        pairs = self._pairs
        both = self._publisher[pairs.delivery] * len(pairs.names) + pairs.subscriber
        distinct, which = np.unique(both, return_inverse=True)
        for what in PAIR_COUNTS:
            counted = np.bincount(which[getattr(judged, what)], minlength=len(distinct)).tolist()
            for one, number in zip(distinct.tolist(), counted, strict=True):
                publisher, subscriber = divmod(one, len(pairs.names))
                self.tally.pairs[self._publishers[publisher], pairs.names[subscriber], what] += number

    def _find(self, kind: str, flag: Flags, deliveries: Ints, tell: Callable[[int], Told]) -> None:
        """The deliveries with the lowest keys are kept."""
        at = np.flatnonzero(flag)
        if not len(at):
            return
        self.tally.violations[kind] += len(at)
        lives, of = self._found.lives, deliveries[at]
        lowest = at[np.lexsort((lives.number[of], lives.key[of]))[: 2 * FINDINGS_KEPT]]
        self.tally.keep(kind, [self._finding(int(deliveries[index]), *tell(index)) for index in lowest.tolist()])

    def _finding(self, delivery: int, router: str, subscribers: Iterable[int]) -> Found:
        key, life = self._found.lives.name(delivery)
        names = sorted({self._pairs.names[code] for code in subscribers})
        return Found(key, life, router, self._publishers[self._publisher[delivery]], tuple(names))

    def _audience(self, delivery: int) -> list[int]:
        pairs = self._pairs
        found: list[int] = pairs.subscriber[(pairs.delivery == delivery) & pairs.in_audience].tolist()
        return found

    def _at_record(self, records: Records, at: int) -> Told:
        rows = self._facts.rows
        local = rows.subscriber[records.rows[records.groups.of == at]]
        subscribers = local[local != NONE].tolist() or self._audience(int(records.delivery[at]))
        return rows.logs[records.log[at]].source, subscribers
