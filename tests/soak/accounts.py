"""What clients saw of a run, and what is to be said of it: lost, doubled, out of order, and how long nothing went on.

Pure functions over what was written down; independent of the delivery logs, so that the audit has a second opinion.
Times are the machine's monotonic clock, the same for all processes.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import attrs

from failover.chaos.accounts import overtaken


@attrs.define
class Attachment:
    router: str
    at: float


@attrs.define
class Published:
    """One publisher's account. Its messages are numbered from 0."""

    name: str
    sent_at: list[float] = attrs.field(factory=list)
    accepted: list[tuple[int, float]] = attrs.field(factory=list)
    """Number and time, in the order in which it was learned."""
    otherwise: dict[int, str] = attrs.field(factory=dict)
    """Outcomes that are no acceptance."""
    attached: list[Attachment] = attrs.field(factory=list)


@attrs.define
class Received:
    """One subscriber's account."""

    name: str
    numbers: dict[str, list[int]] = attrs.field(factory=dict)
    """By publisher, what it processed, in its order."""
    attached: list[Attachment] = attrs.field(factory=list)


@attrs.frozen
class Fault:
    """A router that was struck."""

    router: str
    at: float


@attrs.define
class Tally:
    """Of one run; counts are messages times subscribers."""

    sent: int = 0
    not_accepted: int = 0
    unanswered: int = 0
    lost: int = 0
    excused: int = 0
    """Lost, but accepted while no router knew of this subscriber: a limit that is documented."""
    doubled: int = 0
    disorder: int = 0

    @property
    def clean(self) -> bool:
        return not (self.not_accepted or self.unanswered or self.lost or self.doubled or self.disorder)


def tally(publishers: Sequence[Published], subscribers: Sequence[Received], forgotten: float | None = None) -> Tally:
    """`forgotten` is when all routers lost their memory of who subscribes, if they did."""
    found = Tally()
    for publisher in publishers:
        found.sent += len(publisher.sent_at)
        found.not_accepted += len(publisher.otherwise)
        found.unanswered += len(publisher.sent_at) - len(publisher.otherwise) - len(publisher.accepted)
        for subscriber in subscribers:
            numbers = subscriber.numbers.get(publisher.name, [])
            found.doubled += len(numbers) - len(set(numbers))
            found.disorder += overtaken(numbers)
            missing = {number for number, _ in publisher.accepted} - set(numbers)
            excused = _excused(publisher, subscriber, missing, forgotten)
            found.lost += len(missing) - excused
            found.excused += excused
    return found


def _excused(publisher: Published, subscriber: Received, missing: set[int], forgotten: float | None) -> int:
    """Those that were sent before the subscriber was back where it had been forgotten."""
    if forgotten is None:
        return 0
    back = next((attachment.at for attachment in subscriber.attached if attachment.at > forgotten), float("inf"))
    return sum(publisher.sent_at[number] < back for number in missing)


def longest_pause(publisher: Published) -> float:
    """The longest time between two acceptances."""
    times = [at for _, at in publisher.accepted]
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def resumptions(publisher: Published, faults: Sequence[Fault]) -> list[float]:
    """For every fault of the router that the publisher was attached to: the time until it was attached elsewhere and
    the next of its messages was accepted there."""
    found = []
    for fault in faults:
        place = bisect_right([attachment.at for attachment in publisher.attached], fault.at)
        if not 0 < place < len(publisher.attached) or publisher.attached[place - 1].router != fault.router:
            continue
        again = publisher.attached[place].at
        found += [at - fault.at for _, at in publisher.accepted if at > again][:1]
    return found
