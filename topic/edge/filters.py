"""The filters of subscribers (protocol 5, Filters).

The core only asks a filter whether it lets a message pass. The shell defines the syntax of filters, and which parts of
a message they read.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from attrs import frozen

from topic.delivery.record import Record
from topic.identity import LinkIdentity


class Filter(Hashable, Protocol):
    """A filter. Its result depends on nothing but the message, so equal filters of several subscribers are evaluated
    once."""

    @property
    def cost(self) -> int:
        """The largest number of steps that one evaluation takes."""

    def read(self, message: bytes) -> Any:
        """Read a message into the form that `wants` takes. All filters share this form, so a message is read once for
        all of them."""

    def wants(self, content: Any) -> bool:
        """Whether the filter lets the message pass; `content` is the result of `read`."""


@frozen
class NoLocal:
    """A filter that stops messages of the subscriber's own client (same container and user), and all messages that
    `other` stops.

    All records of a stream have one publisher. So the filter stops a client's own messages without reading them.
    """

    container: str
    user: str
    other: Filter | None

    def is_own(self, publisher: LinkIdentity) -> bool:
        return (publisher.container, publisher.user) == (self.container, self.user)


Wants = Filter | NoLocal


class Asked:
    """The filters of a router's subscribers, and for each user the cost of all filters of this user. The cost is
    limited because the router evaluates each different filter for each message, and does nothing else meanwhile."""

    def __init__(self) -> None:
        self._of: dict[bytes, tuple[str, Wants]] = {}
        self._subscribers: Counter[tuple[str, Wants]] = Counter()
        self._costs: Counter[str] = Counter()

    def put(self, subscriber: bytes, user: str, wants: Wants | None) -> None:
        """Set the filter of this subscriber; None for no filter."""
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
        """The cost of the user's filters if this filter is added to them."""
        return self._costs[user] + (0 if (user, wants) in self._subscribers else _cost(wants))


def _cost(wants: Wants) -> int:
    """The cost of the filter. A filter that only stops the client's own messages costs nothing, because it reads no
    message."""
    asked = wants.other if isinstance(wants, NoLocal) else wants
    return 0 if asked is None else asked.cost


def wanted(records: Sequence[Record], filters: Iterable[Wants | None]) -> dict[Wants | None, list[Record]]:
    """Returns a map from each of these filters to the records that the filter lets pass, in order. All records have one
    publisher. None stands for no filter, and is left out of the result."""
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
