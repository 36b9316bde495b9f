"""Decides when links whose client does not come back expire or lapse (protocol 8, Expiry and Apart).

    a subscriber lapses  no delivery awaits it any more; if its owner says that it is alive, the lapse ends.
                         Needed: all routers in contact agree that, as far as they can see, it has had no client for
                         its timeout.
    a link expires       it has ended, and routers forget what they keep for it.
                         Needed: all routers of the topology agree that they were in contact for its timeout, and none
                         had the client. Or, after `forget`, all routers in contact agree, as for a lapse.

Routers that are out of contact with a link's owner can only end the *waiting* for it. The owner may come back and say
that the link is alive.

The custodian of a suspended link proposes the end of the link. For an orphan, the router in contact with the lowest
name proposes the end of the link, and the other routers send this router gossip about the orphan. If a link has a new
custodian that has not announced the link itself yet, each router that waits for this announcement proposes the end.

A router votes no if it knows a later attach, or if by its own count the time is not over. A router that votes yes to an
expiry is bound by its vote: it marks the link as `BOUND`, also on disk, until the proposal is decided or withdrawn. If
the contacts change before the decision, the proposal is made again.

In a session, the link that was attached last expires first, and routers remember its ending. If an earlier link still
exists somewhere, this ending shows that the session is over.
"""

import math
from bisect import bisect_right
from operator import itemgetter
from typing import Protocol

import attrs

from topic.directory.directory import Directory
from topic.directory.entry import Decision, Index, LinkEntry, Role, Session, Status
from topic.identity import Epoch
from topic.outlet import Outlet

ASK_AGAIN_S = 1.0
"""The seconds after which this router proposes the end of a link again."""
LOOK_S = 0.5

Attach = tuple[Index, Epoch]


@attrs.define(slots=True)
class _Poll:
    epoch: Epoch
    decision: Decision
    awaited: set[str]


@attrs.define(slots=True)
class _Lonely:
    """A link that, as far as this router knows, has no client. Times are in seconds."""

    since: float
    ask: float = -math.inf
    """The earliest time of the next proposal for this link."""
    lapsed_at: set[str] = attrs.Factory(set)
    """The routers in contact that know of the link's lapse."""


class Termini(Protocol):
    """Ends links, or lets them lapse; `topic.termini.changes` implements it."""

    def is_here(self, entry: LinkEntry) -> bool:
        """Whether a client is connected to this router by exactly the attach of this entry."""

    def end(self, entry: LinkEntry, ending: str = "") -> None:
        """End the link. `ending`: the text for its client."""

    def leave_behind(self, entry: LinkEntry) -> None:
        """Close an expired link whose client continues its session without it, so that all routers forget that it has
        expired."""

    def lapse(self, entry: LinkEntry, away_s: float) -> None:
        """Let a subscriber lapse. `away_s`: the seconds for which it has been out of reach."""


