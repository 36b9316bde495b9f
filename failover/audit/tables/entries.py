"""Turns entries of delivery logs into rows, one for each entry and delivery. This code runs in Spark's workers."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from failover.audit.read.columns import KEY_TYPE, NONE, ROWS_PER_BLOCK, positions
from failover.audit.read.segments import read_file
from failover.audit.tables.columns import OUTCOMES, named, numbers, times
from failover.audit.tables.schema import EVENTS, arrow_schema
from topic.blocks import BlockView
from topic.journal import Event

NAMES = ("address", "publisher", "subscriber", "peer", "generation", "epoch", "detail")


def event_rows(files: Iterable[tuple[str, bytes]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all files (path, content), as far as they can be read."""
    for path, content in files:
        file = read_file(path, content)
        for block in file.blocks:
            yield _of_block(block, file.source)


def _of_block(block: BlockView, source: str) -> pa.RecordBatch:
    """Return the rows of a block. An entry without keys makes one row, too, because each row takes a place in the
    log."""
    columns = block.columns
    count = np.array(columns["count"], np.int64)
    width = np.maximum(count, 1)
    entry = np.repeat(np.arange(len(count)), width)
    keyed = count[entry] > 0
    of_keys = np.repeat(np.arange(len(count)), count)
    n = np.full(len(entry), NONE, np.int64)
    n[keyed] = positions(columns, of_keys, np.arange(len(of_keys)) - (np.cumsum(count) - count)[of_keys])
    keys = np.zeros(len(entry), KEY_TYPE)
    keys[keyed] = np.frombuffer(block.keys, KEY_TYPE)
    found: dict[str, Any] = {
        "source": pa.repeat(source, len(entry)),
        "role": pa.repeat(block.role, len(entry)),
        "incarnation": pa.repeat(pa.scalar(block.incarnation, pa.int64()), len(entry)),
        "host": pa.repeat(block.host, len(entry)),
        "place": pa.array(block.number * ROWS_PER_BLOCK + np.arange(len(entry))),
        "at": times(np.array(columns["time"], np.int64)[entry], np.ones(len(entry), np.bool_)),
        "hlc": pa.array(np.array(columns["hlc"], np.int64)[entry]),
        "event": named(np.array(columns["event"], np.int64)[entry], [event.name for event in Event]),
        "outcome": named(np.array(columns["outcome"], np.int64)[entry], OUTCOMES),
        "key": pa.array(keys, mask=~keyed).cast(pa.string()),
        "tag": pa.array(
            [
                tag
                for listed, wide in zip(columns["tags"], width.tolist(), strict=True)
                for tag in (listed or [None] * wide)
            ],
            pa.binary(),
        ),
        "n": numbers(n, n != NONE),
    }
    found |= {name: named(np.array(columns[name], np.int64)[entry], block.strings) for name in NAMES}
    schema = arrow_schema(EVENTS)
    return pa.record_batch([found[name] for name in schema.names], schema=schema)
