"""How shells of tests mark a message that consumers have failed to process, or that was a dead letter
(`topic.queues.leader.log.Marking`): with the number behind it."""

from typing import Final

FAILED: Final = b" failed "
DIED: Final = b" died "
MOST_DEATHS: Final = 16


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
