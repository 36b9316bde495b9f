"""Reads segments of the delivery log. It packs the rows about deliveries into buckets, and returns all other rows as
control rows.

A control row is about a link or a router. A row with the event `FILE` says how much of a segment could be read; a row
with `MESH` carries a mesh.json. This module takes files and returns rows; it runs in Spark's workers or in this
process. It judges nothing, and damage never raises: the inventory gets it as data.
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
"""About this many bytes of logs make one bucket, which is judged at once. Judging takes about ten times as much
memory."""
ROWS_PACKED = 500_000
"""The packer packs its rows when it holds at least this number of rows."""

ControlColumns = tuple[Any, ...]
"""The columns of control rows: the fields of `inventory.ControlRow`."""
Packed = tuple[int, bytes]
"""The number of a bucket with its packed rows about deliveries; or `CONTROL_BUCKET` with packed control rows."""
Left = TypeVar("Left")
OnBucket = Callable[[Iterable[bytes]], tuple[Left, list[tuple[str, bytes]]]]
"""A function that works on the packed rows of one bucket. It returns a result for this bucket. It also returns parts of
further results, each with the name of its result; other buckets may have parts with the same names."""
OnJoined = Callable[[str, Iterable[bytes]], Left]
"""A function that gets the name of one result, and the parts with this name from all buckets. It returns this
result."""
Wanted = Callable[[BlockView], bool]
"""A function that says whether the reader reads the deliveries of a block."""


@attrs.frozen(slots=True)
class File:
    source: str
    """The name of the file's writer."""
    blocks: Sequence[BlockView]
    control: Sequence[ControlColumns]


def buckets(size: int) -> int:
    """How many buckets logs of this size, in bytes, need."""
    return 1 + size // BUCKET_BYTES


def pack_files(
    files: Iterable[tuple[str, bytes]], buckets: int, wanted: Wanted | None = None, *, tagged: bool = False
) -> Iterator[Packed]:
    """Yield the packed control rows of all files (path, content), and the packed rows of their `wanted` blocks. With
    None, all blocks are wanted. `tagged`: as in `Packer`."""
    packer = Packer(tagged=tagged)
    for path, content in files:
        file = read_file(path, content)
        yield CONTROL_BUCKET, msgpack.packb(file.control)
        for block in file.blocks:
            if wanted is None or wanted(block):
                packer.add(block, file.source)
        if len(packer) >= ROWS_PACKED:
            yield from packer.buckets(buckets)
            packer = Packer(tagged=tagged)
    yield from packer.buckets(buckets)


def read_file(path: str, content: bytes) -> File:
    source, _ = writer_of(path)
    if parse_segment_name(path.rpartition("/")[2]) is None:
        return File(source, [], [mesh_row(path, content.decode(errors="replace"))])
    blocks, damage = read_blocks(content)
    reading = SegmentReading(path)
    reading.add(blocks)
    reading.end(content, damage)
    return File(source, blocks, [reading.row(), *(row for block in blocks for row in control_rows(block, source))])


