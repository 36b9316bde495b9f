"""One audit from run directories to report: which steps there are, and in which order."""

from collections.abc import Sequence

from failover.audit.case import Case, make_case
from failover.audit.counting import Tally
from failover.audit.evidence import doubts, findings, pair_rows, publisher_rows, violations
from failover.audit.exceptions import exceptions
from failover.audit.faults import find_chaos
from failover.audit.happenings import crossings, router_rows
from failover.audit.inventory import Inventory, take_inventory
from failover.audit.measuring import make_frame
from failover.audit.narrative import narrate
from failover.audit.reading import Logs, Progress, distinct, ignore, open_logs
from failover.audit.report import Report


def run(
    run_dirs: Sequence[str], master: str | None = None, *, spark: bool = False, progress: Progress = ignore
) -> Report:
    """Audit the logs below these directories, which together belong to one mesh; see `reading.open_logs`."""
    run_dirs = distinct(run_dirs)
    with open_logs(run_dirs, master, spark=spark, progress=progress) as logs:
        return judge_logs(logs, run_dirs)


def judge_logs(logs: Logs, run_dirs: Sequence[str]) -> Report:
    control = logs.control()
    inventory = take_inventory(control)
    chaos = find_chaos(run_dirs, logs.text)
    case = make_case(control, inventory, chaos.chaos, logs.some())
    tally = logs.judge(case, make_frame(list(case.logs.values()), case.parties, chaos))
    report = make_report(tally, case, inventory, run_dirs)
    return narrate(report, logs, control, case, chaos, tally.metered)


def make_report(tally: Tally, case: Case, inventory: Inventory, run_dirs: Sequence[str]) -> Report:
    return Report(
        run_dirs=tuple(run_dirs),
        publishers=publisher_rows(tally, case),
        pairs=pair_rows(tally, case),
        violations=violations(tally),
        findings=findings(tally, case),
        doubts=tuple(doubts(tally, case)),
        exceptions=exceptions(tally, case),
        problems=inventory.problems,
        torn=inventory.torn,
        clocks=tuple(dict.fromkeys(case.clocks.unordered.values())),
        logs=inventory.logs,
        unknown_records=tally.unknown_records,
        routers=router_rows(tally.happened, inventory.logs, case.turns),
        crossings=crossings(tally.happened, case.instants),
    )
