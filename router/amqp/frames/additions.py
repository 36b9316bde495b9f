"""The outgoing half of the tap: adds to proton's frames the fields that proton cannot write.

`announce`, `resume` and `envelope` note fields for a later frame. Without such notes, the output is not parsed.

The callers know what maps and resumed deliveries mean.
"""

from typing import Final

from router.amqp.format import performative
from router.amqp.format.codec import Symbol, decode, encode, uint
from router.amqp.format.errors import AmqpError
from router.amqp.format.message import ENVELOPE_SIZE, format_of
from router.amqp.format.notes import Wire
from router.amqp.format.performative import AMQP_HEADER, ATTACH, NULL, OPEN, TRANSFER, TRUE, TRUES
from router.amqp.format.unsettled import encode_entries
from router.amqp.format.values import RCV_SECOND
from router.amqp.frames.fields import with_outcomes
from router.amqp.frames.forms import MESSAGE_FORMAT, MORE, place
from router.amqp.frames.room import SMALL, fitted
from router.amqp.frames.settlements import Settlements
from router.amqp.frames.walk import HEAD, Walk
from router.amqp.proton.deliveries import LinkDeliveries
from router.amqp.proton.link import LINK_NUMBER, Link

_OFFERED: Final = place(ATTACH, "offered-capabilities")
# The smallest max-frame-size of AMQP (1.0 2.4.1). It also limits our frames before the peer's open has arrived.
MIN_MAX_FRAME: Final = 512


