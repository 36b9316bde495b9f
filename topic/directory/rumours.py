"""What others say of a router that is in contact, before it has said so itself (protocol 3.3).

Only the owner of a link is believed while it is in contact: it will say the same, or be lost before it can. Then its
subscribers are orphans, and `topic.directory.directory` takes them in.
"""

from topic.directory.entry import Index, LinkEntry, Role


class Rumours:
    """Subscribers with a timeout that only others have told of."""

    def __init__(self) -> None:
        self._entries: dict[Index, LinkEntry] = {}

    def hear(self, entry: LinkEntry, known: LinkEntry | None) -> None:
        """A contact tells of another contact's link, of which this much is `known`."""
        lasts = entry.role is Role.SUBSCRIBER and entry.live and entry.lifetime.timeout > 0
        if lasts and (known is None or known.epoch < entry.epoch):
            self._entries[entry.index] = entry

    def settle(self, entry: LinkEntry) -> None:
        """The directory has this now: an older rumour of the link, or the same, is none any more."""
        rumour = self._entries.get(entry.index)
        if rumour is not None and rumour.epoch <= entry.epoch:
            del self._entries[entry.index]

    def take(self, router: str) -> list[LinkEntry]:
        """Take what was said of the router's links: it is lost, and says nothing more."""
        theirs = [entry for entry in self._entries.values() if entry.router == router]
        for entry in theirs:
            del self._entries[entry.index]
        return theirs
