"""`python -m tests.mutants.conditions [PATH…]`: negates or drops every condition of the cores, and looks for a run that
notices.

The mutants beside this break rules by hand; these break conditions by machine, to find those that nobody needs. First
the code is played as it is, and its conditions are watched. Then each change is played in those runs in which what it
changes was otherwise, up to the first that notices: that fails, crashes or takes too long. Results are appended to a
file, a line of JSON each: what is there is not played again, so that it can be interrupted, or split by paths.
"""

import argparse
import builtins
import json
import os
import resource
import signal
import sys
import time
from ast import Module
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any, NoReturn, TextIO

import attrs
import hypothesis
import pytest

from tests.mutants.changes import WATCHER, Change, changes, named, watched

ROOT = Path(__file__).parent.parent.parent
CORES = "linkstate", "topic"
SEEDS, FIRST_SEEDS = 200, 20
MEMORY = 4 << 30
"""The memory that a process may take, in bytes."""
PATIENCE_S = 5, 4
"""The processor time of a run: this many seconds, plus this many times its time in the unchanged code."""


@attrs.define
class Watched:
    """The observations of the unchanged code."""

    took: dict[str, float] = attrs.Factory(dict)
    """Run -> its seconds, in order of the runs."""
    seen: dict[str, dict[str, list[bool]]] = attrs.Factory(lambda: defaultdict(dict))
    """Keyed by condition and run: the values of the condition."""

    def otherwise(self, change: Change) -> list[str]:
        """The runs in which the condition had another value than the change gives it."""
        been = self.seen.get(named(change.path, change.place), {})
        return [run for run, values in been.items() if values != [change.instead]]


class Otherwise(MetaPathFinder):
    """Imports changed modules of the cores in place of the files."""

    def __init__(self, written: Callable[[Path], Module | None]) -> None:
        """`written` gets a module's file, and returns the changed module, or None if the file is to be read."""
        self._written = written

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in CORES:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            tree = self._written(Path(spec.origin))
            if tree is not None:
                spec.loader = _Compiled(fullname, spec.origin, compile(tree, spec.origin, "exec"))
        return spec


class _Compiled(SourceFileLoader):
    def __init__(self, fullname: str, path: str, code: CodeType) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


# runs; each imports its tests only when the change is in place


def _golden(name: str) -> bool:
    text = (ROOT / "tests/golden" / name).read_text()
    return bool(import_module("tests.golden.script").play(text) == text)


def _seed(number: str) -> bool:
    return import_module("tests.simulation.report").attempt(int(number))[1] is None


def _pinned(name: str) -> bool:
    """Play the run that catches a handmade mutant, without the mutant."""
    mutant, pin = import_module("tests.mutants.mutant").MUTANTS, import_module("tests.mutants.hunt").pins()[name]
    return bool(pin.again(mutant[name], broken=False).sound)


def _unit_tests(names: Sequence[str], *plugins: object) -> bool:
    hypothesis.settings.register_profile("conditions", database=None, deadline=None, derandomize=True)
    hypothesis.settings.load_profile("conditions")
    return pytest.main(["-x", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *names], plugins=list(plugins)) == 0


KINDS: dict[str, Callable[[str], bool]] = {"golden": _golden, "seed": _seed, "pinned": _pinned}
UNIT_TEST = "test"


class _Watch:
    """Plays all runs, and notes the values of each condition in each run."""

    def __init__(self) -> None:
        self.watched = Watched()
        self._values: dict[str, set[bool]] = {}
        setattr(builtins, WATCHER, self._watcher)

    def _watcher(self, condition: str, value: Any) -> Any:
        self._values.setdefault(condition, set()).add(bool(value))
        return value

    def _note(self, run: str, began: float) -> None:
        self.watched.took[run] = time.process_time() - began
        for condition, values in self._values.items():
            self.watched.seen[condition][run] = sorted(values)
        self._values.clear()

    def play(self) -> bool:
        golden = [f"golden {path.name}" for path in sorted((ROOT / "tests/golden").glob("*.txt"))]
        pinned = [f"pinned {name}" for name in json.loads((ROOT / "tests/mutants/pins.json").read_text())]
        first = [f"seed {number}" for number in range(FIRST_SEEDS)]
        others = [f"seed {number}" for number in range(FIRST_SEEDS, SEEDS)]
        units = [f"{ROOT}/tests/{core}" for core in CORES]
        return self._all([*golden, *first]) and _unit_tests(units, self) and self._all([*pinned, *others])

    def _all(self, runs: list[str]) -> bool:
        for run in runs:
            began, (kind, name) = time.process_time(), run.split(" ", 1)
            if not KINDS[kind](name):
                return False
            self._note(run, began)
        return True

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, None, None]:
        began = time.process_time()
        yield
        self._note(f"{UNIT_TEST} {item.nodeid}", began)


