"""The shapes of the messages between topic cores, and how they are decoded (docs/architecture.md, Between routers).

A batch is a list of segments; a segment is a list `[kind, columns…]`. This module decides nothing.
`topic.wire.outgoing` encodes the messages.
"""

import enum
from collections.abc import Callable
from typing import Any, Final

import msgpack

from topic.delivery.gates import UNPROVEN
from topic.delivery.outcomes import MOST_ANNOTATIONS
from topic.delivery.room import DrainAnswer
from topic.directory.entry import Decision, Role, Status
from topic.errors import BreachError
from topic.identity import COUNTS, GENERATION_LENGTH, KEY_LENGTH, NAME_LENGTH


class Segment(enum.IntEnum):
    """The kinds of segments. Their numbers are part of the format."""

    SECTION = 0
    DELTA = 1
    ACK = 2
    JOINED = 3
    ADMIT = 4
    FORWARD = 5
    OUTCOME = 6
    OUTCOME_IN_FULL = 7
    SETTLE = 8
    SETTLED = 9
    FENCED = 10
    RESOLVE = 11
    RESOLVED = 12
    EXPIRE = 13
    VOTE = 14
    EXPIRED = 15
    GOSSIP = 16
    APPLIED = 17
    BODY = 18
    PART = 19
    ROOM = 20
    GONE = 21
    DRAIN = 22
    GIVEN = 23


OFFER: Final = 1
"""Marks a Forward to one attach of a subscriber as an offer: the subscriber gets the deliveries only if it has room
(protocol 12). It follows the subscriber's name and the attach."""
_FIRST: Final = COUNTS // 2
"""The limit of the place of the first delivery in a Forward. The place is lower than this, so that the places of all
deliveries in the Forward are valid."""
_LARGE: Final = 1 << 20
"""A batch with more bytes than this is decoded segment by segment. Such a large batch is rare, and usually has a large
message."""
_MOST: Final = 1 << 20
"""The highest number of elements in one list or map of a large batch."""
_BYTES_TO_A_LIST: Final = 12
"""A batch may have at most one list for each group of this many bytes. (An entry of a link has three lists and at least
40 bytes.)"""
_LISTS: Final = 4
"""The number of lists that a segment has apart from its entries: the segment, an epoch, and one or two columns."""
_IDENTITIES = [str] * 3, [str] * 4
"""The types of a packed identity, without and with a user."""


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < COUNTS


def _is_first(value: Any) -> bool:
    return type(value) is int and 0 <= value < _FIRST


def _is_epoch(value: Any) -> bool:
    is_one = isinstance(value, list) and list(map(type, value)) == [int, str, int]
    return is_one and _is_count(value[0]) and _is_count(value[2])


def _is_ranges(value: Any) -> bool:
    return isinstance(value, list) and len(value) % 2 == 0 and all(map(_is_count, value))


def _is_messages(value: Any) -> bool:
    return isinstance(value, list) and all(type(message) is bytes or message is None for message in value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_name, value))


def _is_optional_attach(value: Any) -> bool:
    if not isinstance(value, list) or len(value) not in (2, 3):
        return value is None
    return _is_name(value[0]) and _is_epoch(value[1]) and value[2:] in ([], [OFFER])


def _is_versions(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_count, value.values()))


def _is_applied(value: Any) -> bool:
    if not isinstance(value, dict) or not all(type(router) is str for router in value):
        return False
    return all(type(of) is list and len(of) == 2 and all(map(_is_count, of)) for of in value.values())


def _is_gated(value: Any) -> bool:
    if not isinstance(value, dict) or not all(map(_is_name, value)):
        return False
    return all(_is_count(first) or (type(first) is int and first == UNPROVEN) for first in value.values())


def _is_refusals(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 4 and all(map(_is_count, value)))


def _is_annotations(value: Any) -> bool:
    return type(value) is bytes and len(value) <= MOST_ANNOTATIONS


def _is_name(value: Any) -> bool:
    return type(value) is bytes and len(value) == NAME_LENGTH and value.isascii()


def _is_role(value: Any) -> bool:
    return type(value) is int and value in (Role.PUBLISHER, Role.SUBSCRIBER)


def _is_decision(value: Any) -> bool:
    return type(value) is int and 0 <= value < len(Decision)


def _is_given(value: Any) -> bool:
    return type(value) is int and 0 <= value < len(DrainAnswer)


def _is_keys(value: Any) -> bool:
    return type(value) is bytes and len(value) % KEY_LENGTH == 0


_ENTRY = [int, list, list, bytes, int, int, str, int, bool, str, int]
_ENTRY_WITH_OPTIONS = [*_ENTRY, int]


def is_entry(value: Any) -> bool:
    """Whether the value is an entry of a link in its packed form."""
    if not isinstance(value, list) or list(map(type, value)) not in (_ENTRY, _ENTRY_WITH_OPTIONS):
        return False
    role, identity, epoch, generation, status, timeout, _, durable, _, _, *counts = value
    if list(map(type, identity)) not in _IDENTITIES or not _is_epoch(epoch) or status not in iter(Status):
        return False
    if not all(map(_is_count, (timeout, durable, *counts))):
        return False
    length = {Role.PUBLISHER: GENERATION_LENGTH, Role.SUBSCRIBER: 0}.get(role)
    return len(generation) == length


