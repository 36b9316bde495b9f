"""The audit without Spark: what its workers do, one after the other in this process."""

import json
from collections import defaultdict

import attrs
import msgpack
import pyarrow as pa

from failover.audit import Report
from failover.audit.case import make_case
from failover.audit.counting import Tally
from failover.audit.decoding import CONTROL_BUCKET, pack_files
from failover.audit.faults import Chaos, Found
from failover.audit.inventory import ControlRow, take_inventory
from failover.audit.job import make_report
from failover.audit.judging import judge_bucket
from failover.audit.measuring import make_frame, measures
from failover.audit.ordering import judge_order
from tests.failover.audit.runs import ROUTERS, Run

BUCKETS = 2


def judge_run(run: Run, chaos: Chaos | None = None) -> Report:
    mesh = json.dumps({"mesh": "line", "routers": {router: {"pid": 1} for router in ROUTERS}})
    files = {f"file:/run/{name}": data for name, data in run.files()}
    return judge_files(files | {"file:/run/mesh.json": mesh.encode()}, chaos)


def judge_files(files: dict[str, bytes], chaos: Chaos | None = None) -> Report:
    """By path and content."""
    buckets = pack(files)
    control = [ControlRow(*row) for part in buckets.pop(CONTROL_BUCKET) for row in msgpack.unpackb(part)]
    inventory = take_inventory(control)
    case, faults = make_case(control, inventory, chaos), Found(chaos, None)
    logs = list(case.logs.values())
    frame = make_frame(logs, case.parties, faults)
    tally, ordered = Tally(), defaultdict[str, list[bytes]](list)
    for parts in buckets.values():
        found, order = judge_bucket(parts, case, frame)
        tally.add(found)
        for names, part in order:
            ordered[names].append(part)
    for names, some in ordered.items():
        tally.add(judge_order(names, some))
    told = measures(tally.metered, logs, case.parties, faults)
    return attrs.evolve(make_report(tally, case, inventory, ["run"]), measures=told)


def pack(files: dict[str, bytes]) -> dict[int, list[bytes]]:
    """By bucket."""
    content = pa.array(files.values(), pa.binary())
    batch = pa.RecordBatch.from_arrays([pa.array(files, pa.string()), content], ["path", "content"])
    buckets = defaultdict[int, list[bytes]](list)
    for packed in pack_files(BUCKETS, [batch]):
        for row in packed.to_pylist():
            buckets[row["bucket"]].append(row["rows"])
    return buckets
