"""Makes the timeline of a run from a script and a seed: which fault strikes when, and for how long. The same seed gives
the same timeline.

The targets of a strike may depend on the run, for example on which router is the home, or which routers are up. So the
nemesis chooses them when the strike comes. It uses the random generator of that strike, so that earlier events do not
change the choice. Each line of a script has its own random generator, too, so that a new line does not change the times
of the others.
"""

from collections.abc import Iterator
from random import Random

import attrs

from failover.chaos.script.script import FaultLine, Script, When
from failover.chaos.script.targets import Named
from failover.chaos.script.times import Window
from failover.chaos.script.vocabulary import VERBS


@attrs.frozen
class Strike:
    """One fault that strikes once. `number` is the position of the strike in the plan."""

    number: int
    at: float
    lasting: float | None
    fault: FaultLine
    seed: str

    def random(self) -> Random:
        return Random(self.seed)


def plan(script: Script, seed: int) -> tuple[Strike, ...]:
    """Return all strikes, in the order in which they come."""
    found = [
        (at, lasting, fault, f"{seed} {line} {count}")
        for line, fault in enumerate([*script.faults, *crashes(script)])
        for count, (at, lasting) in enumerate(_moments(fault, Random(f"{seed} {line}")))
        if at < script.duration
    ]
    found.sort(key=lambda one: one[0])
    return tuple(Strike(number, *one) for number, one in enumerate(found))


def crashes(script: Script) -> Iterator[FaultLine]:
    """Yield a fault for each client that the script lets crash."""
    for client in script.clients:
        if client.crashes is not None:
            when = When(Window(0.0, script.duration), rate=client.crashes.rate)
            yield FaultLine(VERBS["crash-client"], Named(client.name), when, client.crashes.away)


def _moments(fault: FaultLine, random: Random) -> Iterator[tuple[float, float | None]]:
    for at in _times(fault.when, random):
        yield at, None if fault.lasting is None else fault.lasting.draw(random)


def _times(when: When, random: Random) -> Iterator[float]:
    """Yield the times when a fault strikes. A periodic fault strikes for the first time one period after its window
    begins. The times of a random fault form a Poisson process."""
    if when.at is not None:
        yield when.at.draw(random)
        return
    at, count = when.window.start, 0
    while True:
        count += 1
        if when.every is not None:
            at = when.window.start + count * when.every
        else:
            assert when.rate is not None
            at += random.expovariate(when.rate)
        if at >= when.window.end:
            return
        yield at
