"""Positions of messages in the queues of a set (protocol 14.3).

A position is the log index of the entry that has enqueued a message, and the place of the message in the entry. It
names the message for ever. Positions have the order of the log.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

MOST_PLACES: Final = 1 << 20
"""The most messages of one entry."""
POSITION_LENGTH: Final = 11
"""Bytes of a position in a key."""
_TIMES_LENGTH: Final = 4
"""Bytes of the number of returns in a tag."""

Run = tuple[int, int]
"""The first and the last of consecutive positions."""


def position_of(index: int, place: int) -> int:
    return index * MOST_PLACES + place


def index_of(position: int) -> int:
    """The log index of the entry that has enqueued the message at this position."""
    return position // MOST_PLACES


def position_text(position: int) -> str:
    """The position as text for people: the log index of the entry, and the place in it."""
    return f"{index_of(position)}:{position % MOST_PLACES}"


def position_key(position: int) -> bytes:
    """The bytes of a position in a key. Keys sort like positions."""
    return position.to_bytes(POSITION_LENGTH)


def delivery_tag(position: int, times: int) -> bytes:
    """The tag of the delivery of a message that has come back `times` times. All leaders give this delivery the same
    tag, and no other delivery of the message has it. Tags sort like positions."""
    return position_key(position) + times.to_bytes(_TIMES_LENGTH)


def runs_of(positions: Iterable[int]) -> list[Run]:
    """The positions as runs, in the same order."""
    runs = (list(run) for _, run in groupby(enumerate(positions), key=lambda one: one[1] - one[0]))
    return [(run[0][1], run[-1][1]) for run in runs]


def each_of(runs: Iterable[Run]) -> Iterator[int]:
    """The positions in these runs."""
    return (position for first, last in runs for position in range(first, last + 1))


def read_runs(value: Any, where: str) -> list[Run]:
    """The runs in this value. They are disjoint and in ascending order, so they have no more positions than there may
    be messages. Raises ValueError, which names `where` the runs are."""
    if not isinstance(value, list) or not all(
        isinstance(run, list) and [type(position) for position in run] == [int, int] for run in value
    ):
        raise ValueError(f"{where} has runs that are no pairs of positions")
    bounds = [position for run in value for position in (run[0], run[1] + 1)]
    if bounds != sorted(bounds) or bounds[:1] < [0] * len(bounds[:1]) or any(first > last for first, last in value):
        raise ValueError(f"{where} has runs that are not in ascending order")
    if sum(last - first + 1 for first, last in value) > MOST_PLACES or (bounds and bounds[-1] >> 8 * POSITION_LENGTH):
        raise ValueError(f"{where} has runs of more than {MOST_PLACES} positions")
    return [(first, last) for first, last in value]
