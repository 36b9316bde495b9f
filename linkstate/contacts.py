"""The contacts of one router with all other routers, and the channels in them (protocol 3.2).

Input: the routers that can be reached, and frames. Output: contacts that are made and lost, and payloads in order. Each
established contact has exactly one channel, which begins and ends with it. Nothing outlives its contact.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from linkstate.channel import Channel
from linkstate.chunks import Chunk, OversizedError, cut
from linkstate.contact import Contact, ContactChange
from linkstate.forwarding import Forwarding
from linkstate.frames import ACK, DATA, GREET, PART, PROBE, ChannelFrame, Target
from linkstate.mesh_actions import (
    Action,
    ContactLost,
    ContactMade,
    Full,
    Loss,
    Reachability,
    Reached,
    Received,
    Room,
    Unreachable,
)
from linkstate.plan.plan import Plan


class Contacts:
    """This router's ends of all contacts, and the data in them."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        plan: Plan,
        forwarding: Forwarding,
        emit: Callable[[Action], None],
        *,
        hello: float,
        dead: float,
        max_payload: int,
        budget: int,
    ) -> None:
        self.established: dict[str, int] = {}  # the incarnation of each router in contact
        self.losses = dict.fromkeys(Loss, 0)
        """The number of lost contacts, by cause."""
        self._name, self._incarnation = name, incarnation
        self._plan = plan
        self._contacts: dict[str, Contact] = {}
        self._channels: dict[str, Channel] = {}
        self._forwarding = forwarding
        self._emit = emit
        # `hello` and `dead` are the shortest and the longest time after which a channel sends a PROBE.
        self._settings = hello, dead, max_payload, budget
        self.follow(plan, 0.0)

    def follow(self, plan: Plan, now: float) -> None:
        """Follow a changed plan: begin to meet routers that it adds, and end the contacts with routers that it no
        longer lists."""
        self._plan = plan
        for router, contact in self._contacts.items():
            if router not in plan.listed and contact.incarnation:
                reason = f"router {router} was removed from the mesh"
                self._apply(contact, contact.lost(), Loss.REMOVED, reason)
        self._contacts = {r: self._contacts.get(r) or self._meet(r) for r in sorted(plan.listed) if r != self._name}

    def _meet(self, router: str) -> Contact:
        hello, *_ = self._settings
        return Contact(router, self._incarnation, hello)

    def reachability(self, change: Reachability, now: float) -> None:
        contact = self._contacts.get(change.router)
        if contact is None:
            return  # the plan no longer lists the router
        if isinstance(change, Reached):
            contact.reached(change.incarnation, now)
            self._greet_if_due(contact, now)
        elif isinstance(change, Unreachable):
            self._apply(contact, contact.lost(), change.cause, change.reason)
        elif contact.established:
            channel = self._channels[contact.router]
            channel.rerouted()
            self._resend(contact, channel, channel.unacknowledged(channel.sent), now)

    def drop(self, router: str, now: float, cause: Loss, reason: str) -> None:
        contact = self._contacts.get(router)
        if contact is not None:  # None: the plan no longer lists the router
            self._apply(contact, contact.drop(now), cause, reason)
            self._greet_if_due(contact, now)

    def doubt(self, router: str, reason: str, now: float) -> None:
        channel = self._channels.get(router)
        if channel is not None and not channel.in_flight:
            self._send_numbered(self._contacts[router], channel, [channel.ask(reason, now)])

    def send(self, targets: Sequence[str], payload: bytes, now: float) -> None:
        for chunk in cut(payload):
            addressed: list[Target] = []
            for router in targets:
                channel = self._channels.get(router)
                if channel is not None:
                    contact = self._contacts[router]
                    number = channel.push(chunk, now)
                    addressed.append((router, contact.ours, contact.theirs, number, channel.acknowledge()))
                    if channel.fills():
                        self._emit(Full(router))
            self._forwarding.send_chunk(chunk, addressed)

    def receive(self, frame: ChannelFrame, target: list[Any], now: float) -> None:
        """Take a frame. `target`: the entry of this router in the frame, with the numbers of the contact as the sender
        sees them."""
        contact = self._contacts.get(frame.source)
        if contact is None:
            return  # the source is this router itself, or the plan does not list it
        _, theirs, ours, x, y = target
        if frame.kind == GREET:
            same_plan = y == self._plan.digest
            self._apply(contact, contact.receive_greet(theirs, ours, bool(x), now, same_plan=same_plan))
            self._greet_if_due(contact, now)
            return
        belongs, change = contact.receive_data(theirs, ours)
        self._apply(contact, change)
        if belongs:
            self._receive_in_contact(contact, frame, x, y, now)

    def handle_timer(self, now: float) -> None:
        for contact in self._contacts.values():
            self._greet_if_due(contact, now)
        for router, channel in self._channels.items():
            if now >= channel.probe_at:
                channel.probed(now)
                self._send_one(PROBE, self._contacts[router], channel.acknowledge(), channel.sent)
            elif now >= channel.ack_at:
                self._send_one(ACK, self._contacts[router], channel.acknowledge(), 0)

    def deadline(self) -> float:
        due = inf
        for contact in self._contacts.values():
            if contact.greet_at < due:
                due = contact.greet_at
        for channel in self._channels.values():
            if (at := channel.deadline()) < due:
                due = at
        return due

    def _receive_in_contact(self, contact: Contact, frame: ChannelFrame, x: int, y: int, now: float) -> None:
        channel = self._channels[contact.router]
        if frame.kind in (DATA, PART):
            channel.receive_ack(y, now)
            try:
                payloads = channel.receive(x, frame.chunk(), now)
            except OversizedError as error:
                self.drop(contact.router, now, Loss.BROKEN, f"router {contact.router} broke the protocol: {error}")
                return
            for payload in payloads:
                self._emit(Received(contact.router, payload))
            if now >= channel.ack_at:
                self._send_one(ACK, contact, channel.acknowledge(), 0)
        else:
            channel.receive_ack(x, now)
            if frame.kind == PROBE:
                self._send_one(ACK, contact, channel.acknowledge(), y)
            elif y:
                self._resend(contact, channel, channel.missing(y), now)
        if channel.empties():
            self._emit(Room(contact.router))
        if channel.is_late:
            self.drop(contact.router, now, Loss.LATE, f"router {contact.router} {channel.doubt}")

    def _resend(self, contact: Contact, channel: Channel, chunks: Iterable[tuple[int, Chunk]], now: float) -> None:
        again = list(chunks)
        self._send_numbered(contact, channel, again)
        channel.resent(len(again), now)

    def _send_numbered(self, contact: Contact, channel: Channel, chunks: Iterable[tuple[int, Chunk]]) -> None:
        for number, chunk in chunks:
            target = contact.router, contact.ours, contact.theirs, number, channel.acknowledge()
            self._forwarding.send_chunk(chunk, [target])

    def _send_one(self, kind: int, contact: Contact, x: int, y: int) -> None:
        self._forwarding.send(kind, (contact.router, contact.ours, contact.theirs, x, y))

    def _greet_if_due(self, contact: Contact, now: float) -> None:
        if now >= contact.greet_at:
            self._send_one(GREET, contact, int(contact.established), self._plan.digest)
            contact.greet_sent(now)

    def _apply(
        self, contact: Contact, change: ContactChange | None, cause: Loss = Loss.OTHER_END, reason: str = ""
    ) -> None:
        """Act on a change of a contact. `cause` and `reason` describe a loss. By default the cause is that the other
        end lost the contact first."""
        if change is ContactChange.MADE:
            assert contact.router not in self._channels
            self._channels[contact.router] = Channel(*self._settings)
            self.established[contact.router] = contact.incarnation
            self._emit(ContactMade(contact.router, contact.incarnation))
        elif change is ContactChange.LOST:
            del self._channels[contact.router], self.established[contact.router]
            if contact.spent:
                cause, reason = Loss.BROKEN, f"router {contact.router} was met and lost too often since the start"
            reason = reason or f"router {contact.router} ended the contact"
            self.losses[cause] += 1
            self._emit(ContactLost(contact.router, cause, reason))