@attrs.define(slots=True)
class SegmentReading:
    """Collects what the inventory has to know about a segment: the numbers of its blocks, its first and last time, and
    so on. The segment may be read in parts."""

    path: str
    segments: int = 1
    """How many segments are joined in this object. `path` is the path of the last segment."""
    blocks: list[list[int]] = attrs.field(factory=list)
    """The first and the last number of each run of consecutive blocks."""
    first_time: int | None = None
    last_time: int | None = None
    set_back: int = 0
    stopped: bool = False
    """Whether the last entry is STOPPED, so that the writer ended its log before it exited."""
    role: str = ""
    host: str = ""
    size: int = 0
    damage: Damage | None = None
    written: int | None = None
    """The number of blocks that had been written according to the tail, if the writer saves its entries."""
    boot: str = ""
    foreign: tuple[int, int] | None = None
    """Set if a block names another incarnation than the segment's file name: the number of the first such block, and
    the incarnation that it names."""

    def add(self, blocks: Sequence[BlockView]) -> None:
        for block in blocks:
            if self.blocks and self.blocks[-1][1] == block.number - 1:
                self.blocks[-1][1] = block.number
            else:
                self.blocks.append([block.number, block.number])
            times = block.columns["time"]
            latest = [*accumulate(times, max, initial=times[0] if self.last_time is None else self.last_time)]
            back = max(before - time for before, time in zip(latest, times, strict=False))
            self.set_back = max(self.set_back, back)
            self.first_time = times[0] if self.first_time is None else self.first_time
            self.last_time = latest[-1]
            self.stopped = block.columns["event"][-1] == Event.STOPPED
            self.role, self.host = self.role or block.role, block.host
            if self.foreign is None and block.incarnation != _named(self.path)[0]:
                self.foreign = block.number, block.incarnation

    def end(self, content: bytes, damage: Damage | None) -> None:
        """End the reading, after all readable blocks were added. `content`: the content of the file, of which only the
        tail is read."""
        self.size, self.damage = len(content), damage
        region = read_region(content)
        known = region.left if region.damaged_at is None else None
        if known is not None:
            self.written, self.boot = known.number, known.boot

    def continues(self, other: "SegmentReading") -> bool:
        """Whether this segment directly follows `other`, and both are complete. `other` may stand for several joined
        segments."""
        runs = [*other.blocks, *self.blocks]
        whole = other.damage is self.damage is None and len(runs) == 2 and runs[1][0] == runs[0][1] + 1
        return whole and _named(self.path) == (_named(other.path)[0], _named(other.path)[1] + 1)

    def join(self, former: "SegmentReading") -> None:
        """Join this segment with the segments before it. It has to continue them (`continues`)."""
        assert former.last_time is not None and self.first_time is not None and self.last_time is not None
        self.segments += former.segments
        self.blocks = [[former.blocks[0][0], self.blocks[0][1]]]
        self.set_back = max(former.set_back, self.set_back, former.last_time - self.first_time)
        self.first_time, self.last_time = former.first_time, max(former.last_time, self.last_time)

    def row(self) -> ControlColumns:
        source, role = writer_of(self.path)
        segment = _named(self.path)
        about = attrs.asdict(self) | {"segment": segment[1], "stopped": self.stopped and self.damage is None}
        return _about(source, self.role or role, segment[0], self.host, FILE, json.dumps(about))


def _named(path: str) -> tuple[int, int]:
    """The incarnation and number of a segment, read from its path."""
    found = parse_segment_name(path.rpartition("/")[2])
    assert found is not None, path
    return found


def mesh_row(path: str, text: str) -> ControlColumns:
    return _about("", "", 0, "", MESH, json.dumps({"path": path, "text": text}))


def _about(source: str, role: str, incarnation: int, host: str, event: int, detail: str) -> ControlColumns:
    """Make the control row about a file. It has no place, no clocks and no link."""
    return source, role, incarnation, host, 0, 0, 0, event, *[None] * 7, detail


def writer_of(path: str) -> tuple[str, str]:
    """Return source and role of a log's writer. They follow from the file's path: `<router>/log/<file>` or
    `clients/<name>/log/<file>`."""
    *_, above, folder, _, _ = ["", "", "", "", *path.split("/")]
    return (f"clients/{folder}", "client") if above == "clients" else (folder, "router")


def control_rows(block: BlockView, source: str) -> Iterator[ControlColumns]:
    """Yield the entries without keys. Such an entry takes one place in the log; any other entry takes as many places as
    it has keys."""
    if 0 not in block.columns["count"]:
        return
    writer = source, block.role, block.incarnation, block.host
    place = block.number * ROWS_PER_BLOCK
    named = "address", "publisher", "subscriber", "peer", "generation", "epoch", "detail"
    names = "count", "time", "hlc", "event", *named
    texts = [*block.strings, None]
    for count, time, hlc, event, *codes in zip(*(block.columns[name] for name in names), strict=True):
        if not count:
            *about, epoch, detail = (texts[code] for code in codes)
            of_epoch = epoch_of(epoch) if epoch else (None, None)
            yield (*writer, place, time, hlc, event, *about, *of_epoch, detail)
        place += max(count, 1)
