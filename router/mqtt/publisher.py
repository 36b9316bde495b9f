"""A topic that an MQTT client publishes to: a publisher's link, whose deliveries the client knows by identifiers.

PUBLISH is the transfer. PUBREC, or PUBACK, is said when the outcome is here: accepted by all. PUBREL settles; at QoS 1
the link settles first. What is published at QoS 0 is not here (`router.mqtt.presettled`).

**Tags.** Packet identifiers are used again at once. The tag of what may be sent again elsewhere is the identifier and a
hash of the message: the same for its copy (DUP) at whatever router. Of what ends with its connection it is a count.

**Maps.** A client that comes back sends again what is open, each as a DUP, and never says that this was all. At the
router where it was, the session knows, and its map is complete. At another one the map is incomplete, and names the
copies that have come; a copy that comes later is named by another attach. Where nobody has heard of the link, and
routers are out of contact, that attach waits (protocol 7.6): one of these may know it. With the first message that is
no copy all copies of its link have come, as they come first and in their order (MQTT 5 4.6): once they are over, a new
life begins. So what the former one has left ends. At QoS 1 one begins at once: what reads the same may be another
message.
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
    """A message of the client's, until it is over for both."""

    end: "MqttPublisher"
    identifier: int
    qos: int
    dup: bool
    tag: bytes
    message: bytes
    until: float = inf  # when its time is over
    record: Record | None = None
    told: bool = False  # the client has been told of the outcome
    released: bool = False  # the client knows the outcome: what is left is for the mesh
    is_read: bool = True  # on the present connection; else its copy, or PUBREL, is to come, which is what is answered
    outcome: tuple[bool, str] | None = None  # that waits for the copy: see `PublisherHost.answer`

    @property
    def size(self) -> int:
        """Of what it takes here, in bytes."""
        return OVERHEAD + len(self.message)


class PublisherHost(EndHost, Protocol):
    resumes: bool
    """The client was told that its session goes on."""

    def answer(self, incoming: ReceivedMessage, accepted: bool, why: str) -> None:
        """Tell the client of an outcome: whether all have accepted, and what else there is to say."""

    def over(self, released: Iterable[ReceivedMessage]) -> None:
        """The mesh knows that the client has released these: their identifiers may be used again."""


