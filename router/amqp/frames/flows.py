"""Reads a peer's flows: decides which of them need parsing, and changes the flows that proton would misread.

Proton computes with unsigned numbers. A peer may lower its credit or its window below the transfers that are already
under way to it; proton would read the negative difference as room for billions of transfers. `look` notes that the flow
lowers credit or room, and the caller (`Intake`) gives proton a flow without credit or room in its place (`lowered`).

The callers decide what follows from a flow.
"""

import re
from collections.abc import Container
from typing import Final

from router.amqp.format import performative
from router.amqp.format.codec import decode, uint
from router.amqp.format.errors import INVALID_FIELD, UNATTACHED_HANDLE, AmqpError
from router.amqp.format.notes import FlowFrame, SessionError
from router.amqp.format.performative import FLOW, NULL, TRUES
from router.amqp.frames.forms import place
from router.amqp.proton.library import lib
from router.amqp.proton.link import Link

NEXT_INCOMING, WINDOW, NEXT_OUTGOING, HANDLE, DELIVERY_COUNT, LINK_CREDIT, AVAILABLE, DRAIN, ECHO, PROPERTIES = (
    place(FLOW, field)
    for field in (
        "next-incoming-id",
        "incoming-window",
        "next-outgoing-id",
        "handle",
        "delivery-count",
        "link-credit",
        "available",
        "drain",
        "echo",
        "properties",
    )
)
"""The places of the fields in a flow. The fields before the handle belong to the session."""
UINTS: Final = 2**32
HALF: Final = 2**31
NOTHING: Final = b""
BRIMMING: Final = HALF - 1, UINTS - 1
"""Values of a peer's credit to which proton must not add 1: it would read the sum as a negative number, or as 0."""

_UINT: Final = rb"(?:\x43|\x52.|\x70....)"
_MAYBE: Final = rb"(?:\x40|\x43|\x52.|\x70....)"
# A flow of a link in the most common form, without drain, echo and properties.
_is_usual: Final = re.compile(
    rb"\x02\0..\0\x53\x13\xc0..(UINT)(UINT)UINT{2}(UINT)(UINT)(UINT)(?:MAYBE(?:[\x40\x42][\x40\x42]?)?)?\Z".replace(
        b"UINT", _UINT
    ).replace(b"MAYBE", _MAYBE),
    re.DOTALL,
).match
_SIZE: Final = 4  # the number of bytes of a frame before the part that `_is_usual` matches
# The first bytes of the encoding of 2^31. An encoded number with greater first bytes is greater.
_VAST: Final = b"\x70\x80"
_LARGEST: Final = b"\x70\x7f\xff\xff\xff"  # 2^31 - 1


def is_less(number: int, other: int) -> bool:
    """Whether a serial number is less than another one (AMQP 1.0 2.8.10)."""
    return (number - other) % UINTS >= HALF


