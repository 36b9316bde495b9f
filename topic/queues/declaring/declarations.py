"""The temporary queues that a router declares for its clients (protocol 14.21).

The router gives the answer to a declaration to the end of the client's link. When this link ends, the router requests a
deletion of the queue, or a change of its settings. No client waits for this request, so it lasts until a leader has
answered.

If no leader answers a declaration in time, a leader may still carry it out later. So the router then declares the queue
once more, by a request that lasts, and deletes the queue.
"""

from collections.abc import Iterator
from typing import Any

from topic.actions import Declared
from topic.queues.operations import Answer, Configure, Declare, Delete, Done, Refused, RefusedFor
from topic.queues.sets import ReplicaSets


class Declarations:
    """The requests by which one router declares and deletes temporary queues for its clients."""

    def __init__(self, sets: ReplicaSets) -> None:
        self._sets = sets
        self._asked: dict[int, tuple[Any, Declare]] = {}
        """The declarations without an answer. Maps the number of the request to the end of the client's link, and to
        the declaration."""
        self._following: dict[int, Declare | Delete | Configure] = {}
        """The requests of `follow` without an answer, keyed by their numbers."""

    def declare(self, end: Any, asked: Declare, now: float) -> None:
        """Declare a queue for a client. The end of the client's link gets a `Declared` action."""
        self._asked[self._sets.ask(asked, now)] = end, asked

    def follow(self, asked: Declare | Delete | Configure, now: float) -> None:
        """Make a request that follows from the end of a link. The request waits for a leader without end. If it
        declares a queue, this router then deletes the queue."""
        self._following[self._sets.ask(asked, now, lasts=True)] = asked

    def answered(self, number: int, answer: Answer, now: float) -> Iterator[Declared]:
        """Take the answer to a request. Yields the action for the client's end."""
        if number in self._asked:
            end, asked = self._asked.pop(number)
            # If the queue's settings name no link that holds it, its set deletes the queue when it has no links. So
            # this router need not delete the queue.
            is_held = asked.settings.held_by is not None
            if is_held and isinstance(answer, Refused) and answer.reason is RefusedFor.NO_ANSWER:
                self.follow(asked, now)
            yield Declared(end, asked.name, answer)
        else:
            followed = self._following.pop(number)
            if isinstance(followed, Declare) and isinstance(answer, Done):
                self.follow(Delete(followed.name, answer.id), now)

    def has(self, number: int) -> bool:
        return number in self._asked or number in self._following
