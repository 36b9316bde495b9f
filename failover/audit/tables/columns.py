"""Turns columns of numpy into arrays of Arrow: times, names and lists. `NONE` becomes null."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from failover.audit.read.columns import NONE, Flags, Ints
from topic.journal import LoggedOutcome

OUTCOMES = [outcome.name.lower() if outcome else None for outcome in LoggedOutcome]


def named(codes: Any, names: Sequence[str | None]) -> pa.Array:
    """The names of these codes; null for `NONE`."""
    known = pa.array([*names, None], pa.string())
    return known.take(pa.array(np.where(codes == NONE, len(names), codes), pa.int64()))


def times(us: Ints, known: Flags) -> pa.Array:
    """Timestamps from µs of wall clock; null if the time is unknown."""
    return numbers(us, known).cast(TIMESTAMP)


def numbers(values: Ints, known: Flags) -> pa.Array:
    return pa.array(np.where(known, values, 0), pa.int64(), mask=~known)


def lists(of: Ints, values: pa.Array, number: int) -> pa.Array:
    """An array of `number` lists. `of`: for each value, the index of the list to which it belongs, in ascending
    order."""
    return pa.ListArray.from_arrays(pa.array(np.searchsorted(of, np.arange(number + 1)), pa.int32()), values)


TIMESTAMP = pa.timestamp("us", tz="UTC")
