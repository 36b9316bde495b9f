"""The directory: which router has which publishers and subscribers (protocol 3.3).

Each router has a *section*, the list of its own links, which only this router changes. When a contact begins, the
router sends its whole section and gossip; afterwards it sends deltas with version numbers. Of two entries of one link,
the directory keeps the one with the higher epoch. `topic.termini.changes` acts on each change.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

import attrs

from linkstate.plan.plan import Plan
from topic.directory.addresses import Found
from topic.directory.entries import LinkEntries
from topic.directory.entry import (
    AddressAudience,
    Change,
    Index,
    LinkEntry,
    Owner,
    Role,
    Session,
    Status,
    audience_of,
    configured_subscriber,
)
from topic.directory.members import Members
from topic.directory.rumours import Rumours
from topic.directory.section_log import SectionLog
from topic.errors import BreachError
from topic.identity import NOWHERE, Epoch, LinkIdentity


class Directory:
    """All links that one incarnation of a router knows. The directory also knows which version of the router's own
    section each contact has."""

    def __init__(
        self, members: Members, remembered: Iterable[LinkEntry] = (), configured: Iterable[LinkIdentity] = ()
    ) -> None:
        """`remembered`: the durable links from the state store; their owners may be gone. `configured`: the subscribers
        that the configuration lists; they have had no owner yet. All these links begin as orphans."""
        self.router = members.router
        self.incarnation = members.incarnation
        self.members = members
        self.version = 0
        self.contacts: dict[str, int] = {}
        self.applied: dict[str, int] = {}
        """Maps each contact to the version of its section that this router has applied. Each Forward carries it as
        `seen`."""
        self.departures: SectionLog[bytes] = SectionLog()
        """Subscribers that have left this router, or that have lapsed. Each is kept until all contacts know this."""
        self._entries = LinkEntries()
        self.kept = self._entries.kept
        self.lapsed: dict[bytes, int] = {}
        """Maps each lapsed subscriber, for which this router does not wait (8, Apart), to the start of its absence, in
        microseconds of the wall clock."""
        self._announced: set[Index] = set()
        """Links that have moved according to their former owner, and that their new owner has not confirmed yet. They
        are orphans."""
        self._rumours = Rumours()
        self._tombstones: SectionLog[Index] = SectionLog()
        """Links of this router that have ended. Each is kept until all routers have acknowledged the ending."""
        self._ended: dict[Index, None] = {}
        """Links of other routers that have ended. Each is kept until all routers know of the ending."""
        self._audiences: Found[AddressAudience] = Found()
        self.unsaved: list[LinkEntry] = []
        """Durable entries that have changed since the shell last wrote the state store."""
        for entry in (*remembered, *map(configured_subscriber, configured)):
            self._put(entry)
        self.unsaved.clear()

    @property
    def complete(self) -> bool:
        """Whether all routers are in contact and have sent their sections."""
        return self.members.are_all_in(self.applied, self.contacts)

    def publisher(self, name: bytes) -> LinkEntry | None:
        return self._entries.get((Role.PUBLISHER, name))

    def subscriber(self, name: bytes) -> LinkEntry | None:
        return self._entries.get((Role.SUBSCRIBER, name))

    def subscribers(self, address: str) -> Collection[LinkEntry]:
        """The live subscribers of messages to an address."""
        return self._entries.subscribers(address)

    def entry(self, index: Index) -> LinkEntry | None:
        return self._entries.get(index)

    def entries(self) -> Iterator[LinkEntry]:
        return iter(self._entries)

    def latest(self, index: Index) -> int:
        """The clock of the link's latest attach, even if the link is forgotten (`LinkEntries.latest`)."""
        return self._entries.latest(index)

    def known_of(self, attach: LinkEntry) -> LinkEntry | None:
        """The entry of the link of this attach; None if the link is unknown. If the directory remembers only the epoch
        of the link's latest ending, it makes an entry from this epoch."""
        return self._entries.known_of(attach)

    def expired_lives(self) -> list[LinkEntry]:
        return list(self._entries.expired_lives.values())

    def unattended(self, is_here: Callable[[LinkEntry], bool]) -> list[LinkEntry]:
        """The live links that have no client, as far as this router knows. The link with the latest attach comes first.

        The method looks at three kinds of links: orphans, links that this router has agreed to let expire, and links of
        this router. `is_here` says whether the client of a link of this router is attached. If it is, the result lacks
        this link, and the links of this router that expire together with it. The result also lacks lapsed plain
        subscribers.
        """
        entries, out_of_sight = self._entries, [owner for owner in self._entries.owners if not self.tells(owner)]
        listed = filter(None, map(entries.get, self._announced))
        found = {entry.index: entry for entry in (*entries.owned(*out_of_sight), *listed, *entries.bound.values())}
        may_end = (entry for entry in found.values() if not entry.is_configured)
        live = (e for e in may_end if e.lasts or (e.live and self._may_expire_at_once(e)))
        return sorted(entries.alone(live, is_here, self.is_mine), key=lambda entry: entry.epoch, reverse=True)

    def _may_expire_at_once(self, entry: LinkEntry) -> bool:
        """Whether a link without a timeout may end now: its new owner has not confirmed it, or this router has agreed
        to let it expire."""
        return self.is_announced(entry) or entry.status is Status.BOUND

    def of_session(self, session: Session) -> Collection[LinkEntry]:
        """The links of one client that expire together (8, Expiry), including links that have ended."""
        return self._entries.of_session(session)

    def is_mine(self, entry: LinkEntry) -> bool:
        return entry.owner == (self.router, self.incarnation)

    def in_contact(self, entry: LinkEntry) -> bool:
        """Whether the link's owner is this router, or a contact that has sent its section. The contact has to be the
        same incarnation of the router that the entry names."""
        return not self.is_announced(entry) and (self.is_mine(entry) or self.tells_itself(entry))

    def is_announced(self, entry: LinkEntry) -> bool:
        """Whether the link has moved to a new owner that has not confirmed it yet."""
        return entry.index in self._announced

    def is_counted_on(self, entry: LinkEntry) -> bool:
        """Whether homes wait for this plain subscriber although its router is out of contact. They do for a while,
        because the subscriber may still be attached there (8, Lost router)."""
        is_plain = entry.live and not entry.lasts and entry.role is Role.SUBSCRIBER
        is_away = not (self.is_announced(entry) or self.in_contact(entry))
        return is_plain and is_away and entry.name not in self.lapsed

    def tells_itself(self, entry: LinkEntry) -> bool:
        """Whether the link's owner is in contact as the same incarnation and has sent its section. If so, this router
        has the news of the link from the owner itself."""
        return self.tells(entry.owner)

    def tells(self, owner: Owner) -> bool:
        return owner in self.contacts.items() and owner[0] in self.applied

    def audience(self, address: str) -> AddressAudience:
        """The audience of a message that is published to the address now (protocol 5, Publish). The result is cached
        until the directory changes."""
        return self._audiences.get(address) or self._audiences.keep(address, self._compute_audience(address))

    def _compute_audience(self, address: str) -> AddressAudience:
        listed = self.subscribers(address)
        there = [entry for entry in listed if entry.name not in self.lapsed]
        counted_on = {entry.router for entry in there if self.is_counted_on(entry)}
        members = [(entry, self.in_contact(entry) or self.is_counted_on(entry)) for entry in there]
        missing = [*self._entries.untold(address), *(entry for entry in listed if entry.name in self.lapsed)]
        return audience_of(self.router, members, counted_on, (entry.name for entry in missing))

    # The methods from here on are about the section of this router.

    def write(self, entry: LinkEntry) -> Change:
        """Put an entry of this router into its section. The caller sends the new version to the contacts as a delta."""
        assert self.is_mine(entry), "a router writes its own section only"
        self.version += 1
        self.members.write(entry.epoch)
        old = self._put(entry)
        if not entry.live and not entry.expired_life:
            self._tombstones.add(entry.index, self.version)
            self._prune()
        return Change(old, entry)

    def section(self) -> tuple[list[LinkEntry], list[LinkEntry]]:
        """Return the two lists that a new contact gets: the whole section of this router, and gossip.

        The gossip has links of other routers that have ended or have a timeout, because the contact may not reach their
        owners. It leaves out configured links that were never attached, because all routers know these from the
        configuration.
        """
        own = self._entries.in_order(self._entries.owned((self.router, self.incarnation)))
        others = [entry for entry in self._entries if not self.is_announced(entry) and not self.is_mine(entry)]
        return own, [entry for entry in others if (entry.lasts or not entry.live) and entry.epoch != NOWHERE]

    def depart(self, name: bytes) -> None:
        """A subscriber has left this router, or has lapsed. The departure stays in the departure log until
        all contacts know of it (3.3). The caller sends the news."""
        self.version += 1
        self.departures.add(name, self.version)

    def acknowledge(self, router: str, version: int) -> None:
        """A contact has applied this router's section up to `version`."""
        self.members.acknowledge(router, version, self.version)
        self._prune()

    @property
    def _all_know(self) -> bool:
        """Whether all routers are in contact and have said which endings they know. Otherwise a router may still take
        an ended link for a live one."""
        return self.complete and self.members.least(0) >= 0

    def _prune(self) -> None:
        """Forget departures that every contact knows, and endings that every router knows."""
        self.departures.take(min((self.members.acked[router] for router in self.contacts), default=self.version))
        ended = list(self._ended) if self._all_know else []
        for index in (*ended, *self._tombstones.take(self.members.least(self.version))):
            self._remove(index)

    # The methods from here on are about links that expire.

    def lapse(self, entry: LinkEntry, since_us: int) -> None:
        """Stop waiting for this subscriber, until its owner says that it is alive (8, Apart)."""
        assert entry.live and entry.role is Role.SUBSCRIBER
        self.lapsed[entry.name] = since_us
        self._audiences.forget(entry.identity.address)

    def take_back(self, entry: LinkEntry) -> bool:
        """Wait again for a lapsed subscriber, because its owner says that it is alive. Returns whether it had lapsed
        here."""
        known = self.subscriber(entry.name)
        is_known = known is not None and entry.role is Role.SUBSCRIBER and known.epoch == entry.epoch
        if not is_known or self.lapsed.pop(entry.name, None) is None:
            return False
        self._audiences.forget(entry.identity.address)
        return True

    def mark(self, entry: LinkEntry, status: Status, ending: str = "") -> Change:
        """Write the routers' decision on a link into its entry, even if another router owns the link (8, Expiry).
        `ending`: the text that the client gets."""
        marked = attrs.evolve(entry, status=status, ending=ending)
        announced = self.is_announced(entry)
        lapsed = self.lapsed.get(entry.name) if entry.role is Role.SUBSCRIBER else None
        self._put(marked)
        if announced and marked.live:
            self._announced.add(entry.index)
        if lapsed is not None and marked.live:
            self.lapse(marked, lapsed)
        return Change(entry, marked)

    def forget(self, entry: LinkEntry) -> None:
        """Forget the entry of an expired life, which no client can resume any more."""
        self._remove(entry.index)

    # The methods from here on are about the sections of other routers.

    def contact(self, router: str, incarnation: int) -> list[Change]:
        """Begin a contact. Returns the links that end by this: links without a timeout of the router's former
        incarnations.

        A link stays if its entry has an `ending` (a text that the client has yet to read), because the client may still
        use an older attach at a router out of reach.
        """
        assert router not in self.contacts
        self.contacts[router] = incarnation
        self.members.contact(router)
        self._audiences.clear()
        former = (entry for entry in self._entries.at(router) if entry.owner[1] < incarnation)
        return self._end(entry for entry in former if not entry.lifetime.timeout and not entry.ending)

    def follow(self, plan: Plan) -> list[Change]:
        """Apply a changed plan. Returns the links that end by this: links without a timeout at routers that the plan
        has removed."""
        self.members.follow(plan.listed, self.contacts)
        self._prune()
        return self._end(e for e in self._entries if e.router not in plan.listed and not e.lifetime.timeout)

    def contact_lost(self, router: str) -> list[Change]:
        """End a contact. The router's links become orphans at once. Returns the links that end by this: the plain
        publishers of the lost router."""
        del self.contacts[router]
        self.members.contact_lost(router)
        self.applied.pop(router, None)
        self._audiences.clear()
        # The lost router can no longer confirm links that have moved to it.
        self._announced.difference_update([entry.index for entry in self._entries.at(router)])
        self._prune()
        return self._end(self._plain(router, Role.PUBLISHER))

    def give_up(self, owner: Owner, since_us: int) -> None:
        """Let the plain subscribers of a router out of contact lapse, so that homes no longer wait for them (8, Apart).
        `since_us`: the start of their absence, in microseconds of the wall clock. Subscribers of a later incarnation do
        not lapse."""
        router, incarnation = owner
        for entry in self._plain(router, Role.SUBSCRIBER):
            if entry.owner[1] <= incarnation:
                self.lapse(entry, since_us)

    def _plain(self, router: str, role: Role) -> list[LinkEntry]:
        return [e for e in self._entries.at(router) if e.role is role and e.live and not e.lasts]

    def _end(self, entries: Iterable[LinkEntry]) -> list[Change]:
        ended = self._entries.in_order(entries)
        for entry in ended:
            self._remove(entry.index)
        return [Change(entry, None) for entry in ended if entry.live]

    def apply_section(
        self, router: str, version: int, latest: int, own: list[LinkEntry], gossip: list[LinkEntry]
    ) -> list[Change]:
        """Apply the whole section of a contact. `latest`: as in `apply_delta`.

        A section lists each closed link until this router acknowledges the ending. So if the section lacks a link that
        this router knows, the link has moved: it becomes an orphan, or ends if it has no timeout. The same happens if
        the section has an older attach of a link than this router knows: this router has learned of the later attach by
        gossip only, and the owner has not confirmed it yet.
        """
        self._check_owner(router, own)
        listed = {entry.index: entry.epoch for entry in own}
        known = list(self._entries.owned((router, self.contacts[router])))
        gone = [entry for entry in known if entry.index not in listed and not entry.expired_life]
        gone += [entry for entry in known if entry.live and listed.get(entry.index, entry.epoch) < entry.epoch]
        self._announced.update(entry.index for entry in gone if entry.lasts)
        self._audiences.clear()
        changes = self._end(entry for entry in gone if not entry.lasts)
        return changes + self.apply_delta(router, version, latest, own) + self.apply_gossip(router, gossip)

    def apply_gossip(self, router: str, entries: list[LinkEntry]) -> list[Change]:
        """Apply a contact's gossip, its news about links of other routers.

        Gossip may be old. So if the owner of a live link is in contact, only the owner's own news counts. Gossip about
        a subscriber of that owner becomes a rumour, until the owner confirms it or is lost. If the gossip names a live
        publisher of this router, or of another contact, the publisher has left the contact that sends the gossip. This
        holds even if this router has forgotten the publisher meanwhile.
        """
        others = [entry for entry in entries if not self.is_mine(entry)]
        told = [entry for entry in others if self.tells_itself(entry)]
        for entry in told:
            # If the owner has announced all its attaches up to this one, it has already sent the news of this attach
            # itself.
            if not self.members.has_told(entry.epoch):
                self._rumours.learn(entry, self.entry(entry.index))
        moved = [e for e in entries if self.is_mine(e) or self.tells_itself(e)]
        left = self.apply_departures(router, [e for e in moved if e.live and e.role is Role.PUBLISHER])
        return left + self._merge([e for e in others if not (e.live and self.tells_itself(e))])

    def believe_rumours(self, router: str) -> list[Change]:
        """Enter the rumours about the subscribers of a lost contact as orphans, because this contact can no longer
        confirm them."""
        return self._merge(self._rumours.take(router))

    def counted_on(self, router: str) -> list[LinkEntry]:
        """The plain subscribers for which homes still wait although their router is out of contact."""
        return [entry for entry in self._plain(router, Role.SUBSCRIBER) if self.is_counted_on(entry)]

    def has_plain(self, owner: Owner) -> bool:
        """Whether this incarnation of a router has plain subscribers. Their links end with the incarnation."""
        return any(e.live and not e.lasts and e.role is Role.SUBSCRIBER for e in self._entries.owned(owner))

    def load_of(self, router: str) -> int:
        """The number of links of a router that this router knows."""
        return self._entries.count(router)

    def apply_delta(self, router: str, version: int, latest: int, entries: list[LinkEntry]) -> list[Change]:
        """Apply entries that a contact wrote into its section.

        `version`: the version of the section with these entries. `latest`: the clock up to which the contact has
        announced all attaches at it. Raises BreachError if the version went back, or if an entry belongs to another
        router.
        """
        self._check_owner(router, entries)
        if version < self.applied.get(router, 0):
            raise BreachError(f"the section of router {router} went back to version {version}")
        if router not in self.applied:
            self._audiences.clear()
        self.applied[router] = version
        self.members.tells(Epoch(latest, router, self.contacts[router]))
        return self._merge(entries)

    def apply_departures(self, router: str, moved: list[LinkEntry]) -> list[Change]:
        """Apply the news that links have moved away from `router`; `moved` has their new entries.

        A link that moved to a contact is an orphan until that contact confirms it, and homes no longer await it at
        `router`. A link with a timeout is an orphan, too, if it moved to a router out of contact, or if its new router
        no longer lists it. All other links have ended.
        """
        changes: list[Change] = []
        for entry in moved:
            old = self._entries.get(entry.index)
            if old is None or old.owner != (router, self.contacts[router]) or old.epoch >= entry.epoch:
                continue
            in_contact = self.contacts.get(entry.router) == entry.epoch.incarnation
            lasts = entry.lifetime.timeout > 0 and not self.is_mine(entry)
            if (lasts or (in_contact and not self.members.has_told(entry.epoch))) and not self._entries.past(entry):
                self._put(entry)
                if in_contact:
                    self._announced.add(entry.index)
                changes.append(Change(old, entry))
            else:
                self._remove(entry.index)
                changes.append(Change(old, None))
        return changes

    def _check_owner(self, router: str, entries: list[LinkEntry]) -> None:
        if any(entry.owner != (router, self.contacts[router]) for entry in entries):
            raise BreachError(f"router {router} wrote into the section of another router")

    def _merge(self, entries: list[LinkEntry]) -> list[Change]:
        changes: list[Change] = []
        for entry in entries:
            old = self._entries.get(entry.index)
            if old is not None and old.epoch == entry.epoch and old.live and entry.live and self.is_announced(entry):
                # Keep the status: this router may have agreed to let the link expire.
                entry = attrs.evolve(entry, status=old.status)
            elif (old is not None and old.rank >= entry.rank) or self._entries.past(entry):
                continue
            self._put(entry)
            if not (entry.live or entry.expired_life) and self._all_know:
                self._remove(entry.index)
            if entry.live or (old is not None and (old.live or old.ending)):
                changes.append(Change(old, entry))
        return changes

    def _put(self, entry: LinkEntry) -> LinkEntry | None:
        """Store an entry. Returns the link's former entry, or None."""
        self._rumours.settle(entry)
        old = self._entries.put(entry)
        self._changed(entry)
        if entry.outlives_router or (old is not None and old.outlives_router):
            self.unsaved.append(entry)
        if not (entry.live or entry.expired_life or self.is_mine(entry)):
            self._ended[entry.index] = None
        return old

    def _remove(self, index: Index) -> None:
        entry = self._entries.remove(index)
        self._changed(entry)
        if entry.outlives_router:
            self.unsaved.append(attrs.evolve(entry, status=Status.CLOSED))

    def _changed(self, entry: LinkEntry) -> None:
        """Drop all that the directory keeps about the link's former entry."""
        self._tombstones.discard(entry.index)
        self._ended.pop(entry.index, None)
        self._announced.discard(entry.index)
        if entry.role is Role.SUBSCRIBER:
            self.lapsed.pop(entry.name, None)
            self._audiences.forget(entry.identity.address)
