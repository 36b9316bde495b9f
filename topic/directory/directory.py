"""The directory: which routers hold which publishers and subscribers (protocol 3.3).

Every router is the only writer of its *section*. A contact begins with the whole section and gossip; versioned deltas
follow. The highest epoch wins. This module keeps the merged view and says what changed. It sends nothing and knows no
delivery; what follows from a change is `topic.termini.changes`'s business.
"""

from collections.abc import Collection, Iterable, Iterator

import attrs

from topic.directory.entry import AddressAudience, Change, Index, LinkEntry, Role, Status, audience_of
from topic.directory.rumours import Rumours
from topic.errors import BreachError
from topic.identity import Epoch


class Directory:
    """The merged view of one router incarnation, and the versions that its contacts have of its own section."""

    def __init__(
        self, router: str, incarnation: int, routers: Collection[str], remembered: Iterable[LinkEntry] = ()
    ) -> None:
        """`remembered` are the durable links of the state store. They are orphans, as their owners are gone."""
        assert router in routers
        self.router = router
        self.incarnation = incarnation
        self.others = tuple(sorted(set(routers) - {router}))
        self.version = 0
        self.contacts: dict[str, int] = {}
        self.applied: dict[str, int] = {}
        """Version of each contact's section that was applied here: the `seen` of a Forward."""
        self._heard: dict[str, Epoch] = {}
        """The latest epoch of each contact that was applied: it has told its attaches up to there."""
        self.acked: dict[str, int] = dict.fromkeys(self.others, 0)
        """Version of our section that each router of the topology has acknowledged; -1 until it has in this contact."""
        self.departures: dict[bytes, int] = {}
        """Departure log: subscribers that moved away from here, or lapsed, and the section version of that."""
        self._entries: dict[Index, LinkEntry] = {}
        self._subscribers: dict[str, dict[bytes, LinkEntry]] = {}
        self._untold: dict[str, dict[bytes, LinkEntry]] = {}
        """By address: subscribers that something was accepted without, and that have not been told."""
        self.lapsed: dict[bytes, int] = {}
        """Subscribers that this router waits for no more, until their owner's word; since when they are out of reach,
        in microseconds of the wall clock (8, Apart)."""
        self._announced: set[Index] = set()
        """Links that moved, by the word of the router that they left, before their new owner has said so. They are
        orphans."""
        self._rumours = Rumours()
        self._tombstones: dict[Index, int] = {}
        self._audiences: dict[str, AddressAudience] = {}
        self.unsaved: list[LinkEntry] = []
        """Durable entries that changed since the shell last took them to the state store."""
        for entry in remembered:
            self._put(entry)
        self.unsaved.clear()

    # views

    @property
    def complete(self) -> bool:
        """Whether all routers of the topology are in contact and have told their sections."""
        return len(self.applied) == len(self.others)

    def publisher(self, name: bytes) -> LinkEntry | None:
        return self._entries.get((Role.PUBLISHER, name))

    def subscriber(self, name: bytes) -> LinkEntry | None:
        return self._entries.get((Role.SUBSCRIBER, name))

    def subscribers(self, address: str) -> Iterable[LinkEntry]:
        """Live subscribers of an address, in the order in which they became known."""
        return self._subscribers.get(address, {}).values()

    def entry(self, index: Index) -> LinkEntry | None:
        return self._entries.get(index)

    def entries(self) -> Iterator[LinkEntry]:
        return iter(self._entries.values())

    def is_mine(self, entry: LinkEntry) -> bool:
        return entry.epoch.router == self.router and entry.epoch.incarnation == self.incarnation

    def in_contact(self, entry: LinkEntry) -> bool:
        """Whether the link's owner, in that incarnation, is this router, or is in contact and its section was
        applied."""
        return not self.is_announced(entry) and (self.is_mine(entry) or self.tells_itself(entry))

    def is_announced(self, entry: LinkEntry) -> bool:
        """Whether the link has moved, and its new owner has not said so."""
        return (entry.role, entry.name) in self._announced

    def tells_itself(self, entry: LinkEntry) -> bool:
        """Whether the link's owner, in that incarnation, is in contact and has told its section."""
        router = entry.router
        return self.contacts.get(router) == entry.epoch.incarnation and router in self.applied

    def audience(self, address: str) -> AddressAudience:
        """The audience of a message published now (protocol 5, Publish). Cached until the directory changes."""
        audience = self._audiences.get(address)
        if audience is None:
            audience = self._audiences[address] = self._compute_audience(address)
        return audience

    def _compute_audience(self, address: str) -> AddressAudience:
        listed = self.subscribers(address)
        members = [(entry, self.in_contact(entry)) for entry in listed if entry.name not in self.lapsed]
        lapsed = [entry.name for entry in listed if entry.name in self.lapsed]
        return audience_of(self.router, members, (*self._untold.get(address, ()), *lapsed))

    # own section

    def write(self, entry: LinkEntry) -> Change:
        """Put an entry of our own into the section. The caller sends the delta of the new version."""
        assert self.is_mine(entry), "a router writes its own section only"
        old = self._entries.get((entry.role, entry.name))
        assert old is None or old.epoch <= entry.epoch
        self.version += 1
        self._put(entry)
        if not entry.live and not entry.expired_life:
            self._tombstones[entry.role, entry.name] = self.version
            self._prune()
        return Change(old, entry)

    def section(self) -> tuple[list[LinkEntry], list[LinkEntry]]:
        """Our whole section, and gossip: what has ended; links of routers that we are not in contact with; and links
        that last, as the contact may not be in contact with their owner."""
        own = [entry for entry in self._entries.values() if self.is_mine(entry)]
        others = [entry for entry in self._entries.values() if not self.is_announced(entry) and not self.is_mine(entry)]
        return own, [e for e in others if not e.live or e.lifetime.timeout or not self.in_contact(e)]

    def depart(self, name: bytes) -> None:
        """A subscriber of ours has moved away, or lapsed. Logged until every contact knows (protocol 3.3); the caller
        sends the delta of the new version."""
        self.version += 1
        self.departures[name] = self.version

    def acknowledge(self, router: str, version: int) -> None:
        """A contact has applied our section up to `version`."""
        if not 0 <= version <= self.version:
            raise BreachError(f"router {router} acknowledges version {version} of {self.version}")
        self.acked[router] = max(self.acked[router], version)
        self._prune()

    def all_contacts_have(self, version: int) -> bool:
        return all(self.acked[router] >= version for router in self.contacts)

    @property
    def _all_know(self) -> bool:
        """Whether all routers are in contact and have been told what has ended: nobody takes it for live."""
        return self.complete and min(self.acked.values(), default=0) >= 0

    def _prune(self) -> None:
        """Forget departures that every contact knows, and endings that every router knows."""
        in_contact = min((self.acked[router] for router in self.contacts), default=self.version)
        for name in [name for name, version in self.departures.items() if version <= in_contact]:
            del self.departures[name]
        if self._all_know:
            dead = [(index, entry) for index, entry in self._entries.items() if not entry.live]
            for index in [index for index, entry in dead if not self.is_mine(entry) and not entry.expired_life]:
                self._remove(index)
        everywhere = min(self.acked.values(), default=self.version)
        for index in [index for index, version in self._tombstones.items() if version <= everywhere]:
            del self._tombstones[index]
            self._remove(index)

    # links that expire

    def lapse(self, entry: LinkEntry, since_us: int) -> None:
        """Nobody waits for this subscriber any more, until its owner says that it lives (8, Apart)."""
        assert entry.live and entry.role is Role.SUBSCRIBER
        self.lapsed[entry.name] = since_us
        self._audiences.pop(entry.identity.address, None)

    def take_back(self, entry: LinkEntry) -> bool:
        """The owner says that the subscriber lives: it is waited for again. False if it has been all along."""
        known = self.subscriber(entry.name)
        is_known = known is not None and entry.role is Role.SUBSCRIBER and known.epoch == entry.epoch
        if not is_known or self.lapsed.pop(entry.name, None) is None:
            return False
        self._audiences.pop(entry.identity.address, None)
        return True

    def mark(self, entry: LinkEntry, status: Status, ending: str = "") -> Change:
        """Note what we decided of a link, whoever owns it (8, Expiry). The text `ending` is for its client."""
        marked = attrs.evolve(entry, status=status, ending=ending)
        announced = self.is_announced(entry)
        lapsed = self.lapsed.get(entry.name) if entry.role is Role.SUBSCRIBER else None
        self._put(marked)
        if announced and marked.live:
            self._announced.add((entry.role, entry.name))
        if lapsed is not None and marked.live:
            self.lapse(marked, lapsed)
        return Change(entry, marked)

    def forget(self, entry: LinkEntry) -> None:
        """Forget an expired life that nobody comes back for."""
        if self._entries.get((entry.role, entry.name)) is entry:
            self._remove((entry.role, entry.name))

    # the others' sections

    def contact(self, router: str, incarnation: int) -> None:
        assert router not in self.contacts
        self.contacts[router] = incarnation
        self.acked[router] = -1
        self._audiences.clear()

    def lost(self, router: str) -> list[Change]:
        """The router's links are orphans at once. Those with timeout 0 expire with it (protocol 1 and 8), and are
        returned."""
        del self.contacts[router]
        self.applied.pop(router, None)
        self._heard.pop(router, None)
        self._audiences.clear()
        theirs = [entry for entry in self._entries.values() if entry.router == router]
        expired = [entry for entry in theirs if entry.live and not entry.lifetime.timeout]
        for entry in expired:
            self._remove((entry.role, entry.name))
        self._prune()
        return [Change(entry, None) for entry in expired]

    def apply_section(self, router: str, version: int, own: list[LinkEntry], gossip: list[LinkEntry]) -> list[Change]:
        """Take a contact's whole section. What it closed it lists until we acknowledge that. So a link that it lists no
        longer has moved: it is an orphan, or expires if it has no timeout."""
        self._check_owner(router, own)
        incarnation = self.contacts[router]
        listed = {(entry.role, entry.name) for entry in own}
        gone = [
            (index, entry)
            for index, entry in self._entries.items()
            if entry.epoch[1:] == (router, incarnation) and index not in listed and not entry.expired_life
        ]
        changes: list[Change] = []
        for index, entry in gone:
            if entry.live and entry.lifetime.timeout:
                self._announced.add(index)
                self._audiences.pop(entry.identity.address, None)
            else:
                self._remove(index)
                changes += [Change(entry, None)] if entry.live else []
        return changes + self.apply_delta(router, version, own) + self.apply_gossip(gossip)

    def apply_gossip(self, entries: list[LinkEntry]) -> list[Change]:
        """Take what a contact knows of others. Of another contact only its own word counts, as gossip may be old, but
        for endings, which it may not know. Until it speaks, or is lost, what is told of its subscribers is a rumour."""
        others = [entry for entry in entries if not self.is_mine(entry)]
        for entry in filter(self.tells_itself, others):
            self._rumours.hear(entry, self.entry((entry.role, entry.name)))
        return self._merge([entry for entry in others if not entry.live or not self.tells_itself(entry)])

    def believe_rumours(self, router: str) -> list[Change]:
        """The contact is over before the router told what others say of its subscribers: they are orphans."""
        return self._merge(self._rumours.take(router))

    def known_versions(self) -> dict[str, tuple[int, int]]:
        """By router in contact: its incarnation, and how far its section is applied here."""
        return {router: (self.contacts[router], version) for router, version in self.applied.items()}

    def apply_delta(self, router: str, version: int, entries: list[LinkEntry]) -> list[Change]:
        """Take entries that a contact wrote. `version` is its section's version with them."""
        self._check_owner(router, entries)
        if version < self.applied.get(router, 0):
            raise BreachError(f"section of router {router} goes back to version {version}")
        if router not in self.applied:
            self._audiences.clear()
        self.applied[router] = version
        heard = [entry.epoch for entry in entries]
        if heard:
            self._heard[router] = max([*heard, self._heard.get(router, heard[0])])
        return self._merge(entries)

    def apply_departures(self, router: str, moved: list[LinkEntry]) -> list[Change]:
        """Take word of subscribers that moved away from `router`. One that moved to a contact waits as an orphan for
        the contact's word, so that nobody counts on `router` for it; so does one that moved elsewhere, for its timeout,
        and one with a timeout that the contact has not told: it moved on before that. Others are lost, or were closed
        before we heard of this."""
        changes: list[Change] = []
        for entry in moved:
            index = entry.role, entry.name
            old = self._entries.get(index)
            if old is None or old.epoch[1:] != (router, self.contacts[router]) or old.epoch >= entry.epoch:
                continue
            in_contact = self.contacts.get(entry.router) == entry.epoch.incarnation
            lasts = entry.lifetime.timeout > 0 and not self.is_mine(entry)
            if lasts or (in_contact and self._heard.get(entry.router, old.epoch) < entry.epoch):
                self._put(entry)
                if in_contact:
                    self._announced.add(index)
                changes.append(Change(old, entry))
            else:
                self._remove(index)
                changes.append(Change(old, None))
        return changes

    def _check_owner(self, router: str, entries: list[LinkEntry]) -> None:
        owner = (router, self.contacts[router])
        if any(entry.epoch[1:] != owner for entry in entries):
            raise BreachError(f"router {router} writes in a section that is not its own")

    def _merge(self, entries: list[LinkEntry]) -> list[Change]:
        changes: list[Change] = []
        for entry in entries:
            old = self._entries.get((entry.role, entry.name))
            if old is not None and old.epoch == entry.epoch and old.live and entry.live and self.is_announced(entry):
                entry = attrs.evolve(entry, status=old.status)  # we may have agreed to let it expire
            elif old is not None and old.rank >= entry.rank:
                continue
            if entry.live or entry.expired_life or not self._all_know:
                self._put(entry)
            elif old is not None:
                self._remove((entry.role, entry.name))
            if entry.live or (old is not None and old.live):
                changes.append(Change(old, entry))
        return changes

    def _put(self, entry: LinkEntry) -> None:
        index = (entry.role, entry.name)
        self._tombstones.pop(index, None)
        self._announced.discard(index)
        self._rumours.settle(entry)
        old = self._entries.get(index)
        assert old is None or old.epoch <= entry.epoch
        self._entries[index] = entry
        if entry.outlives_router or (old is not None and old.outlives_router):
            self.unsaved.append(entry)
        if entry.role is Role.SUBSCRIBER:
            self._unlist(entry)
            if entry.live or entry.expired_life:
                lists = self._subscribers if entry.live else self._untold
                lists.setdefault(entry.identity.address, {})[entry.name] = entry

    def _unlist(self, entry: LinkEntry) -> None:
        self.lapsed.pop(entry.name, None)
        address = entry.identity.address
        for lists in (self._subscribers, self._untold):
            at_address = lists.get(address, {})
            at_address.pop(entry.name, None)
            if not at_address:
                lists.pop(address, None)
        self._audiences.pop(address, None)

    def _remove(self, index: Index) -> None:
        entry = self._entries.pop(index)
        if entry.outlives_router:
            self.unsaved.append(attrs.evolve(entry, status=Status.CLOSED))
        self._tombstones.pop(index, None)
        self._announced.discard(index)
        if entry.role is Role.SUBSCRIBER:
            self._unlist(entry)
