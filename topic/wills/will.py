"""A will, and the form in which routers send wills to each other (protocol 15).

A payload of the channel that begins with `WILLS` is a list of one message about wills. `read_message` checks its shape.
"""

from enum import IntEnum
from hashlib import blake2b
from typing import Any, Final

import attrs
import msgpack

from topic.directory.entry import Owner
from topic.errors import BreachError
from topic.identity import GENERATION_LENGTH, LinkIdentity

WILLS: Final = b"\xc2"
"""First byte of a payload about wills. No other payload begins with it."""
MOST_WILL: Final = 16 << 10
"""The highest number of bytes of a will's message. All routers keep the message in memory."""
MOST_TEXT: Final = 64 << 10
"""The highest number of characters of the name of a client, of a user, or of an address in a will."""
MOST_DELAY: Final = 1 << 32
MOST_NUMBER: Final = 1 << 63
NO_EXPIRY: Final = -1
LINK_PREFIX: Final = "mqtt-will"

WillId = tuple[str, int, int]
"""The name of a will: the router that has taken the will from its client, the router's incarnation, and the number that
this incarnation has given to the will."""


@attrs.frozen(slots=True)
class Will:
    router: str
    incarnation: int
    number: int
    client: str
    user: str
    address: str
    message: bytes
    delay: int
    """The seconds from the end of the client's connection to the publication of the will."""
    presettled: bool = False
    expiry: int = NO_EXPIRY
    """The seconds for which the message lives after it is published; `NO_EXPIRY` if it lives without end."""

    @property
    def id(self) -> WillId:
        return self.router, self.incarnation, self.number

    @property
    def owner(self) -> Owner:
        """The router at which the client of the will was connected."""
        return self.router, self.incarnation

    @property
    def identity(self) -> LinkIdentity:
        """The identity of the link by which any router publishes the will. No other will has it."""
        link = f"{LINK_PREFIX}-{self.router}-{self.incarnation}-{self.number}"
        return LinkIdentity(self.client, link, self.address, self.user)

    @property
    def generation(self) -> bytes:
        """The generation of the link by which any router publishes the will. All routers compute the same one, so they
        give the delivery the same key."""
        return blake2b(msgpack.packb(self.id), digest_size=GENERATION_LENGTH).digest()

    @property
    def size(self) -> int:
        """The number of bytes that the will takes at each router."""
        return 256 + len(self.message) + len(self.client) + len(self.user) + len(self.address)


class WillWord(IntEnum):
    """The kinds of messages about wills."""

    KEEP = 0
    """Keep this will. The message has all fields of a `Will`."""
    OVER = 1
    """Forget this will: it is published, or its client does not want it any more."""
    ELSEWHERE = 2
    """The client of this will has connected at the sender. The last field states whether the client's session
    continues."""
    ENDED = 3
    """The process of this incarnation of a router is gone."""
    ASK = 4
    """The router of this will has ended, and the sender is about to publish the will. It asks what the receiver knows
    about the will."""
    ANSWER = 5
    """The answer to `ASK`: a `WillState`."""


class WillState(IntEnum):
    """The knowledge of a router about a will."""

    UNKNOWN = 0
    KEPT = 1
    PUBLISHING = 2
    OVER = 3


_ID: Final = (str, int, int)
_SHAPES: Final = {
    WillWord.KEEP: (*_ID, str, str, str, bytes, int, bool, int),
    WillWord.OVER: _ID,
    WillWord.ELSEWHERE: (*_ID, bool),
    WillWord.ENDED: (str, int),
    WillWord.ASK: _ID,
    WillWord.ANSWER: (*_ID, int),
}


def write_message(word: WillWord, *fields: Any) -> bytes:
    return WILLS + bytes(msgpack.packb([int(word), *fields]))


def keep(will: Will) -> bytes:
    return write_message(WillWord.KEEP, *attrs.astuple(will))


def read_message(payload: bytes) -> tuple[WillWord, list[Any]]:
    """Decode a payload about wills: the kind of its message, and the fields. Raises BreachError if it is malformed."""
    try:
        word, *fields = msgpack.unpackb(payload[len(WILLS) :])
        known = WillWord(word)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise BreachError(f"a message about wills is malformed: {error}") from None
    if tuple(map(type, fields)) != _SHAPES[known] or not all(map(_is_bounded, fields)):
        raise BreachError(f"a message about wills has the wrong fields for {known.name}")
    if known is WillWord.KEEP and not _is_will(fields):
        raise BreachError("a will is malformed")
    if known is WillWord.ANSWER and fields[-1] not in tuple(WillState):
        raise BreachError("an answer about a will names no state")
    return known, fields


def _is_bounded(value: Any) -> bool:
    if isinstance(value, int):
        return NO_EXPIRY <= value < MOST_NUMBER
    return len(value) <= MOST_TEXT


def _is_will(fields: list[Any]) -> bool:
    *_, address, message, delay, _, expiry = fields
    return address != "" and len(message) <= MOST_WILL and 0 <= delay < MOST_DELAY and expiry < MOST_DELAY
