"""One bucket from packed rows to what is left of it. Runs inside Spark's Python workers; needs no Spark itself."""

from collections.abc import Iterable

from failover.audit.astray import Astray
from failover.audit.case import Case
from failover.audit.checks import judge_deliveries, judge_records
from failover.audit.clocks import aligned
from failover.audit.counting import Counting, Tally
from failover.audit.crossing import count_happenings, fates
from failover.audit.deliveries import gather
from failover.audit.facts import Facts
from failover.audit.lives import tell_apart
from failover.audit.metering import Frame, meter
from failover.audit.ordering import pack_order
from failover.audit.packing import unpack
from failover.audit.pair_checks import judge_pairs
from failover.audit.pairs import gather_pairs
from failover.audit.records import gather_records
from failover.audit.views import compare_views


def judge_bucket(parts: Iterable[bytes], case: Case, frame: Frame) -> tuple[Tally, list[tuple[str, bytes]]]:
    """Counts, and what is to be judged in order, by publisher and subscriber."""
    facts = Facts(aligned(unpack(parts), case.clocks))
    lives = tell_apart(facts, case.whole)
    found = gather(facts, lives)
    judged = judge_deliveries(facts, found, case)
    pairs = gather_pairs(facts, lives, case.stays)
    judged_pairs = judge_pairs(facts, pairs, found, judged, case)
    records = gather_records(facts, lives, case)
    judged_records = judge_records(facts, records, found, judged, case)
    disputed = compare_views(facts, found, pairs, judged_pairs, records, case)
    rules = (judged, judged_pairs, judged_records, disputed)
    tally = Counting(facts, found, pairs, records, rules).count()
    astray = Astray(facts, found, judged, pairs, case)
    tally.in_vain, unaddressed = astray.unaddressed(judged_pairs)
    tally.without, tally.away = astray.without(judged_pairs)
    fate = fates(found, pairs, records, rules, unaddressed)
    tally.happened = count_happenings(facts, found, records, fate, case)
    tally.metered = meter(facts, lives, records, frame)
    return tally, list(pack_order(found, judged, pairs, judged_pairs))
