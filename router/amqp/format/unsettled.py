"""The unsettled map of an attach (AMQP 1.0 2.7.3): delivery-tags with the states of their deliveries.

Pure. Reading is strict, with one exception: a tag may be a text, which stands for its bytes, because clients that show
tags as text also send them as text. A map is no larger than a frame, so the frame size that we announce bounds a map.
This module does not compare the maps of both ends: its callers do.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from router.amqp.format.codec import Described, decode
from router.amqp.format.errors import DECODE_ERROR, INVALID_FIELD, AmqpError, LimitError
from router.amqp.format.performative import NULL
from router.amqp.format.values import (
    ACCEPTED,
    MAX_TAG,
    MODIFIED,
    NO_STATE,
    RECEIVED,
    REJECTED,
    RELEASED,
    TRANSACTIONAL,
    DeliveryState,
)

_STATES: Final = {code: DeliveryState(code) for code in (NO_STATE, ACCEPTED, REJECTED, RELEASED, MODIFIED)}
_NAMES: Final = {
    "amqp:received:list": RECEIVED,
    "amqp:accepted:list": ACCEPTED,
    "amqp:rejected:list": REJECTED,
    "amqp:released:list": RELEASED,
    "amqp:modified:list": MODIFIED,
    "amqp:transactional-state:list": TRANSACTIONAL,
}
_ENCODED: Final = {
    NO_STATE: NULL,
    # Section number 0 and offset 0 say that the receiver has no byte of the message.
    RECEIVED: b"\x00\x53\x23\xc0\x03\x02\x43\x44",
    **{code: bytes((0x00, 0x53, code, 0x45)) for code in (ACCEPTED, REJECTED, RELEASED, MODIFIED)},
}
_QUICK: Final = {encoded: _STATES[code] for code, encoded in _ENCODED.items() if len(encoded) == 4}


def encode_entries(unsettled: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """The encoded tag and the encoded entry of each delivery."""
    for tag, state in unsettled.items():
        assert len(tag) <= MAX_TAG
        yield tag, b"\xa0" + bytes((len(tag),)) + tag + _ENCODED[state]


def decode_map(data: bytes, most: int = 2**32) -> dict[bytes, DeliveryState] | None:
    """The map in the unsettled field of an attach; None if the field is null. Raises AmqpError, or LimitError if the
    map has more than `most` entries."""
    match data[0]:
        case 0x40:
            return None
        case 0xC1:
            at, count = 3, int.from_bytes(data[2:3], "big")
        case 0xD1:
            at, count = 9, int.from_bytes(data[5:9], "big")
        case _:
            raise AmqpError(DECODE_ERROR, "the unsettled field is not a map")
    if count > len(data):
        raise AmqpError(DECODE_ERROR, "the unsettled map is cut off")
    if count % 2:
        raise AmqpError(DECODE_ERROR, "the unsettled map has an odd number of elements")
    if count > 2 * most:
        raise LimitError("unsettled", f"the unsettled map has more than {most} entries")
    unsettled: dict[bytes, DeliveryState] = {}
    for _ in range(count // 2):
        tag, at = _tag(data, at)
        unsettled[tag], at = _state(data, at)
    if at != len(data) or len(unsettled) != count // 2:
        raise AmqpError(DECODE_ERROR, "the unsettled map names a tag twice, or has more bytes than it needs")
    return unsettled


def _tag(data: bytes, at: int) -> tuple[bytes, int]:
    tag: Any
    if data[at : at + 1] == b"\xa0" and at + 2 <= len(data):
        end = at + 2 + data[at + 1]
        tag, at = data[at + 2 : end], end
    else:
        tag, at = decode(data, at)
        tag = tag.encode() if isinstance(tag, str) else tag
    if not isinstance(tag, bytes) or at > len(data):
        raise AmqpError(DECODE_ERROR, "a key of the unsettled map is not a delivery-tag")
    if len(tag) > MAX_TAG:
        raise AmqpError(INVALID_FIELD, f"a delivery-tag is longer than {MAX_TAG} bytes")
    return tag, at


def _state(data: bytes, at: int) -> tuple[DeliveryState, int]:
    if data[at : at + 1] == NULL:
        return _STATES[NO_STATE], at + 1
    if (state := _QUICK.get(data[at : at + 4])) is not None:
        return state, at + 4
    value, at = decode(data, at)
    if not isinstance(value, Described) or not isinstance(value.value, list):
        raise AmqpError(DECODE_ERROR, "a value of the unsettled map is not a delivery state")
    code = _NAMES.get(value.descriptor, NO_STATE) if isinstance(value.descriptor, str) else value.descriptor
    if code == RECEIVED:
        return _received(value.value), at
    if code == TRANSACTIONAL:  # the transaction of the delivery has ended with the former link
        return _STATES[NO_STATE], at
    if not isinstance(code, int) or code not in _STATES or code == NO_STATE:
        raise AmqpError(DECODE_ERROR, "the unsettled map has an unknown delivery state")
    return _STATES[code], at


def _received(fields: list[Any]) -> DeliveryState:
    number, offset = (field or 0 for field in (*fields, 0, 0)[:2])
    if not isinstance(number, int) or not isinstance(offset, int) or number < 0 or offset < 0:
        raise AmqpError(DECODE_ERROR, "a received state in the unsettled map lacks its section and offset")
    return DeliveryState(RECEIVED, number, offset)