class MqttPublisher(MqttEnd, ClientPublishingEnd[ReceivedMessage]):
    host: PublisherHost

    def __init__(self, host: PublisherHost, node: Node, address: str, *, first: bool) -> None:
        """`first`: for what comes at QoS 1."""
        identity = identity_at(host, LINK_QOS_1 if first else LINK, address)
        ClientPublishingEnd.__init__(self, node, identity, host.lifetime(0), settles_first=first)
        self.host = host
        self.signs = SignsOfLife(self, answers=False)
        self.waiting: deque[ReceivedMessage] = deque()
        """What is not transferred yet."""
        self._over: list[ReceivedMessage] = []  # released since the last batch
        self._stated: list[ReceivedMessage] = []
        """Released, and settled by the maps of attaches: known when nobody waits to hear of it."""
        self._named: set[bytes] = set()  # tags of copies that the map of this attach has
        self._inherits = False  # its life began at another router
        self._renews = False  # all that this was for is over: the next attach begins a life
        self._begins = False  # an attach, or a life, waits for its proof
        self._is_unproven = False  # who this attach begins a life for may have gone before it is answered
        self._resumes = False  # answered, and what was transferred before is to be transferred again
        self._credit = self._count = 0

    def tag(self, identifier: int, message: bytes) -> bytes:
        if self.host.timeout:
            return identifier.to_bytes(2, "big") + blake2b(message, digest_size=16).digest()
        self._count += 1
        return self._count.to_bytes(8, "big")

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the client's is under way."""
        return not (self.waiting or self.open or self._stated or self._begins)

    @property
    def _attached(self) -> HomeStream | None:
        """Its stream, while that is attached here, or about to be."""
        return self.stream if self.epoch is not None and self.stream.link is self else None

    # what the client does

    def take(self, incoming: ReceivedMessage) -> None:
        """It goes on with `go_on`."""
        self.waiting.append(incoming)
        self.host.waiting_bytes += incoming.size

    def release(self, incoming: ReceivedMessage) -> None:
        """The client knows of the outcome, or wants to know no more of it; settled with `go_on`."""
        record, incoming.released = incoming.record, True
        goes_on = incoming.told and self.is_answered and not self._resumes
        if goes_on and record is not None and self.open.pop(record, None) is not None:
            self._over.append(incoming)

    def go_on(self) -> None:
        """Settle what was released, and transfer what may be. What comes of it is performed. With what the core grants
        it goes on `later`: what is transferred then comes behind all that is still to be delivered."""
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
            self.host.over(over)
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
        """The map of this attach does not have it: it is another copy, or all copies have come."""
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

    # attaching

    def resume(self) -> None:
        """The client is back at this router. It has all its links again, that they expire together."""
        if self.epoch is not None:
            self._attach()

    def take_over(self) -> None:
        """The client comes from another router, which is certain. What it will send again is not known yet."""
        self._inherits = True
        self._begin()

    def _goes_on(self) -> bool:
        """Whether this life goes on here: nobody in the mesh knows of a later attach."""
        return self.epoch is not None and self.is_current and not self._renews

    def _attach(self) -> None:
        """A life that is to last begins, or comes from elsewhere, when it is certain that the client is here (protocol
        7.8)."""
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
        """By tag, of this attach; None begins afresh."""
        copies = {incoming.tag for incoming in self.waiting if incoming.dup}
        self._stated += [incoming for incoming in self.open.values() if incoming.released]
        self.open = {record: incoming for record, incoming in self.open.items() if not incoming.released}
        if self._goes_on():
            states = {incoming.tag: int(DeliveryOutcome.ACCEPTED) for incoming in self._stated}
            states |= {incoming.tag: 0 for incoming in self.open.values()}
        else:
            left, self.open = list(self.open.values()), {}  # their life has ended: they are sent again
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
        """What waits the client sends again, if its session has not ended elsewhere."""
        self.host.waiting_bytes -= sum(one.size for one in self.waiting)
        self.waiting.clear()
        if closed or not self.host.timeout:
            self.open.clear()
        self._settle()
        self._resumes, self._begins, self._credit = False, False, 0
        self.leave(now, closed=closed)
        if self.epoch is None or self.is_detached:
            return
        if not self.stream.begun:  # its attach has waited for who may know of it, and never begun
            self.epoch = None
        self.node.perform()

    def forget(self) -> None:
        """Its session is over."""
        self._awaited = None
        for left in (self.waiting, self.open, self._over, self._stated):
            left.clear()

    # what the core asks

    def grant(self, count: int) -> None:
        self._credit += count
        self.node.later(self.go_on)

    def proven(self) -> None:
        self._believe()

    def begin(self, action: AnswerPublisher) -> None:
        self._resumes, self._credit = True, action.credit
        self._begins = self._is_unproven
        if self._begins:  # the client may have gone to who has not heard of this life, and goes on with one before
            self.when_certain(self._granted)
        else:
            self._granted()

    def _granted(self) -> None:
        self._begins = False
        self.node.later(self.go_on)

    def _transfer_again(self) -> None:
        """What was transferred before is, by us; what was released since, another attach settles."""
        self._resumes = False
        if any(incoming.told and incoming.released for incoming in self.open.values()):
            return self._attach()
        self._believe()
        again, self.open = list(self.open.values()), {}
        if again:
            self._transfer(again)

    def _believe(self) -> None:
        """The mesh knows what was stated, and nobody waits to hear of; who is here not every kernel tells."""
        if self.is_answered:
            stream = self.stream
            asked = stream.is_questioned if self.connection.can_prove else lambda _: False
            over = {one: None for one in self._stated if not asked(stream.keys.key(one.tag))}
            self._stated = [one for one in self._stated if one not in over]
            self.host.over(over)

    def tell(self, action: AnswerDeliveries) -> None:
        accepted = action.outcome is DeliveryOutcome.ACCEPTED
        for record in action.records:
            if (incoming := self.open.get(record)) is None:
                continue  # released as this was on its way: it is settled next
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