# processes


def watch() -> Watched:
    """Play the unchanged code."""
    finder = Otherwise(lambda path: watched(path.relative_to(ROOT).as_posix(), path.read_text()))

    def played(out: TextIO) -> None:
        everything = _Watch()
        if everything.play():
            json.dump([everything.watched.took, everything.watched.seen], out)

    said = _fork(finder, played)
    return Watched(*json.loads(said)) if said else sys.exit("the code as it is fails")


def play(change: Change, runs: list[str], took: dict[str, float]) -> str | None:
    """The kind of the run that notices the change. None if no run does."""
    tree, path = change.tree((ROOT / change.path).read_text()), ROOT / change.path
    kinds = [run.split(" ", 1)[0] for run in runs]
    tests = [run.split(" ", 1)[1] for run in runs if run.startswith(UNIT_TEST)]

    def played(out: TextIO) -> None:
        for run in runs:
            kind, name = run.split(" ", 1)
            patience = took[run] if kind != UNIT_TEST else sum(took[f"{UNIT_TEST} {test}"] for test in tests)
            signal.setitimer(signal.ITIMER_PROF, PATIENCE_S[0] + PATIENCE_S[1] * patience)
            if kind != UNIT_TEST:
                holds = KINDS[kind](name)
            else:
                holds = name != tests[0] or _unit_tests(tests)
            if not holds:
                break
            print(".", end="", file=out, flush=True)

    done = len(_fork(Otherwise(lambda module: tree if module == path else None), played))
    return kinds[done] if done < len(runs) else None


def _fork(finder: MetaPathFinder, played: Callable[[TextIO], None]) -> str:
    """Run a function in a child process, which imports what `finder` finds. Returns its output. The child may end
    early: by an error, the alarm, or lack of memory."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with os.fdopen(write, "w") as out:
            _child(finder, partial(played, out), out)
    os.close(write)
    with os.fdopen(read) as lines:
        said = lines.read()
    os.waitpid(pid, 0)
    return said


def _child(finder: MetaPathFinder, played: Callable[[], None], out: TextIO) -> NoReturn:
    for standard in 1, 2:
        os.dup2(os.open(os.devnull, os.O_WRONLY), standard)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.meta_path.insert(0, finder)
    try:
        played()
        out.flush()
    finally:
        os._exit(0)


# the whole


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.conditions", description=__doc__)
    parser.add_argument("paths", nargs="*", default=CORES, help="files or folders; both cores if none is given")
    parser.add_argument("--results", type=Path, default=ROOT / "build/conditions.jsonl", help="the file, %(default)s")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of the changes, drawn fairly")
    parser.add_argument("--report", action="store_true", help="play nothing: print what the file says")
    options = parser.parse_args()
    files = [file for path in options.paths for file in sorted((ROOT / path).rglob("*.py")) or [ROOT / path]]
    chosen = [change for file in files for change in changes(file.relative_to(ROOT).as_posix(), file.read_text())]
    if options.sample:
        chosen = Random(options.sample).sample(chosen, min(options.sample, len(chosen)))
    if not options.report:
        options.results.parent.mkdir(exist_ok=True)
        _run(chosen, options.results)
    return _report(chosen, _known(options.results))


def _run(chosen: list[Change], results: Path) -> None:
    known, code = _known(results), watch()
    for change in chosen:
        if change.key not in known:
            noticed = play(change, code.otherwise(change), code.took)
            with results.open("a") as file:
                print(json.dumps([change.key, noticed], ensure_ascii=False), file=file)


def _known(results: Path) -> dict[str, str | None]:
    """Keyed by change: the kind of run that noticed it."""
    return dict(map(json.loads, results.read_text().splitlines())) if results.exists() else {}


def _report(chosen: list[Change], known: dict[str, str | None]) -> int:
    played = [change for change in chosen if change.key in known]
    survivors = [change for change in played if known[change.key] is None]
    print(*survivors, sep="\n")
    conditions = len({(change.path, change.place) for change in chosen})
    print(f"{conditions} conditions, {len(chosen)} changes, {len(played)} played; noticed by")
    for noticed, count in Counter(known[change.key] for change in played).most_common():
        print(f"  {count:>6} {count / len(played):7.2%}  {noticed or 'NOBODY'}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
