"""News of subscribers for a router that may not have it from their owner (protocol 3.3, 7.4).

Contacts are not transitive at every instant: an owner may have told us of a subscriber just before its contact with
another router ended. If a publisher moves from us to that router, the subscriber needs the publisher's messages in
doubt there, too. So a router that takes over a publisher sends us how far it has applied the sections of others. We
send it the missing subscribers before our acknowledgement, each once in a contact. `topic.peers` passes the news of a
section or of gossip on at once.
"""

from collections.abc import Mapping

import attrs

from topic.directory.directory import Directory
from topic.directory.entry import LinkEntry

FEW = 64
"""News of ended subscribers is not dropped below this count."""


@attrs.frozen(slots=True)
class _News:
    number: int
    version: int
    """Version of the owner's section in the delta that told of the subscriber."""


class Gossip:
    """Subscribers with a timeout that one router has learned of by deltas, in that order."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._number = 0
        self._news: dict[bytes, _News] = {}
        self._many = FEW
        """Count of news above which the news of ended subscribers is dropped."""
        self._told: dict[str, int] = {}
        """Keyed by contact: the number of the last news that it has."""

    def contact(self, router: str) -> None:
        """A contact begins: our section, with gossip of every link that lasts, is on its way to the router."""
        self._told[router] = self._number

    def learned(self, name: bytes, version: int) -> None:
        """The owner's section told of the subscriber, in that version."""
        self._number += 1
        self._news.pop(name, None)
        self._news[name] = _News(self._number, version)
        if len(self._news) > self._many:
            self._drop_ended()

    def _drop_ended(self) -> None:
        """Drop the news of ended subscribers. The next time comes after so many more that the cost for each news is
        constant."""
        self._news = {name: news for name, news in self._news.items() if self._lives(name)}
        self._many = 2 * len(self._news) + FEW

    def _lives(self, name: bytes) -> bool:
        entry = self._directory.subscriber(name)
        return entry is not None and entry.live

    def lacking(self, router: str, applied: Mapping[str, tuple[int, int]]) -> list[LinkEntry]:
        """Return the subscribers that the contact has neither from us nor from their owner. `applied` gives the
        incarnation and version of each section that the contact has applied."""
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
