"""The filters of subscribers (protocol 5, Filters).

The core sees a predicate. The shell defines the syntax of a filter, and which parts of a message it reads.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from attrs import frozen

from topic.delivery.record import Record
from topic.identity import LinkIdentity


class Filter(Hashable, Protocol):
    """A filter. Its result depends only on the message, so of several equal filters only one is evaluated."""

    @property
    def cost(self) -> int:
        """The most steps that one evaluation takes."""

    def read(self, message: bytes) -> Any:
        """The content of a message for `wants`. The content that one filter has read serves all filters."""

    def wants(self, content: Any) -> bool:
        """Whether a subscriber with this filter gets the content that `read` returned."""


@frozen
class NoLocal:
    """A filter that leaves out the messages of publishers with the subscriber's own container and user, and the
    messages that `other` leaves out. All records of a stream have one publisher, so the own messages are left out
    without reading them."""

    container: str
    user: str
    other: Filter | None

    def is_own(self, publisher: LinkIdentity) -> bool:
        return (publisher.container, publisher.user) == (self.container, self.user)


Wants = Filter | NoLocal


class Asked:
    """The filters of a router's subscribers, and the cost of each user's filters. Each different filter is evaluated
    for each message, and the router does nothing else meanwhile."""

    def __init__(self) -> None:
        self._of: dict[bytes, tuple[str, Wants]] = {}
        self._subscribers: Counter[tuple[str, Wants]] = Counter()
        self._costs: Counter[str] = Counter()

    def put(self, subscriber: bytes, user: str, wants: Wants | None) -> None:
        """The subscriber has this filter from now on."""
        self.drop(subscriber)
        if wants is not None:
            asked = self._of[subscriber] = (user, wants)
            self._costs[user] = self.with_another(user, wants)
            self._subscribers[asked] += 1

    def drop(self, subscriber: bytes) -> None:
        asked = self._of.pop(subscriber, None)
        if asked is None:
            return
        self._subscribers[asked] -= 1
        if not self._subscribers[asked]:
            user, wants = asked
            del self._subscribers[asked]
            self._costs[user] -= _cost(wants)
            if not self._costs[user]:
                del self._costs[user]

    def with_another(self, user: str, wants: Wants) -> int:
        """The cost of the user's filters together with this one."""
        return self._costs[user] + (0 if (user, wants) in self._subscribers else _cost(wants))


def _cost(wants: Wants) -> int:
    """A filter that only leaves out own messages reads no message, so it costs nothing."""
    asked = wants.other if isinstance(wants, NoLocal) else wants
    return 0 if asked is None else asked.cost


def wanted(records: Sequence[Record], filters: Iterable[Wants | None]) -> dict[Wants | None, list[Record]]:
    """For each of these filters the records that it lets through, in order. The records are of one publisher. The
    result has no entry for None, the absent filter."""
    found: dict[Wants | None, list[Record]] = {each: [] for each in filters if each is not None}
    asked: list[tuple[Filter, list[Record]]] = []
    for each, through in found.items():
        if not isinstance(each, NoLocal):
            assert each is not None
            asked.append((each, through))
        elif not each.is_own(records[0].stream.identity):
            if each.other is not None:
                asked.append((each.other, through))
            else:
                through += records
    for record in records if asked else ():
        assert record.message is not None, "home has just forwarded it"
        content = asked[0][0].read(record.message)
        for each, through in asked:
            if each.wants(content):
                through.append(record)
    return found