class Additions:
    """The fields that are added to the frames of one connection."""

    def __init__(self, walk: Walk, settlements: Settlements) -> None:
        self.max_frame = MIN_MAX_FRAME
        """The peer's max-frame-size, in bytes."""
        self.is_known = False
        """Whether the peer's open, which gives `max_frame`, has arrived."""
        self.misfit: AmqpError | None = None
        """The error of a frame that must be sent, but is larger than the peer's frames."""
        self._opens = True  # True until our open frame is written
        self._walk = walk
        self._settlements = settlements
        # Maps the number of an attach to its link, until the attach is written.
        self._announced: dict[int, Link] = {}
        self._number = 0
        # For each link, maps the tag of a resumed delivery to whether the delivery is to be aborted.
        self._resumed: dict[LinkDeliveries, dict[bytes, bool]] = {}
        # For each link, maps a tag to the envelopes of the deliveries with this tag that are not written yet.
        self._envelopes: dict[LinkDeliveries, dict[bytes, list[bytes]]] = {}
        # Links that have written only a part of a message that was in an envelope.
        self._going_on: set[LinkDeliveries] = set()
        self._wires: dict[Wire, Link] = {}  # maps the channel and handle of our end to its link

    @property
    def owes(self) -> bool:
        """Whether an attach of ours is still to be written."""
        return bool(self._announced)

    def announce(self, link: Link) -> int:
        """Proton will write an attach of this link. Returns the number that the attach must carry among its properties,
        so that `rewrite` finds the link."""
        self._number += 1
        self._announced[self._number] = link
        if link.unsettled is not None:
            self._walk.expect_resumed()
        return self._number

    def resume(self, link: LinkDeliveries, tag: bytes, aborted: bool) -> None:
        """Mark the next delivery with this tag on the link as resumed."""
        tags = self._resumed.setdefault(link, {})
        assert tag not in tags, "resumed already, and not written yet"
        tags[tag] = aborted

    def envelope(self, link: LinkDeliveries, tag: bytes, message: bytes) -> None:
        """The message of the next delivery with this tag on the link is in an envelope (`router.amqp.format.message`),
        and `rewrite` removes the envelope."""
        self._envelopes.setdefault(link, {}).setdefault(tag, []).append(message[:ENVELOPE_SIZE])

    def forget(self, link: Link) -> None:
        """Forget a link that has ended: proton writes no more frames for it."""
        self._announced.pop(link.number, None)
        self._resumed.pop(link, None)
        self._envelopes.pop(link, None)
        self._going_on.discard(link)
        if self._wires.get(link.wire) is link:
            del self._wires[link.wire]

    def rewrite(self, data: bytes) -> bytes:
        """Turn whole frames of proton into the frames to send."""
        transfers = bool(self._resumed or self._envelopes or self._going_on)
        is_small = self.is_known and self.max_frame < SMALL
        if not self._announced and not transfers and not self._opens and not is_small:
            return data
        parts: list[bytes] = []
        start = 0
        at = len(AMQP_HEADER) if data.startswith(AMQP_HEADER) else 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            # Proton writes all its frames and descriptors in one form, so the code is at a fixed place.
            code = data[at + 10] if size > HEAD else 0
            if code == ATTACH or (code == TRANSFER and transfers):
                frame = data[at : at + size]
                parts += data[start:at], self._attach(frame) if code == ATTACH else self._transfer(frame)
                start = at + size
            elif code == OPEN or (is_small and size > self.max_frame):
                parts += data[start:at], self._fitted(data[at : at + size])
                start = at + size
                self._opens = self._opens and code != OPEN
            at += size
        return b"".join((*parts, data[start:]))

    def _fitted(self, frame: bytes) -> bytes:
        """The frame, shortened to the peer's max-frame-size. If that is impossible, sets `misfit` and returns
        nothing."""
        if not self.is_known:
            return frame
        try:
            return fitted(frame, self.max_frame)
        except AmqpError as error:
            self.misfit = error
            return b""

    def _attach(self, frame: bytes) -> bytes:
        fields = performative.padded(performative.parse(frame).fields, 14)
        # Proton writes no properties for a link to a coordinator, so the link is found by its name.
        if fields[13] == NULL:
            number = self._number_of(decode(fields[0])[0], is_sender=fields[2] not in TRUES)
            link = self._announced.pop(number)
            link.wire = frame[6:8], fields[1]
            return frame
        properties, _ = performative.split_list(fields[13], 0)
        assert decode(properties[0])[0] == LINK_NUMBER
        link = self._announced.pop(decode(properties[1])[0])
        fields[13] = performative.join_map(properties[2:]) if len(properties) > 2 else NULL
        # Replace proton's alias of the link by the link's name.
        fields[0] = encode(link.name)
        link.wire = frame[6:8], fields[1]
        self._wires[link.wire] = link
        if link.is_sender and link.answered and fields[5] != NULL:
            fields[5] = with_outcomes(fields[5])
        # Do not enter a link that has ended among the publishers, because its channel may be used again.
        is_publisher = link.answered and not link.is_sender and not link.ended
        if is_publisher and link.remote_rcv_settle_mode == RCV_SECOND:
            self._settlements.begin(link.remote_channel, link)
            self._walk.forget()
        if link.unsettled is not None:
            self._fit_map(link, frame[6:8], fields)
        if link.offers:
            fields[_OFFERED] = encode(Symbol(link.offers))
        fields[8] = TRUE if link.incomplete_unsettled or link.omitted else NULL
        return self._fitted(performative.build(frame[6:8], ATTACH, fields))

    def _number_of(self, name: str, *, is_sender: bool) -> int:
        """The number of the first announced link with this name."""
        found = (link for link in self._announced.values() if link.name == name.partition("\0")[0])
        return next(link.number for link in found if link.is_sender == is_sender)

    def _fit_map(self, link: Link, channel: bytes, fields: list[bytes]) -> None:
        """Put as many entries of our map into the attach as fit into the peer's max-frame-size, in the order of the
        map. The link's `omitted` gets the tags of the others."""
        assert link.unsettled is not None
        fields[7], fields[8] = performative.join_map(()), TRUE
        # The 6 bytes are for the longer heads that the list and the map may need.
        room = self.max_frame - len(performative.build(channel, ATTACH, fields)) - 6
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
        """The payload without its envelope. The message-format of the envelope goes into the transfer's field."""
        more = len(fields) > MORE and fields[MORE] in TRUES
        if link in self._going_on:
            # Proton writes message-format 0 again, but the first transfer of this delivery has named another one.
            fields[MESSAGE_FORMAT] = NULL
            if not more:
                self._going_on.remove(link)
            return payload
        envelopes = self._envelopes.get(link, {}).get(tag)
        if not envelopes or not payload.startswith(envelopes[0]):
            return payload
        fields[MESSAGE_FORMAT] = uint(format_of(envelopes.pop(0))).encoded
        if more:
            self._going_on.add(link)
        if not envelopes:
            del self._envelopes[link][tag]
            if not self._envelopes[link]:
                del self._envelopes[link]
        return payload[ENVELOPE_SIZE:]

    def _resuming(self, channel: bytes, fields: list[bytes], payload: bytes, aborted: bool) -> bytes:
        resumed = [*performative.padded(fields, 8), TRUE, *([TRUE] if aborted else [])]
        whole = performative.build(channel, TRANSFER, resumed, payload)
        if len(whole) <= self.max_frame:
            return whole
        # Only a frame of the smallest max-frame-size can be too large here: for it, `tap` keeps no reserve (`RESERVE`).
        # The rest of the payload goes into a second frame.
        resumed[5] = TRUE
        cut = len(payload) - (len(whole) - self.max_frame) - 1
        first = performative.build(channel, TRANSFER, resumed, payload[:cut])
        return first + performative.build(channel, TRANSFER, fields, payload[cut:])
