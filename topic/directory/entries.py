"""The entries of a directory, indexed by link, by owner and by address (protocol 3.3).

The cost of an operation depends on the number of links that it concerns, not on the number of all links.
`topic.directory.directory` decides which news about a link to believe.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import count
from typing import Final

import attrs

from topic.directory.addresses import ByAddress
from topic.directory.entry import Index, LinkEntry, Owner, Role, Session, Status
from topic.identity import NOWHERE, Epoch

Test = Callable[[LinkEntry], bool]
MOST_PAST: Final = 1000
"""The largest number of forgotten endings whose epochs this router remembers."""


class LinkEntries:
    """The entries of all links, one for each link, in the order in which this router learned of the links. The
    subscribers of one address are in the order of their latest entries."""

    def __init__(self) -> None:
        self._by_index: dict[Index, LinkEntry] = {}
        self._numbers: dict[Index, int] = {}
        self._next = count()
        self._owned: dict[Owner, dict[Index, LinkEntry]] = {}
        self._sessions: dict[Session, dict[Index, LinkEntry]] = {}
        self._subscribers: ByAddress[bytes, LinkEntry] = ByAddress()
        self._untold: ByAddress[bytes, LinkEntry] = ByAddress()
        self._past: dict[Index, Epoch] = {}
        """The epoch of the last ending of each link with a timeout whose entry is forgotten."""
        self.expired_lives: dict[Index, LinkEntry] = {}
        self.bound: dict[Index, LinkEntry] = {}
        self.kept: dict[str, int] = {}
        """Maps each user to the number of its links that outlive their routers."""

    def __iter__(self) -> Iterator[LinkEntry]:
        return iter(self._by_index.values())

    def get(self, index: Index) -> LinkEntry | None:
        return self._by_index.get(index)

    def subscribers(self, address: str) -> Collection[LinkEntry]:
        """The live subscribers of an address."""
        return self._subscribers.meeting(address)

    def untold(self, address: str) -> Collection[LinkEntry]:
        """Subscribers of the address that have missed an accepted message, and whose clients have not been told yet."""
        return self._untold.meeting(address)

    @property
    def owners(self) -> list[Owner]:
        return list(self._owned)

    def owned(self, *owners: Owner) -> Iterator[LinkEntry]:
        """The entries of these owners, in no particular order."""
        return (entry for owner in owners for entry in self._owned.get(owner, {}).values())

    def at(self, router: str) -> Iterator[LinkEntry]:
        """The entries of all incarnations of a router, in no particular order."""
        return self.owned(*(owner for owner in self._owned if owner[0] == router))

    def count(self, router: str) -> int:
        """Number of entries of all incarnations of a router."""
        return sum(len(self._owned[owner]) for owner in self._owned if owner[0] == router)

    def of_session(self, session: Session) -> Collection[LinkEntry]:
        """The links of one client that expire together, including links that have ended."""
        return self._sessions.get(session, {}).values()

    def alone(self, live: Iterable[LinkEntry], is_here: Test, is_mine: Test) -> list[LinkEntry]:
        """Return the links whose client is not attached here. A link of this router is also left out if a link that
        expires together with it has its client here."""
        alone, here = [], set[Session]()
        for entry in live:
            if not is_here(entry):
                alone.append(entry)
            elif entry.session:
                here.add(entry.session)
        return [entry for entry in alone if not (entry.session in here and is_mine(entry))] if here else alone

    def past(self, entry: LinkEntry) -> Epoch | None:
        """The epoch of the link's last ending, if this router has forgotten the entry with this ending, and the attach
        in `entry` is not later than the ending. Otherwise None. If the method returns an epoch, `entry` is late news,
        or comes from a router that does not know of the ending."""
        ended = self._past.get(entry.index)
        return ended if ended is not None and entry.epoch <= ended else None

    def known_of(self, attach: LinkEntry) -> LinkEntry | None:
        """The link's entry; None if the link is unknown.

        If this router remembers a forgotten ending of the link (`past`) that is later than the link's entry, the method
        returns a closed entry with the epoch of this ending."""
        known, ended = self._by_index.get(attach.index), self.past(attach)
        if ended is None or (known is not None and known.epoch >= ended):
            return known
        return attrs.evolve(attach, epoch=ended, status=Status.CLOSED)

    def latest(self, index: Index) -> int:
        """The clock of the link's latest attach that this router knows, including forgotten endings; 0 if there is
        none."""
        entry, past = self._by_index.get(index), self._past.get(index, NOWHERE)
        return past.hlc if entry is None else max(past.hlc, entry.epoch.hlc)

    def in_order(self, entries: Iterable[LinkEntry]) -> list[LinkEntry]:
        """The entries in the order in which this router learned of the links."""
        numbers = self._numbers
        return sorted(entries, key=lambda entry: numbers[entry.index])

    def put(self, entry: LinkEntry) -> LinkEntry | None:
        """Add the entry. Returns the entry that it replaces, or None."""
        index = entry.index
        old = self._by_index.get(index)
        if old is None:
            self._numbers[index] = next(self._next)
        else:
            assert old.epoch <= entry.epoch
            self._unlist(index, old)
        self._by_index[index] = entry
        self._count(entry, 1)
        self._owned.setdefault(entry.owner, {})[index] = entry
        if entry.session:
            self._sessions.setdefault(entry.session, {})[index] = entry
        if entry.status is Status.BOUND:
            self.bound[index] = entry
        if entry.expired_life:
            self.expired_lives[index] = entry
        if entry.role is Role.SUBSCRIBER and (entry.live or entry.is_untold):
            lists = self._subscribers if entry.live else self._untold
            lists.at(entry.identity.address)[entry.name] = entry
        return old

    def remove(self, index: Index) -> LinkEntry:
        entry = self._by_index.pop(index)
        del self._numbers[index]
        self._unlist(index, entry)
        if not entry.live and entry.lifetime.timeout:
            self._remember(entry)
        return entry

    def _remember(self, ended: LinkEntry) -> None:
        """Remember the ending of a link whose entry is forgotten. If an ending of the link is remembered already, the
        later one stays."""
        self._past[ended.index] = max(ended.epoch, self._past.pop(ended.index, ended.epoch))
        if len(self._past) > MOST_PAST:
            del self._past[next(iter(self._past))]

    def _count(self, entry: LinkEntry, by: int) -> None:
        if entry.outlives_router:
            user = entry.identity.user
            self.kept[user] = self.kept.get(user, 0) + by
            if not self.kept[user]:
                del self.kept[user]

    def _unlist(self, index: Index, entry: LinkEntry) -> None:
        self._count(entry, -1)
        owned = self._owned[entry.owner]
        del owned[index]
        if not owned:
            del self._owned[entry.owner]
        if entry.session:
            links = self._sessions[entry.session]
            del links[index]
            if not links:
                del self._sessions[entry.session]
        self.bound.pop(index, None)
        self.expired_lives.pop(index, None)
        if entry.role is Role.SUBSCRIBER:
            self._subscribers.discard(entry.identity.address, entry.name)
            self._untold.discard(entry.identity.address, entry.name)
