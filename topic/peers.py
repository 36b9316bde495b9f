"""Handles the segments that other routers send: one handler for each kind of segment.

`topic.wire.segments` checks the shapes of the segments. `topic.termini.changes` acts on changes of the directory.
"""

import math
from collections.abc import Callable
from typing import Any, Final

from linkstate.plan.plan import Plan
from topic.actions import STOLEN, Detach, Note
from topic.delivery.record import Record, presettle
from topic.delivery.room import Drain, DrainAnswer, SubscriberRoom
from topic.directory.entry import Change, Decision, LinkEntry, Role, Status, check_once, unpack_entries, unpack_entry
from topic.directory.gossip import Gossip
from topic.errors import BreachError
from topic.event import event
from topic.home.boot import Boot
from topic.home.home import Home
from topic.identity import Epoch
from topic.journal import Event
from topic.termini.attaches import Attaches
from topic.termini.changes import Changes
from topic.termini.expiry import Expiry
from topic.termini.generations import Generations
from topic.termini.grace import Grace
from topic.wire import segments
from topic.wire.segments import Segment

MOST_ENTRIES: Final = 1_000_000
"""The highest number of entries in a section and its gossip together."""


class Peers:
    """Receives the messages of all contacts of one router."""

    def __init__(
        self,
        home: Home,
        attaches: Attaches,
        expiry: Expiry,
        grace: Grace,
        changes: Changes,
        boot: Boot,
        generations: Generations,
    ) -> None:
        self.outlet = home.outlet
        self.directory = home.directory
        self.home = home
        self.edge = home.edge
        self._attaches = attaches
        self._expiry = expiry
        self._grace = grace
        self._changes = changes
        self._boot = boot
        self._gossip = Gossip(self.directory)
        self._generations = generations
        self.bodies = generations.bodies
        self._parts: dict[str, tuple[list[LinkEntry], list[LinkEntry]]] = {}
        """Maps each contact to the parts of its section, and of the gossip that it sends with the section, as far as
        they have come."""

    def contact(self, router: str) -> None:
        """A contact has begun, and this router's section is on its way to the other router."""
        self._gossip.contact(router)

    def contact_lost(self, router: str) -> None:
        """Handle a lost contact. The lost router cannot tell of its subscribers any more, so this router now believes
        the rumours about them (3.3)."""
        self.bodies.contact_lost(router)
        self._parts.pop(router, None)
        changes = self.directory.believe_rumours(router)
        self._pass_on(router, changes, learned=True)
        self._changes.follow(changes, learned=True)

    @event
    def follow(self, plan: Plan) -> None:
        """Follow a changed plan. This router may now have to wait for other routers than before (11)."""
        self._changes.follow(self.directory.follow(plan))
        self._grace.follow(plan)
        self._expiry.contacts_changed()
        self._boot.check(-math.inf)
        self._generations.begin_unknown(-math.inf)

    def receive(self, router: str, payload: bytes) -> None:
        """Take a batch from a router in contact. Raises `BreachError` if it breaks the protocol."""
        said = segments.decode(payload)
        for kind, *columns in said:
            HANDLERS[kind](self, router, *columns)
        # A home may withhold transfers until one of these keys is free.
        if all(segment[0] == Segment.SETTLE for segment in said):
            self.outlet.batches.end_delays()

    def _on_part(self, router: str, own: list[Any], gossip: list[Any]) -> None:
        """Keep one part of a section that is too large for one batch. The parts are applied together when all of them
        have come."""
        entries, told = self._parts.setdefault(router, ([], []))
        entries += map(unpack_entry, own)
        told += map(unpack_entry, gossip)
        if len(entries) + len(told) > MOST_ENTRIES:
            raise BreachError(f"a section has more than {MOST_ENTRIES} entries")

    def _on_section(self, router: str, version: int, latest: int, own: list[Any], gossip: list[Any]) -> None:
        self._on_part(router, own, gossip)
        entries, told = self._parts.pop(router)
        check_once([*entries, *told])
        joined_before = [entry for entry in entries if self._is_same_subscriber(entry)]
        taken_back = [entry for entry in entries if entry.live and self.directory.take_back(entry)]
        is_back = self._grace.returned(router, entries)
        changes = self.directory.apply_section(router, version, latest, entries, told)
        self._pass_on(router, changes, learned=True)
        self.home.balancing.section_received(router)
        # These subscribers are expected again at once, before another change lets a home accept messages without them.
        for entry in taken_back:
            self.home.audiences.expect(entry, router)
        self._changes.follow(changes, learned=True)
        for entry in joined_before:
            self.home.audiences.join(entry, known=True)
        if is_back:
            self.home.decide_all()
        self._end_ours(told)
        self._end_later([*entries, *told])
        self._correct(router, [*entries, *told])
        self.outlet.batches.ack(router, version)
        self._expiry.begin_anew(router)
        self._boot.section_received(router)
        self._generations.begin_unknown(-math.inf)

    def _is_same_subscriber(self, entry: LinkEntry) -> bool:
        if entry.role is Role.PUBLISHER or not entry.live or self.directory.is_announced(entry):
            return False
        known = self.directory.subscriber(entry.name)
        return known is not None and known.live and known.epoch == entry.epoch

    def _on_delta(self, router: str, version: int, latest: int, entries: list[Any], departed: list[Any]) -> None:
        told, moved = unpack_entries(entries), unpack_entries(departed)
        changes = self.directory.apply_delta(router, version, latest, told)
        self._pass_on(router, changes, learned=False)
        for change in changes:
            if change.entry.role is Role.SUBSCRIBER and change.entry.live and change.entry.lifetime.timeout:
                self._gossip.learned(change.entry.name, version)
        self._changes.follow(changes)
        self._changes.follow(self.directory.apply_departures(router, moved))
        self._correct(router, told)
        self.outlet.batches.ack(router, version)

    def _on_gossip(self, router: str, entries: list[Any]) -> None:
        told = unpack_entries(entries)
        changes = self.directory.apply_gossip(router, told)
        self._pass_on(router, changes, learned=True)
        self._changes.follow(changes, learned=True)
        for entry in told:
            self._attaches.overtaken(entry)
            self.edge.attached_elsewhere(router, entry)
        self._end_ours(told)
        self._end_later(told)
        self._correct(router, told)

    @event
    def remember(self, entries: list[LinkEntry]) -> None:
        """Enter as orphans the subscribers from the state store, unless a router in contact tells of them."""
        changes = self.directory.apply_gossip(self.directory.router, entries)
        self._changes.follow(changes, learned=True)

    def _on_applied(self, router: str, versions: dict[str, list[int]]) -> None:
        """Tell a router, at which a publisher resumes, of the subscribers that it lacks. The publisher's former home
        may have known them, and deliveries in doubt may be for them (3.3, Resuming)."""
        applied = {name: (incarnation, version) for name, (incarnation, version) in versions.items()}
        self.outlet.batches.gossip(router, self._gossip.lacking(router, applied))

    def _correct(self, router: str, told: list[LinkEntry]) -> None:
        """Correct the router about links of which it told (3.3, Corrections).

        The router may not know that a link has ended. Or this router may know an attach with a higher epoch, whose own
        router died before all routers had heard of it. If the router told of its own link, it always gets a correction,
        because it may wait for this router to join the link.
        """
        known = [(one, self.directory.known_of(one)) for one in told if one.live]
        undone = [ours for entry, ours in known if ours is not None and self._undoes(ours, entry, router)]
        self.outlet.batches.gossip(router, undone)

    def _undoes(self, ours: LinkEntry, told: LinkEntry, by: str) -> bool:
        if ours.live:
            return ours.epoch > told.epoch and (told.router == by or not self.directory.tells_itself(ours))
        return ours.epoch >= told.epoch

    def _end_ours(self, told: list[LinkEntry]) -> None:
        """End links of this router that other routers, behind a partition, have let expire."""
        for entry in told:
            if not entry.live and self.directory.is_mine(entry):
                self._changes.ended_elsewhere(entry)

    def _end_later(self, told: list[LinkEntry]) -> None:
        """End each present attach whose link had ended before the attach, according to these entries. The router that
        ended the link may never learn of the present attach."""
        for entry in told:
            current = self.directory.subscriber(entry.name)
            if current is not None and self.home.lapses.is_to_be_told(entry, current):
                self._changes.end_apart(current, entry.ending)

    def _pass_on(self, router: str, changes: list[Change], *, learned: bool) -> None:
        """Pass news on to the other contacts (3.3). A contact may be the home of deliveries for these subscribers, or
        have deliveries of these publishers, and may itself have no contact with their routers.

        If a link has left this router, all contacts get the news, also `router`: it may have forgotten a later end of
        the link, and have believed this router's section since. If a link has expired behind a partition, its owner
        gets the news, and again when the client knows of the ending.
        """
        news = [change for change in changes if self._is_news(change, learned)]
        told, left = [change.entry for change in news], [change.entry for change in news if self._has_left(change)]
        for contact in self.directory.contacts if news else ():
            self.outlet.batches.gossip(contact, left if contact == router else told)
        for change in changes:
            entry, old = change.entry, change.old
            is_expired = old is not None and entry.status is Status.EXPIRED
            if is_expired and entry.router != router and self.directory.tells_itself(entry):
                self.outlet.batches.gossip(entry.router, [entry])
            elif old is not None and self._is_taken_from(old, entry) and not self._is_news(change, learned):
                self.outlet.batches.gossip(old.router, [entry])

    def _is_taken_from(self, old: LinkEntry, entry: LinkEntry) -> bool:
        """Whether a subscriber has moved away from another router in contact that may not know this.

        The former router may have no contact with the subscriber's new router, which may be lost first. Once the former
        router knows, it gives the subscriber no more deliveries that this home forwards.
        """
        moves = entry.role is Role.SUBSCRIBER and entry.live and old.live and old.router != entry.router
        return moves and self.directory.tells_itself(old)

    def _is_news(self, change: Change, learned: bool) -> bool:
        """Whether the change has to be passed on.

        An ending is passed on only if it comes from the link's owner, or ends a link of this router. Otherwise routers
        that have forgotten an ending, and routers that have not, would tell each other of it for ever.
        """
        entry = change.entry
        if self._has_left(change):
            return True
        if entry.role is Role.PUBLISHER or not entry.lifetime.timeout:
            return False
        if entry.live:
            return learned or entry.resumed
        return entry.status is Status.CLOSED and self.directory.tells_itself(entry)

    def _has_left(self, change: Change) -> bool:
        """Whether a link of this router has left in a way that the router's section does not show. A subscriber that
        has moved does not count, because the section tells of it as a departure."""
        entry, old = change.entry, change.old
        was_ours = old is not None and old.live and self.directory.is_mine(old)
        return was_ours and (entry.role is Role.PUBLISHER or not entry.live)

    def _on_expire(self, router: str, role: int, name: bytes, epoch: list[Any], decision: int) -> None:
        self._expiry.proposed(router, (Role(role), name), Epoch(*epoch), Decision(decision))

    def _on_vote(self, router: str, role: int, name: bytes, epoch: list[Any], decision: int, yes: bool) -> None:
        self._expiry.vote(router, (Role(role), name), Epoch(*epoch), Decision(decision), yes)

    def _on_expired(self, router: str, role: int, name: bytes, epoch: list[Any], decision: int) -> None:
        self._expiry.decided(router, (Role(role), name), Epoch(*epoch), Decision(decision))

    def _on_ack(self, router: str, version: int) -> None:
        self.directory.acknowledge(router, version)
        self._attaches.answer_publishers()

    def _on_joined(self, router: str, name: bytes, epoch: list[Any], gated: dict[bytes, int]) -> None:
        subscriber = self.edge.subscribers.get(name)
        # The message is for an attach that is over.
        if subscriber is None or Epoch(*epoch) != subscriber.epoch:
            return
        self.edge.joined(router, subscriber, gated)
        self._is_awaited(router, name)
        subscriber.unanswered.discard(router)
        self._attaches.answer_subscriber(subscriber)

    def _is_awaited(self, router: str, name: bytes) -> None:
        """Handle the news that the router awaits the subscriber. If the subscriber has lapsed, tell the router so
        again, because the two messages may have crossed, and the router would wait for ever."""
        if name in self.directory.lapsed:
            entry = self.directory.subscriber(name)
            assert entry is not None
            self._expiry.awaits(router, entry)

    def _on_admit(self, router: str, name: bytes, publisher: bytes) -> None:
        subscriber = self.edge.subscribers.get(name)
        # if not, the message is for an attach that is over
        if subscriber is not None and router in subscriber.joined:
            self.edge.admit(subscriber, publisher, router)

    def _on_room(self, router: str, name: bytes, epoch: list[Any], deliveries: int, size: int) -> None:
        if (attach := Epoch(*epoch)).router == router:
            self.home.balancing.room(name, attach, SubscriberRoom(deliveries, size))

    def _on_drain(self, router: str, name: bytes, epoch: list[Any], number: int) -> None:
        if (attach := Epoch(*epoch)).router == router:
            self.home.balancing.drain(Drain(name, attach, number))

    def _on_given(self, router: str, name: bytes, epoch: list[Any], number: int, left: int, answer: int) -> None:
        self.edge.drains.given(router, Drain(name, Epoch(*epoch), number), left, DrainAnswer(answer))

    def _on_forward(
        self,
        router: str,
        publisher: bytes,
        epoch: list[Any],
        seen: dict[str, int],
        first: int,
        presettled: bool,
        keys: bytes,
        messages: list[bytes | None],
        only: list[Any] | None,
    ) -> None:
        entry = self._unfenced(router, publisher, _given_by(router, epoch))
        if entry is None or not messages:
            if only is not None and only[2:]:
                taken = SubscriberRoom.of_sizes([len(message or b"") for message in messages])
                self.edge.consumers.count(router, only[0], Epoch(*only[1]), taken)
            return
        split = segments.split_keys(keys)
        if None in messages:
            messages = [self.bodies.take(publisher, key) for key in split]
        stream, ours = self.edge.stream(entry), seen.get(self.outlet.router, 0)
        records = [Record(stream, key, b"", message) for key, message in zip(split, messages, strict=True)]
        if presettled:
            presettle(records)
            self.edge.forward_presettled(stream, first, records, (only[0], Epoch(*only[1])) if only else None)
        elif only is None:
            self.edge.forward(stream, first, ours, records)
        else:
            name, attach, *offer = only
            self._is_awaited(router, name)
            self.edge.forward_to(stream, first, ours, records, (name, Epoch(*attach), bool(offer)))

    def _on_body(self, router: str, publisher: bytes, key: bytes, at: int, piece: bytes) -> None:
        """Take a piece of a large message if it comes from the publisher's home.

        Another sender may not know yet that the publisher has moved. If this router knows the home's attach only from
        other routers, a piece is dropped, too, because it belongs to an earlier attach.
        """
        entry = self.directory.publisher(publisher)
        if entry is not None and entry.live and entry.router == router and self.directory.in_contact(entry):
            self.bodies.add(router, publisher, key, at, piece)

    def _on_gone(self, _: str, router: str, incarnation: int) -> None:
        """Handle the report of `router` that the process of a neighbour has ended."""
        self._grace.ended((router, incarnation))

    def _on_resolve(self, router: str, publisher: bytes, epoch: list[Any], keys: bytes) -> None:
        """Answer the question of a router about deliveries, if this router is the home of the publisher in exactly this
        epoch. Otherwise the other router will soon know the right home."""
        stream = self.home.current(publisher, Epoch(*epoch))
        if stream is not None:
            self.home.resolution.resolve(router, stream, segments.split_keys(keys))

    def _on_resolved(self, router: str, publisher: bytes, epoch: list[Any], keys: bytes) -> None:
        stream, given, settled = self.edge.streams.get(publisher), Epoch(*epoch), segments.split_keys(keys)
        if given.router == self.outlet.router:
            self.home.handed_over(publisher, given, settled)
        elif _given_by(router, epoch) and stream is not None and stream.epoch == given:
            self.edge.settlement.resolved(stream, settled)

    def _unfenced(self, router: str, publisher: bytes, epoch: Epoch) -> LinkEntry | None:
        """The publisher's entry if `epoch` is its current one. Otherwise this router sends `Fenced` to the sender, and
        the result is None (5, Fence)."""
        entry = self.directory.publisher(publisher)
        if entry is not None and entry.live and entry.epoch == epoch:
            return entry
        of = entry.identity if entry is not None else None
        self.outlet.trace(Event.FENCED, of, publisher=publisher, peer=router, epoch=str(epoch))
        self.outlet.batches.fenced(router, publisher, epoch)
        return None

    def _on_outcome(self, router: str, publisher: bytes, epoch: list[Any], ranges: list[int]) -> None:
        stream = self.home.current(publisher, Epoch(*epoch))
        if stream is not None:
            self.home.outcome(router, stream, ranges)

    def _on_outcome_in_full(
        self,
        router: str,
        publisher: bytes,
        epoch: list[Any],
        n: int,
        refusals: list[int] | None,
        moved: list[bytes],
        annotations: bytes,
    ) -> None:
        stream = self.home.current(publisher, Epoch(*epoch))
        if stream is not None:
            counts = None if refusals is None else (refusals[0], refusals[1], refusals[2], refusals[3])
            self.home.outcome_in_full(router, stream, n, counts, moved, annotations)

    def _on_settle(self, router: str, publisher: bytes, epoch: list[Any], ranges: list[int]) -> None:
        self.home.settled_elsewhere(router, publisher, _given_by(router, epoch), ranges)

    def _on_settled(self, router: str, publisher: bytes, epoch: list[Any], ranges: list[int]) -> None:
        stream = self.home.current(publisher, Epoch(*epoch))
        if stream is not None:
            self.home.settlement.settled(router, stream, ranges)

    def _on_fenced(self, router: str, publisher: bytes, epoch: list[Any]) -> None:
        """Detach the link of a publisher that is attached at another router under another epoch. This home is a
        zombie."""
        stream = self.home.current(publisher, Epoch(*epoch))
        if stream is not None and stream.link is not None:
            note = f"router {router} drops deliveries of publisher {stream.identity}: it is attached elsewhere"
            self.outlet.actions += [Note(note), Detach(stream.link, STOLEN, "attached at another router")]
            self._attaches.withdraw_publisher(publisher)
            stream.suspend()


