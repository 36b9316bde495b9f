"""A topic that an MQTT client publishes to: a publisher's link, whose deliveries the client knows by identifiers.

PUBLISH is the transfer. When all subscribers have accepted the message, the router answers with PUBREC at QoS 2, and
with PUBACK at QoS 1. At QoS 2 the client settles by PUBREL. At QoS 1 the router's end of the link settles first.
Messages of QoS 0 have another link (`router.mqtt.presettled`).

**Tags.** A client uses packet identifiers again at once. If the session outlives its connection, the tag is the
identifier and a hash of the message, so a copy (DUP) has the same tag at any router. Otherwise the tag is a count.

**Maps.** A client that comes back sends its open messages again, each as a copy. No copy says that it is the last one.
At the same router the session knows the open messages, so the map of the attach is complete. Another router does not
know them. There the map is incomplete, and names the copies that have arrived so far. When a later copy arrives, the
router attaches the link again. If no router in contact knows the link, and some routers are out of contact, the attach
waits (protocol 7.6), because one of these routers may know the link.

**Lives.** A client sends the copies first, and in their order (MQTT 5 4.6). So when the first new message arrives, all
copies of its link have arrived. When the mesh has settled these copies, the router begins a new life of the link, which
ends all deliveries that are left of the former life. At QoS 1 a new life begins at once, because a message with the
bytes of an open message may still be a new message.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import inf
from typing import Protocol

from attrs import define

from router.edge.ends import ClientPublishingEnd
from router.edge.signs import SignsOfLife
from router.mqtt.ends import LINK, LINK_QOS_1, OVERHEAD, EndHost, MqttEnd, identity_at
from topic.actions import AnswerDeliveries, AnswerPublisher
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import HomeStream, Record
from topic.home.ttl import OVER
from topic.identity import NOWHERE
from topic.node import Node


@define(eq=False)
class ReceivedMessage:
    """A message from the client, until both the client and the mesh have settled it."""

    end: "MqttPublisher"
    identifier: int
    qos: int
    dup: bool
    tag: bytes
    message: bytes
    until: float = inf  # the time at which the message expires, by the node's clock
    until_ms: int | None = None  # the same time by the wall clock, in ms since 1970; None if the message names none
    record: Record | None = None
    told: bool = False  # True once the router has sent the client the outcome
    # True once the client knows the outcome, so that only the mesh still has to settle the delivery.
    released: bool = False
    # True if the client has sent the message on this connection.
    # Otherwise the client will send a copy of the message, or PUBREL, and the router then answers.
    is_read: bool = True
    # The outcome, if the router knows it and waits for the client's copy of the message before it answers.
    outcome: tuple[bool, str] | None = None

    @property
    def size(self) -> int:
        """The bytes of memory that the message takes at this router."""
        return OVERHEAD + len(self.message)


class PublisherHost(EndHost, Protocol):
    resumes: bool
    """Whether the CONNACK said that the session continues."""

    def answer(self, incoming: ReceivedMessage, accepted: bool, why: str) -> None:
        """Send the client the outcome: whether all subscribers have accepted, and otherwise the reason (`why`)."""

    def free_identifiers(self, released: Iterable[ReceivedMessage]) -> None:
        """Free the identifiers of these messages, because the client has released the messages and the mesh knows
        this."""


class MqttPublisher(MqttEnd, ClientPublishingEnd[ReceivedMessage]):
    host: PublisherHost

    def __init__(self, host: PublisherHost, node: Node, address: str, *, first: bool) -> None:
        """`first`: the link is for messages of QoS 1, so this end settles first."""
        identity = identity_at(host, LINK_QOS_1 if first else LINK, address)
        ClientPublishingEnd.__init__(self, node, identity, host.lifetime(0), settles_first=first)
        self.host = host
        self.signs = SignsOfLife(self, answers=False)
        self.waiting: deque[ReceivedMessage] = deque()
        """The messages that are still to be transferred."""
        # The messages that the client has released since the last batch of settlements.
        self._over: list[ReceivedMessage] = []
        self._stated: list[ReceivedMessage] = []
        """Released messages that the map of an attach has settled. They stay here until no router asks about them
        (`_believe`)."""
        # The tags of the copies that the map of this attach has.
        self._named: set[bytes] = set()
        self._inherits = False  # True if the life of this link began at another router
        # True if all messages of this life are over, so that the next attach begins a new life.
        self._renews = False
        # True while an attach, or the beginning of a life, waits for the proof that the client is here.
        self._begins = False
        # True if this attach begins a life, and it is not proven that the client is still here.
        self._is_unproven = False
        # True if the attach is answered, and the open messages are to be transferred again.
        self._resumes = False
        self._credit = self._count = 0

    def tag(self, identifier: int, message: bytes) -> bytes:
        if self.host.timeout:
            return identifier.to_bytes(2, "big") + blake2b(message, digest_size=16).digest()
        self._count += 1
        return self._count.to_bytes(8, "big")

    @property
    def is_idle(self) -> bool:
        """Whether none of the client's messages on this link is in progress."""
        return not (self.waiting or self.open or self._stated or self._begins)

    @property
    def _attached(self) -> HomeStream | None:
        """The stream of this link, if this end is attached or about to be; else None."""
        return self.stream if self.epoch is not None and self.stream.link is self else None

    # The client's session calls the methods from here on.

    def take(self, incoming: ReceivedMessage) -> None:
        """Add a message, which `go_on` will transfer."""
        self.waiting.append(incoming)
        self.host.waiting_bytes += incoming.size

    def release(self, incoming: ReceivedMessage) -> None:
        """The client knows the outcome, or no longer wants it. `go_on` then settles the delivery."""
        record, incoming.released = incoming.record, True
        goes_on = incoming.told and self.is_answered and not self._resumes
        if goes_on and record is not None and self.open.pop(record, None) is not None:
            self._over.append(incoming)

    def go_on(self) -> None:
        """Settle the released messages, transfer as many messages as the credit allows, and perform the core's actions.
        After new credit, the node does not call this at once: it first makes the deliveries that already wait."""
        if self._over:
            self._settle()
        while self._resumes and not (self.ended or self._begins):
            self._transfer_again()
        if self.ended or self._begins:
            return
        if self.waiting and self._attached is None:
            self._attach()
        elif self.waiting and self.is_answered:
            while ready := self._ready():
                self._transfer(ready)
            if self._inherits and self.waiting and self.is_answered:
                self._get_past(self.waiting[0])

    def _settle(self) -> None:
        over, self._over = self._over, []
        if (stream := self._attached) is not None:
            self.node.topic.settle(stream, [one.record for one in over if one.record is not None])
            self.host.free_identifiers(over)
            self.node.perform()

    def _ready(self) -> list[ReceivedMessage]:
        ready: list[ReceivedMessage] = []
        while self.waiting and len(ready) < self._credit:
            if self._inherits and self.waiting[0].tag not in self._named:
                break
            ready.append(self.waiting.popleft())
        self.host.waiting_bytes -= sum(incoming.size for incoming in ready)
        return ready

    def _get_past(self, head: ReceivedMessage) -> None:
        """Attach again if the map of this attach lacks the first waiting message, in one of two cases. A message that
        the client sends again (DUP) has to be in the map of the next attach. A new message begins a new life of the
        link, once all messages that the client sent again have their outcomes."""
        is_copy = head.dup and head.tag not in self._named
        if is_copy or not (head.dup or self.open):
            self._renews = not is_copy
            self._attach()

    def _transfer(self, batch: Sequence[ReceivedMessage]) -> None:
        self._credit -= len(batch)
        tags, messages = [one.tag for one in batch], [one.message for one in batch]
        is_timed, now = any(one.until < inf for one in batch), self.node.now()
        until = [one.until if one.until > now else OVER for one in batch] if is_timed else None
        for incoming, record in zip(batch, self.publish(batch, tags, messages, until), strict=True):
            incoming.record = record
        self.node.perform()

    # The methods from here on attach the link.

    def resume(self) -> None:
        """Attach again, because the client is back at this router. All links of a session attach again, so that they
        expire together."""
        if self.epoch is not None:
            self._attach()

    def take_over(self) -> None:
        """Attach here, because the client has certainly come from another router. The router does not know yet which
        messages the client will send again."""
        self._inherits = True
        self._begin()

    def _goes_on(self) -> bool:
        """Whether this life continues here: the mesh knows no later attach of the link."""
        return self.epoch is not None and self.is_current and not self._renews

    def _attach(self) -> None:
        """Attach the publisher. If this begins a lasting life, or takes one over from another router, the attach waits
        until it is certain that the client is here (protocol 7.8)."""
        if self.host.timeout and not self._goes_on():
            self._begins = True
            self.when_certain(self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        self._begins = False
        if self.ended:
            return
        topic, now, unsettled = self.node.topic, self.node.now(), self._map()
        if (stream := self._attached) is not None:
            topic.suspend_publisher(stream, self, now)
        claim = self.claim(unsettled, complete=not self._inherits)
        self._resumes = self._renews = self._is_unproven = False
        self._credit = 0
        self.signs.end()
        self.signs = SignsOfLife(self, answers=False)
        self.lifetime = self.host.lifetime(0)
        self.attach(claim, now, self.allowance)
        self.node.perform()
        may_begin = unsettled is None or claim.seen == NOWHERE
        self._is_unproven = may_begin and not self.is_answered and self.host.timeout > 0

    def _map(self) -> dict[bytes, int] | None:
        """The unsettled map of this attach, keyed by tag. None means that the attach begins a new life."""
        copies = {incoming.tag for incoming in self.waiting if incoming.dup}
        self._stated += [incoming for incoming in self.open.values() if incoming.released]
        self.open = {record: incoming for record, incoming in self.open.items() if not incoming.released}
        if self._goes_on():
            states = {incoming.tag: int(DeliveryOutcome.ACCEPTED) for incoming in self._stated}
            states |= {incoming.tag: 0 for incoming in self.open.values()}
        else:
            # Messages of a life that has ended are transferred anew.
            left, self.open = list(self.open.values()), {}
            for incoming in reversed(left):
                incoming.record = None
                self.waiting.appendleft(incoming)
                self.host.waiting_bytes += incoming.size
            known, states = self.known(), {}
            may_be_there = self.host.resumes and self.host.timeout > 0 and not self.node.topic.directory.complete
            is_there = known.lasts if known is not None else may_be_there and bool(copies)
            self._inherits = is_there and not (self._renews or self.settles_first) and (self._inherits or bool(copies))
            if not self._inherits:
                return None
        self._named = copies if self._inherits else set()
        return states | dict.fromkeys(self._named, 0)

    def gone(self, now: float, *, closed: bool) -> None:
        """The client has gone. Later it sends the waiting messages again, unless its session ends elsewhere."""
        self.host.waiting_bytes -= sum(one.size for one in self.waiting)
        self.waiting.clear()
        if closed or not self.host.timeout:
            self.open.clear()
        self._settle()
        self._resumes, self._begins, self._credit = False, False, 0
        self.leave(now, closed=closed)
        if self.epoch is None or self.is_detached:
            return
        # The attach never began, so it has no epoch: it waited for routers that may know the link.
        if not self.stream.begun:
            self.epoch = None
        self.node.perform()

    def forget(self) -> None:
        """Drop all references to messages, because the session is over."""
        self._awaited = None
        for left in (self.waiting, self.open, self._over, self._stated):
            left.clear()

    # The core calls the methods from here on.

    def grant(self, count: int) -> None:
        self._credit += count
        self.node.later(self.go_on)

    def proven(self) -> None:
        self._believe()

    def begin(self, action: AnswerPublisher) -> None:
        self._resumes, self._credit = True, action.credit
        self._begins = self._is_unproven
        # A new life begins only after a proof that the client is here.
        # Otherwise the client may be at a router that does not know this life, and may continue an earlier life there.
        if self._begins:
            self.when_certain(self._granted)
        else:
            self._granted()

    def _granted(self) -> None:
        self._begins = False
        self.node.later(self.go_on)

    def _transfer_again(self) -> None:
        """Transfer again the messages that were transferred before this attach. If the client has released one of them
        since then, attach once more instead: the map of the new attach settles the released message."""
        self._resumes = False
        if any(incoming.told and incoming.released for incoming in self.open.values()):
            return self._attach()
        self._believe()
        again, self.open = list(self.open.values()), {}
        if again:
            self._transfer(again)

    def _believe(self) -> None:
        """Free the identifiers of messages that a map has settled. Keep an identifier if a router still asks about its
        message and waits for a sign of life of the client. If the kernel cannot prove that the client lives, keep
        none."""
        if self.is_answered:
            stream = self.stream
            asked = stream.is_questioned if self.connection.can_prove else lambda _: False
            over = {one: None for one in self._stated if not asked(stream.keys.key(one.tag))}
            self._stated = [one for one in self._stated if one not in over]
            self.host.free_identifiers(over)

    def send_outcomes(self, action: AnswerDeliveries) -> None:
        accepted = action.outcome is DeliveryOutcome.ACCEPTED
        for record in action.records:
            if (incoming := self.open.get(record)) is None:
                # The next batch settles a message that the client has released meanwhile.
                continue
            if not (incoming.told or incoming.released):
                incoming.told = self.host.connection is not None
                self.host.answer(incoming, accepted, action.description)
            if action.settle:
                del self.open[record]
            elif incoming.released:
                del self.open[record]
                self._over.append(incoming)
        if self._over:
            self._settle()
