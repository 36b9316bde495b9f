"""The frame tap: what proton cannot say or hear, added to and read from the frames between it and the socket.

Proton neither reads nor writes the unsettled map of an attach, writes no `resume` and ignores `flow.echo` (AMQP 1.0
2.6.13, 2.7.3 to 2.7.5). The tap stands between the bytes of the socket, SASL done, and proton's:

- Incoming (`split`), it tells the pieces that proton may take as they are from the frames that mean more than proton
  sees. Those come one by one with a note, so that the event they cause is known to be theirs.
- Outgoing (`rewrite`), frames that were announced (`announce`, `resume`) get what was asked for; with nothing
  announced the output is not even looked at.

The hot path is the walk over incoming frames: one step of less than 0.1 µs a frame, nothing decoded, nothing copied. A
transfer is looked into only once a link of the connection had an unsettled map. What is damaged passes: proton
judges it. Only a damaged map is refused here.

Never here: what maps and resumed deliveries mean, and flow (`echo`).
"""

import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from router.amqp import performative
from router.amqp.codec import decode, uint
from router.amqp.errors import PeerError
from router.amqp.handler import DeliveryState
from router.amqp.performative import AMQP_HEADER, ATTACH, FLOW, NULL, OPEN, TRANSFER, TRUE, TRUES
from router.amqp.unsettled import decode_map, encode_entries

if TYPE_CHECKING:
    from router.amqp.link import Link

MIN_MAX_FRAME: Final = 512  # AMQP 1.0 2.4.1; also what holds before the peer's open
UNLIMITED: Final = 2**32 - 1
RESERVE: Final = 8  # what `resume` and `aborted` may add to a transfer

# A link property that exists between proton and the tap only: it tells whose an outgoing attach is.
LINK_NUMBER: Final = "link-number"

# default-outcome released, and the outcomes that are understood here: all (AMQP 1.0 3.5.3).
_DEFAULT_OUTCOME: Final = b"\x00\x53\x26\x45"
_NAMES: Final = [f"amqp:{name}:list".encode() for name in ("accepted", "rejected", "released", "modified")]
_SYMBOLS: Final = b"\xa3" + b"".join(bytes((len(name),)) + name for name in _NAMES)
_OUTCOMES: Final = b"\xe0" + bytes((len(_SYMBOLS) + 1, len(_NAMES))) + _SYMBOLS

# Of a frame: its size, data offset and type, the begin of its descriptor with the list's constructor, and the field
# count of a short list.
_head: Final = struct.Struct(">IH2xIxB").unpack
_HEAD: Final = 14
_PLAIN_KIND: Final = 0x0200
_TRANSFERS_SHORT, _TRANSFERS_LONG = 0x005314C0, 0x005314D0
_DISPOSITIONS: Final = (0x005315C0, 0x005315D0)
_RESUME: Final = 8  # the place of this field in a transfer: shorter ones have none
_HANDLE, _DELIVERY_COUNT, _LINK_CREDIT, _ECHO = 4, 5, 6, 9  # the same in a flow


class AttachFrame(NamedTuple):
    """An attach with more than a null map."""

    unsettled: Mapping[bytes, DeliveryState] | None
    incomplete: bool


Wire: TypeAlias = tuple[bytes, bytes]  # channel and handle, as encoded


class FlowFrame(NamedTuple):
    """A flow that asks for an echo, or may be one."""

    echo: bool
    wire: Wire  # of the peer's end
    limit: int | None  # delivery-count plus link-credit, if it names both


class ResumedTransfer(NamedTuple):
    """A transfer with `resume` true: the first frame of a delivery."""


Note: TypeAlias = AttachFrame | FlowFrame | ResumedTransfer
Piece: TypeAlias = tuple[bytes, int, int, Note | None]  # bytes, from where to where: plain, as on every hot path

_RESUMED: Final = ResumedTransfer()