def _given_by(router: str, epoch: list[Any]) -> Epoch:
    """The epoch of a publisher whose home is `router`. Raises BreachError if the epoch names another router, because
    only the home itself may send these messages."""
    given = Epoch(*epoch)
    if given.router != router:
        raise BreachError(f"it claims to be the home of a publisher that is attached at router {given.router}")
    return given


HANDLERS: Final[dict[int, Callable[..., None]]] = {
    Segment.SECTION: Peers._on_section,
    Segment.PART: Peers._on_part,
    Segment.DELTA: Peers._on_delta,
    Segment.ACK: Peers._on_ack,
    Segment.GOSSIP: Peers._on_gossip,
    Segment.APPLIED: Peers._on_applied,
    Segment.JOINED: Peers._on_joined,
    Segment.ADMIT: Peers._on_admit,
    Segment.ROOM: Peers._on_room,
    Segment.DRAIN: Peers._on_drain,
    Segment.GIVEN: Peers._on_given,
    Segment.GONE: Peers._on_gone,
    Segment.BODY: Peers._on_body,
    Segment.FORWARD: Peers._on_forward,
    Segment.OUTCOME: Peers._on_outcome,
    Segment.OUTCOME_IN_FULL: Peers._on_outcome_in_full,
    Segment.SETTLE: Peers._on_settle,
    Segment.SETTLED: Peers._on_settled,
    Segment.FENCED: Peers._on_fenced,
    Segment.RESOLVE: Peers._on_resolve,
    Segment.RESOLVED: Peers._on_resolved,
    Segment.EXPIRE: Peers._on_expire,
    Segment.VOTE: Peers._on_vote,
    Segment.EXPIRED: Peers._on_expired,
}
