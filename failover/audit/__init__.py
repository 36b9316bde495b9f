"""The audit: says by the delivery logs of routers and clients whether exactly-once held.

    report = failover.audit.run(["run/triangle"])
    report.render(console); report.write("audit.json"); sys.exit(report.exit_code)

It accounts for the files (`inventory`) and finds out who took part (`parties`, `audiences`, all in a `case`). What
files say of deliveries is packed into buckets (`decoding`, `packing`), and each is judged (`judging`): all that is said
of each delivery, each (delivery, subscriber), each router's record is gathered (`deliveries`, `pairs`, `records`), and
the rules are applied (`checks`, `pair_checks`, `views`, `astray`; at last `ordering`). Counts come of it. Short runs
are read and judged here (`local`), others by Spark (`on_spark`).

It judges by evidence alone: what cannot be known is never counted as well. It never touches a running mesh.
"""

from pathlib import Path

from failover.audit.job import run
from failover.audit.lookup import story as tell_story
from failover.audit.reading import AuditError
from failover.audit.report import Finding, Report, Verdict


def write_page(report: Report, path: Path | str) -> None:
    """audit.html"""
    from failover.audit.page import write  # what draws it takes long to import

    write(report, path)


__all__ = ["AuditError", "Finding", "Report", "Verdict", "run", "tell_story", "write_page"]
