"""What the client edge keeps of each link: the engine's link, the core's token, and the deliveries in between.

A delivery is known to the engine by a handle and to the core by a record. Each end of a link translates, for as long as
the delivery is unsettled there; nothing is decided here.

A re-attach (protocol 6.11, 7.7) brings no unsettled map, as nothing was lost: the session has gone on. The end that was
left behind knows what such a map would say, and for the core the attach is one that resumes. What both ends still
have is not transferred again: the core's new record is given the old handle.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from router.amqp.errors import AmqpError
from router.amqp.link import Link
from router.amqp.message import merged, modified
from router.amqp.values import ACCEPTED, MODIFIED, REJECTED, RELEASED, SND_SETTLED, Handle, OutcomeDetails
from router.attach import ALONE, SUBSCRIBERS, answers_echoes
from router.signs import SignsOfLife
from topic.delivery.record import Record, Stream
from topic.directory.directory import Directory
from topic.directory.entry import Lifetime, Role
from topic.edge.subscriber import LocalSubscriber
from topic.identity import Epoch, LinkIdentity, link_name
from topic.node import Node


class PublisherLink:
    """A link that we receive from, and its deliveries that are not settled."""

    __slots__ = ("_node", "again", "alone", "former", "handles", "lifetime", "link", "records", "signs", "stream")

    def __init__(self, link: Link, lifetime: Lifetime, node: Node, former: "PublisherLink | None") -> None:
        self.link = link
        self.lifetime = lifetime  # granted
        self.stream: Stream
        answers = answers_echoes(link) or (former is not None and former.signs.answers)
        self.signs: SignsOfLife = SignsOfLife(link, self._alive, answers=answers)
        self.former = former.stream if former is not None else None  # which this attach continues
        self._node = node
        self.alone = 0  # accepted on this link, and nobody was subscribed to them
        link.tells = self.state
        self.handles: dict[Record, Handle] = {}
        self.records: dict[Handle, Record] = {}
        self.again: dict[Handle, Record] = {}  # unsettled on the former link, in order, until we have answered
        if former is not None:
            self.again = former.again | former.records

    @property
    def identity(self) -> LinkIdentity:
        return self.stream.identity

    @property
    def epoch(self) -> Epoch:
        return self.stream.epoch

    def unsettled(self) -> dict[bytes, int]:
        """The map that a re-attaching client would bring. What it was told and has not settled it may not have kept."""
        assert self.former is not None
        return dict.fromkeys([*(record.tag for record in self.again.values()), *self.former.expected.values()], 0)

    def state(self) -> dict[str, int]:
        """What the client is told of its link whenever it asks for the flow state (protocol 5, Nobody)."""
        audience = self._node.topic.directory.audience(self.identity.address)
        return {SUBSCRIBERS: audience.size, ALONE: self.alone}

    def _alive(self, answered: bool) -> None:
        """The client was there when it was last asked."""
        if self.link.context is self and not self.link.ended:
            self._node.now()
            self._node.topic.alive(self.stream, answered=answered)
            self._node.perform()


class SubscriberLink:
    """A link that we send to, and its deliveries that are not settled."""

    __slots__ = (
        "again", "epoch", "former", "handles", "lifetime", "link", "modified", "named", "records", "sends_settled",
        "subscriber",
    )  # fmt: skip

    def __init__(self, link: Link, lifetime: Lifetime, former: "SubscriberLink | None") -> None:
        self.link = link
        self.lifetime = lifetime  # granted
        self.subscriber: LocalSubscriber
        self.epoch: Epoch
        self.former = former  # which this attach continues, until we have answered
        self.sends_settled = link.remote_snd_settle_mode == SND_SETTLED
        self.handles: dict[Record, Handle] = {}
        self.records: dict[Handle, Record] = {}
        self.again: dict[bytes, Handle] = {}  # by key: unsettled on the former link, until the core resumes it
        self.named: dict[bytes, int] = {}  # by key: the client's map, and what of that is not resumed yet
        # What its modified outcomes make of a message that is offered again: failed deliveries, and annotations.
        self.modified: dict[Record, tuple[int, bytes]] = {}

    @property
    def identity(self) -> LinkIdentity:
        return self.subscriber.identity

    def unsettled(self) -> dict[bytes, int]:
        """The map that a re-attaching client would bring. What it has released, it has not got any more."""
        assert self.former is not None
        handles = self.former.again | {record.key: handle for record, handle in self.former.handles.items()}
        self.named = self.former.named
        stated = {}
        for key, handle in handles.items():
            state, settled = self.link.remote_state(handle)
            if state in (ACCEPTED, REJECTED) or not (settled or state in (RELEASED, MODIFIED)):
                self.again[key] = handle
                stated[key] = state
            else:
                self.link.settle(handle)
        return {**self.named, **stated}

    def agree(self, ours: Mapping[bytes, int] | None) -> dict[bytes, int] | None:
        """Our map in the answer, when the core has said what is not settled. A re-attach is answered with a null one,
        unless the client had brought a map before and was still being resumed by it."""
        is_known = ours is not None and (self.former is None or bool(self.named))
        ours = ours or {}
        for key in [key for key in self.again if key not in ours]:
            self.link.settle(self.again.pop(key))
        self.named = {key: state for key, state in self.named.items() if key in ours}
        named = self.named if self.former is not None else ours
        self.former = None
        return {key: ours[key] for key in named} if is_known else None

    def forget_unsent(self, count: int) -> None:
        """The last transfers were never written: the client has not got them."""
        for handle in list(self.records)[-count:] if count else ():
            del self.handles[self.records.pop(handle)]

    def settle(self, records: Sequence[Record]) -> None:
        """Settle those of the records that are still unsettled on this link."""
        take = self.handles.pop
        handles = [handle for record in records if (handle := take(record, None)) is not None]
        for handle in handles:
            del self.records[handle]
        self.link.settle_many(handles)

    def modify(self, record: Record, outcome: OutcomeDetails) -> None:
        """The client's outcome is modified (AMQP 1.0 3.4.5)."""
        failures, annotations = self.modified.get(record, (0, b""))
        with suppress(AmqpError):  # annotations that are none change nothing
            annotations = merged(annotations, outcome.annotations)
        if outcome.failed or annotations:
            self.modified[record] = failures + outcome.failed, annotations

    def message_again(self, record: Record) -> bytes:
        """As it is offered once more: unchanged, if it was released (AMQP 1.0 3.4.4)."""
        assert record.message is not None
        return modified(record.message, *self.modified.get(record, (0, b"")))


def former_of(link: Link, identity: LinkIdentity, directory: Directory) -> PublisherLink | SubscriberLink | None:
    """What a re-attach continues: that very link, if it has been attached nowhere else since, as far as we know."""
    end: PublisherLink | SubscriberLink | None = link.former.context if link.former is not None else None
    if end is None or end.identity != identity:
        return None
    known = directory.entry((Role.SUBSCRIBER if link.is_sender else Role.PUBLISHER, link_name(identity)))
    if known is None or known.epoch != end.epoch:
        return None
    link.continue_former()
    return end
