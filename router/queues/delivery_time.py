"""When a queue may give a message to consumers, as the message says itself (protocol 14.18): the message annotation
`x-opt-delivery-time`, as other brokers read it.

Hot path: most messages do not have the annotation, which a search for its name shows.
"""

from typing import Final

from router.amqp.format.message import LOOKED_INTO, annotations_of
from topic.properties import DELIVERY_TIME

_NAME: Final = DELIVERY_TIME.encode()


def delivery_ms(message: bytes) -> int:
    """The time from which consumers may have the message, in milliseconds since 1970; 0 if it does not say, or says
    what is no number."""
    if message.find(_NAME, 0, LOOKED_INTO) < 0:
        return 0
    said = annotations_of(message).get(DELIVERY_TIME)
    return max(said, 0) if isinstance(said, int) and not isinstance(said, bool) else 0
