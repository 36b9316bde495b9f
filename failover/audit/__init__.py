"""The audit: a Spark job over the delivery logs of routers and clients that says whether exactly-once held.

    report = failover.audit.run(["run/triangle"])
    report.render(console); report.write("audit.json"); sys.exit(report.exit_code)

The driver accounts for the files (`inventory`) and finds out who took part (`parties`, `audiences`, all in a `case`).
Spark's workers pack what files say of deliveries into buckets (`decoding`, `packing`) and judge each (`judging`):
they gather all that is said of each delivery, each (delivery, subscriber), each router's record (`deliveries`, `pairs`,
`records`), and apply the rules (`checks`, `pair_checks`, `views`, `astray`; at last `ordering`). Counts come back.

It judges by evidence alone: what cannot be known is never counted as well. It never touches a running mesh.
"""

from pathlib import Path

from failover.audit.job import AuditError, run
from failover.audit.lookup import StoryError
from failover.audit.lookup import story as tell_story
from failover.audit.report import Finding, Report, Verdict


def write_page(report: Report, path: Path | str) -> None:
    """audit.html"""
    from failover.audit.page import write  # what draws it takes long to import, and workers import this package

    write(report, path)


__all__ = ["AuditError", "Finding", "Report", "StoryError", "Verdict", "run", "tell_story", "write_page"]
