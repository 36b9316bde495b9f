"""The temporary queues that a router declares for its clients (protocol 14.21).

A declaration is answered to the end of the client's link. What follows the end of that link, a deletion or a change of
the settings, is for nobody: it is asked for until a leader has answered.
"""

from collections.abc import Iterator
from typing import Any

from topic.actions import Declared
from topic.queues.operations import Answer, Configure, Declare, Delete, Refused, RefusedFor
from topic.queues.sets import ReplicaSets

AGAIN = (RefusedFor.BUSY, RefusedFor.NO_ANSWER)


class Declarations:
    """The requests of one router's clients."""

    def __init__(self, sets: ReplicaSets) -> None:
        self._sets = sets
        self._asked: dict[int, tuple[Any, str]] = {}
        """Keyed by the number of the request: the ends of clients whose queues are not declared yet, each with the name
        of its queue."""
        self._following: dict[int, Delete | Configure] = {}
        """Keyed by the number of the request."""

    def declare(self, end: Any, asked: Declare, now: float) -> None:
        """Declare a queue. The end gets a `Declared` action."""
        self._asked[self._sets.ask(asked, now)] = end, asked.name

    def follow(self, asked: Delete | Configure, now: float) -> None:
        """Have a leader decide what follows the end of a link."""
        self._following[self._sets.ask(asked, now)] = asked

    def answered(self, number: int, answer: Answer, now: float) -> Iterator[Declared]:
        """Take the answer to a request. Yields the action for the client's end."""
        if (asked := self._asked.pop(number, None)) is not None:
            yield Declared(*asked, answer)
        elif isinstance(answer, Refused) and answer.reason in AGAIN and number in self._following:
            self.follow(self._following.pop(number), now)
        else:
            self._following.pop(number, None)

    def has(self, number: int) -> bool:
        return number in self._asked or number in self._following
