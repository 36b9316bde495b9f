"""`python -m tests.bench.killed [KILLS] [--seed N]`: routers are killed by SIGKILL under load, one after the other. No
event may be missing in their delivery logs.

Two publishers and two subscribers on a triangle, as a chaos run. The bench compares the clients' own accounts with the
audit's result. For every pair, `owed` has to be the number of messages whose acceptance the publisher has read, and
`processed` the number that the subscriber has. Only the home logs which subscriber gets which message, before it
answers: an event lost with it would show.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import trio

from failover.audit import run as audit
from failover.audit.report.report import Report
from failover.chaos.accounts import Published
from failover.chaos.ledger import published, received
from failover.chaos.run import perform, prepare
from failover.chaos.script.reader import load
from failover.chaos.view import PlainView
from router.cli.base import console
from router.mesh.rundir import RunDirectory

TRIANGLE = Path(__file__).parents[2] / "topologies" / "triangle.yaml"
EVERY_S = 2.0
KILLS = 20
PUBLISHERS, SUBSCRIBERS = ("amy", "bob"), ("sue1", "sue2")
SCRIPT = """\
topology: {triangle}
timing: {{terminus: 30s, boot_wait: 3s}}
duration: {duration:g}s
publishers:
  - {{name: amy, rate: 250, at: a}}
  - {{name: bob, rate: 250, at: b}}
subscribers:
  - {{name: sue, count: 2, at: [c, a]}}
faults:
  - {{kill: one, every: {every:g}s, for: 500ms}}
"""


async def play(folder: Path, kills: int, seed: int) -> RunDirectory:
    """Play a run with this many kills. All its clients come to their end."""
    path = folder / "killed.yaml"
    duration = (kills + 1) * EVERY_S
    path.write_text(SCRIPT.format(triangle=TRIANGLE, duration=duration, every=EVERY_S))
    script = load(path)
    directory = prepare(folder / "run", script)
    ending = await perform(script, seed, directory, PlainView(console()))
    assert ending.clean, ending
    faults = json.loads((directory.path / "chaos.json").read_text())["faults"]
    assert len(faults) == kills
    return directory


def accounts(directory: RunDirectory) -> tuple[dict[str, Published], dict[str, dict[str, list[int]]]]:
    """The clients' own accounts: of publishers, and of the messages of each publisher at subscribers."""
    state = {name: directory.path / "clients" / name / "state.db" for name in (*PUBLISHERS, *SUBSCRIBERS)}
    return (
        {name: published(state[name]) for name in PUBLISHERS},
        {name: received(state[name]) for name in SUBSCRIBERS},
    )


def differences(directory: RunDirectory, report: Report) -> Iterator[str]:
    """The differences between the audit, which has only the logs, and the clients' accounts."""
    sent, had = accounts(directory)
    rows = {(row.publisher.partition("/")[0], row.subscriber.partition("/")[0]): row for row in report.pairs}
    for publisher in PUBLISHERS:
        for subscriber in SUBSCRIBERS:
            row, accepted = rows[publisher, subscriber], sent[publisher].counts()["accepted"]
            numbers = had[subscriber].get(publisher, [])
            if not accepted == row.accepted == row.owed == row.processed == len(numbers) or row.unknown:
                yield (
                    f"{publisher} to {subscriber}: by their accounts {accepted} accepted, {len(numbers)} received; "
                    f"by the logs {row.accepted} accepted, {row.owed} owed, {row.processed} processed, "
                    f"{row.unknown} unknown"
                )
    yield from (f"the log of {log.name} is not whole" for log in report.logs if not log.whole)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.killed", description=__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=KILLS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = trio.run(play, Path(folder), options.kills, options.seed)
        report = audit([str(directory.path)])
        print(f"{options.kills} kills: {report.sentence}")
        found = list(differences(directory, report))
    print("\n".join(found) if found else "the logs have all that the clients have")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
