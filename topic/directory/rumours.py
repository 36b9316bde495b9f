"""News of the links of a contact from other routers, before the contact itself has confirmed it (protocol 3.3).

While the owner of a link is in contact, the router believes only the owner: it either confirms the news, or is lost
before it can. If it is lost, its subscribers are orphans, and `topic.directory.directory` takes them in.
"""

from topic.directory.entry import Index, LinkEntry, Role


class Rumours:
    """Subscribers with a timeout that only other routers have told of."""

    def __init__(self) -> None:
        self._entries: dict[Index, LinkEntry] = {}

    def learn(self, entry: LinkEntry, known: LinkEntry | None) -> None:
        """A contact tells of the link of another contact. `known` is the link's entry here."""
        lasts = entry.role is Role.SUBSCRIBER and entry.live and entry.lifetime.timeout > 0
        if lasts and (known is None or known.epoch < entry.epoch):
            self._entries[entry.index] = entry

    def settle(self, entry: LinkEntry) -> None:
        """The directory has this entry now: drop a rumour of the link that is not newer."""
        rumour = self._entries.get(entry.index)
        if rumour is not None and rumour.epoch <= entry.epoch:
            del self._entries[entry.index]

    def take(self, router: str) -> list[LinkEntry]:
        """Remove and return the rumours about a router's links, because the router is lost and cannot confirm them."""
        theirs = [entry for entry in self._entries.values() if entry.router == router]
        for entry in theirs:
            del self._entries[entry.index]
        return theirs
