"""The annotations of a dead letter about its life (protocol 14.11): their names start with `x-opt-oncemesh-`.

A message that has no AMQP sections, or another message-format, is published unchanged.
"""

from typing import Any, Final

from router.amqp.format.codec import Symbol, Timestamp, decode, encode
from router.amqp.format.errors import AmqpError
from router.amqp.format.message import annotations_of, modified, with_ttl
from topic.properties import DEAD_AT, DEAD_DESCRIPTION, DEAD_ERROR, DEAD_FIRST, DEAD_FROM, DEAD_WHY, DEATHS
from topic.queues.outgoing.outbox import Why

MOST_DEATHS: Final = 16
"""A message becomes a dead letter at most this many times. After that it stays in the outbox."""


ERROR: Final = (DEAD_ERROR, DEAD_DESCRIPTION)
"""The annotations of the error with which the last consumer has rejected a message."""


def _added(annotations: bytes) -> dict[Any, Any]:
    try:
        found = decode(annotations)[0] if annotations else {}
    except AmqpError:
        return {}
    return found if isinstance(found, dict) else {}


def dead_letter(message: bytes, queue: str, why: Why, now_ms: int, added: bytes = b"") -> bytes | None:
    """Return the message that `queue` gives away as a dead letter: `message` without its ttl, and with annotations
    about the death. None if the message has been a dead letter `MOST_DEATHS` times. `now_ms`: milliseconds since
    1970. `added`: the annotations that consumers have added in this queue, which the message has already."""
    known = annotations_of(message)
    deaths, first = known.get(DEATHS), known.get(DEAD_FIRST)
    count = deaths if isinstance(deaths, int) and not isinstance(deaths, bool) else 0
    if count >= MOST_DEATHS:
        return None
    said: dict[Symbol, Any] = {Symbol(DEAD_FROM): queue, Symbol(DEAD_WHY): why.value, Symbol(DEATHS): max(count, 0) + 1}
    said |= {Symbol(DEAD_FIRST): first if isinstance(first, str) else queue, Symbol(DEAD_AT): Timestamp(now_ms)}
    told = _added(added) if why is Why.REJECTED else {}
    said |= {Symbol(name): told.get(name) for name in ERROR if name in known or name in told}
    return modified(with_ttl(message, None), 0, encode(said))