class Expiry:
    """Decides about the links in one router's directory that have no client."""

    def __init__(self, outlet: Outlet, directory: Directory, links: Termini, *, remember: float, forget: float) -> None:
        """`remember`: the seconds for which routers remember an expired life. `forget`: the seconds after which routers
        give up a link without a client although some routers are missing."""
        self.outlet = outlet
        self.directory = directory
        self._remember = remember
        self._forget_s = forget
        self._links = links
        self._lonely: dict[Attach, _Lonely] = {}
        self._sessions: dict[Session, list[Attach]] = {}
        """Maps each session to its links without a client, in the order of their attaches."""
        self.all_since = math.inf
        """The time since which all routers of the topology have been in contact, in seconds; infinity while one of them
        is not."""
        self._polls: dict[Index, _Poll] = {}
        self._bound_to: dict[Attach, set[str]] = {}
        """Maps each attach that this router has agreed to let expire to the routers that have proposed the expiry. A
        router that withdraws its proposal is removed."""
        self._ended: dict[Attach, float] = {}
        self._looked = -math.inf
        self._next = math.inf

    # The methods from here on are about time.

    def handle_timer(self, now: float) -> None:
        """Find the links without a client, and propose what is due. The time of a link counts from the moment at which
        this router first sees it without a client."""
        if now < min(self._next, self._looked + LOOK_S):
            return
        self._looked = now
        self.all_since = min(self.all_since, now) if self.directory.complete else math.inf
        entries = {(entry.index, entry.epoch): entry for entry in self.directory.unattended(self._links.is_here)}
        self._lonely = {attach: self._lonely.get(attach) or _Lonely(now) for attach in entries}
        self._sessions = {}
        for entry in reversed(entries.values()):
            if entry.session:
                self._sessions.setdefault(entry.session, []).append((entry.index, entry.epoch))
        self._bound_to = {attach: routers for attach, routers in self._bound_to.items() if attach in entries}
        self._forget(now)
        for attach, lonely in self._lonely.items():
            entry = entries[attach]
            decision = self._due(entry, lonely)
            if decision is not None and now >= lonely.ask:
                lonely.ask = now + ASK_AGAIN_S
                if not self._is_live(attach):  # the link has just ended together with another link of its session
                    continue
                if not self._speaks_for(entry):
                    self._gossip_link(entry)
                elif decision is Decision.EXPIRED and self._is_followed(entry, self.outlet.router):
                    continue
                elif not self._has_proposed(entry, decision):
                    self._propose(entry, decision)
        self._next = min((self._next_of(attach, lonely) for attach, lonely in self._lonely.items()), default=math.inf)

    def _due(self, entry: LinkEntry, lonely: _Lonely) -> Decision | None:
        """The decision about the link that was due at the last search for links without a client; None if none was
        due."""
        since, timeout, now = lonely.since, entry.lifetime.timeout, self._looked
        if now >= max(since, self.all_since) + timeout or now >= since + self._forget_s:
            return Decision.EXPIRED
        lapsed = entry.name in self.directory.lapsed
        everywhere = lapsed and lonely.lapsed_at.issuperset(self.directory.contacts)
        if entry.role is Role.SUBSCRIBER and now >= since + timeout and not everywhere:
            return Decision.LAPSED
        return None

    def deadline(self) -> float:
        """The time at which the next decision about a link is due, as known after the last search for links without a
        client. The shell reads this after every event."""
        return self._next

    def _next_of(self, attach: Attach, lonely: _Lonely) -> float:
        entry = self.directory.entry(attach[0])
        if entry is None:
            return math.inf
        if self._due(entry, lonely) is not None:
            return lonely.ask
        lapses = entry.role is Role.SUBSCRIBER and entry.name not in self.directory.lapsed
        begin = lonely.since if lapses else max(lonely.since, self.all_since)
        return max(lonely.ask, min(begin + entry.lifetime.timeout, lonely.since + self._forget_s))

    def begin_anew(self, router: str) -> None:
        """Restart the times of the links of `router`, which is in contact again, or was just lost. The time of a link
        begins anew when this router next finds the link without a client. Links of former incarnations of `router` are
        included, because their clients may have come back there while the contact ended."""
        self._lonely = {attach: lonely for attach, lonely in self._lonely.items() if attach[1].router != router}

    def _forget(self, now: float) -> None:
        """Forget the expired lives whose clients cannot come back any more without knowing of the end.

        A life is forgotten `remember` seconds after its end. This time counts only while all routers are in contact,
        because any of them may have the client. After `forget` seconds, a life is forgotten in any case.

        If a session goes on here, its expired links are closed at once. Otherwise the ending of a link of the session
        shows that the session is over. This ending is kept while an earlier link of the session still exists somewhere.
        """
        ended = self.directory.expired_lives()
        attaches = [(entry.index, entry.epoch) for entry in ended]
        self._ended = {attach: self._ended.get(attach, now) for attach in attaches}
        sessions = dict.fromkeys(entry.session for entry in ended if entry.session)
        left = {session: [link for link in self.directory.of_session(session) if link.live] for session in sessions}
        first = {session: min(link.epoch for link in links) for session, links in left.items() if links}
        here = {session for session, links in left.items() if any(map(self._links.is_here, links))}
        for entry, since in zip(ended, self._ended.values(), strict=True):
            session = entry.session
            is_due = now >= max(since, self.all_since) + self._remember or now >= since + self._forget_s
            if session in here and not entry.ending:
                self._links.leave_behind(entry)
            elif is_due and not (session in first and self._shows_session_end(entry, first[session])):
                self.directory.forget(entry)

    @staticmethod
    def _shows_session_end(entry: LinkEntry, first: Epoch) -> bool:
        """Whether this ended link is needed to show that its session is over. It is needed if it was attached later
        than the session's earliest link that still exists, which was attached at `first`."""
        return entry.ending != "" or first < entry.epoch

    def _is_followed(self, entry: LinkEntry, asker: str) -> bool:
        """Whether a link must not expire yet, because another link of its session was attached later, is without a
        client, too, and must expire first. `asker`: the router that proposes the expiry of the link.

        The result is False in two cases. The first: `asker` has already proposed the expiry of the later link. The
        second: a router is out of contact, and so may see the client.
        """
        if not self.directory.complete:
            return False
        attaches = self._sessions.get(entry.session, []) if entry.session else []
        later = range(bisect_right(attaches, entry.epoch, key=itemgetter(1)), len(attaches))
        after = next((attaches[at] for at in later if self._is_live(attaches[at])), None)
        if after is None:
            return False
        if asker != self.outlet.router:
            return asker not in self._bound_to.get(after, ())
        poll = self._polls.get(after[0])
        return poll is None or (poll.epoch, poll.decision) != (after[1], Decision.EXPIRED)

    def _is_live(self, attach: Attach) -> bool:
        entry = self.directory.entry(attach[0])
        return entry is not None and entry.live and entry.epoch == attach[1]

    def _speaks_for(self, entry: LinkEntry) -> bool:
        """Whether this router is the one that proposes the decision about the link."""
        directory = self.directory
        if directory.is_mine(entry) or entry.status is Status.BOUND or directory.is_announced(entry):
            return True
        return all(self.outlet.router < router for router in directory.contacts)

    # The methods from here on are about proposals of this router.

    def _gossip_link(self, entry: LinkEntry) -> None:
        """Send gossip about the link to the router that has to propose the link's end, because that router may not know
        the link."""
        self.outlet.batches.gossip(min(self.directory.contacts), [entry])

    def _has_proposed(self, entry: LinkEntry, decision: Decision) -> bool:
        """Whether this router has already proposed the decision and still waits for votes. It need not ask again: votes
        come as long as the contacts last, however slow the links between routers are."""
        poll = self._polls.get(entry.index)
        return poll is not None and (poll.epoch, poll.decision) == (entry.epoch, decision)

    def _propose(self, entry: LinkEntry, decision: Decision) -> None:
        assert entry.live
        contacts = self.directory.contacts
        poll = self._polls[entry.index] = _Poll(entry.epoch, decision, set(contacts))
        self.outlet.batches.expire(contacts, entry, decision)
        self._decide(entry, poll)

    def vote(self, router: str, index: Index, epoch: Epoch, decision: Decision, yes: bool) -> None:
        """Take another router's vote on a proposal of this router."""
        poll, entry = self._polls.get(index), self.directory.entry(index)
        if poll is None or (poll.epoch, poll.decision) != (epoch, decision):
            return
        if entry is None:
            del self._polls[index]
        elif not yes:
            self._abort(entry)
            # The owner has not agreed to the expiry, so another router that proposes it does not get the owner's vote,
            # either.
            if router == entry.router and self.directory.tells_itself(entry):
                self._free(entry)
        else:
            poll.awaited.discard(router)
            self._decide(entry, poll)

    def _decide(self, entry: LinkEntry, poll: _Poll) -> None:
        if not poll.awaited:
            del self._polls[entry.index]
            if entry.live and entry.epoch == poll.epoch:
                self.outlet.batches.expired(self.directory.contacts, entry, poll.decision)
                if poll.decision is Decision.EXPIRED:
                    self._end(entry)
                else:
                    self._lapse(entry)

    def _end(self, entry: LinkEntry) -> None:
        """End the link. A subscriber gets a text about this if it may be attached at a router that no router in contact
        can reach."""
        directory, ending = self.directory, ""
        if entry.role is Role.SUBSCRIBER and not directory.complete:
            ending = f"its client was attached at no reachable router for {self._forget_s:g} s"
        elif entry.role is Role.SUBSCRIBER and entry.router not in (directory.router, *directory.contacts):
            ending = f"router {entry.router} has left the mesh, and its client attached at no other router"
        self._links.end(entry, ending)

    def _abort(self, entry: LinkEntry) -> None:
        """Withdraw the proposal. Routers that have voted yes are not bound by it any more."""
        polled = attrs.evolve(entry, epoch=self._polls.pop(entry.index).epoch)
        self.outlet.batches.expired(self.directory.contacts, polled, Decision.NOTHING)

    def _lapse(self, entry: LinkEntry) -> None:
        assert entry.role is Role.SUBSCRIBER
        lonely = self._lonely.get((entry.index, entry.epoch))
        if lonely is not None:
            lonely.lapsed_at.update(self.directory.contacts)
        away = entry.lifetime.timeout if lonely is None else self._looked - lonely.since
        self._links.lapse(entry, away)

    def contacts_changed(self) -> None:
        """Withdraw all proposals, because a new contact may know more, and a lost contact has not voted."""
        self.all_since = math.inf
        for index in list(self._polls):
            entry = self.directory.entry(index)
            if entry is not None:
                self._abort(entry)
        self._polls.clear()

    def awaits(self, router: str, entry: LinkEntry) -> None:
        """Called when `router` still awaits a lapsed subscriber: announce the lapse to this router again."""
        lonely = self._lonely.get((entry.index, entry.epoch))
        if lonely is not None:
            lonely.lapsed_at.discard(router)

    def contact_lost(self, router: str) -> None:
        """Handle a lost contact. In the next contact, this router has to announce all lapses to `router` again."""
        for lonely in self._lonely.values():
            lonely.lapsed_at.discard(router)
        self.begin_anew(router)
        self.contacts_changed()

    # The methods from here on are about proposals of other routers.

    def proposed(self, router: str, index: Index, epoch: Epoch, decision: Decision) -> None:
        """Vote on another router's proposal about a link."""
        directory = self.directory
        entry = directory.entry(index)
        yes = entry is None or not entry.live or (entry.epoch <= epoch and self._agrees(router, entry, decision))
        if yes and entry is not None and entry.live and decision is Decision.EXPIRED:
            directory.mark(entry, Status.BOUND)
            self._bound_to.setdefault((index, entry.epoch), set()).add(router)
        self.outlet.batches.vote(router, index, epoch, decision, yes=yes)

    def _agrees(self, router: str, entry: LinkEntry, decision: Decision) -> bool:
        """Whether this router agrees with the proposal. It agrees with the owner of the link, which knows best. Any
        other proposer may have lost sight of the client earlier than this router."""
        if decision is Decision.EXPIRED and self._is_followed(entry, router):
            return False
        if entry.router == router:
            return True
        lonely = self._lonely.get((entry.index, entry.epoch))
        if lonely is None:
            return False
        if decision is Decision.LAPSED:
            return self._looked >= lonely.since + entry.lifetime.timeout
        return self._due(entry, lonely) is Decision.EXPIRED

    def decided(self, router: str, index: Index, epoch: Epoch, decision: Decision) -> None:
        """Apply the decision on another router's proposal."""
        directory = self.directory
        entry = directory.entry(index)
        if entry is None or not entry.live or entry.epoch != epoch:
            return
        if decision is Decision.EXPIRED:
            self._end(entry)
            # The proposer may be out of contact with the link's owner, so this router tells the owner.
            if directory.tells_itself(entry):
                ended = attrs.evolve(entry, status=Status.EXPIRED)
                self.outlet.batches.gossip(entry.router, [ended])
        elif decision is Decision.NOTHING:
            others = self._bound_to.get((index, epoch), set())
            others.discard(router)
            if not others:
                self._free(entry)
        elif router == entry.router or not directory.in_contact(entry):
            self._lapse(entry)

    def _free(self, entry: LinkEntry) -> None:
        """Take back this router's consent to let the link expire."""
        if entry.status is Status.BOUND:
            self.directory.mark(entry, Status.ATTACHED)
