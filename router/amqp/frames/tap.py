"""The frame tap: reads and changes the frames between proton and the socket, because proton lacks parts of AMQP.

Proton neither reads nor writes the unsettled map of an attach and the message-format of a transfer, writes no `resume`,
ignores `flow.echo`, and cuts names off at a NUL (AMQP 1.0 2.6.13, 2.7.3 to 2.7.5). The tap begins after SASL:

- `split` divides the input into pieces. Most pieces go to proton without change. A frame that says more than proton
  reads is a piece of its own, with a note (`notes`). So the caller knows which event of proton belongs to this frame.
- `additions` adds to outgoing frames what proton cannot write.

The tap refuses frames that are malformed, or that have fields of a wrong type (`forms`).

The tap does not know the meaning of maps, resumed deliveries and echoes (`echo`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Final

from router.amqp.format import performative
from router.amqp.format.codec import encode, uint
from router.amqp.format.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    NOT_ALLOWED,
    UNATTACHED_HANDLE,
    AmqpError,
    LimitError,
)
from router.amqp.format.notes import (
    AttachFrame,
    BeginFrame,
    EndFrame,
    LaterDisposition,
    Note,
    Piece,
    SessionError,
    TransactionalDisposition,
    TransferFrame,
    UnnamedFrame,
    Wire,
)
from router.amqp.format.performative import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    NULL,
    OPEN,
    TRANSFER,
    TRUES,
)
from router.amqp.format.unsettled import decode_map
from router.amqp.frames.additions import MIN_MAX_FRAME, Additions
from router.amqp.frames.bounds import bounded
from router.amqp.frames.fields import alias_of, check_name, first_of, number_of, transaction_in
from router.amqp.frames.flows import Flows
from router.amqp.frames.forms import (
    DELIVERY_ID,
    DELIVERY_TAG,
    MESSAGE_FORMAT,
    RESUME,
    STATE,
    check_nesting,
    place,
    usual,
)
from router.amqp.frames.settlements import Settlements
from router.amqp.frames.walk import HEAD, Walk
from router.amqp.proton.link import Link

NOTHING: Final = b""
UNLIMITED: Final = 2**32 - 1
# The highest number of bytes that the fields `resume` and `aborted` add to a transfer.
RESERVE: Final = 8

_NAMES: Final = {DELIVERY_ID: "delivery-id", DELIVERY_TAG: "delivery-tag"}
_FIRST, _LAST, _SETTLED, _STATE = (place(DISPOSITION, field) for field in ("first", "last", "settled", "state"))
_WINDOW, _HANDLE_MAX = (place(BEGIN, field) for field in ("incoming-window", "handle-max"))


class Tap:
    """The tap of one connection. `asked`: for each link with an echo that the peer has not answered, the limit of
    credit in our flow with the echo; None until this flow is written. `quiet`: ends of the peer with a flow that turned
    out to answer no echo. The tap writes no further notes about the flows of these ends, until we send the next
    echo."""

    def __init__(self, max_frame: int, most_unsettled: int) -> None:
        self.asked: dict[Link, int | None] = {}
        self.quiet: set[Wire] = set()
        self.settlements = Settlements()
        # The walk gets the size limit for frames of the peer.
        self._walk = Walk(max(max_frame, MIN_MAX_FRAME), self.settlements.told)
        self.additions = Additions(self._walk, self.settlements)
        self.flows = Flows()
        self._most_unsettled = most_unsettled
        # Channel, link name and direction -> how many links of this name the peer has not detached.
        self._places: dict[tuple[bytes, str, bool], int] = {}
        self._stolen = 0
        self._let_gone: set[tuple[bytes, int]] = set()
        # The beginning of an incomplete frame that must not go to proton in parts.
        self._held = b""
        # The number of following bytes that go to proton unread: the AMQP header, or the rest of a frame.
        self._skip = len(AMQP_HEADER)
        # True if the input is malformed. Proton then gets the rest, and ends the connection.
        self._broken = False

    # -- The methods from here on handle incoming frames.

    def split(self, data: bytes) -> Iterator[Piece]:
        """The pieces of an input, in order. Raises AmqpError if the input is malformed, or has a name with a NUL."""
        data, self._held = self._held + data if self._held else data, b""
        self._walk.begin()
        start, end = 0, len(data)
        at = end if self._broken else self._skip
        while (at := self._walk.past(data, at)) < end:
            size = int.from_bytes(data[at : at + 4], "big")
            if at + 8 <= end and size < 8:
                self._broken = True
                break
            if size > self._walk.max_frame:
                if start < at:
                    yield data, start, at, None
                what = f"the peer sent a frame of {size} bytes, expected at most {self._walk.max_frame}"
                raise LimitError("max_frame", what, FRAMING_ERROR)
            if at + max(size, 8) > end and not self._goes_on(data[at:]):
                self._held = data[at:]
                end = at
                break
            frame = data[at : at + size]
            try:
                note, replaced = self._look(frame) if at + size <= end else (None, frame)
            except AmqpError:
                if start < at:
                    yield data, start, at, None
                raise
            if note is not None or replaced is not frame:
                if start < at:
                    yield data, start, at, None
                if replaced:
                    yield replaced, 0, len(replaced), note
                start = at + size
            at += size
        self._skip = max(0, at - end)
        if start < end:
            yield data, start, end, None

    def _goes_on(self, begin: bytes) -> bool:
        """Whether the beginning of an incomplete frame may go to proton at once. A large transfer must not wait,
        because proton counts its bytes for the idle timeout."""
        if len(begin) <= HEAD or not performative.is_usual(begin) or begin[10] != TRANSFER:
            return False
        try:
            fields = performative.parse(begin).fields
        except AmqpError:
            return False
        return self._look_at_transfer(begin[6:8], fields) is None

    def _look(self, frame: bytes) -> tuple[Note | None, bytes]:
        """The note of a frame, and the frame that proton gets; empty if proton does not get it."""
        # A heartbeat is a frame without a performative.
        code = performative.code_of(frame)
        if code == FLOW and not self.asked and self.flows.is_usual(frame):
            return None, frame
        if not OPEN <= code <= CLOSE:
            return None, frame
        channel = frame[6:8]
        if code == OPEN and any(channel):
            raise AmqpError(FRAMING_ERROR, f"the peer sent its open on channel {int.from_bytes(channel)}, expected 0")
        if channel in self._walk.ended and code not in (OPEN, CLOSE):
            if code == END:
                self._walk.ended.remove(channel)
            return None, NOTHING
        found, end = performative.parse(frame)
        fields = usual(code, found)
        bound = bounded(code, fields)
        check_nesting(code, bound)
        if bound is not found or not performative.is_usual(frame):
            frame = performative.build(channel, code, bound, frame[end:])
        if code == OPEN:
            return None, self._look_at_open(frame, fields)
        if code == FLOW:
            return self._look_at_flow(frame, fields)
        if code == DETACH and (channel, number_of(fields, 0)) in self._let_gone:
            self._let_gone.remove((channel, number_of(fields, 0) or 0))
            self._look_at_detach(channel, fields)
            return None, NOTHING
        if code == ATTACH:
            return self._look_at_attach(frame, fields)
        if code == DISPOSITION:
            return self._look_at_disposition(frame, fields)
        return self._look_at[code](self, channel, fields), frame

    def _look_at_open(self, frame: bytes, fields: list[bytes]) -> bytes:
        """The peer's open, with a max-frame-size that is reduced by the bytes that `additions` may add to a
        transfer."""
        check_name(fields[0] if fields else NULL, "a container-id")
        limit = number_of(fields, 2)
        most = self.additions.max_frame = max(limit, MIN_MAX_FRAME) if limit else UNLIMITED
        self.additions.is_known = True
        if most == UNLIMITED or most - RESERVE < MIN_MAX_FRAME:
            return frame
        fields[2] = uint(most - RESERVE).encoded
        return performative.build(frame[6:8], OPEN, fields)

    def _look_at_begin(self, channel: bytes, fields: list[bytes]) -> Note:
        if self.flows.is_begun(channel):
            raise AmqpError(NOT_ALLOWED, f"the peer sent a begin on channel {int.from_bytes(channel)}, which is in use")
        self.flows.begin(channel, number_of(fields, _WINDOW) or 0)
        handle_max = number_of(fields, _HANDLE_MAX)
        return BeginFrame(channel, UNLIMITED if handle_max is None else handle_max)

    def _look_at_end(self, channel: bytes, fields: list[bytes]) -> Note:
        self._forget_session(channel)
        return EndFrame(channel)

    def end_session(self, channel: bytes) -> None:
        """We have ended the session: ignore its frames until the peer's end (AMQP 1.0 2.5.5)."""
        self._walk.ended.add(channel)
        self._forget_session(channel)

    def _forget_session(self, channel: bytes) -> None:
        self._walk.end(channel)
        self._places = {end: count for end, count in self._places.items() if end[0] != channel}
        self._let_gone = {end for end in self._let_gone if end[0] != channel}
        self.flows.end(channel)

    def _look_at_attach(self, frame: bytes, fields: list[bytes]) -> tuple[Note, bytes]:
        name, channel = check_name(fields[0], "a link name"), frame[6:8]
        for terminus in fields[5:7]:
            check_name(first_of(terminus), "an address")
        handle = number_of(fields, 1) or 0
        if (channel, handle) in self._walk.attached:
            return SessionError(
                channel, HANDLE_IN_USE, f"the peer sent an attach on handle {handle}, which is in use"
            ), frame
        end = channel, name, fields[2] not in TRUES
        # True if the peer already has a link of this name, attached or stolen, and has not detached it.
        steals = end in self._places
        if steals:
            self._stolen += 1
            fields[0] = encode(alias_of(name, self._stolen))
            frame = performative.build(channel, ATTACH, fields)
        self._places[end] = self._places.get(end, 0) + 1
        self._walk.attached[channel, handle] = end
        self._walk.forget()
        unsettled = decode_map(fields[7], self._most_unsettled) if len(fields) > 7 else None
        incomplete = len(fields) > 8 and fields[8] in TRUES
        if unsettled is not None or incomplete:
            self._walk.expect_resumed()
        return AttachFrame(channel, handle, unsettled, incomplete, steals), frame

    def _look_at_detach(self, channel: bytes, fields: list[bytes]) -> Note | None:
        handle = number_of(fields, 0) or 0
        if (channel, handle) not in self._walk.attached:
            return SessionError(
                channel, UNATTACHED_HANDLE, f"the peer sent a detach on handle {handle}, which is not attached"
            )
        end = self._walk.attached.pop((channel, handle))
        self._places[end] -= 1
        if not self._places[end]:
            del self._places[end]
        self._walk.forget()
        self.flows.detached(channel, handle)
        return None

    def let_go(self, link: Link) -> None:
        """Proton was given a detach of this link in the peer's place. Ignore the link's frames until the peer's own
        detach."""
        self._let_gone.add((link.remote_channel, link.remote_handle))
        self.flows.detached(link.remote_channel, link.remote_handle)

    def _look_at_flow(self, frame: bytes, fields: list[bytes]) -> tuple[Note | None, bytes]:
        if self._let_gone and (frame[6:8], number_of(fields, 4)) in self._let_gone:
            # Proton gets only the fields that concern the session.
            fields = fields[:4]
            frame = performative.build(frame[6:8], FLOW, fields)
        note, frame = self.flows.look(frame, fields, self._walk.attached)
        if isinstance(note, SessionError) or note.is_odd:
            return note, frame
        tells = note.properties != NULL or (self.asked and note.wire not in self.quiet)
        return (note if tells and note.wire[1] != NULL else None), frame

    def _look_at_transfer(self, channel: bytes, fields: list[bytes]) -> Note | None:
        handle = number_of(fields, 0) or 0
        if (channel, handle) not in self._walk.attached:
            return SessionError(
                channel, UNATTACHED_HANDLE, f"the peer sent a transfer on handle {handle}, which is not attached"
            )
        resumed = self._walk.fields == RESUME < len(fields) and fields[RESUME] in TRUES
        message_format = number_of(fields, MESSAGE_FORMAT) or 0
        transactional = len(fields) > STATE and transaction_in(fields[STATE]) is not None
        note = TransferFrame(resumed, message_format, transactional)
        meant = note if any(note) else None
        for at, name in _NAMES.items():
            if len(fields) <= at or fields[at] == NULL:
                return UnnamedFrame(channel, handle, name, meant)
        return meant

    def _look_at_close(self, channel: bytes, fields: list[bytes]) -> None:
        """Nothing to note: proton handles a close."""

    def _look_at_disposition(self, frame: bytes, fields: list[bytes]) -> tuple[Note | None, bytes]:
        """The note of a disposition. If several dispositions name one delivery, proton reports only the last, even if
        an earlier one has settled the delivery. So a receiver's disposition that does not settle gets a note if others
        before it settle: the caller handles those first. A sender's disposition that does not settle is dropped,
        because no code reads its state."""
        settles = len(fields) > _SETTLED and fields[_SETTLED] in TRUES
        if fields[0] not in TRUES:
            self.settlements.take(frame[6:8], fields)
            return None, frame if settles else NOTHING
        is_later, self._walk.settles = self._walk.settles and not settles, settles
        transaction = transaction_in(fields[_STATE]) if len(fields) > _STATE else None
        if transaction is not None:
            first = number_of(fields, _FIRST) or 0
            last = number_of(fields, _LAST)
            count = (last - first) % (1 << 32) + 1 if last is not None else 1
            return TransactionalDisposition(transaction, count), frame
        return LaterDisposition() if is_later else None, frame

    _look_at: ClassVar[Mapping[int, Callable[["Tap", bytes, list[bytes]], Note | None]]] = {
        BEGIN: _look_at_begin,
        TRANSFER: _look_at_transfer,
        DETACH: _look_at_detach,
        END: _look_at_end,
        CLOSE: _look_at_close,
    }
