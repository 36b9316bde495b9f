"""Segments of the delivery log read: packed for the audit, or exploded to one row per (event, delivery).

Runs inside Spark's Python workers: files in, rows out, nothing else known. A row without a key tells of a link or a
router; a row with the event `FILE` tells how much of a segment could be read, one with `MESH` carries a mesh.json.
Nothing is judged here, and damage never raises: it is data for the inventory.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failover.audit.facts import epoch_of
from failover.audit.packing import ROWS_PER_BLOCK, Packer, positions
from topic.identity import KEY_LENGTH
from topic.journal import BlockView, Damage, Event, parse_segment_name, read_blocks

FILE = -1
MESH = -2
CONTROL_BUCKET = -1
ROWS_PACKED = 500_000
"""At least so many are held before they are packed, if there are."""

SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("incarnation", "place", "time", "hlc", "event", "outcome", "n", "epoch_hlc")]
    + [(name, pa.string()) for name in ("source", "role", "host", "address", "publisher", "subscriber", "peer")]
    + [(name, pa.string()) for name in ("home", "key", "detail")]
)
CONTROL = ("source", "role", "incarnation", "host", "place", "time", "hlc", "event", "address", "publisher")
CONTROL_COLUMNS = (*CONTROL, "subscriber", "peer", "epoch_hlc", "home", "detail")
PACKED_SCHEMA = "bucket int, rows binary"
SPARK_SCHEMA = ", ".join(f"{field.name} {'long' if field.type == pa.int64() else 'string'}" for field in SCHEMA)


Read = tuple[str, list[BlockView], pa.RecordBatch]
"""The writer of a file, its blocks, and the row that tells of the file itself."""


def explode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of all files; the batches have the columns `path` and `content` of Spark's binaryFile source."""
    for path, content in _files(batches):
        yield from file_rows(path, content)


def pack_files(buckets: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What all files say of deliveries, packed by bucket of their keys; and all else, in a bucket of its own."""
    packer = Packer()
    for path, content in _files(batches):
        source, blocks, about = _read(path, content)
        control = [about, *(_block_rows(block, source) for block in blocks if _has_control(block))]
        yield _packed([(CONTROL_BUCKET, msgpack.packb([row for batch in control for row in _control(batch)]))])
        for block in blocks:
            packer.add(block, source)
        if len(packer) >= ROWS_PACKED:
            yield _packed(packer.buckets(buckets))
            packer = Packer()
    yield _packed(packer.buckets(buckets))


def _files(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Any]]:
    for batch in batches:
        for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
            yield path.as_py(), content.as_py()


def _packed(parts: Iterable[tuple[int, bytes]]) -> pa.RecordBatch:
    rows = [{"bucket": bucket, "rows": part} for bucket, part in parts]
    return pa.RecordBatch.from_pylist(rows, pa.schema([("bucket", pa.int32()), ("rows", pa.binary())]))


def _has_control(block: BlockView) -> bool:
    return 0 in block.columns["count"]


def _control(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    rows = batch.filter(pc.is_null(batch.column("key"))).select(CONTROL_COLUMNS)
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)


def file_rows(path: str, content: bytes, wanted: Callable[[BlockView], bool] | None = None) -> Iterator[pa.RecordBatch]:
    """Rows of one file; those of blocks that are not wanted are left out, not so what is said of the whole file."""
    source, blocks, about = _read(path, content)
    yield from (_block_rows(block, source) for block in blocks if wanted is None or wanted(block))
    yield about


def _read(path: str, content: bytes) -> Read:
    source, role = _writer(path)
    segment = parse_segment_name(path.rpartition("/")[2])
    if segment is None:
        text = content.decode(errors="replace")
        return source, [], _single_row(event=MESH, detail=json.dumps({"path": path, "text": text}))
    blocks, damage = read_blocks(content)
    detail = {"path": path, "segment": segment[1], "size": len(content)} | _reading(blocks, damage)
    if blocks:
        role = blocks[0].role
    host = blocks[-1].host if blocks else ""
    columns = {"source": source, "role": role, "incarnation": segment[0], "host": host, "event": FILE}
    return source, blocks, _single_row(**columns, detail=json.dumps(detail))


def _writer(path: str) -> tuple[str, str]:
    """(source, role) by the file's place: `<router>/log/<file>` or `clients/<name>/log/<file>`."""
    *_, above, folder, _, _ = ["", "", "", "", *path.split("/")]
    return (f"clients/{folder}", "client") if above == "clients" else (folder, "router")


def _reading(blocks: list[BlockView], damage: Damage | None) -> dict[str, Any]:
    """What the inventory must know of a segment: which blocks it holds, and between which instants."""
    times = [time for block in blocks for time in block.columns["time"]]
    last = blocks[-1].columns["event"][-1] if blocks else None
    return {
        "numbers": [block.number for block in blocks],
        "first_time": times[0] if times else None,
        "last_time": max(times) if times else None,
        "stopped": last == Event.STOPPED and damage is None,
        "damage": damage and {"offset": damage.offset, "skipped": damage.skipped, "torn": damage.torn},
    }


def _single_row(**values: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([values], schema=SCHEMA)


def _block_rows(block: BlockView, source: str) -> pa.RecordBatch:
    columns = block.columns
    count = np.array(columns["count"], np.int64)
    width = np.maximum(count, 1)  # an entry without keys is a row too
    entry = np.repeat(np.arange(len(count)), width)
    rows = len(entry)
    assert rows < ROWS_PER_BLOCK
    offset = np.arange(rows) - np.repeat(np.cumsum(width) - width, width)
    strings = pa.array(block.strings, pa.string())
    epochs = [epoch_of(text) for text in block.strings]

    def numbers(name: str) -> Any:
        return np.array(columns[name], np.int64)[entry]

    def texts(name: str, table: pa.Array = strings) -> pa.Array:
        index = np.array(columns[name], np.int64)[entry]
        return table.take(pa.array(index, mask=index < 0))

    found = {
        "incarnation": pa.repeat(pa.scalar(block.incarnation, pa.int64()), rows),
        "place": block.number * ROWS_PER_BLOCK + np.arange(rows),
        "n": positions(columns, entry, offset),
        "epoch_hlc": texts("epoch", pa.array([hlc for hlc, _ in epochs], pa.int64())),
        "source": pa.repeat(source, rows),
        "role": pa.repeat(block.role, rows),
        "host": pa.repeat(block.host, rows),
        "home": texts("epoch", pa.array([home for _, home in epochs], pa.string())),
        "key": _keys(block.keys, count[entry] > 0),
    }
    found |= {name: numbers(name) for name in ("time", "hlc", "event", "outcome")}
    found |= {name: texts(name) for name in ("address", "publisher", "subscriber", "peer", "detail")}
    return pa.RecordBatch.from_arrays([pa.array(found[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def _keys(keys: bytes, has_key: Any) -> pa.Array:
    """The string column over the block's keys, without copying them one by one."""
    offsets = np.concatenate([[0], np.cumsum(has_key * KEY_LENGTH)]).astype(np.int32)
    valid = np.packbits(has_key, bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(keys)]
    return pa.Array.from_buffers(pa.string(), len(has_key), buffers)
