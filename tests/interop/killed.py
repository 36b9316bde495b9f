"""Kills routers of queues by SIGKILL under load and starts them again. The clients are ours, rhea's and proton's.

    python -m tests.interop.killed DIR [--case CASE]... [--seeds FIRST-LAST] [--messages N]

Each make (`killed_client`) has a queue. All queues are in one replica set, so one kill strikes all makes. A seed is a
run of a case: it chooses the set, the routers at which publishers and consumers begin, whether a queue has one or two
consumers, when the routers are killed, and for how long. The audit judges the run, and so do the clients' accounts:

- nobody misses a message, and each message has the outcome *accepted*;
- with clients that resume, no message is processed twice; with one consumer, all are processed in order;
- with plain clients, a message comes twice only if its publisher has sent it again, or if a consumer had it when the
  consumer's router or the leader was killed.

Each run is in DIR/CASE-SEED. A run that holds leaves only its results, and is not repeated.
"""

import argparse
import json
import logging
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final
from zlib import crc32

import attrs
import trio

from failover.audit import Report, Verdict
from failover.audit import run as audit
from failover.chaos.accounts import overtaken
from failover.chaos.ledger import published, received
from failover.chaos.run import Ending, perform, prepare
from failover.chaos.script.reader import load
from failover.chaos.view import PlainView
from router.cli.base import console
from router.mesh.planned import sets_of
from router.mesh.rundir import RunDirectory
from router.mesh.topology import load as load_topology
from tests.interop.killed_client import CREDIT

TOPOLOGY: Final = Path(__file__).parents[2] / "topologies" / "queues.yaml"
ROUTERS: Final = "abc"
RATE: Final = 250
RESUMING: Final = {"ours": True, "rhea": True, "proton": False}
"""Make -> whether its clients resume."""
MODES: Final = {True: "second", False: "first"}
LEADER, CONSUMERS = "{leader-of: %s}", "{custodian-of: ours-consumer}"
CASES: Final = {
    "leader": f"kill: {LEADER}",
    "follower": "kill: {follower-of: %s}",
    "consumer": f"kill: {CONSUMERS}",
    "publisher": "kill: {home-of: ours-publisher}",
    "leader-and-consumer": f"kill: [{LEADER}, {CONSUMERS}]",
    "all": "kill-all: ",
}
COUNTS: Final = ("sent", "accepted", "missing", "sent again", "doubled", "overtaken")


@attrs.frozen
class Run:
    """The choices of a seed."""

    case: str
    seed: int
    messages: int
    """The number of messages of each make."""
    queues: Mapping[str, str]
    """Make -> the queue."""
    consumers: tuple[str, ...]
    """The routers at which the consumers of a queue begin."""
    script: str

    @property
    def name(self) -> str:
        return f"{self.case}-{self.seed}"

    @classmethod
    def of(cls, case: str, seed: int, messages: int) -> "Run":
        random = Random(f"{case} {seed}")
        sets = sets_of(load_topology(TOPOLOGY))
        chosen = random.choice(list(sets.plans))
        names = (f"queue/{random.getrandbits(32):08x}" for _ in iter(int, 1))
        in_set = (name for name in names if (plan := sets.plan_of(name)) and plan.name == chosen)
        queues = dict(zip(RESUMING, in_set, strict=False))
        publishers, *consumers = random.choices(ROUTERS, k=random.choice((2, 3)))
        duration = messages / RATE
        lines = [
            f"topology: {TOPOLOGY}",
            "timing: {terminus: 15s, boot_wait: 3s}",
            f"duration: {duration:g}s",
            "publishers:",
            *(
                f"  - {{name: {make}-publisher, rate: {RATE}, address: {queue}, at: {publishers}}}"
                for make, queue in queues.items()
            ),
            "subscribers:",
            *(
                f"  - {{name: {make}-consumer{name}, address: {queue}, at: {router}, settle: {MODES[RESUMING[make]]}}}"
                for make, queue in queues.items()
                for name, router in zip(("", "2"), consumers, strict=False)
            ),
            "faults:",
            f"  - {{{CASES[case].replace('%s', chosen)}, at: {duration * 0.2:g}s..{duration * 0.7:g}s, "
            "for: 500ms..3s}",
        ]
        return cls(case, seed, messages, queues, tuple(consumers), "\n".join(lines) + "\n")


async def play(run: Run, folder: Path) -> tuple[Ending, RunDirectory]:
    path = folder / f"{run.name}.yaml"
    path.write_text(run.script)
    script = load(path)
    directory = prepare(folder / run.name, script)
    programs = {
        client.name: [sys.executable, "-m", "tests.interop.killed_client", make]
        for client in script.clients
        if (make := client.name.partition("-")[0]) != "ours"
    }
    ending = await perform(script, crc32(run.name.encode()), directory, PlainView(console()), programs=programs)
    path.unlink()
    return ending, directory


