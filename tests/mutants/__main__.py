"""`python -m tests.mutants [NAME…]`: breaks every rule on purpose, and shows which invariant notices.

`--pin` keeps the runs that caught mutants, for the tests. It tries the pinned runs first.
"""

import argparse
import sys
from collections.abc import Iterator

from tests.mutants.hunt import Catch, hunt, keep, pins, table
from tests.mutants.mutant import MUTANTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all if none is named")
    parser.add_argument("--seeds", type=int, default=2000, help="runs of each mutant at most")
    parser.add_argument("--pin", action="store_true", help="keep what caught them for the tests")
    options = parser.parse_args()
    if unknown := set(options.names) - MUTANTS.keys():
        parser.error(f"no mutants: {', '.join(sorted(unknown))}")
    caught: list[Catch] = []
    for line in table(_search(options.names or list(MUTANTS), options.seeds, caught, pinned_first=options.pin)):
        print(line, flush=True)
    if options.pin:
        keep(caught)
    missed = [catch.mutant.name for catch in caught if catch.pin is None]
    print(f"{len(caught) - len(missed)} of {len(caught)} mutants caught" + f"; not {', '.join(missed)}" * bool(missed))
    return 1 if missed else 0


def _search(names: list[str], seeds: int, caught: list[Catch], *, pinned_first: bool) -> Iterator[Catch]:
    pinned = pins() if pinned_first else {}
    for name in names:
        mutant, pin = MUTANTS[name], pinned.get(name)
        holds = pin is not None and pin.catches(mutant)
        caught.append(Catch(mutant, pin, 1) if holds else hunt(mutant, seeds))
        yield caught[-1]


if __name__ == "__main__":
    sys.exit(main())
