"""Messages of routers about sets (protocol 13). A message is one byte with which no batch of the topics begins, one
byte for the kind, then msgpack.

| kind | sender | meaning |
| --- | --- | --- |
| `Envelope` | a replica | see `topic.raft.messages` |
| `Leads` | a leader, to all in contact: as a contact begins, and as it changes | I lead this set, or no longer |
| `Requested` | each router, to a leader | carry these operations out |
| `Answers` | the router that was asked | these are the results; `BUSY`: ask again |
"""

import reprlib
from collections.abc import Callable
from typing import Any, Final

import attrs
import msgpack

from topic.errors import BreachError
from topic.queues.operations import Operation, Reply, decode_answer, encode_answer
from topic.queues.operations import decode as decode_operation
from topic.raft.life import MOST, MOST_NAME, SetLife, read_life
from topic.raft.messages import Envelope
from topic.raft.wire import decode as decode_envelope
from topic.raft.wire import encode as encode_envelope


@attrs.frozen(slots=True)
class Leads:
    life: SetLife
    term: int
    leads: bool
    """Whether the router leads; False if it no longer leads."""


@attrs.frozen(slots=True)
class Requested:
    requests: tuple[tuple[int, bytes], ...]
    """The operations, each with the number that the asking router has given to its request."""


@attrs.frozen(slots=True)
class Answers:
    answers: tuple[tuple[int, Reply], ...]
    """The answers, each with the number of its request."""


Message = Envelope | Leads | Requested | Answers


SETS: Final = b"\xc0"
"""The first byte of each message about sets. It is nil in MessagePack, and no batch of the topic core begins with
it."""


def encode(name: str, message: Message) -> bytes:
    """Encode a message about the set `name`."""
    if isinstance(message, Envelope):
        return SETS + b"\x00" + encode_envelope(name, message)
    if isinstance(message, Leads):
        return SETS + b"\x01" + _pack(name, message.life.parts, message.term, message.leads)
    if isinstance(message, Requested):
        return SETS + b"\x02" + _pack(name, message.requests)
    return SETS + b"\x03" + _pack(name, [(number, encode_answer(answer)) for number, answer in message.answers])


def _pack(*parts: Any) -> bytes:
    return bytes(msgpack.packb(parts))


def decode(payload: bytes) -> tuple[str, Message]:
    """Decode a message: the name of the set, and the content. Raises BreachError if it is malformed."""
    kind = payload[1] if len(payload) > 1 else len(_READ)
    if not payload.startswith(SETS) or kind >= len(_READ):
        raise BreachError(f"a message about sets begins with {reprlib.repr(payload)}, expected a known type of message")
    return _READ[kind](memoryview(payload)[2:])  # a view avoids copies of large entries


def read_operation(data: bytes) -> Operation:
    """Read the operation of a request. Raises BreachError if it is malformed."""
    try:
        return decode_operation(data)
    except ValueError as error:
        raise BreachError(str(error)) from None


def _fields(body: memoryview, count: int, kind: str) -> tuple[str, list[Any]]:
    try:
        parts = msgpack.unpackb(body, strict_map_key=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise BreachError(f"{kind} is no msgpack: {error}") from None
    if not isinstance(parts, list) or len(parts) != count + 1:
        raise BreachError(f"{kind} is {reprlib.repr(parts)}, expected {count + 1} fields")
    name = parts[0]
    if not isinstance(name, str) or not 0 < len(name.encode()) <= MOST_NAME:
        raise BreachError(f"{kind} names the set {reprlib.repr(name)}, expected a text of 1 to {MOST_NAME} bytes")
    return name, parts[1:]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _leads(body: memoryview) -> tuple[str, Leads]:
    name, (life, term, leads) = _fields(body, 3, "Leads")
    if not _is_count(term) or not isinstance(leads, bool):
        raise BreachError(f"Leads has {reprlib.repr([term, leads])}, expected a term, and true or false")
    try:
        return name, Leads(read_life(life), term, leads)
    except ValueError as error:
        raise BreachError(str(error)) from None


def _numbered(value: Any, kind: str) -> list[tuple[int, bytes]]:
    """Read pairs of a number and bytes."""
    pairs = value if isinstance(value, list) else [value]
    for pair in pairs:
        is_pair = isinstance(pair, list) and len(pair) == 2
        if not is_pair or not _is_count(pair[0]) or not isinstance(pair[1], bytes):
            raise BreachError(f"{kind} has {reprlib.repr(pair)}, expected a number and bytes")
    return [(number, data) for number, data in pairs]


def _asked(body: memoryview) -> tuple[str, Requested]:
    name, (requests,) = _fields(body, 1, "Requested")
    return name, Requested(tuple(_numbered(requests, "Requested")))


def _answers(body: memoryview) -> tuple[str, Answers]:
    name, (answers,) = _fields(body, 1, "Answers")
    try:
        return name, Answers(tuple((number, decode_answer(data)) for number, data in _numbered(answers, "Answers")))
    except ValueError as error:
        raise BreachError(str(error)) from None


_READ: Final[tuple[Callable[[memoryview], tuple[str, Message]], ...]] = (decode_envelope, _leads, _asked, _answers)
"""The functions that read the kinds of messages. The index of a function stands for its kind."""
