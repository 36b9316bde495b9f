"""Cuts one log of a simulated run, as a loss of power would: the audit must not conclude anything from missing entries.

If the audit does not find a violation in the complete logs, it must not find one after any log is cut. If it finds one
in the complete logs, it must not report *holds* after a cut.

python -m tests.simulation.cuts SEED --count 10 --kind filters     lists the cuts after which a good run is accused
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import attrs

from failover.audit import Report
from failover.audit.report.report import Verdict
from tests.failover.audit.in_process import judge_files
from tests.garbage import collect_seldom
from tests.simulation.evidence import CALMER, KINDS, STRANGERS, Kind
from topic.blocks import read_blocks
from topic.journal import Block

CUTS = 10
"""The number of places at which each log is cut."""
CUT: Final[Mapping[str, Kind]] = {
    "ours": KINDS["ours"],
    "strangers": KINDS["strangers"],
    "filters": Kind(CALMER | {"filters": 0.3}),
    "balanced": Kind(CALMER | {"balanced": True, "subscribers": 3}),
    "balanced strangers": Kind(STRANGERS | {"balanced": True, "subscribers": 3}, 0.5, 0.5),
    "filters strangers": Kind(STRANGERS | {"filters": 0.3}, 0.5, 0.5),
    "moves": Kind(CALMER | {"restless": 1.0, "pranks": ("elsewhere", "vanish", "break", "again")}),
    "ttl": Kind(CALMER | {"ttl": 0.3}),
    "wildcards": Kind(CALMER | {"wildcards": 0.5, "publishers": 3, "subscribers": 3}),
    "killed": Kind(CALMER | {"faults": ("kill", "kill", "partition", "kill")}),
    "grace": KINDS["grace"],
}


def cut(data: bytes, entries: int) -> bytes:
    """The log with only its first entries, and without what its tail recorded."""
    if not entries:
        return b""
    (view,), _ = read_blocks(data)
    block = Block(view.source, view.role, view.incarnation, host=view.host)
    for entry in islice(view.entries(), entries):
        told = attrs.asdict(entry) | {"keys": list(entry.keys), "tags": entry.tags and list(entry.tags)}
        told["ns"] = list(entry.ns) if min(entry.ns, default=-1) >= 0 else None
        told["generation"] = bytes.fromhex(entry.generation) if entry.generation else None
        block.append(told.pop("event"), time_us=told.pop("time"), **told)
    return block.encode()


def cuts(files: Mapping[str, bytes], number: int = CUTS) -> Iterator[tuple[str, int, dict[str, bytes]]]:
    """Cut each log at this many places. Yields the log's path, the number of entries left, and all files."""
    for path, data in files.items():
        if path.endswith(".oml"):
            (view,), _ = read_blocks(data)
            length = len(view.columns["event"])
            for left in sorted({length * part // number for part in range(number)} | {length - 1}):
                if left < length:
                    yield path, left, {**files, path: cut(data, left)}


def accused(seed: int, kind: str, number: int = CUTS) -> tuple[Report, Iterator[tuple[str, int, Report]]]:
    """The audit's reports of a run with all logs, and of the run with each log cut."""
    files = CUT[kind].files(seed)
    return judge_files(files), ((path, left, judge_files(torn, buckets=1)) for path, left, torn in cuts(files, number))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.cuts", description="audit runs with a log cut")
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1, help="how many seeds, from SEED on")
    parser.add_argument("--kind", choices=CUT, help="only runs of this kind")
    options = parser.parse_args()
    collect_seldom()
    wrong = 0
    for kind in [options.kind] if options.kind else CUT:
        verdicts: dict[Verdict, int] = {}
        for seed in range(options.seed, options.seed + options.count):
            whole, torn = accused(seed, kind)
            if whole.verdict is Verdict.VIOLATED:
                print(kind, seed, "whole:", whole.sentence, flush=True)
                continue
            for path, left, report in torn:
                verdicts[report.verdict] = verdicts.get(report.verdict, 0) + 1
                if report.verdict is Verdict.VIOLATED:
                    wrong += 1
                    print(kind, seed, path, left, report.sentence.partition(";")[0], flush=True)
        print(kind, ", ".join(f"{count} {verdict.name.lower()}" for verdict, count in sorted(verdicts.items())))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
