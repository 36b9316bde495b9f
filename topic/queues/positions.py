"""Positions of messages in the queues of a set (protocol 14.3).

A position has the log index of the entry that has enqueued a message, and the message's place in this entry. It names
the message for ever. Positions have the order of the log.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

MOST_PLACES: Final = 1 << 20
"""The highest number of messages that one log entry may enqueue."""
POSITION_LENGTH: Final = 11
"""The number of bytes of a position in a key."""
_TIMES_LENGTH: Final = 4
"""The number of bytes in a delivery-tag that count how often the message has come back."""

Run = tuple[int, int]
"""Consecutive positions, given by the first and the last one."""


def position_of(index: int, place: int) -> int:
    return index * MOST_PLACES + place


def index_of(position: int) -> int:
    """The log index of the entry that has enqueued the message at this position."""
    return position // MOST_PLACES


def position_text(position: int) -> str:
    """The position as a text for people: the log index of the entry, and the place in the entry."""
    return f"{index_of(position)}:{position % MOST_PLACES}"


def position_key(position: int) -> bytes:
    """The position as bytes of a key. Keys sort in the order of positions."""
    return position.to_bytes(POSITION_LENGTH)


def delivery_tag(position: int, times: int) -> bytes:
    """The delivery-tag of a message that has come back `times` times. All leaders give this delivery the same tag, and
    no other delivery of the message has it. Tags sort in the order of positions."""
    return position_key(position) + times.to_bytes(_TIMES_LENGTH)


def runs_of(positions: Iterable[int]) -> list[Run]:
    """Group the positions into runs of consecutive ones. The order stays."""
    runs = (list(run) for _, run in groupby(enumerate(positions), key=lambda one: one[1] - one[0]))
    return [(run[0][1], run[-1][1]) for run in runs]


def each_of(runs: Iterable[Run]) -> Iterator[int]:
    """All positions in these runs."""
    return (position for first, last in runs for position in range(first, last + 1))


def read_runs(value: Any, where: str) -> list[Run]:
    """Read runs from a decoded value. Raises ValueError if they are malformed, with `where` in its text. The runs must
    be disjoint and ascending, so that they cannot have more positions than there may be messages."""
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
