"""Audits a run that a test has in memory."""

import json
from collections.abc import Callable

from failover.audit import Report
from failover.audit.job import judge_logs
from failover.audit.read.faults import Chaos, ChaosFile
from failover.audit.read.logs import LocalLogs
from failover.audit.read.segments import BUCKET_BYTES
from tests.failover.audit.runs import ROUTERS, Run

Judged = Callable[[Run], Report]
"""The type of the fixture `judged`."""


def judge_run(run: Run, chaos: Chaos | None = None, *, buckets: int = 2) -> Report:
    mesh = json.dumps({"mesh": "line", "routers": {router: {"pid": 1} for router in ROUTERS}})
    files = {f"file:/run/{name}": data for name, data in run.files()}
    return judge_files(files | {"file:/run/mesh.json": mesh.encode()}, chaos, buckets=buckets)


def judge_files(files: dict[str, bytes], chaos: Chaos | None = None, *, buckets: int = 2) -> Report:
    """Audit files, given by path and content. They go into two buckets although they are small. A test that judges
    hundreds of logs uses one bucket, which saves a third of the time."""
    return judge_logs(LocalLogs(files.items(), (buckets - 1) * BUCKET_BYTES), ["run"], ChaosFile(chaos, None))
