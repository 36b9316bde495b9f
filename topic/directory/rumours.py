"""Rumours: news about the links of a contact that has come from other routers only, not from the contact (protocol
3.3).

While the owner of a link is in contact, this router believes only the owner. A rumour ends when the owner confirms the
news, or when the contact with the owner is lost. In the second case `topic.directory.directory` enters the subscribers
of the rumours as orphans.
"""

from topic.directory.entry import Index, LinkEntry, Role


class Rumours:
    """Entries of subscribers with a timeout that this router has from other routers, and not yet from the subscribers'
    owners."""

    def __init__(self) -> None:
        self._entries: dict[Index, LinkEntry] = {}

    def learn(self, entry: LinkEntry, known: LinkEntry | None) -> None:
        """Keep the news that a contact tells of another contact's link, as a rumour. `known`: the link's entry in the
        directory."""
        lasts = entry.role is Role.SUBSCRIBER and entry.live and entry.lifetime.timeout > 0
        if lasts and (known is None or known.epoch < entry.epoch):
            self._entries[entry.index] = entry

    def settle(self, entry: LinkEntry) -> None:
        """Drop a rumour of this link if it is not newer than the entry, which the directory now has."""
        rumour = self._entries.get(entry.index)
        if rumour is not None and rumour.epoch <= entry.epoch:
            del self._entries[entry.index]

    def take(self, router: str) -> list[LinkEntry]:
        """Remove and return the rumours about a router's links, because the router is lost and cannot confirm them."""
        theirs = [entry for entry in self._entries.values() if entry.router == router]
        for entry in theirs:
            del self._entries[entry.index]
        return theirs