def _is_entries(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_entry, value))


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


_SHAPES: dict[int, tuple[Callable[[Any], bool], ...]] = {
    Segment.SECTION: (_is_count, _is_count, _is_entries, _is_entries),
    Segment.PART: (_is_entries, _is_entries),
    Segment.DELTA: (_is_count, _is_count, _is_entries, _is_entries),
    Segment.ACK: (_is_count,),
    Segment.GOSSIP: (_is_entries,),
    Segment.APPLIED: (_is_applied,),
    Segment.JOINED: (_is_name, _is_epoch, _is_gated),
    Segment.ADMIT: (_is_name, _is_name),
    Segment.FORWARD: (
        _is_name,
        _is_epoch,
        _is_versions,
        _is_first,
        _is(bool),
        _is(bytes),
        _is_messages,
        _is_optional_attach,
    ),
    Segment.ROOM: (_is_name, _is_epoch, _is_count, _is_count),
    Segment.DRAIN: (_is_name, _is_epoch, _is_count),
    Segment.GIVEN: (_is_name, _is_epoch, _is_count, _is_count, _is_given),
    Segment.GONE: (_is(str), _is_count),
    Segment.BODY: (_is_name, _is_keys, _is_count, _is(bytes)),
    Segment.OUTCOME: (_is_name, _is_epoch, _is_ranges),
    Segment.OUTCOME_IN_FULL: (_is_name, _is_epoch, _is_count, _is_refusals, _is_names, _is_annotations),
    Segment.SETTLE: (_is_name, _is_epoch, _is_ranges),
    Segment.SETTLED: (_is_name, _is_epoch, _is_ranges),
    Segment.FENCED: (_is_name, _is_epoch),
    Segment.RESOLVE: (_is_name, _is_epoch, _is_keys),
    Segment.RESOLVED: (_is_name, _is_epoch, _is_keys),
    Segment.EXPIRE: (_is_role, _is_name, _is_epoch, _is_decision),
    Segment.VOTE: (_is_role, _is_name, _is_epoch, _is_decision, _is(bool)),
    Segment.EXPIRED: (_is_role, _is_name, _is_epoch, _is_decision),
}
"""Maps each kind of segment to the checks of its columns, in order."""


def _check(segment: Any) -> None:
    if not isinstance(segment, list) or not segment or type(segment[0]) is not int or segment[0] not in _SHAPES:
        raise BreachError(f"a batch has an invalid segment: {segment!r:.80}")
    shape = _SHAPES[segment[0]]
    if len(segment) != len(shape) + 1 or not all(map(_fits, shape, segment[1:])):
        raise BreachError(f"malformed segment {Segment(segment[0]).name}: {segment[1:]!r:.200}")
    if (
        segment[0] in (Segment.EXPIRE, Segment.EXPIRED)
        and segment[1] == Role.PUBLISHER
        and segment[4] == Decision.LAPSED
    ):
        raise BreachError("a batch tells that a publisher has lapsed, but only subscribers lapse")
    if segment[0] == Segment.FORWARD and len(segment[6]) != len(segment[7]) * KEY_LENGTH:
        raise BreachError(f"a segment has {len(segment[6])} bytes of keys for {len(segment[7])} deliveries")


def _fits(is_right: Callable[[Any], bool], value: Any) -> bool:
    return is_right(value)


def decode(payload: bytes) -> list[list[Any]]:
    """Decode a batch into its segments, and check that each has the shape of its kind. Raises `BreachError` if the
    payload is not a batch."""
    try:
        if len(payload) > _LARGE:
            return _decode_in_turn(payload)
        segments = msgpack.unpackb(payload, strict_map_key=False)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise BreachError(f"a payload is not a batch: {error}") from None
    if not isinstance(segments, list):
        raise BreachError("a payload is not a batch: expected a list of segments")
    for segment in segments:
        _check(segment)
    return segments


def _decode_in_turn(payload: bytes) -> list[list[Any]]:
    """Decode a large batch. Stop at the first malformed segment.

    Also stop when the batch has more lists than any valid batch of its size. An empty list takes 1 byte in the batch
    but 64 bytes in memory, so a short batch could otherwise fill the memory.
    """
    left = len(payload) // _BYTES_TO_A_LIST

    def count(value: list[Any]) -> list[Any]:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError("a batch has more lists than its bytes can fill")
        return value

    reader = msgpack.Unpacker(
        None,
        max_buffer_size=len(payload),
        strict_map_key=False,
        list_hook=count,
        max_array_len=_MOST,
        max_map_len=_MOST,
    )
    reader.feed(payload)
    segments: list[list[Any]] = []
    for _ in range(reader.read_array_header()):
        left += _LISTS
        segment = reader.unpack()
        _check(segment)
        segments.append(segment)
    if reader.tell() != len(payload):
        raise BreachError("a payload has extra bytes behind its batch")
    return segments


def split_keys(keys: bytes) -> list[bytes]:
    """Split a column of keys, which is one byte string, into the keys."""
    return [keys[start : start + KEY_LENGTH] for start in range(0, len(keys), KEY_LENGTH)]
