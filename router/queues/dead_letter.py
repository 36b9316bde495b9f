"""The annotations of a dead letter about its life (protocol 14.11): their names start with `x-opt-oncemesh-`.

A message that has no AMQP sections, or another message-format, is published unchanged.
"""

from typing import Final

from router.amqp.format.codec import Symbol, encode
from router.amqp.format.message import annotations_of, modified, without_ttl
from topic.properties import DEAD_FROM, DEAD_WHY, DEATHS
from topic.queues.outgoing.outbox import Why

MOST_DEATHS: Final = 16
"""After so many deaths a message becomes no further dead letter: it stays in the outbox."""


def dead_letter(message: bytes, queue: str, why: Why) -> bytes | None:
    """The message of a dead letter of this queue; None if it has died too often."""
    deaths = annotations_of(message).get(DEATHS)
    count = deaths if isinstance(deaths, int) and not isinstance(deaths, bool) else 0
    if count >= MOST_DEATHS:
        return None
    said = {Symbol(DEAD_FROM): queue, Symbol(DEAD_WHY): why.value, Symbol(DEATHS): max(count, 0) + 1}
    return modified(without_ttl(message), 0, encode(said))
