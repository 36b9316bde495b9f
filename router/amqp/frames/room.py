"""Shortens frames of ours that are larger than the peer's max-frame-size.

`fitted` leaves out the largest properties of an open or an attach, a part of the description of an error, and the
annotations of a modified outcome (AMQP 1.0 2.4.1, 2.8.15). Other frames need no cut here: proton splits transfers, and
`additions` cuts unsettled maps when it writes them.

The callers know what the frames mean.
"""

from typing import Final

from router.amqp.format.codec import decode, encode
from router.amqp.format.errors import FRAME_SIZE_TOO_SMALL, AmqpError
from router.amqp.format.performative import (
    ATTACH,
    DETACH,
    DISPOSITION,
    END,
    NULL,
    OPEN,
    build,
    join_list,
    join_map,
    parse,
    split_list,
)
from router.amqp.frames.forms import place

SMALL: Final = 4096
"""No frame of ours except an open, an attach or a transfer has more bytes than this."""
_PROPERTIES: Final = {code: place(code, "properties") for code in (OPEN, ATTACH)}
_ERRORS: Final = {code: place(code, "error") for code in (DETACH, END)}
_STATE: Final = place(DISPOSITION, "state")
# A frame that is encoded anew may be longer than proton's frame by this many bytes.
_SLACK: Final = 16
_DESCRIPTOR: Final = 3  # the bytes of a descriptor in frames that proton or we write
_REJECTED: Final = b"\x00\x53\x25"
_MODIFIED: Final = b"\x00\x53\x27"


def fitted(frame: bytes, most: int) -> bytes:
    """The frame, shortened to at most `most` bytes. Raises AmqpError if its required fields take more."""
    if len(frame) <= most:
        return frame
    excess, code = len(frame) - most + _SLACK, frame[10]
    fields = parse(frame).fields
    if (at := _PROPERTIES.get(code, len(fields))) < len(fields):
        fields[at] = _fewer(fields[at], excess)
    elif (at := _ERRORS.get(code, len(fields))) < len(fields):
        fields[at] = _shorter(fields[at], excess)
    elif code == DISPOSITION and len(fields) > _STATE:
        fields[_STATE] = _without_details(fields[_STATE], excess)
    less = build(frame[6:8], code, fields)
    if len(less) > most:
        raise AmqpError(FRAME_SIZE_TOO_SMALL, f"an answer needs {len(less)} bytes, but a frame may have only {most}")
    return less


def _fewer(properties: bytes, excess: int) -> bytes:
    elements, _ = split_list(properties, 0, len(properties))
    entries = list(zip(elements[::2], elements[1::2], strict=True))
    for entry in sorted(entries, key=lambda each: -len(each[1])):
        if excess > 0:
            entries.remove(entry)
            excess -= len(entry[0]) + len(entry[1])
    return join_map([element for entry in entries for element in entry]) if entries else NULL


def _shorter(error: bytes, excess: int) -> bytes:
    """The error with its condition, and with as much of its description as fits."""
    if error == NULL:
        return error
    condition, description, *info = [*split_list(error, _DESCRIPTOR, 3)[0], NULL, NULL][:3]
    told = decode(description)[0]
    if isinstance(told, str):
        left = max(0, len(told.encode()) - max(0, excess - sum(map(len, info))))
        description = encode(told.encode()[:left].decode(errors="ignore"))
    return error[:_DESCRIPTOR] + join_list([condition, description])


def _without_details(state: bytes, excess: int) -> bytes:
    if state.startswith(_MODIFIED):
        return _MODIFIED + join_list(split_list(state, _DESCRIPTOR, 2)[0])
    if state.startswith(_REJECTED):
        return _REJECTED + join_list([_shorter(error, excess) for error in split_list(state, _DESCRIPTOR, 1)[0]])
    return state
