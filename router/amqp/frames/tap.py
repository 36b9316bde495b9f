"""The frame tap: what proton cannot say or hear, added to and read from the frames between it and the socket.

Proton neither reads nor writes the unsettled map of an attach and the message-format of a transfer, writes no `resume`,
ignores `flow.echo`, and cuts names off at a NUL (AMQP 1.0 2.6.13, 2.7.3 to 2.7.5). The tap stands between the bytes of
the socket, SASL done, and proton's:

- Incoming (`split`), it tells the pieces that proton may take as they are from the frames that mean more than proton
  sees (`notes`). Those come one by one with a note, so that the event they cause is known to be theirs.
- Outgoing (`rewrite`), frames that were announced (`announce`, `resume`, `envelope`) get what was asked for; with
  nothing announced the output is not even looked at.

What is damaged passes: proton judges it. Only damaged maps and names are refused here.

Never here: what maps and resumed deliveries mean, and flow (`echo`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Final

from router.amqp.format import performative
from router.amqp.format.codec import decode, uint
from router.amqp.format.errors import FRAMING_ERROR, AmqpError, LimitError
from router.amqp.format.message import ENVELOPE_SIZE, format_of
from router.amqp.format.notes import AttachFrame, BeginFrame, FlowFrame, Note, Piece, StrayFrame, TransferFrame, Wire
from router.amqp.format.performative import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    FLOW,
    NULL,
    OPEN,
    TRANSFER,
    TRUE,
    TRUES,
)
from router.amqp.format.unsettled import decode_map, encode_entries
from router.amqp.format.values import RCV_SECOND
from router.amqp.frames.bounds import bounded
from router.amqp.frames.fields import check_name, first_of, is_transactional, number_of, with_outcomes
from router.amqp.frames.settlements import Settlements
from router.amqp.frames.walk import HEAD, Walk
from router.amqp.proton.deliveries import LinkDeliveries
from router.amqp.proton.link import LINK_NUMBER, Link

MIN_MAX_FRAME: Final = 512  # AMQP 1.0 2.4.1; also what holds before the peer's open
UNLIMITED: Final = 2**32 - 1
RESERVE: Final = 8  # what `resume` and `aborted` may add to a transfer

_SHORT_FLOW: Final = b"\x00\x53\x13\xc0"
_MESSAGE_FORMAT, _TRANSFER_STATE, _RESUME = 3, 7, 8  # places of these fields in a transfer
_HANDLE, _DELIVERY_COUNT, _LINK_CREDIT, _ECHO, _PROPERTIES = 4, 5, 6, 9, 10  # the same in a flow


class Tap:
    """One a connection. `asked` has the links that wait for an echo, and what `echo` has to know of each; `quiet` the
    peer's ends of others, whose flows need no look meanwhile."""

    def __init__(self, max_frame: int, most_unsettled: int) -> None:
        self.asked: dict[Link, int | None] = {}
        self.quiet: set[Wire] = set()
        self.settlements = Settlements()
        self._walk = Walk(max(max_frame, MIN_MAX_FRAME), self.settlements.told)  # ours, the limit of what comes in
        self._most_unsettled = most_unsettled
        self._remote_max_frame = MIN_MAX_FRAME
        self._held = b""  # the begin of a frame that has to be seen whole
        self._skip = len(AMQP_HEADER)  # so many bytes to come belong to what proton has in part already
        self._broken = False  # no frames any more: proton ends it
        self._announced: dict[int, Link] = {}  # by number: opened, attach not written yet
        self._number = 0
        self._resumed: dict[LinkDeliveries, dict[bytes, bool]] = {}  # by tag, of deliveries: whether to abort
        self._envelopes: dict[LinkDeliveries, dict[bytes, list[bytes]]] = {}  # by tag: of deliveries to be written
        self._wires: dict[Wire, Link] = {}  # of our ends
        self._ended: set[bytes] = set()  # the peer's channels of sessions that we have ended

    # -- incoming

    def split(self, data: bytes) -> Iterator[Piece]:
        """The pieces of an input, in order. Raises AmqpError at names that proton would cut off, and damaged maps."""
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
                raise LimitError("max_frame", f"a frame of {size} bytes", FRAMING_ERROR)
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
                yield replaced, 0, len(replaced), note
                start = at + size
            at += size
        self._skip = max(0, at - end)
        if start < end:
            yield data, start, end, None

    def _goes_on(self, begin: bytes) -> bool:
        """Whether a frame need not be held until it is whole: it may be large, and proton takes what it is given for
        the peer's sign of life."""
        if len(begin) <= HEAD or performative.code_of(begin) != TRANSFER:
            return False
        try:
            fields = performative.parse(begin).fields
        except AmqpError:
            return False
        return self._look_at_transfer(begin[6:8], fields) is None

    def _look(self, frame: bytes) -> tuple[Note | None, bytes]:
        """What a frame means, and how proton is to take it."""
        code = performative.code_of(frame) if len(frame) > HEAD else 0  # a heartbeat, an end without an error
        if code == FLOW and frame[8:12] == _SHORT_FLOW and frame[13] <= _ECHO and not self.asked:
            return None, frame
        if not OPEN <= code <= CLOSE:
            return None, frame
        try:
            fields = performative.parse(frame).fields
        except AmqpError:
            if code == OPEN:  # proton leaves it out, and waits for another
                raise
            return None, frame
        bound = bounded(code, fields)
        if code == OPEN:
            return None, self._look_at_open(frame, fields)
        if bound is not fields:
            frame = performative.build(frame[6:8], code, bound)
        look = self._look_at.get(code)
        return look(self, frame[6:8], fields) if look is not None else None, frame

    def _look_at_open(self, frame: bytes, fields: list[bytes]) -> bytes:
        """The peer's, less in its max-frame-size what will be added to transfers."""
        check_name(fields[0] if fields else NULL, "a container-id")
        limit = number_of(fields, 2)
        self._remote_max_frame = max(limit, MIN_MAX_FRAME) if limit else UNLIMITED
        if self._remote_max_frame == UNLIMITED or self._remote_max_frame - RESERVE < MIN_MAX_FRAME:
            return frame
        fields[2] = uint(self._remote_max_frame - RESERVE).encoded
        return performative.build(frame[6:8], OPEN, fields)

    def _look_at_begin(self, channel: bytes, fields: list[bytes]) -> Note:
        return BeginFrame(channel)

    def end_session(self, channel: bytes) -> None:
        """We have ended it: its transfers are for nobody, also on what is attached from now on."""
        self._ended.add(channel)
        self._walk.end(channel)
        self.settlements.end(channel)

    def forget_session(self, channel: bytes) -> None:
        """The peer has ended it, too: the channel is free."""
        self.end_session(channel)
        self._ended.discard(channel)

    def _look_at_attach(self, channel: bytes, fields: list[bytes]) -> Note:
        check_name(fields[0] if fields else NULL, "a link name")
        for terminus in fields[5:7]:
            check_name(first_of(terminus), "an address")
        if channel not in self._ended:
            self._walk.attached.add((channel, number_of(fields, 1) or 0))
            self._walk.forget()
        unsettled = decode_map(fields[7], self._most_unsettled) if len(fields) > 7 else None
        incomplete = len(fields) > 8 and fields[8] in TRUES
        if unsettled is not None or incomplete:
            self._expect_resumed()
        return AttachFrame(channel, unsettled, incomplete)

    def _look_at_detach(self, channel: bytes, fields: list[bytes]) -> None:
        self._walk.attached.discard((channel, number_of(fields, 0) or 0))
        self._walk.forget()

    def _look_at_flow(self, channel: bytes, fields: list[bytes]) -> Note | None:
        fields = performative.padded(fields, _PROPERTIES + 1)
        echo, wire, properties = fields[_ECHO] in TRUES, (channel, fields[_HANDLE]), fields[_PROPERTIES]
        tells = properties != NULL or (self.asked and wire not in self.quiet)
        if not echo and (wire[1] == NULL or not tells):
            return None
        count, credit = number_of(fields, _DELIVERY_COUNT), number_of(fields, _LINK_CREDIT)
        limit = (count + credit) % 2**32 if count is not None and credit is not None else None
        return FlowFrame(echo, wire, limit, properties)

    def _look_at_transfer(self, channel: bytes, fields: list[bytes]) -> Note | None:
        handle = number_of(fields, 0) or 0
        if (channel, handle) not in self._walk.attached:
            return StrayFrame(channel, handle)
        resumed = self._walk.fields == _RESUME < len(fields) and fields[_RESUME] in TRUES
        message_format = number_of(fields, _MESSAGE_FORMAT) or 0
        transactional = len(fields) > _TRANSFER_STATE and is_transactional(fields[_TRANSFER_STATE])
        note = TransferFrame(resumed, message_format, transactional)
        return note if any(note) else None

    def _look_at_disposition(self, channel: bytes, fields: list[bytes]) -> None:
        self.settlements.take(channel, fields)

    _look_at: ClassVar[Mapping[int, Callable[["Tap", bytes, list[bytes]], Note | None]]] = {
        BEGIN: _look_at_begin,
        ATTACH: _look_at_attach,
        FLOW: _look_at_flow,
        TRANSFER: _look_at_transfer,
        DISPOSITION: _look_at_disposition,
        DETACH: _look_at_detach,
    }

    def _expect_resumed(self) -> None:
        self._walk.fields = _RESUME
        self._walk.forget()

    # -- outgoing

    def announce(self, link: Link) -> int:
        """The attach that has this number among its properties will be this link's."""
        self._number += 1
        self._announced[self._number] = link
        if link.unsettled is not None:
            self._expect_resumed()
        return self._number

    def resume(self, link: LinkDeliveries, tag: bytes, aborted: bool) -> None:
        """The next delivery of this tag on the link is a resumed one."""
        tags = self._resumed.setdefault(link, {})
        assert tag not in tags, "resumed already, and not written yet"
        tags[tag] = aborted

    def envelope(self, link: LinkDeliveries, tag: bytes, message: bytes) -> None:
        """The next delivery of this tag on the link that begins so has its message in an envelope (`message`)."""
        self._envelopes.setdefault(link, {}).setdefault(tag, []).append(message[:ENVELOPE_SIZE])

    def forget(self, link: Link) -> None:
        """The link is over; proton writes nothing of it any more."""
        self._announced.pop(link.number, None)
        self._resumed.pop(link, None)
        self._envelopes.pop(link, None)
        self.asked.pop(link, None)
        if self._wires.get(link.wire) is link:
            del self._wires[link.wire]

    def rewrite(self, data: bytes) -> bytes:
        """Whole frames, as they are to be sent."""
        transfers = self._resumed or self._envelopes
        if not self._announced and not transfers:
            return data
        parts: list[bytes] = []
        start = 0
        at = len(AMQP_HEADER) if data.startswith(AMQP_HEADER) else 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            code = data[at + 10] if size > HEAD else 0  # proton's frames and descriptors are all of one form
            if code == ATTACH or (code == TRANSFER and transfers):
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
            fields[5] = with_outcomes(fields[5])
        if link.answered and not link.is_sender and link.remote_rcv_settle_mode == RCV_SECOND:
            self.settlements.begin(link.remote_channel, link)
            self._walk.forget()
        if link.unsettled is not None:
            self._fit_map(link, frame[6:8], fields)
        fields[8] = TRUE if link.incomplete_unsettled or link.omitted else NULL
        return performative.build(frame[6:8], ATTACH, fields)

    def _fit_map(self, link: Link, channel: bytes, fields: list[bytes]) -> None:
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
        if link is None:
            return frame
        tag = decode(fields[2])[0]
        payload = self._taken_out(link, tag, fields, frame[end:])
        tags = self._resumed.get(link, {})
        if tag not in tags:
            return performative.build(frame[6:8], TRANSFER, fields, payload)
        aborted = tags.pop(tag)
        if not tags:
            del self._resumed[link]
        return self._resuming(frame[6:8], fields, payload, aborted)

    def _taken_out(self, link: Link, tag: bytes, fields: list[bytes], payload: bytes) -> bytes:
        """The payload without its envelope, whose message-format goes where AMQP has it."""
        envelopes = self._envelopes.get(link, {}).get(tag)
        if not envelopes or not payload.startswith(envelopes[0]):
            return payload
        fields[_MESSAGE_FORMAT] = uint(format_of(envelopes.pop(0))).encoded
        if not envelopes:
            del self._envelopes[link][tag]
            if not self._envelopes[link]:
                del self._envelopes[link]
        return payload[ENVELOPE_SIZE:]

    def _resuming(self, channel: bytes, fields: list[bytes], payload: bytes, aborted: bool) -> bytes:
        resumed = [*performative.padded(fields, 8), TRUE, *([TRUE] if aborted else [])]
        whole = performative.build(channel, TRANSFER, resumed, payload)
        if len(whole) <= self._remote_max_frame:
            return whole
        # Only at peers with frames of the least size: proton heeds no reserve there. The rest gets a frame of its own.
        resumed[5] = TRUE
        cut = len(payload) - (len(whole) - self._remote_max_frame) - 1
        first = performative.build(channel, TRANSFER, resumed, payload[:cut])
        return first + performative.build(channel, TRANSFER, fields, payload[cut:])
