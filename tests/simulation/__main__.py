"""Run seeds by hand.

python -m tests.simulation 4711 --trace      one seed, with everything that happened
python -m tests.simulation 0 --count 10000   many; stops at the first that fails
python -m tests.simulation --count 10000     the same, of seeds that nobody has played: the time says the first
"""

import argparse
import statistics
import sys
import time
import traceback
from collections import Counter

from tests.garbage import collect_seldom
from tests.simulation.odd import ODD
from tests.simulation.report import Failure, attempt, tell, trace_lines

TAIL = 60
APART = 1000
"""Two series of runs that start at least a second apart share no seed, as long as each plays at most this many runs a
second.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="simulate meshes from seeds")
    parser.add_argument("seed", type=int, nargs="?", help="the first; else it is taken from the time, and told")
    parser.add_argument("--count", type=int, default=1, help="how many seeds, from SEED on")
    parser.add_argument("--trace", action="store_true", help="print everything that happened")
    parser.add_argument("--keep-going", action="store_true", help="list all seeds that fail")
    parser.add_argument("--odd", action="append", choices=ODD, default=[], help="what happens besides, in every run")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = int(time.time()) * APART
        print(f"seeds from {options.seed} on", flush=True)
    collect_seldom()
    began, failed, promises, kept, spoken_for, unlike_any = time.monotonic(), 0, 0, 0, 0, 0
    causes: Counter[str] = Counter()
    steps: list[int] = []
    for seed in range(options.seed, options.seed + options.count):
        world, failure = attempt(seed, trace=options.trace, odd=tuple(options.odd))
        steps.append(world.schedule.steps)
        if world.knobs.boot_wait < world.knobs.dead:
            unlike_any += 1
        else:
            promises += world.judge.promises.made
            causes += world.judge.promises.causes()
            kept += world.judge.promises.kept_all_the_same()
        spoken_for += len(world.judge.lives.spoken_for)
        if failure is not None:
            failed += 1
            if not options.keep_going:
                traceback.print_exception(failure.error)
                print(tell(failure, tail=0 if options.trace else TAIL))
                return 1
            print(seed, _where(failure), flush=True)
    if options.trace:
        print("\n".join(trace_lines(world)))
    seconds = time.monotonic() - began
    print(
        f"{options.count} seeds, {statistics.median(steps):.0f} steps in the median, {failed} failed, {seconds:.1f} s, "
        f"{60 * options.count / seconds:.0f} a minute"
    )
    print(f"{unlike_any} worlds have a boot_wait shorter than dead, which is refused in a topology: not counted below")
    print(f"{promises} promises of exactly once; {kept} ended and were kept all the same, and these were not, for that")
    for cause, count in causes.most_common():
        print(f"  {count:>8} {count / max(promises, 1):8.3%}  {cause}")
    print(f"{spoken_for} lives of publishers were at least once: a machine acknowledged on a link left (protocol 10)")
    return 1 if failed else 0


def _where(failure: Failure) -> str:
    frame = traceback.extract_tb(failure.error.__traceback__)[-1]
    name = type(failure.error).__name__
    return f"{name} {failure.error!s:.150} ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})"


if __name__ == "__main__":
    sys.exit(main())
