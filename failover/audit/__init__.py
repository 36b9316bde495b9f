"""The audit: says by the delivery logs of routers and clients whether exactly-once held.

    report = failover.audit.run(["run/triangle"])
    report.render(console); report.write("audit.json"); sys.exit(report.exit_code)

`job` has the steps. `read` turns files into rows; `mesh` finds out who took part; what rows say of deliveries comes in
buckets, and each is judged (`bucket`): `judge` has the rules, `measure` the figures. Counts come of it, and `report`
makes them readable. Each room knows only those named before it.

It judges by evidence alone: what cannot be known is never counted as well. It never touches a running mesh.
"""

from pathlib import Path

from failover.audit.job import run, tell_story
from failover.audit.read.files import AuditError
from failover.audit.report.report import Finding, Report, Verdict


def write_page(report: Report, path: Path | str) -> None:
    """audit.html"""
    from failover.audit.report.page import write  # what draws it takes long to import

    write(report, path)


__all__ = ["AuditError", "Finding", "Report", "Verdict", "run", "tell_story", "write_page"]
