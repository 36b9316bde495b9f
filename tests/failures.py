"""Marks a message of a test that has come back to its queue, or was a dead letter (`topic.queues.leader.log.Marking`):
"TEXT with ANNOTATIONS died NUMBER failed NUMBER", where absent parts are left out.
"""

from typing import Final

from topic.queues.outgoing.outbox import Why

WITH: Final = b" with "
FAILED: Final = b" failed "
DIED: Final = b" died "
MOST_DEATHS: Final = 16
NO_ANNOTATIONS: Final = b"none"
"""The annotations of a consumer that sends none."""


def marked(message: bytes, failures: int) -> bytes:
    return message + FAILED + b"%d" % failures if failures else message


def unmarked(message: bytes) -> tuple[bytes, int]:
    """The message without annotations of consumers, and the number of their failures."""
    text, _, failures = message.partition(FAILED)
    return bare(text), int(failures or 0)


def bare(message: bytes) -> bytes:
    """The message without annotations of consumers."""
    text, *deaths = message.partition(DIED)
    return b"".join((text.partition(WITH)[0], *deaths))


def added(message: bytes) -> bytes:
    """The annotations that consumers have added to the message."""
    text, _, _ = message.partition(FAILED)
    return text.partition(DIED)[0].partition(WITH)[2]


def died(message: bytes) -> bytes | None:
    """The message as a dead letter; None if it was a dead letter too often."""
    text, deaths = alive(message)
    return text + DIED + b"%d" % (deaths + 1) if deaths < MOST_DEATHS else None


def alive(message: bytes) -> tuple[bytes, int]:
    """The message as it was published, and the number of times that it was a dead letter."""
    text, _, deaths = message.partition(DIED)
    return text, int(deaths or 0)


class TextMarking:
    """Marks messages that are not AMQP (`topic.queues.leader.log.Marking`)."""

    def came_back(self, message: bytes, failures: int, annotations: bytes) -> bytes:
        return marked(self.annotated(message, annotations), failures)

    def delivery_ms(self, message: bytes) -> int:
        return 0

    def aged(self, message: bytes, left_ms: int) -> bytes:
        return message

    def addressed(self, message: bytes, address: str) -> bytes:
        return message

    def annotated(self, message: bytes, annotations: bytes) -> bytes:
        text, *deaths = message.partition(DIED)
        more = annotations if WITH in text or not annotations else WITH + annotations
        return b"".join((text, more, *deaths))

    def merged(self, annotations: bytes, more: bytes) -> bytes:
        if more == NO_ANNOTATIONS:
            raise ValueError("no annotations")
        return annotations + more

    def dead_letter(self, message: bytes, queue: str, why: Why, now_ms: int, added: bytes) -> bytes | None:
        return died(message)
