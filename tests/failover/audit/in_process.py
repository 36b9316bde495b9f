"""The audit of a run that a test has in memory."""

import json
from collections.abc import Callable

from failover.audit import Report
from failover.audit.job import judge_logs
from failover.audit.read.faults import Chaos, ChaosFile
from failover.audit.read.logs import LocalLogs
from failover.audit.read.segments import BUCKET_BYTES
from tests.failover.audit.runs import ROUTERS, Run

Judged = Callable[[Run], Report]
"""The fixture `judged`."""


def judge_run(run: Run, chaos: Chaos | None = None) -> Report:
    mesh = json.dumps({"mesh": "line", "routers": {router: {"pid": 1} for router in ROUTERS}})
    files = {f"file:/run/{name}": data for name, data in run.files()}
    return judge_files(files | {"file:/run/mesh.json": mesh.encode()}, chaos)


def judge_files(files: dict[str, bytes], chaos: Chaos | None = None) -> Report:
    """By path and content. In two buckets, though they are small."""
    return judge_logs(LocalLogs(files.items(), BUCKET_BYTES), ["run"], ChaosFile(chaos, None))
