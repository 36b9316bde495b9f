"""What came of many runs: kept as lines of JSON as they finish, judged by the audit, shown as a table.

    DIR/results.jsonl                        a line for every run that is finished and judged
    DIR/<topology>-<scenario>-<number>/      a run; `outcome.json` once it is finished. Gone if nothing was wrong
"""

import json
import shutil
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs
import cattrs
from rich.table import Table

from tests.soak.stage import Outcome


@attrs.frozen
class Run:
    topology: str
    scenario: str
    number: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.topology}-{self.scenario}-{self.number:03}"


@attrs.define
class Result:
    run: Run
    outcome: Outcome
    verdict: str
    """The audit's; "" if there was none."""
    sentence: str

    @property
    def clean(self) -> bool:
        """What a mesh accepts while it has no memory of its subscribers is told by both, and wrong by neither."""
        told = self.verdict == "qualified" and self.outcome.tally.excused > 0
        return self.outcome.clean and (told or self.verdict in ("holds", ""))


class Results:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lines = directory / "results.jsonl"
        directory.mkdir(parents=True, exist_ok=True)

    def read(self) -> list[Result]:
        if not self._lines.exists():
            return []
        return [cattrs.structure(json.loads(line), Result) for line in self._lines.read_text().splitlines()]

    def judged(self) -> set[str]:
        return {result.run.name for result in self.read()}

    def folder(self, run: Run) -> Path:
        return self.directory / run.name

    def finished(self, run: Run) -> Outcome | None:
        """What came of a run that is not judged yet."""
        path = self.folder(run) / "outcome.json"
        return cattrs.structure(json.loads(path.read_text()), Outcome) if path.exists() else None

    def fresh(self, run: Run) -> Path:
        """The folder for a run, without what an interrupted one left."""
        folder = self.folder(run)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def finish(self, run: Run, outcome: Outcome) -> None:
        path = self.folder(run) / "outcome.json"
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(cattrs.unstructure(outcome)))
        fresh.replace(path)

    def add(self, result: Result) -> None:
        with self._lines.open("a") as lines:
            lines.write(json.dumps(cattrs.unstructure(result)) + "\n")
        if result.clean:
            shutil.rmtree(self.folder(result.run))


def table(results: Sequence[Result]) -> Table:
    """By topology and scenario."""
    shown = Table(title="messages times subscribers; pauses and resumptions in ms, median and worst")
    for title in ("mesh", "scenario", "runs", "messages", "lost", "excused", "doubled", "disorder", "not accepted"):
        shown.add_column(title, justify="left" if title in ("mesh", "scenario") else "right")
    for title in ("pause", "resumed", "errors", "verdicts"):
        shown.add_column(title)
    for (topology, scenario), group in _grouped(results):
        tallies = [result.outcome.tally for result in group]
        counts = [
            sum(getattr(tally, name) for tally in tallies)
            for name in ("sent", "lost", "excused", "doubled", "disorder", "not_accepted")
        ]
        pauses = spread([result.outcome.pause_s for result in group])
        resumed = spread([seconds for result in group for seconds in result.outcome.resumed_s])
        errors = sum(bool(result.outcome.error) for result in group)
        bad = not all(result.clean for result in group)
        row = [topology, scenario, str(len(group)), *map(str, counts), pauses, resumed, str(errors), _verdicts(group)]
        shown.add_row(*row, style="red" if bad else "")
    return shown


def spread(seconds: Sequence[float]) -> str:
    """In milliseconds."""
    return f"{statistics.median(seconds) * 1000:.0f} / {max(seconds) * 1000:.0f}" if seconds else "-"


def _grouped(results: Iterable[Result]) -> Iterator[tuple[tuple[str, str], list[Result]]]:
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.run.topology, result.run.scenario), []).append(result)
    yield from groups.items()


def _verdicts(results: Iterable[Result]) -> str:
    counts: dict[str, int] = {}
    for result in results:
        counts[result.verdict] = counts.get(result.verdict, 0) + 1
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if verdict) or "-"
