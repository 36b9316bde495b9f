"""The audit: a Spark job over the delivery logs of routers and clients that says whether exactly-once held.

    report = failover.audit.run(["run/triangle"])
    report.render(console); report.write("audit.json"); sys.exit(report.exit_code)

It reads logs (`reading`, `decoding`), accounts for the files (`inventory`), finds out who took part (`parties`,
`audiences`), gathers all that is said of each delivery (`deliveries`) and applies the rules (`checks`). It judges by
evidence alone: what cannot be known is never counted as well. It never touches a running mesh.
"""

from failover.audit.job import AuditError, run
from failover.audit.lookup import StoryError
from failover.audit.lookup import story as tell_story
from failover.audit.page import write as write_page
from failover.audit.report import Finding, Report, Verdict

__all__ = ["AuditError", "Finding", "Report", "StoryError", "Verdict", "run", "tell_story", "write_page"]
