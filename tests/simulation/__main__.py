"""Run seeds by hand.

python -m tests.simulation 4711 --trace      one seed, with everything that happened
python -m tests.simulation 0 --count 10000   many; stops at the first that fails
"""

import argparse
import sys
import time
import traceback

from tests.simulation.report import describe, replay
from tests.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="simulate meshes from seeds")
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1, help="how many seeds, from SEED on")
    parser.add_argument("--trace", action="store_true", help="print everything that happened")
    parser.add_argument("--keep-going", action="store_true", help="list all seeds that fail")
    options = parser.parse_args()
    began, steps, failed = time.monotonic(), 0, 0
    for seed in range(options.seed, options.seed + options.count):
        world = World(seed, trace=options.trace)
        try:
            world.run()
        except AssertionError as error:
            failed += 1
            if options.keep_going:
                print(seed, _where(error), flush=True)
                continue
            traceback.print_exc()
            print(describe(world, error, tail=0 if options.trace else 60))
            return 1
        except Exception as error:
            failed += 1
            print(seed, _where(error), flush=True)
            if not options.keep_going:
                traceback.print_exc()
                print(replay(seed))
                return 1
        finally:
            steps += world.schedule.steps
    if options.trace:
        print(describe(world, None, tail=0))
    seconds = time.monotonic() - began
    print(f"{options.count} seeds, {steps} steps, {failed} failed, {seconds:.1f} s")
    return 1 if failed else 0


def _where(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} {error!s:.150} ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})"


if __name__ == "__main__":
    sys.exit(main())
