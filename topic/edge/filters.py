"""What subscribers want of what comes for them (protocol 5, Filters).

The core sees a predicate. How a filter is written, and what it looks at in a message, is the shell's business.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from topic.delivery.record import Record


class Filter(Hashable, Protocol):
    """Of equal filters one is asked. Its answer depends on nothing but the message."""

    def read(self, message: bytes) -> Any:
        """What filters look at: one reads for all."""

    def wants(self, content: Any) -> bool:
        """Whether a subscriber with this filter is to be given what was read."""


def wanted(records: Sequence[Record], filters: Iterable[Filter | None]) -> dict[Filter | None, list[Record]]:
    """What each of these filters lets through, in order; nothing is said of None, who has none."""
    found: dict[Filter | None, list[Record]] = {each: [] for each in filters if each is not None}
    asked = [(each, through) for each, through in found.items() if each is not None]
    for record in records if asked else ():
        assert record.message is not None, "home has just forwarded it"
        content = asked[0][0].read(record.message)
        for each, through in asked:
            if each.wants(content):
                through.append(record)
    return found