def accounts(run: Run, directory: RunDirectory, report: Report) -> dict[str, dict[str, int]]:
    """The counts of the clients of each make. `sent again`: how many more deliveries than messages are in the logs."""
    found = {}
    for make in run.queues:
        publisher = f"{make}-publisher"
        sent = published(directory.path / "clients" / publisher / "state.db")
        lists = [
            received(path / "state.db").get(publisher, [])
            for path in sorted((directory.path / "clients").glob(f"{make}-consumer*"))
        ]
        had = Counter(number for numbers in lists for number in numbers)
        transferred = sum(row.published for row in report.publishers if row.publisher.startswith(f"{publisher}/"))
        found[make] = {
            "sent": sent.sent,
            "accepted": sent.counts()["accepted"],
            "missing": sent.missing(list(had)),
            "sent again": transferred - sent.sent,
            "doubled": had.total() - len(had),
            "overtaken": overtaken(lists[0]) if len(lists) == 1 else 0,
        }
    return found


def broken(
    run: Run, ending: Ending, report: Report, killed: Collection[str], counts: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """The broken promises, a line each."""
    if not killed:
        yield "no router was killed"
    under_way = 0 if run.case == "follower" and not set(killed) & set(run.consumers) else 2 * CREDIT
    if report.verdict not in (Verdict.HOLDS, Verdict.QUALIFIED):
        yield report.sentence
    yield from (f"not finished: {line}" for line in ending.unfinished)
    if ending.crashes:
        yield f"{ending.crashes} routers or clients ended by themselves"
    for make, count in counts.items():
        if count["accepted"] != count["sent"]:
            yield f"{make}: {count['accepted']} of {count['sent']} messages are accepted"
        if count["missing"]:
            yield f"{make}: {count['missing']} accepted messages were processed by nobody"
        allowed = 0 if RESUMING[make] else count["sent again"] + under_way
        if count["doubled"] > allowed:
            yield f"{make}: {count['doubled']} messages were processed again, at most {allowed} may be"
        if RESUMING[make] and count["sent again"]:
            yield f"{make}: {count['sent again']} messages are other deliveries, the publisher has resumed"
        if RESUMING[make] and count["overtaken"]:
            yield f"{make}: {count['overtaken']} messages came out of order"


def perform_and_judge(run: Run, folder: Path) -> dict[str, Any]:
    ending, directory = trio.run(play, run, folder)
    report = audit([str(directory.path)])
    counts = accounts(run, directory, report)
    faults = json.loads((directory.path / "chaos.json").read_text())["faults"]
    killed = [name for fault in faults for name in fault["targets"]]
    wrong = list(broken(run, ending, report, killed, counts))
    result = {"case": run.case, "seed": run.seed, "killed": killed, "counts": counts, "wrong": wrong}
    result["audit"] = report.sentence
    if not wrong:
        shutil.rmtree(directory.path)
        directory.path.mkdir()
    (directory.path / "result.json").write_text(json.dumps(result, indent=1))
    return result


def table(results: list[dict[str, Any]]) -> Iterator[str]:
    """The lines of a Markdown table: for each case and make, the sums over its runs."""
    yield f"| case | runs | make | {' | '.join(COUNTS)} | runs that break a promise |"
    yield f"|{' --- |' * (len(COUNTS) + 4)}"
    for case in CASES:
        runs = [result for result in results if result["case"] == case]
        for make in RESUMING if runs else ():
            sums = (str(sum(run["counts"][make][what] for run in runs)) for what in COUNTS)
            yield f"| {case} | {len(runs)} | {make} | {' | '.join(sums)} | {sum(bool(run['wrong']) for run in runs)} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.killed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--case", action="append", choices=CASES, help="default: all")
    parser.add_argument("--seeds", default="1-20", help="FIRST-LAST, or one; default 1-20")
    parser.add_argument("--messages", type=int, default=5000, help="of each make; default 5000")
    options = parser.parse_args()
    logging.getLogger("oncemesh").addHandler(logging.NullHandler())  # connections are meant to suffer here
    options.directory.mkdir(parents=True, exist_ok=True)
    first, _, last = options.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        for case in options.case or CASES:
            run = Run.of(case, seed, options.messages)
            if not (options.directory / run.name / "result.json").exists():
                print(json.dumps(perform_and_judge(run, options.directory)), flush=True)
    results = [json.loads(path.read_text()) for path in sorted(options.directory.glob("*/result.json"))]
    print("\n".join(table(results)))
    return 1 if any(result["wrong"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
