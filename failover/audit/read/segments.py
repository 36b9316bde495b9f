"""Segments of the delivery log read: what they say of deliveries packed by bucket, and all else as control rows.

Files in, rows out, nothing else known; Spark's workers run it, or this process. A control row tells of a
link or a router; one with the event `FILE` tells how much of a segment could be read, one with `MESH` carries a
mesh.json. Nothing is judged here, and damage never raises: it is data for the inventory.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import attrs
import msgpack

from failover.audit.read.columns import ROWS_PER_BLOCK, Packer
from failover.audit.read.facts import epoch_of
from topic.blocks import BlockView, Damage, read_blocks
from topic.journal import Event, parse_segment_name
from topic.tail import read_region

FILE = -1
MESH = -2
CONTROL_BUCKET = -1
BUCKET_BYTES = 16 << 20
"""Of logs: what is judged at a time. It takes about ten times as much memory."""
ROWS_PACKED = 500_000
"""At least so many are held before they are packed, if there are."""

ControlColumns = tuple[Any, ...]
"""The fields of `inventory.ControlRow`."""
Packed = tuple[int, bytes]
"""What is said of the deliveries of one bucket; or, in the `CONTROL_BUCKET`, of all else."""
Left = TypeVar("Left")
OnBucket = Callable[[Iterable[bytes]], tuple[Left, list[tuple[str, bytes]]]]
"""Work on one bucket's packed rows: what is left of it, and what is to be brought together by name."""
OnJoined = Callable[[str, Iterable[bytes]], Left]
"""Work on what was brought together under a name."""


@attrs.frozen(slots=True)
class File:
    source: str
    """Its writer."""
    blocks: Sequence[BlockView]
    control: Sequence[ControlColumns]


def buckets(size: int) -> int:
    """For so many bytes of logs."""
    return 1 + size // BUCKET_BYTES


def pack_files(
    files: Iterable[tuple[str, bytes]], buckets: int, start: bytes = b"", *, tagged: bool = False
) -> Iterator[Packed]:
    """What all files (path, content) say. Of blocks without a key that begins with `start` no deliveries are told.
    `tagged`: see `Packer`."""
    packer = Packer(tagged=tagged)
    for path, content in files:
        file = read_file(path, content)
        yield CONTROL_BUCKET, msgpack.packb(file.control)
        for block in file.blocks:
            if start in block.keys:
                packer.add(block, file.source)
        if len(packer) >= ROWS_PACKED:
            yield from packer.buckets(buckets)
            packer = Packer(tagged=tagged)
    yield from packer.buckets(buckets)


def read_file(path: str, content: bytes) -> File:
    source, role = _writer(path)
    segment = parse_segment_name(path.rpartition("/")[2])
    if segment is None:
        detail = json.dumps({"path": path, "text": content.decode(errors="replace")})
        return File(source, [], [_about("", "", 0, "", MESH, detail)])
    blocks, damage = read_blocks(content)
    about_it = {"path": path, "segment": segment[1], "size": len(content)}
    detail = json.dumps(about_it | _reading(blocks, damage) | _saving(content))
    if blocks:
        role = blocks[0].role
    host = blocks[-1].host if blocks else ""
    about = _about(source, role, segment[0], host, FILE, detail)
    return File(source, blocks, [about, *(row for block in blocks for row in _control(block, source))])


def _about(source: str, role: str, incarnation: int, host: str, event: int, detail: str) -> ControlColumns:
    """The row of a file; it has no place, no clocks, no link."""
    return source, role, incarnation, host, 0, 0, 0, event, None, None, None, None, None, None, detail


def _writer(path: str) -> tuple[str, str]:
    """(source, role) by the file's place: `<router>/log/<file>` or `clients/<name>/log/<file>`."""
    *_, above, folder, _, _ = ["", "", "", "", *path.split("/")]
    return (f"clients/{folder}", "client") if above == "clients" else (folder, "router")


def _reading(blocks: list[BlockView], damage: Damage | None) -> dict[str, Any]:
    """What the inventory must know of a segment: which blocks it holds, and between which instants."""
    times = [time for block in blocks for time in block.columns["time"]]
    last = blocks[-1].columns["event"][-1] if blocks else None
    latest = list(accumulate(times, max))
    return {
        "numbers": [block.number for block in blocks],
        "first_time": times[0] if times else None,
        "last_time": latest[-1] if times else None,
        "set_back": max((before - time for before, time in zip(latest, times, strict=True)), default=0),
        "stopped": last == Event.STOPPED and damage is None,
        "damage": damage and {"offset": damage.offset, "skipped": damage.skipped, "torn": damage.torn},
    }


def _saving(content: bytes) -> dict[str, Any]:
    """What the tail says: how many blocks had been written, by a writer that saves what it appends; and which run of
    its kernel that was."""
    region = read_region(content)
    known = region.left if region.damaged_at is None else None
    return {"written": known and known.number, "boot": known.boot if known is not None else ""}


def _control(block: BlockView, source: str) -> Iterator[ControlColumns]:
    """Its entries without keys; one takes a place of its own, others as many as they have keys."""
    if 0 not in block.columns["count"]:
        return
    writer = source, block.role, block.incarnation, block.host
    place = block.number * ROWS_PER_BLOCK
    names = ("count", "time", "hlc", "event", "address", "publisher", "subscriber", "peer", "epoch", "detail")
    texts = [*block.strings, None]
    for count, time, hlc, event, *named in zip(*(block.columns[name] for name in names), strict=True):
        if not count:
            address, publisher, subscriber, peer, epoch, detail = (texts[index] for index in named)
            of_epoch = epoch_of(epoch) if epoch else (None, None)
            yield (*writer, place, time, hlc, event, address, publisher, subscriber, peer, *of_epoch, detail)
        place += max(count, 1)
