"""Judges one bucket of rows, and keeps only counts of it. This code runs in Spark's Python workers, but does not need
Spark."""

from collections.abc import Iterable, Iterator

import attrs

from failover.audit.judge.deliveries import Deliveries, Records, gather, gather_records
from failover.audit.judge.order import judge_order, pack_order
from failover.audit.judge.pairs import Pairs, gather_pairs
from failover.audit.judge.publishers import find_fates, judge_publishers
from failover.audit.judge.queues.messages import apart, judge_queues
from failover.audit.judge.routers import judge_routers
from failover.audit.judge.subscribers import judge_balanced, judge_subscribers
from failover.audit.judge.tally import Counting, Tally, Verdicts
from failover.audit.judge.testimony import Testimony
from failover.audit.judge.unattributed import InVain, Unattributed
from failover.audit.judge.uses import Uses, tell_apart
from failover.audit.measure.counts import Metered, meter
from failover.audit.measure.crossings import Happened, count_happenings, fates
from failover.audit.measure.frame import Frame
from failover.audit.mesh.case import Case
from failover.audit.mesh.clocks import aligned
from failover.audit.read.begun import begun_since
from failover.audit.read.columns import Flags, Rows, before, unpack
from failover.audit.read.facts import Facts


@attrs.define(slots=True)
class Bucket:
    """The counts of one or more buckets. Their size does not grow with the size of the buckets."""

    tally: Tally = attrs.field(factory=Tally)
    happened: Happened = attrs.field(factory=Happened)
    metered: Metered = attrs.field(factory=Metered)

    def add(self, other: "Bucket") -> None:
        self.tally.add(other.tally)
        self.happened.add(other.happened)
        self.metered.add(other.metered)


@attrs.frozen
class Judged:
    """All facts about the deliveries of one bucket, and the verdicts on these deliveries."""

    facts: Facts
    uses: Uses
    found: Deliveries
    records: Records
    pairs: Pairs
    verdicts: Verdicts
    unattributed: Unattributed
    in_vain: InVain
    unaddressed: Flags
    """Flags the accepted deliveries whose audience is in no log, because the end of the home's log is lost
    (`judge.unattributed`)."""
    left_out: int
    """The number of deliveries that the audit does not judge, because routers have deleted older segments of their logs
    (`read.begun`)."""

    def order(self) -> Iterator[tuple[str, bytes]]:
        """Yield the names of each publisher and subscriber, with packed bytes. The bytes have the places of the
        publisher's deliveries to this subscriber, as far as the deliveries are in this bucket. `judge_joined` joins the
        bytes of all buckets and judges the order."""
        return pack_order(self.found, self.verdicts.fates, self.pairs, self.verdicts.subscribers)

    def count(self) -> Tally:
        """Count the verdicts on the bucket, except the verdicts on order."""
        tally = Counting(self.facts, self.found, self.pairs, self.records, self.verdicts).count()
        tally.left_out, tally.in_vain = self.left_out, self.in_vain
        tally.without, tally.away = self.unattributed.without(self.verdicts.subscribers)
        return tally


def judge_rows(case: Case, rows: Rows, told: Rows | None = None) -> Judged:
    """Judge all deliveries of these rows. The rows must include every entry about these deliveries. `told`: the entries
    of replicas about the messages of these deliveries; None to judge no queues."""
    rows, left_out = begun_since(aligned(before(rows, case.ends), case.clocks), case.since, case.cut)
    facts = Facts(rows)
    uses = tell_apart(facts, case.whole, case.disordered, case.settling_first)
    found, records = gather(facts, uses), gather_records(facts, uses, case)
    pairs = gather_pairs(facts, uses, case.stays)
    known = find_fates(facts, found, case)
    each = Testimony(facts, pairs, found, known, case)
    shared, unshared = judge_balanced(each)
    queues = None if told is None else judge_queues(aligned(before(told, case.ends), case.clocks), each)
    verdicts = Verdicts(
        known,
        {**judge_publishers(facts, found, records, known, case), **shared, **(queues.accepted if queues else {})},
        unshared,
        judge_subscribers(each),
        judge_routers(facts, records, found, known, case),
        queues,
    )
    unattributed = Unattributed(facts, found, known, pairs, case)
    in_vain, unaddressed = unattributed.unaddressed(verdicts.subscribers)
    return Judged(facts, uses, found, records, pairs, verdicts, unattributed, in_vain, unaddressed, left_out)


def judge_bucket(case: Case, frame: Frame, parts: Iterable[bytes]) -> tuple[Bucket, list[tuple[str, bytes]]]:
    """Return the counts of a bucket, and for each publisher and subscriber the packed order of their deliveries
    (`Judged.order`)."""
    judged = judge_rows(case, *apart(unpack(parts)))
    facts, found, records = judged.facts, judged.found, judged.records
    fate = fates(found, judged.pairs, records, judged.verdicts, judged.unaddressed)
    happened = count_happenings(facts, found, records, fate, case, frame)
    return Bucket(judged.count(), happened, meter(facts, judged.uses, records, frame)), list(judged.order())


def judge_joined(names: str, parts: Iterable[bytes]) -> Bucket:
    """Judge the order in which one subscriber got the deliveries of one publisher. `parts`: the packed order from each
    bucket."""
    return Bucket(judge_order(names, parts))
