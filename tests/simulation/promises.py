"""The promises of exactly once, and why some ended: counted when a run is over (protocol 1).

A promise is made to each subscriber that a publisher's router knows as it gets a message, and `tests.simulation.judge`
says when the mesh need not keep it any more. It may be kept all the same; and of what its publisher gave up, or whose
life ended before it was told of an outcome, nobody was promised anything in the end.
"""

from collections import Counter
from collections.abc import Mapping

from tests.simulation.parties import GIVEN_UP, Message, Reader


class Promises:
    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._readers = readers
        self.made = 0
        self.ended: list[tuple[Message, str, str]] = []
        """Message, subscriber and cause."""

    def causes(self) -> Counter[str]:
        """Why promises have ended, of those that were not kept."""
        broken = [(message, cause) for message, name, cause in self.ended if not self._is_kept(message, name)]
        return Counter(cause if message.told else GIVEN_UP for message, cause in broken)

    def kept_all_the_same(self) -> int:
        return sum(self._is_kept(message, name) for message, name, _ in self.ended)

    def _is_kept(self, message: Message, name: str) -> bool:
        return message.text in self._readers[name].final
