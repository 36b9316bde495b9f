"""The bytes between neighbours on both lanes: divides a body into frames, and frames into fields.

A body is a series of msgpack *bin* objects, so bodies can be joined, and a frame can be skipped without decoding. One
bin holds a frame's header, a msgpack array. In DATA and PART frames a second bin follows, a chunk of a payload, which
is never decoded here.

    linkstate   HELLO    [0, name, incarnation, clock, heard incarnation or 0, digests of database and plan]
                SUMMARY  [1, clock, [[origin, incarnation, sequence], ...]]
                ENTRIES  [2, clock, [[origin, incarnation, sequence, age ms, links], ...]]
                         where links is [[neighbour, incarnation, cost], ...]
                PLAN     [3, clock, what has changed in the plan (`linkstate.plan`)]
    channel     [kind, source, hops left, clock, [[router, ours, theirs, x, y], ...]], and perhaps a chunk

Every channel frame names its targets the same way, so a relay treats all kinds alike: `ours` and
`theirs` are the contact numbers as the source sees them, x and y depend on the kind (see the constants).

Decoding checks shapes and raises PeerError; the caller checks whether the names and numbers make sense.
"""

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgpack
from attrs import frozen

from linkstate.chunks import CHUNK, Buffer, Chunk
from linkstate.plan.plan import Plan, plan_of

HELLO, SUMMARY, ENTRIES, PLAN = range(4)

# GREET opens a contact. x: 1 if the source has established the contact, else 0. y: the digest of the source's plan.
GREET = 0
# DATA has a payload, or its last chunk. x: the sequence number. y: the acknowledged number of the other direction.
DATA = 1
# ACK acknowledges. x: the acknowledged number. y: the `highest` of the PROBE that it answers, or 0.
ACK = 2
# PROBE asks how far the target is. x: the acknowledged number of the other direction. y: the highest number sent.
PROBE = 3
# PART has a chunk that is not the last one of its payload. x and y are as in DATA.
PART = 4

Target = tuple[str, int, int, int, int]

JOINED = 4 * CHUNK
"""If a channel body has more bytes than this, it has only one frame. A sound neighbour joins frames only up to this
size, because each frame may need an answer."""

MANY = 10_000
"""A link-state frame lists fewer routers than this, and a link-state body has fewer frames than this, because each
router and each frame takes time to read."""

# Numbers that a router increments stay below this limit, because the next higher one must still fit into 64 bits.
_LARGEST = 2**63 - 1
_BIN8, _BIN16, _BIN32 = 0xC4, 0xC5, 0xC6
_CHANNEL_SHAPE = [int, str, int, int, list]
_TARGET_SHAPE = [str, int, int, int, int]
_HELLO_SHAPE = [int, str, int, int, int, int, int]
_LISTING_SHAPE = [int, int, list]
_SUMMARY_SHAPE = [str, int, int]
_ENTRY_SHAPE = [str, int, int, int, list]
_LINK_SHAPE = [str, int, int]


class PeerError(Exception):
    """A neighbour has sent a body that no sound router of this mesh would send. The body does not decode, or has a
    HELLO from the wrong router.

    Nothing of the body was applied. The shell closes the transport on which it came. Any other exception in this folder
    is a bug.
    """


@frozen
class Hello:
    """Shows that the sender lives. `heard`: the receiver's incarnation that the sender hears on this transport; 0 if
    none."""

    name: str
    incarnation: int
    clock: int
    heard: int
    digest: int
    plan: int = 0


@frozen
class Summary:
    """The versions of all advertisements that the sender has."""

    clock: int
    versions: dict[str, tuple[int, int]]


@frozen
class AgedAdvertisement:
    """One router's advertisement of its links. `age_ms`: the time since the router wrote it."""

    origin: str
    incarnation: int
    sequence: int
    age_ms: int
    links: tuple[tuple[str, int, int], ...]


@frozen
class Entries:
    clock: int
    entries: tuple[AgedAdvertisement, ...]


@frozen
class Planned:
    """The changed entries of the plan that the sender knows."""

    clock: int
    plan: Plan


LinkstateFrame = Hello | Summary | Entries | Planned


class ChannelFrame(NamedTuple):
    """One channel frame of a body. `chunk_start`: the offset of the chunk's bin prefix. `chunk_content`: the offset
    after it."""

    kind: int
    source: str
    hops_left: int
    clock: int
    targets: list[Any]
    body: Buffer
    chunk_start: int
    chunk_content: int
    chunk_end: int

    def chunk(self) -> Chunk:
        return Chunk(self.body[self.chunk_content : self.chunk_end], self.kind == PART)

    def raw_chunk(self) -> Buffer:
        """The bytes of the chunk with its prefix, which a relay passes on unchanged."""
        return self.body[self.chunk_start : self.chunk_end]


def bin_prefix(size: int) -> bytes:
    if size < 1 << 8:
        return bytes((_BIN8, size))
    if size < 1 << 16:
        return struct.pack(">BH", _BIN16, size)
    return struct.pack(">BI", _BIN32, size)


def encode_header(fields: list[Any]) -> bytes:
    header: bytes = msgpack.packb(fields)
    return bin_prefix(len(header)) + header


def encode_hello(hello: Hello) -> bytes:
    fields = [HELLO, hello.name, hello.incarnation, hello.clock, hello.heard, hello.digest, hello.plan]
    return encode_header(fields)


def encode_summary(clock: int, versions: list[tuple[str, int, int]]) -> bytes:
    return encode_header([SUMMARY, clock, versions])