class Tap:
    """One a connection. `asked` has the links that wait for an echo, and what `echo` has to know of each; `quiet` the
    peer's ends of others, whose flows need no look meanwhile."""

    def __init__(self, max_frame: int) -> None:
        self.asked: dict[Link, int | None] = {}
        self.quiet: set[Wire] = set()
        self._max_frame = max(max_frame, MIN_MAX_FRAME)  # ours, the limit of what comes in
        self._remote_max_frame = MIN_MAX_FRAME
        self._held = b""  # the begin of a frame that has to be seen whole
        self._skip = len(AMQP_HEADER)  # so many bytes to come belong to what proton has in part already
        self._broken = False  # no frames any more: proton ends it
        # Which frames need no look: without maps no transfer does, with them those that are too short for `resume`.
        self._plain = frozenset((_TRANSFERS_SHORT, _TRANSFERS_LONG, *_DISPOSITIONS))
        self._plain_fields = 255
        self._announced: dict[int, Link] = {}  # by number: opened, attach not written yet
        self._number = 0
        self._resumed: dict[Link, dict[bytes, bool]] = {}  # tags of deliveries to be resumed; whether to abort
        self._wires: dict[Wire, Link] = {}  # of our ends

    # -- incoming

    def split(self, data: bytes) -> Iterator[Piece]:
        """The pieces of an input, in order. Raises PeerError at an attach with a damaged map."""
        data, self._held = self._held + data if self._held else data, b""
        start, end = 0, len(data)
        at = end if self._broken else self._skip
        while (at := self._walk(data, at)) < end:
            size = int.from_bytes(data[at : at + 4], "big")
            if at + 8 <= end and not 8 <= size <= self._max_frame:
                self._broken = True
                break
            if at + max(size, 8) > end:
                self._held = data[at:]
                end = at
                break
            frame = data[at : at + size]
            note, replaced = self._look(frame)
            if note is not None or replaced is not frame:
                if start < at:
                    yield data, start, at, None
                yield replaced, 0, len(replaced), note
                start = at + size
            at += size
        self._skip = max(0, at - end)
        if start < end:
            yield data, start, end, None

    def _walk(self, data: bytes, at: int) -> int:
        """Over the frames that need no look, to the first that does, or whose head is cut off."""
        plain, plain_fields, max_frame = self._plain, self._plain_fields, self._max_frame
        last = len(data) - _HEAD
        size, known = 0, b""
        while at <= last:
            head = data[at : at + _HEAD]
            if head != known:  # most frames are like the one before: comparing is cheaper than decoding
                size, kind, shape, fields = _head(head)
                if shape not in plain or fields > plain_fields or kind != _PLAIN_KIND or not _HEAD <= size <= max_frame:
                    break
                known = head
            at += size
        return at

    def _look(self, frame: bytes) -> tuple[Note | None, bytes]:
        if len(frame) <= _HEAD:
            return None, frame  # too short for anything: a heartbeat, an end, a close
        code = performative.code_of(frame)
        try:
            if code == FLOW:
                return self._look_at_flow(frame), frame
            if code == TRANSFER:
                return self._look_at_transfer(frame), frame
            if code == OPEN:
                return None, self._with_reserve(frame)
            fields = performative.parse(frame, 9).fields if code == ATTACH else []
        except PeerError:
            return None, frame
        return self._look_at_attach(fields), frame

    def _look_at_flow(self, frame: bytes) -> Note | None:
        if frame[8:12] == b"\x00\x53\x13\xc0" and frame[13] <= _ECHO and not self.asked:
            return None
        fields = performative.parse(frame, _ECHO + 1)
        echo, wire = fields.field(_ECHO) in TRUES, (frame[6:8], fields.field(_HANDLE))
        if not echo and (not self.asked or wire in self.quiet or wire[1] == NULL):
            return None
        count, credit = (decode(fields.field(place))[0] for place in (_DELIVERY_COUNT, _LINK_CREDIT))
        limit = (count + credit) % 2**32 if isinstance(count, int) and isinstance(credit, int) else None
        return FlowFrame(echo, wire, limit)

    def _look_at_transfer(self, frame: bytes) -> Note | None:
        if self._plain_fields > _RESUME:
            return None
        resumed = performative.parse(frame, _RESUME + 1).field(_RESUME) in TRUES
        return _RESUMED if resumed else None

    def _look_at_attach(self, fields: list[bytes]) -> Note | None:
        unsettled = decode_map(fields[7]) if len(fields) > 7 else None
        incomplete = len(fields) > 8 and fields[8] in TRUES
        if unsettled is None and not incomplete:
            return None
        self._expect_resumed()
        return AttachFrame(unsettled, incomplete)

    def _expect_resumed(self) -> None:
        self._plain -= {_TRANSFERS_LONG}
        self._plain_fields = _RESUME

    def _with_reserve(self, frame: bytes) -> bytes:
        """The peer's open, less in its max-frame-size what will be added to transfers."""
        fields = performative.parse(frame).fields
        limit = decode(fields[2])[0] if len(fields) > 2 else None
        self._remote_max_frame = max(limit, MIN_MAX_FRAME) if isinstance(limit, int) and limit else UNLIMITED
        if self._remote_max_frame == UNLIMITED or self._remote_max_frame - RESERVE < MIN_MAX_FRAME:
            return frame
        fields[2] = uint(self._remote_max_frame - RESERVE).encoded
        return performative.build(frame[6:8], OPEN, fields)

    # -- outgoing

    def announce(self, link: "Link") -> int:
        """The attach that has this number among its properties will be this link's."""
        self._number += 1
        self._announced[self._number] = link
        if link.unsettled is not None:
            self._expect_resumed()
        return self._number

    def resume(self, link: "Link", tag: bytes, aborted: bool) -> None:
        """The next delivery of this tag on the link is a resumed one."""
        tags = self._resumed.setdefault(link, {})
        assert tag not in tags, "resumed already, and not written yet"
        tags[tag] = aborted

    def forget(self, link: "Link") -> None:
        """The link is over; proton writes nothing of it any more."""
        self._announced.pop(link.number, None)
        self._resumed.pop(link, None)
        self.asked.pop(link, None)
        if self._wires.get(link.wire) is link:
            del self._wires[link.wire]

    def rewrite(self, data: bytes) -> bytes:
        """Whole frames, as they are to be sent."""
        if not self._announced and not self._resumed:
            return data
        parts: list[bytes] = []
        start = 0
        at = len(AMQP_HEADER) if data.startswith(AMQP_HEADER) else 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            code = data[at + 10] if size > _HEAD else 0  # proton's frames and descriptors are all of one form
            if code == ATTACH or (code == TRANSFER and self._resumed):
                frame = data[at : at + size]
                parts += data[start:at], self._attach(frame) if code == ATTACH else self._transfer(frame)
                start = at + size
            at += size
        return b"".join((*parts, data[start:]))

    def _attach(self, frame: bytes) -> bytes:
        fields = performative.padded(performative.parse(frame).fields, 14)
        if fields[13] == NULL:  # proton writes no properties at a coordinator
            return frame
        properties, _ = performative.split_list(fields[13], 0)
        assert decode(properties[0])[0] == LINK_NUMBER
        link = self._announced.pop(decode(properties[1])[0])
        fields[13] = performative.join_map(properties[2:]) if len(properties) > 2 else NULL
        link.wire = frame[6:8], fields[1]
        self._wires[link.wire] = link
        if link.is_sender and link.answered and fields[5] != NULL:
            fields[5] = self._with_outcomes(fields[5])
        if link.unsettled is not None:
            self._fit_map(link, frame[6:8], fields)
        fields[8] = TRUE if link.incomplete_unsettled or link.omitted else NULL
        return performative.build(frame[6:8], ATTACH, fields)

    @staticmethod
    def _with_outcomes(source: bytes) -> bytes:
        fields = performative.padded(performative.split_list(source, 3)[0], 10)
        fields[8:10] = _DEFAULT_OUTCOME, _OUTCOMES
        return source[:3] + performative.join_list(fields)

    def _fit_map(self, link: "Link", channel: bytes, fields: list[bytes]) -> None:
        """As much of our map as fits the peer's frames; in the order in which it was given."""
        assert link.unsettled is not None
        fields[7], fields[8] = performative.join_map(()), TRUE
        room = self._remote_max_frame - len(performative.build(channel, ATTACH, fields)) - 6  # lists may get longer
        entries: list[bytes] = []
        omitted = []
        for tag, entry in encode_entries(link.unsettled):
            room -= len(entry)
            if room >= 0:
                entries += entry[: 2 + len(tag)], entry[2 + len(tag) :]
            else:
                omitted.append(tag)
        fields[7] = performative.join_map(entries)
        link.omitted = tuple(omitted)
        link.unsettled = None

    def _transfer(self, frame: bytes) -> bytes:
        fields, end = performative.parse(frame)
        link = self._wires.get((frame[6:8], fields[0]))
        tags = self._resumed.get(link) if link is not None else None
        tag = decode(fields[2])[0]
        if link is None or tags is None or tag not in tags:
            return frame
        aborted = tags.pop(tag)
        if not tags:
            del self._resumed[link]
        return self._resuming(frame, fields, end, aborted)

    def _resuming(self, frame: bytes, fields: list[bytes], end: int, aborted: bool) -> bytes:
        resumed = [*performative.padded(fields, 8), TRUE, *([TRUE] if aborted else [])]
        whole = performative.build(frame[6:8], TRANSFER, resumed, frame[end:])
        if len(whole) <= self._remote_max_frame:
            return whole
        # Only at peers with frames of the least size: proton heeds no reserve there. The rest gets a frame of its own.
        resumed[5] = TRUE
        cut = end + len(frame[end:]) - (len(whole) - self._remote_max_frame) - 1
        first = performative.build(frame[6:8], TRANSFER, resumed, frame[end:cut])
        return first + performative.build(frame[6:8], TRANSFER, fields, frame[cut:])


def link_properties(number: int, properties: Mapping[str, object] | None) -> dict[str, object]:
    """What an announced link tells proton to write for its properties."""
    return {LINK_NUMBER: number, **(properties or {})}
