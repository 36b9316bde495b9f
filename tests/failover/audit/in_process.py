"""The audit of a run that a test has in memory."""

import json

import attrs

from failover.audit import Report
from failover.audit.case import make_case
from failover.audit.faults import Chaos, Found
from failover.audit.inventory import take_inventory
from failover.audit.job import make_report
from failover.audit.local import BUCKET_BYTES, LocalLogs
from failover.audit.measuring import make_frame, measures
from tests.failover.audit.runs import ROUTERS, Run


def judge_run(run: Run, chaos: Chaos | None = None) -> Report:
    mesh = json.dumps({"mesh": "line", "routers": {router: {"pid": 1} for router in ROUTERS}})
    files = {f"file:/run/{name}": data for name, data in run.files()}
    return judge_files(files | {"file:/run/mesh.json": mesh.encode()}, chaos)


def judge_files(files: dict[str, bytes], chaos: Chaos | None = None) -> Report:
    """By path and content. In two buckets, though they are small."""
    read = LocalLogs(files.items(), BUCKET_BYTES)
    control = read.control()
    inventory = take_inventory(control)
    case, faults = make_case(control, inventory, chaos, read.some()), Found(chaos, None)
    logs = list(case.logs.values())
    tally = read.judge(case, make_frame(logs, case.parties, faults))
    told = measures(tally.metered, logs, case.parties, faults)
    return attrs.evolve(make_report(tally, case, inventory, ["run"]), measures=told)