class Flows:
    """The flows of one connection. `ends` maps the channel and handle of the peer's end of a link to our link."""

    def __init__(self) -> None:
        self.ends: dict[tuple[bytes, int], Link] = {}
        self._usual: dict[tuple[bytes, bytes], Link] = {}  # links, keyed by the channel and the encoded handle
        self._rooms: dict[bytes, int | None] = {}
        """Channel -> the first transfer-id for which the peer has no room; None while its window is 2^31 or more."""

    def begin(self, channel: bytes, window: int) -> None:
        self._rooms[channel] = window if window < HALF else None

    def is_begun(self, channel: bytes) -> bool:
        return channel in self._rooms

    def end(self, channel: bytes) -> None:
        for end in [end for end in self.ends if end[0] == channel]:
            del self.ends[end]
        self._usual.clear()
        self._rooms.pop(channel, None)

    def attached(self, link: Link) -> None:
        self.ends[link.remote_channel, link.remote_handle] = link
        self._usual.clear()

    def detached(self, channel: bytes, handle: int) -> None:
        self.ends.pop((channel, handle), None)
        self._usual.clear()

    def is_usual(self, frame: bytes) -> bool:
        """Whether a flow needs no parsing. If so, this method records the session window and the link credit that the
        flow grants. Hot."""
        found = _is_usual(frame, _SIZE)
        if found is None:
            return False
        channel, number = frame[6:8], int.from_bytes
        next_incoming, window, handle, count, credit = found.groups()
        link, before = self._usual.get((channel, handle)), self._rooms.get(channel)
        if link is None or before is None or window >= _VAST:
            return False
        room = (number(next_incoming[1:]) + number(window[1:])) % UINTS
        if (room - before) % UINTS >= HALF:
            return False
        if link.is_sender:
            limit = (number(count[1:]) + number(credit[1:])) % UINTS
            if link.is_vast or credit >= _LARGEST or (limit - link.limit) % UINTS >= HALF:
                return False
            link.limit = limit
        self._rooms[channel] = room
        return True

    def look(
        self, frame: bytes, fields: list[bytes], attached: Container[tuple[bytes, int]]
    ) -> tuple[FlowFrame | SessionError, bytes]:
        """Parse a flow. Returns its note, and the frame for proton. `attached`: the channel and handle of each of the
        peer's ends. Raises AmqpError if a field of a wrong type should be a number."""
        channel, fields = frame[6:8], performative.padded(fields, PROPERTIES + 1)
        handle = fields[HANDLE]
        if handle != NULL and (channel, _checked(handle)) not in attached:
            return SessionError(
                channel, UNATTACHED_HANDLE, f"the peer sent a flow on handle {_checked(handle)}, which is not attached"
            ), frame
        # The field is null if the peer has not read our begin, which has next-outgoing-id 0.
        if fields[NEXT_INCOMING] == NULL:
            fields[NEXT_INCOMING] = uint(0).encoded
            frame = performative.build(channel, FLOW, fields)
        window = _checked(fields[WINDOW])
        room, before = (_checked(fields[NEXT_INCOMING]) + window) % UINTS, self._rooms.get(channel)
        lowers = window < HALF and (before is None or is_less(room, before))
        self._rooms[channel] = room if window < HALF else None
        echo, drain, properties = fields[ECHO] in TRUES, fields[DRAIN] in TRUES, fields[PROPERTIES]
        link = self.ends.get((channel, _checked(handle))) if handle != NULL else None
        count, credit = (None if fields[at] == NULL else _checked(fields[at]) for at in (DELIVERY_COUNT, LINK_CREDIT))
        limit = (count + credit) % UINTS if count is not None and credit is not None else None
        is_vast, turns, former = False, False, 0
        if link is not None:
            self._usual[channel, handle] = link
        if link is not None and link.is_sender and credit in BRIMMING and lib.pn_link_queued(link.pointer):
            # Proton adds 1 to the credit if a delivery is written in part, and would misread the sum.
            credit -= 1
            fields[LINK_CREDIT] = uint(credit).encoded
            frame = performative.build(channel, FLOW, fields)
        if link is not None and link.is_sender:
            is_vast, former = (credit or 0) >= HALF, link.limit
            # A flow without delivery-count shows that the peer has not read our attach, which has the count 0.
            link.limit = ((count or 0) + (credit or 0)) % UINTS
            turns = is_vast != link.is_vast
            lowers = lowers or (not is_vast and (turns or is_less(link.limit, former)))
        elif link is not None and count is None:
            raise AmqpError(INVALID_FIELD, "a flow of the sender lacks its delivery-count")
        return FlowFrame(echo, drain, (channel, handle), limit, properties, is_vast, turns, lowers, former), frame

    def lowered(self, frame: bytes, note: FlowFrame, written: bytes) -> bytes:
        """The flow that proton gets in place of the peer's `frame`, which lowers credit or room. Its numbers begin at
        the transfers that this side has already written (AMQP 1.0 2.4.6). `written`: this side's output so far. The
        result is empty, and proton gets no flow, if the output does not end with this side's flow for the session: then
        this side has written its close, or the engine has failed."""
        *_, ours = (NOTHING, *performative.frames_of(written))
        if not ours or performative.code_of(ours) != FLOW:
            return NOTHING
        fields = performative.padded(performative.parse(frame).fields, PROPERTIES + 1)
        sent = _checked(performative.parse(ours).fields[NEXT_OUTGOING])
        room = _take_off(fields, NEXT_INCOMING, WINDOW, sent)
        if self._rooms[note.wire[0]] is not None:
            # Remember the reduced room, because proton knows only this room: the next flow is compared with it.
            self._rooms[note.wire[0]] = room
        link = self._usual.get(note.wire)
        if link is not None and link.is_sender:
            left = lib.pn_link_credit(link.pointer) + lib.pn_link_queued(link.pointer)
            link.limit = _take_off(fields, DELIVERY_COUNT, LINK_CREDIT, (note.former - left) % UINTS)
        return performative.build(note.wire[0], FLOW, fields)


def _take_off(fields: list[bytes], start: int, amount: int, used: int) -> int:
    """Move the start of a credit or a window to `used`, and keep its end. Two fields of the flow state the credit or
    window: field `start` has the number at which it starts, and field `amount` has its size. If the new start is beyond
    the end, the size becomes 0. Returns the end."""
    size = 0 if fields[amount] == NULL else _checked(fields[amount])
    left = ((0 if fields[start] == NULL else _checked(fields[start])) + size - used) % UINTS
    if left >= HALF > size:
        left = 0
    fields[start], fields[amount] = uint(used).encoded, uint(left).encoded
    return (used + left) % UINTS


def _checked(encoded: bytes) -> int:
    """Decode a number of a flow. Raises AmqpError if the field is no uint."""
    value = decode(encoded)[0]
    if type(value) is not int or not 0 <= value < UINTS:
        raise AmqpError(INVALID_FIELD, f"a field of a flow is {value!r}, expected a number")
    return value
