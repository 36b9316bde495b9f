"""How shells of tests mark a message that consumers have failed to process (`SetShell.came_back`): with the number
behind it."""

from typing import Final

FAILED: Final = b" failed "


def marked(message: bytes, failures: int) -> bytes:
    return message + FAILED + b"%d" % failures if failures else message


def unmarked(message: bytes) -> tuple[bytes, int]:
    """The message as it was published, and how often consumers have failed."""
    text, _, failures = message.partition(FAILED)
    return text, int(failures or 0)
