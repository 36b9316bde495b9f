"""News of subscribers for a router to which their owner may not have sent it (protocol 3.3, 7.4).

An owner may tell this router of a subscriber just before the owner loses its contact with another router. If a
publisher then moves from here to that other router, its new home has to know the subscriber, too: the subscriber needs
the publisher's messages in doubt. So the new home of a publisher sends this router the versions up to which it has
applied the sections of the other routers. Before this router acknowledges the attach, it sends the new home the
subscribers that the new home lacks. It sends each subscriber once in a contact. `topic.peers` passes on the news in a
section or in gossip at once.
"""

from collections.abc import Mapping

import attrs

from topic.directory.directory import Directory
from topic.directory.entry import LinkEntry

FEW = 64
"""While `Gossip` has fewer pieces of news than this, it does not drop the news of ended subscribers."""


@attrs.frozen(slots=True)
class _News:
    number: int
    version: int
    """The version of the owner's section that first had the subscriber."""


class Gossip:
    """The subscribers with a timeout of which this router has learned by deltas, in the order in which it learned of
    them."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._number = 0
        self._news: dict[bytes, _News] = {}
        self._many = FEW
        """When there are more pieces of news than this, the news of ended subscribers is dropped."""
        self._told: dict[str, int] = {}
        """Maps each contact to the number of the last piece of news that it has."""

    def contact(self, router: str) -> None:
        """A contact with `router` begins, and `router` gets this router's section, with gossip about every link with a
        timeout. So it has all news so far."""
        self._told[router] = self._number

    def learned(self, name: bytes, version: int) -> None:
        """The owner has told of this subscriber, in this version of its section."""
        self._number += 1
        self._news.pop(name, None)
        self._news[name] = _News(self._number, version)
        if len(self._news) > self._many:
            self._drop_ended()

    def _drop_ended(self) -> None:
        """Drop the news of ended subscribers. Then raise the limit in proportion to the news that is left, so that the
        average cost for each piece of news stays constant."""
        self._news = {name: news for name, news in self._news.items() if self._lives(name)}
        self._many = 2 * len(self._news) + FEW

    def _lives(self, name: bytes) -> bool:
        entry = self._directory.subscriber(name)
        return entry is not None and entry.live

    def lacking(self, router: str, applied: Mapping[str, tuple[int, int]]) -> list[LinkEntry]:
        """Return the subscribers that the contact lacks: neither this router nor their owner has sent them. `applied`:
        for each section that the contact has applied, the incarnation and the version."""
        told, self._told[router] = self._told[router], self._number
        found: list[LinkEntry] = []
        for name, news in reversed(self._news.items()):
            if news.number <= told:
                break
            entry = self._directory.subscriber(name)
            if entry is None or not entry.live or entry.router == router:
                continue
            if not _covers(applied.get(entry.router), entry, news.version):
                found.append(entry)
        return found[::-1]


def _covers(applied: tuple[int, int] | None, entry: LinkEntry, version: int) -> bool:
    return applied is not None and applied[0] == entry.epoch.incarnation and applied[1] >= version
