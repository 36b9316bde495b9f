"""One bucket from packed rows to what is left of it. Runs inside Spark's Python workers; needs no Spark itself."""

from collections.abc import Iterable

import attrs

from failover.audit.judge.begun import begun_since
from failover.audit.judge.deliveries import gather, gather_records
from failover.audit.judge.order import judge_order, pack_order
from failover.audit.judge.pairs import gather_pairs
from failover.audit.judge.publishers import find_fates, judge_publishers
from failover.audit.judge.routers import judge_routers
from failover.audit.judge.subscribers import judge_subscribers
from failover.audit.judge.tally import Counting, Tally, Verdicts
from failover.audit.judge.testimony import Testimony
from failover.audit.judge.unattributed import Unattributed
from failover.audit.judge.uses import tell_apart
from failover.audit.measure.counts import Metered, meter
from failover.audit.measure.crossings import Happened, count_happenings, fates
from failover.audit.measure.frame import Frame
from failover.audit.mesh.case import Case
from failover.audit.mesh.clocks import aligned
from failover.audit.read.columns import before, unpack
from failover.audit.read.facts import Facts


@attrs.define(slots=True)
class Bucket:
    """Little, whatever the size of the bucket; what several buckets left is added up."""

    tally: Tally = attrs.field(factory=Tally)
    happened: Happened = attrs.field(factory=Happened)
    metered: Metered = attrs.field(factory=Metered)

    def add(self, other: "Bucket") -> None:
        self.tally.add(other.tally)
        self.happened.add(other.happened)
        self.metered.add(other.metered)


def judge_bucket(case: Case, frame: Frame, parts: Iterable[bytes]) -> tuple[Bucket, list[tuple[str, bytes]]]:
    """Counts, and what is to be judged in order, by publisher and subscriber."""
    rows = aligned(before(unpack(parts), case.ends), case.clocks)
    rows, left_out = begun_since(rows, case.since, case.cut)
    facts = Facts(rows)
    uses = tell_apart(facts, case.whole)
    found, records = gather(facts, uses), gather_records(facts, uses, case)
    pairs = gather_pairs(facts, uses, case.stays)
    known = find_fates(facts, found, case)
    verdicts = Verdicts(
        known,
        judge_publishers(facts, found, records, known, case),
        judge_subscribers(Testimony(facts, pairs, found, known, case)),
        judge_routers(facts, records, found, known, case),
    )
    tally = Counting(facts, found, pairs, records, verdicts).count()
    tally.left_out = left_out
    unattributed = Unattributed(facts, found, known, pairs, case)
    tally.in_vain, unaddressed = unattributed.unaddressed(verdicts.subscribers)
    tally.without, tally.away = unattributed.without(verdicts.subscribers)
    fate = fates(found, pairs, records, verdicts, unaddressed)
    happened = count_happenings(facts, found, records, fate, case, frame)
    left = Bucket(tally, happened, meter(facts, uses, records, frame))
    return left, list(pack_order(found, known, pairs, verdicts.subscribers))


def judge_joined(names: str, parts: Iterable[bytes]) -> Bucket:
    """What all buckets have left of one publisher and subscriber."""
    return Bucket(judge_order(names, parts))
