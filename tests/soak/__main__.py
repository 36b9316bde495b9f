"""`make soak`: meshes of real processes under load, broken at random instants, judged by their clients and the audit.

    python -m tests.soak [--topology T] [--scenario NAME] [--runs N] [--seed S] DIR
    python -m tests.soak latency [--topology T] [--runs N] [--seed S]

Runs that DIR has the results of are not done again, so that a soak can be interrupted. The folders of runs in which
something was wrong stay, with all logs. `latency` measures how long a publisher waits for its next acceptance when its
router is killed or stopped.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import trio
from rich.console import Console

from tests.soak.mesh import SEATS
from tests.soak.play import play
from tests.soak.results import Result, Results, Run, spread, table
from tests.soak.scenarios import SCENARIOS
from tests.soak.stage import Lengths, Outcome

BATCH = 10
"""Runs that are audited together: the logs of one can take 100 MB."""
LATENCY = ("kill-home", "sigstop")


def audit(folders: Sequence[Path]) -> tuple[str, str]:
    """Verdict and sentence."""
    from failover.audit import run

    report = run([str(folder) for folder in folders])
    report.write(folders[0] / "audit.json")
    return report.verdict.name.lower(), report.sentence


def soak(results: Results, runs: Sequence[Run], lengths: Lengths, out: Console) -> None:
    judged = results.judged()
    due = [run for run in runs if run.name not in judged]
    out.print(f"{len(due)} of {len(runs)} runs to do")
    for start in range(0, len(due), BATCH):
        batch = due[start : start + BATCH]
        for run in batch:
            if results.finished(run) is None:
                outcome = trio.run(play, run, results.fresh(run), lengths)
                results.finish(run, outcome)
                out.print(_line(run, outcome))
        _judge(results, batch, out)


def _judge(results: Results, runs: Sequence[Run], out: Console) -> None:
    """All as one, which is quicker; one by one if that does not hold."""
    verdict, sentence = audit([results.folder(run) / "run" for run in runs])
    if verdict != "holds" and len(runs) > 1:
        for run in runs:
            _judge(results, [run], out)
        return
    out.print(f"{', '.join(run.name for run in runs)}: {sentence}", style="" if verdict == "holds" else "red")
    for run in runs:
        outcome = results.finished(run)
        assert outcome is not None
        results.add(Result(run, outcome, verdict, sentence))


def _line(run: Run, outcome: Outcome) -> str:
    tally = outcome.tally
    found = f"{tally.sent} sent, {tally.lost} lost, {tally.doubled} doubled, {tally.disorder} out of order"
    pause = f"pause {outcome.pause_s * 1000:.0f} ms"
    excused = f", {tally.excused} excused" if tally.excused else ""
    odd = f", {tally.not_accepted} not accepted, {tally.unanswered} unanswered" if not tally.clean else ""
    error = f", {outcome.error}" if outcome.error else ""
    return f"{run.name}: {found}, {pause}, resumed {spread(outcome.resumed_s)}{excused}{odd}{error}"


def measure_latency(topology: str, runs: int, seed: int, out: Console) -> None:
    for scenario in LATENCY:
        seconds: list[float] = []
        for number in range(runs):
            run = Run(topology, scenario, number, seed)
            with tempfile.TemporaryDirectory() as folder:
                outcome = trio.run(play, run, Path(folder), Lengths(before=(0.5, 1.0), hung=3.0, after=0.5))
            out.print(_line(run, outcome))
            seconds += outcome.resumed_s
        out.print(f"{topology}, {scenario}: {len(seconds)} publishers resumed, median / worst {spread(seconds)} ms")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--topology", choices=SEATS, help="default: all")
    parser.add_argument("--scenario", choices=SCENARIOS, help="default: all")
    parser.add_argument("--runs", type=int, default=20, help="of each scenario, default 20")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("directory", help='where results go, or "latency"')
    options = parser.parse_args()
    out = Console(width=None if sys.stdout.isatty() else 180, highlight=False, markup=False)
    topologies = [options.topology] if options.topology else list(SEATS)
    if options.directory == "latency":
        for topology in topologies:
            measure_latency(topology, options.runs, options.seed, out)
        return
    scenarios = [options.scenario] if options.scenario else list(SCENARIOS)
    results = Results(Path(options.directory))
    runs = [Run(t, s, number, options.seed) for t in topologies for s in scenarios for number in range(options.runs)]
    soak(results, runs, Lengths(), out)
    out.print(table(results.read()))
    sys.exit(not all(result.clean for result in results.read()))


if __name__ == "__main__":
    main()
