"""Reads from a message when a queue may give the message to consumers (protocol 14.18).

The message annotation `x-opt-delivery-time` has this time, as in other brokers. Hot path: most messages lack the
annotation, so the code first searches the bytes of the message for the annotation's name, and decodes nothing if the
name is not there."""

from typing import Final

from router.amqp.format.message import LOOKED_INTO, annotations_of
from topic.properties import DELIVERY_TIME

_NAME: Final = DELIVERY_TIME.encode()


def delivery_ms(message: bytes) -> int:
    """The time from which consumers may have the message, in milliseconds since 1970. 0 if the message has no such
    annotation, or if its value is no number."""
    if message.find(_NAME, 0, LOOKED_INTO) < 0:
        return 0
    said = annotations_of(message).get(DELIVERY_TIME)
    return max(said, 0) if isinstance(said, int) and not isinstance(said, bool) else 0
