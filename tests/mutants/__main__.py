"""`python -m tests.mutants [NAME…]`: every rule broken on purpose, and which invariant notices.

`--pin` keeps the seeds for the tests; it begins with those that are pinned, which may do as well as ever.
"""

import argparse
import sys
from collections.abc import Iterator

from tests.mutants.hunt import Catch, hunt, pin, pins, still_caught, table
from tests.mutants.mutant import MUTANTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all if none is named")
    parser.add_argument("--seeds", type=int, default=2000, help="runs of each mutant at most")
    parser.add_argument("--pin", action="store_true", help="keep the seeds for the tests")
    options = parser.parse_args()
    if unknown := set(options.names) - MUTANTS.keys():
        parser.error(f"no mutants: {', '.join(sorted(unknown))}")
    caught: list[Catch] = []
    for line in table(_search(options.names or list(MUTANTS), options.seeds, caught, repin=options.pin)):
        print(line, flush=True)
    if options.pin:
        pin(caught)
    missed = [catch.mutant.name for catch in caught if catch.seed is None]
    print(f"{len(caught) - len(missed)} of {len(caught)} mutants caught" + f"; not {', '.join(missed)}" * bool(missed))
    return 1 if missed else 0


def _search(names: list[str], seeds: int, caught: list[Catch], *, repin: bool) -> Iterator[Catch]:
    pinned = pins() if repin else {}
    for name in names:
        mutant = MUTANTS[name]
        catch = still_caught(mutant, pinned[name]) if name in pinned else None
        caught.append(catch or hunt(mutant, seeds))
        yield caught[-1]


if __name__ == "__main__":
    sys.exit(main())
