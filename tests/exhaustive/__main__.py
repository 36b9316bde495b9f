"""`python -m tests.exhaustive SCOPE…`: explore scopes by name, or `all`; it prints a shortest path to each
violation."""

import argparse
import sys

from tests.exhaustive.explain import explain
from tests.exhaustive.scope import SCOPES
from tests.exhaustive.search import Result, Search


def _progress(result: Result) -> None:
    """Print the progress on one line that is overwritten, if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{result.scope.name}: depth {result.depth}, {result.states} states", end="", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scopes", nargs="+", metavar="SCOPE", choices=[*SCOPES, "all"])
    parser.add_argument("--max-seconds", type=float, default=float("inf"), help="for each scope")
    arguments = parser.parse_args()
    names = list(SCOPES) if "all" in arguments.scopes else arguments.scopes
    sound = True
    for name in names:
        search = Search(SCOPES[name])
        result = search.run(arguments.max_seconds, _progress)
        print(result, flush=True)
        for finding in result.findings.values():
            print("\n".join(explain(search.model, finding)), flush=True)
        sound = sound and result.complete and not result.findings
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
