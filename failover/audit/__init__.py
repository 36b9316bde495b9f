"""The audit judges by the delivery logs of routers and clients whether every subscriber got each message exactly once.

    report = failover.audit.run(["run/triangle"])
    report.render(console); report.write("audit.json"); sys.exit(report.exit_code)

`job` lists the steps of an audit. `read` turns log files into rows. `mesh` finds the routers, clients and contacts. The
rows about deliveries are split into buckets, and `bucket` judges each bucket: `judge` has the rules, `measure` the
figures. `report` makes the counts readable. Each of these folders imports only the folders named before it.

The audit judges by evidence alone: it never assumes that an unknown fact is favourable. It never touches a running
mesh.
"""

from pathlib import Path

from failover.audit.job import run, tell_story
from failover.audit.read.files import AuditError
from failover.audit.report.report import Finding, Report, Verdict


def write_page(report: Report, path: Path | str) -> None:
    """Write audit.html to the path."""
    from failover.audit.report.page import write  # imported late, because importing a library that draws takes long

    write(report, path)


__all__ = ["AuditError", "Finding", "Report", "Verdict", "run", "tell_story", "write_page"]