def encode_entries(clock: int, entries: list[AgedAdvertisement]) -> bytes:
    rows = [(e.origin, e.incarnation, e.sequence, e.age_ms, e.links) for e in entries]
    return encode_header([ENTRIES, clock, rows])


def encode_plan(clock: int, plan: Plan) -> bytes:
    return encode_header([PLAN, clock, plan.changed()])


def decode_linkstate(body: Buffer) -> list[LinkstateFrame]:
    """Decode all frames of a body. Raises PeerError before any of them is used."""
    bounds = list(islice(_bins(body), MANY))
    if len(bounds) == MANY:
        raise PeerError(f"a body has too many frames, expected fewer than {MANY}")
    return [_linkstate_frame(_unpack(body, start, end)) for start, end in bounds]


def decode_channel(body: Buffer) -> list[ChannelFrame]:
    """Decode all frames of a body. Raises PeerError before any of them is used."""
    frames: list[ChannelFrame] = []
    offset = 0
    while offset < len(body):
        if frames and len(body) > JOINED:
            raise PeerError(f"several frames share a body of {len(body)} bytes, expected at most {JOINED} bytes")
        start, end = _bin_bounds(body, offset)
        kind, source, hops_left, clock, targets = _channel_header(_unpack(body, start, end))
        chunk_start = chunk_content = offset = end
        if kind in (DATA, PART):
            chunk_content, offset = _bin_bounds(body, chunk_start)
            if offset - chunk_content > CHUNK:
                raise PeerError(f"a chunk has {offset - chunk_content} bytes, expected at most {CHUNK}")
        frames.append(ChannelFrame(kind, source, hops_left, clock, targets, body, chunk_start, chunk_content, offset))
    return frames


def _bins(body: Buffer) -> Iterator[tuple[int, int]]:
    offset = 0
    while offset < len(body):
        start, offset = _bin_bounds(body, offset)
        yield start, offset


def _bin_bounds(body: Buffer, offset: int) -> tuple[int, int]:
    """The start and the end of the content of the bin object at `offset`. Raises PeerError."""
    width = {_BIN8: 1, _BIN16: 2, _BIN32: 4}.get(body[offset]) if offset < len(body) else None
    if width is None:
        raise PeerError(f"expected a msgpack bin object at byte {offset} of a body of {len(body)} bytes")
    start = offset + 1 + width
    end = start + int.from_bytes(body[offset + 1 : start])
    if end > len(body):
        raise PeerError(f"the bin object at byte {offset} is cut off: the body has {len(body)} of {end} bytes")
    return start, end


def _unpack(body: Buffer, start: int, end: int) -> Any:
    try:
        return msgpack.unpackb(body[start:end])
    except (ValueError, msgpack.UnpackException) as error:
        raise PeerError(f"the neighbour sent a frame header that cannot be decoded: {error}") from error


def _has_shape(fields: Any, shape: list[type]) -> bool:
    return type(fields) is list and list(map(type, fields)) == shape


def _channel_header(fields: Any) -> Any:
    if not _has_shape(fields, _CHANNEL_SHAPE) or not GREET <= fields[0] <= PART:
        raise PeerError("the neighbour sent a malformed channel frame")
    if not all(_has_shape(target, _TARGET_SHAPE) for target in fields[4]):
        raise PeerError("a channel frame has a malformed destination")
    if len({target[0] for target in fields[4]}) < len(fields[4]):
        raise PeerError("a channel frame names a destination twice")
    return fields


def _linkstate_frame(fields: Any) -> LinkstateFrame:
    match fields:
        case [0, *_] if _has_shape(fields, _HELLO_SHAPE) and 0 < fields[2] <= _LARGEST:
            return Hello(*fields[1:])
        case [int(kind), int(), [*rows]] if kind in (SUMMARY, ENTRIES) and len(rows) >= MANY:
            raise PeerError(f"a link-state frame lists {len(rows)} routers, expected fewer than {MANY}")
        case [1, *_] if _has_shape(fields, _LISTING_SHAPE):
            return _summary(fields[1], fields[2])
        case [2, *_] if _has_shape(fields, _LISTING_SHAPE):
            return Entries(fields[1], _entries(fields[2]))
        case [3, int(clock), rows]:
            return Planned(clock, _plan(rows))
    raise PeerError("the neighbour sent a malformed link-state frame")


def _plan(rows: Any) -> Plan:
    try:
        return plan_of(rows)
    except ValueError as error:
        raise PeerError(str(error)) from None


def _summary(clock: int, rows: list[Any]) -> Summary:
    if not all(_has_shape(row, _SUMMARY_SHAPE) for row in rows):
        raise PeerError("a link-state summary has a malformed row")
    return Summary(clock, {origin: (incarnation, sequence) for origin, incarnation, sequence in rows})


def _entries(rows: list[Any]) -> tuple[AgedAdvertisement, ...]:
    entries = tuple(map(_entry, rows))
    if len({entry.origin for entry in entries}) < len(entries):
        raise PeerError("a link-state flood names an origin twice")
    return entries


def _entry(row: Any) -> AgedAdvertisement:
    if not _has_shape(row, _ENTRY_SHAPE) or not all(_has_shape(link, _LINK_SHAPE) for link in row[4]):
        raise PeerError("a link-state advertisement is malformed")
    origin, incarnation, sequence, age_ms, links = row
    in_range = 0 < incarnation <= _LARGEST and 0 < sequence <= _LARGEST and age_ms >= 0
    if not in_range or any(cost < 1 for _, _, cost in links):
        raise PeerError("a link-state advertisement has a number out of range")
    return AgedAdvertisement(origin, incarnation, sequence, age_ms, tuple((n, i, c) for n, i, c in links))
