"""Termini that nobody came back for expire by consent (protocol 8, Expiry).

A suspended link is ended by its custodian, an orphan by the router in contact with the lowest name, which the others
tell of it; one whose new custodian has said nothing, by whoever waits for that. It asks every router in contact; one
that knows of a later attach, or for which the link has not been without a client for all its timeout, says no. A yes
binds: the link is `BOUND` there, also on disk, until the matter is decided. Only if all say yes is it over; if the
contacts change meanwhile, it is asked again.
"""

import math
from collections.abc import Callable, Iterator

import attrs

from topic.context import Context
from topic.directory import Entry, Index, Status
from topic.identity import Epoch

ASK_AGAIN_S = 1.0
"""After a proposal that came to nothing."""
LOOK_S = 0.5


@attrs.define(slots=True)
class _Poll:
    epoch: Epoch
    awaited: set[str]


class Expiry:
    """The links of one router's directory whose time runs out."""

    def __init__(
        self, context: Context, longest: float, is_here: Callable[[Entry], bool], is_over: Callable[[Entry], None]
    ) -> None:
        """`longest`: seconds for which an expired life of a publisher is remembered; `is_here`: whether a client is
        attached by this link at this router; `is_over`: end it."""
        self.context = context
        self._longest = longest
        self._is_here = is_here
        self._is_over = is_over
        self._ends: dict[tuple[Index, Epoch], float] = {}
        """When the time of links without a client is up."""
        self._asks: dict[tuple[Index, Epoch], float] = {}
        """When we next propose what is ours to propose."""
        self._polls: dict[Index, _Poll] = {}
        self._ended: dict[Epoch, float] = {}
        self._looked = -math.inf

    # time

    def handle_timer(self, now: float) -> None:
        """A link's time runs from when it is first seen here without a client; so we look every now and then."""
        if now < min(self.deadline(), default=math.inf) and now < self._looked + LOOK_S:
            return
        self._looked = now
        lonely = {((entry.role, entry.name), entry.epoch): entry for entry in self._lonely()}
        self._ends = {key: self._ends.get(key, now + entry.lifetime.timeout) for key, entry in lonely.items()}
        self._asks = {key: max(self._ends[key], self._asks.get(key, now)) for key in lonely}
        self._forget(now)
        for key, entry in lonely.items():
            if now >= self._asks[key]:
                self._asks[key] = now + ASK_AGAIN_S
                (self._propose if self._speaks_for(entry) else self._point_out)(entry)

    def begin_anew(self, router: str) -> None:
        """It is in contact again, or lost just now: the time of its links begins when it is next seen to be lost; also
        of those of its former incarnations, whose clients may have come back there as the contact ended."""
        self._ends = {key: end for key, end in self._ends.items() if key[1].router != router}

    def _forget(self, now: float) -> None:
        """Expired lives, after the time in which their publishers might come back and not know; it runs while nobody is
        out of contact who might hold them still."""
        complete = self.context.directory.complete
        ended = [entry for entry in self.context.directory.entries() if entry.expired_life and complete]
        self._ended = {entry.epoch: self._ended.get(entry.epoch, now + self._longest) for entry in ended}
        for entry in ended:
            if now >= self._ended[entry.epoch]:
                self.context.directory.forget(entry)

    def deadline(self) -> list[float]:
        return list(self._asks.values())

    def _lonely(self) -> Iterator[Entry]:
        """Suspended links of ours, and orphans. Also what we are bound for while who asked may be gone: its owner,
        being asked again, will say whether it lives."""
        directory = self.context.directory
        for entry in directory.entries():
            lonely = directory.is_mine(entry) or not directory.in_contact(entry) or entry.status is Status.BOUND
            if entry.live and lonely and not self._is_here(entry):
                yield entry

    def _speaks_for(self, entry: Entry) -> bool:
        directory = self.context.directory
        if directory.is_mine(entry) or entry.status is Status.BOUND or directory.is_announced(entry):
            return True
        return all(self.context.router < router for router in directory.contacts)

    # asking

    def _point_out(self, entry: Entry) -> None:
        """To who has to propose it, and may not know of it."""
        self.context.outgoing.hearsay(min(self.context.directory.contacts), [entry])

    def _propose(self, entry: Entry) -> None:
        contacts = self.context.directory.contacts
        poll = self._polls[entry.role, entry.name] = _Poll(entry.epoch, set(contacts))
        self.context.outgoing.expire(contacts, entry)
        self._decide(entry, poll)

    def vote(self, router: str, index: Index, epoch: Epoch, yes: bool) -> None:
        """What another router says to our proposal."""
        poll, entry = self._polls.get(index), self.context.directory.entry(index)
        if poll is None or poll.epoch != epoch or entry is None:
            return
        if not yes:
            self._abort(entry)
            if router == entry.router and self.context.directory.tells_itself(entry):  # nobody can have its consent
                self.decided(index, epoch, committed=False)
        else:
            poll.awaited.discard(router)
            self._decide(entry, poll)

    def _decide(self, entry: Entry, poll: _Poll) -> None:
        if not poll.awaited:
            del self._polls[entry.role, entry.name]
            if entry.live and entry.epoch == poll.epoch and not self._is_here(entry):
                self.context.outgoing.expired(self.context.directory.contacts, entry, committed=True)
                self._is_over(entry)

    def _abort(self, entry: Entry) -> None:
        polled = attrs.evolve(entry, epoch=self._polls.pop((entry.role, entry.name)).epoch)
        self.context.outgoing.expired(self.context.directory.contacts, polled, committed=False)

    def contacts_changed(self) -> None:
        """Whoever came may know better, whoever went has not answered."""
        for index in list(self._polls):
            entry = self.context.directory.entry(index)
            if entry is not None:
                self._abort(entry)
        self._polls.clear()

    # being asked

    def proposed(self, router: str, index: Index, epoch: Epoch) -> None:
        """Another router proposes to let a link expire."""
        directory = self.context.directory
        entry = directory.entry(index)
        yes = entry is None or not entry.live or (entry.epoch <= epoch and self._is_over_here(router, entry))
        if yes and entry is not None and entry.live:
            directory.mark(entry, Status.BOUND)
        self.context.outgoing.vote(router, index, epoch, yes=yes)

    def _is_over_here(self, router: str, entry: Entry) -> bool:
        """Its owner must know; anybody else may have lost sight of it earlier than we."""
        end = self._ends.get(((entry.role, entry.name), entry.epoch), math.inf)
        return entry.router == router or self._looked >= end

    def decided(self, index: Index, epoch: Epoch, *, committed: bool) -> None:
        """What became of another router's proposal."""
        entry = self.context.directory.entry(index)
        if entry is None or not entry.live or entry.epoch != epoch:
            return
        if committed:
            self._is_over(entry)
            if self.context.directory.tells_itself(entry):  # who has proposed it may not have reached its owner
                self.context.outgoing.hearsay(entry.router, [attrs.evolve(entry, status=Status.EXPIRED)])
        elif entry.status is Status.BOUND:
            self.context.directory.mark(entry, Status.ATTACHED)
