"""How shells of tests mark a message that consumers have failed to process, or that was a dead letter
(`topic.queues.leader.log.Marking`): with the number behind it."""

from typing import Final

from topic.queues.outgoing.outbox import Why

FAILED: Final = b" failed "
DIED: Final = b" died "
MOST_DEATHS: Final = 16
NO_ANNOTATIONS: Final = b"none"
"""What a consumer may send in place of annotations."""


def marked(message: bytes, failures: int) -> bytes:
    return message + FAILED + b"%d" % failures if failures else message


def unmarked(message: bytes) -> tuple[bytes, int]:
    """The message as it was published, and how often consumers have failed."""
    text, _, failures = message.partition(FAILED)
    return text, int(failures or 0)


def died(message: bytes) -> bytes | None:
    """The message as a dead letter; None: it was one too often."""
    text, deaths = alive(message)
    return text + DIED + b"%d" % (deaths + 1) if deaths < MOST_DEATHS else None


def alive(message: bytes) -> tuple[bytes, int]:
    """The message as it was published, and how often it was a dead letter."""
    text, _, deaths = message.partition(DIED)
    return text, int(deaths or 0)


class TextMarking:
    """Marks messages that are no AMQP (`topic.queues.leader.log.Marking`): what is said stands behind the text."""

    def came_back(self, message: bytes, failures: int, annotations: bytes) -> bytes:
        return marked(self.annotated(message, annotations), failures)

    def annotated(self, message: bytes, annotations: bytes) -> bytes:
        return message + b" with " + annotations if annotations else message

    def merged(self, annotations: bytes, more: bytes) -> bytes:
        if more == NO_ANNOTATIONS:
            raise ValueError("no annotations")
        return annotations + more

    def dead_letter(self, message: bytes, queue: str, why: Why) -> bytes | None:
        return died(message)
