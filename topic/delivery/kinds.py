"""The kinds of addresses, and the kind of each address (protocol 5 for topics, 12 for balanced addresses, 13 for
queues).

`AddressKind` (`topic.delivery.record`) defines the methods of a kind. A kind has no state of its own: it reads the
state of the records, and calls the home and the edge to act.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from topic.delivery.outcomes import GIVEN_BACK, GONE, NOT_HAD, DeliveryOutcome, Refusals, refusal
from topic.delivery.record import (
    AWAITING_HOME,
    AddressKind,
    AtEdge,
    AtHome,
    Choosing,
    HomeStream,
    Record,
    choose,
    taken,
)
from topic.directory.addresses import parts
from topic.identity import INSIDE, is_egress
from topic.settings import BALANCED, CLOSEST, QUEUE, TOPIC, is_dynamic

UNASSIGNED: Final = b""
"""The value of `Record.chosen` while the home has chosen no subscriber."""
REFUSED = (DeliveryOutcome.REJECTED, DeliveryOutcome.MODIFIED)


class TopicKind(AddressKind):
    """Each delivery is for every subscriber of the address, in its publisher's order."""

    __slots__ = ()

    name = TOPIC
    distribution = "multicast"
    keeps_order = True
    takes_filters = True
    goes_in_pieces = True
    is_for_all = True
    tells_room = False
    asks_once = False
    in_sets = False
    ends_with_subscribers = False
    is_of_set = False
    rests = False
    unfit = DeliveryOutcome.REJECTED

    def nobody_has(self, records: Iterable[Record]) -> None:
        """Do nothing: a topic gives each delivery to all subscribers, so the home never seeks one that already has
        it."""

    def concerns(self, record: Record, subscriber: bytes) -> bool:
        return True

    def asks_all(self, record: Record) -> bool:
        return False

    def accepted(self, records: Iterable[Record]) -> None:
        """Do nothing: the home still waits for the other subscribers."""

    def is_over(self, record: Record) -> bool:
        return False

    def counts_again(self, state: int) -> bool:
        return True

    def sum_up(self, records: Iterable[Record]) -> None:
        """Do nothing: the edge has counted each refusal as it came."""

    def place(self, record: Record) -> int:
        return record.n

    def outcome(self, refusals: Refusals) -> DeliveryOutcome:
        return DeliveryOutcome.REJECTED

    def forward(
        self, home: AtHome, stream: HomeStream, records: list[Record], take: Callable[[HomeStream, list[Record]], None]
    ) -> None:
        home.forward_to_all(stream, records, take)

    def decide(self, home: AtHome, stream: HomeStream, records: list[Record]) -> None:
        """All subscribers have accepted or refused, or there are none: send the publisher the outcome (protocol 5,
        Accept)."""
        home.accept(stream, records)

    def decide_early(self, home: AtHome, stream: HomeStream, records: list[Record]) -> None:
        """Do nothing yet: the address may have a subscriber that the home does not know."""

    def offer_waiting(self, choosing: Choosing, stream: HomeStream) -> None:
        """Do nothing: no delivery of a topic waits until a subscriber is chosen for it."""

    def refused(self, home: AtHome, record: Record, router: str, refusals: Refusals, moved: Collection[bytes]) -> None:
        """Do nothing: the home still waits for the other subscribers."""

    def claimed(self, home: AtHome, stream: HomeStream, record: Record, router: str) -> None:
        """Do nothing: at a topic, all subscribers get the delivery anyway."""

    def holders(self, record: Record, subscribers: list[Any]) -> list[Any]:
        return subscribers

    def owed(self, record: Record, subscribers: list[Any]) -> list[Any]:
        return subscribers

    def found_here(self, record: Record, subscribers: list[Any]) -> list[Any]:
        return subscribers

    def offered(self, record: Record, subscribers: list[Any]) -> list[Any]:
        return subscribers

    def claims(self, client_map: Mapping[bytes, int]) -> Iterable[bytes]:
        return ()

    def settled(self, records: list[Record], subscribers: Iterable[Any]) -> None:
        """Do nothing: subscribers of a topic have no claims, because each delivery is for all of them."""

    def given_back(self, edge: AtEdge, subscriber: Any, records: list[Record], *, failed: bool) -> list[Record]:
        """The edge sends the delivery to the same subscriber again (protocol 5, Redelivery)."""
        return edge.queue_again(subscriber, records)

    def subscriber_ended(self, subscriber: Any, records: Iterable[Record]) -> None:
        """Do nothing: a topic keeps nothing about a subscriber that has gone."""


class BalancedKind(AddressKind):
    """Each delivery is for one subscriber of the address, which its home chooses (protocol 12)."""

    __slots__ = ()

    name = BALANCED
    distribution = BALANCED
    keeps_order = False
    takes_filters = False
    goes_in_pieces = False
    is_for_all = False
    tells_room = True
    asks_once = True
    in_sets = False
    ends_with_subscribers = False
    is_of_set = False
    rests = True
    # The outcome is *modified*, because another subscriber may be able to take the delivery.
    unfit = DeliveryOutcome.MODIFIED

    def nobody_has(self, records: Iterable[Record]) -> None:
        choose(records, UNASSIGNED)

    def concerns(self, record: Record, subscriber: bytes) -> bool:
        """Whether the record is for this subscriber, or the home still seeks the subscriber that has the record."""
        return record.chosen is None or record.chosen == subscriber

    def asks_all(self, record: Record) -> bool:
        return not record.chosen

    def accepted(self, records: Iterable[Record]) -> None:
        taken(records)

    def is_over(self, record: Record) -> bool:
        return record.taken

    def counts_again(self, state: int) -> bool:
        """False if the subscriber gave the record back: the home has already counted this outcome, and has since
        offered the record to other subscribers."""
        return state not in GIVEN_BACK

    def sum_up(self, records: Iterable[Record]) -> None:
        for record in records:
            record.sum_up(verdict(record))

    def place(self, record: Record) -> Any:
        return record.n

    def outcome(self, refusals: Refusals) -> DeliveryOutcome:
        return DeliveryOutcome.REJECTED

    def forward(
        self, home: AtHome, stream: HomeStream, records: list[Record], take: Callable[[HomeStream, list[Record]], None]
    ) -> None:
        if records[0].presettled:
            home.balancing.hand_on(stream, records)
        elif records[0].chosen is None:
            self.seek(home.balancing, stream, records)
        else:
            home.balancing.take(stream, records)

    def seek(self, choosing: Choosing, stream: HomeStream, records: list[Record]) -> None:
        """Ask all subscribers of the address for these records, because one of them may have them."""
        choosing.ask_all(stream, records)

    def offer_waiting(self, choosing: Choosing, stream: HomeStream) -> None:
        choosing.share_out(stream, choosing.assign)

    def decide(self, home: AtHome, stream: HomeStream, records: list[Record]) -> None:
        """Send the publisher the outcome of each record that a subscriber has accepted, or that no further subscriber
        may get. Offer the other records to other subscribers (12.3)."""
        untold = home.balancing.untold(stream, records)
        told = [record for record in records if record not in untold]
        if told:
            home.accept(stream, told)
        home.balancing.choose_again(stream, untold)

    def decide_early(self, home: AtHome, stream: HomeStream, records: list[Record]) -> None:
        """Do nothing yet: a subscriber that the home does not know may have these records."""

    def refused(self, home: AtHome, record: Record, router: str, refusals: Refusals, moved: Collection[bytes]) -> None:
        if refusals == NOT_HAD and record.chosen not in moved:
            home.balancing.refused(record, router)
        elif record.refusals == NOT_HAD:
            # The chosen subscriber has moved and may have the record at its new router, so this answer does not count.
            record.sum_up(None)

    def claimed(self, home: AtHome, stream: HomeStream, record: Record, router: str) -> None:
        home.balancing.claimed(stream, record, router)

    def holders(self, record: Record, subscribers: list[Any]) -> list[Any]:
        """Return the local subscribers that may have the record. The home seeks the subscriber that has it, so no other
        subscriber gets it (12.4)."""
        record.seek_holders()
        for subscriber in [s for s, state in record.locals.items() if state == AWAITING_HOME and not s.has(record)]:
            record.stop_awaiting(subscriber, has_it=False)
        return [subscriber for subscriber in subscribers if subscriber.has(record)]

    def owed(self, record: Record, subscribers: list[Any]) -> list[Any]:
        """Give the record to this subscriber, which the home had chosen earlier. The subscriber may already have it
        even if its map does not name it, because the map may be older than the transfer (12.5)."""
        record.choose(subscribers[0].name if subscribers else UNASSIGNED)
        return subscribers

    def found_here(self, record: Record, subscribers: list[Any]) -> list[Any]:
        return self.holders(record, subscribers) if record.chosen is None else self.owed(record, subscribers)

    def offered(self, record: Record, subscribers: list[Any]) -> list[Any]:
        record.choose(UNASSIGNED)
        for subscriber in subscribers:
            refused = record.locals.get(subscriber) in REFUSED
            takes = not refused and (subscriber.has(record) or bool(subscriber.spare))
            if takes or refused:
                record.choose(subscriber.name)
            return [subscriber] if takes else []
        return []

    def claims(self, client_map: Mapping[bytes, int]) -> Iterable[bytes]:
        return (key for key, state in client_map.items() if state not in GIVEN_BACK)

    def settled(self, records: list[Record], subscribers: Iterable[Any]) -> None:
        keys = [record.key for record in records]
        for subscriber in subscribers:
            subscriber.claims.difference_update(keys)

    def given_back(self, edge: AtEdge, subscriber: Any, records: list[Record], *, failed: bool) -> list[Record]:
        """Tell the home, which may then offer the records to another subscriber (12.3)."""
        edge.give_back(subscriber, records)
        return []

    def subscriber_ended(self, subscriber: Any, records: Iterable[Record]) -> None:
        """Do nothing here: the home may offer these records to another subscriber."""


class ClosestKind(BalancedKind):
    """A balanced address whose home chooses the nearest subscriber that has room (protocol 12.10)."""

    __slots__ = ()

    name = CLOSEST
    distribution = CLOSEST
    prefers_near = True


class DynamicKind(BalancedKind):
    """The address of a dynamic node: a balanced address that ends with its one subscriber (protocol 12.8)."""

    __slots__ = ()

    ends_with_subscribers = True
    rests = False


class QueueKind(BalancedKind):
    """The address of a queue, whose messages a replica set stores (protocol 13)."""

    __slots__ = ()

    name = QUEUE
    in_sets = True
    rests = False


class EgressKind(BalancedKind):
    """The address at which the egress of a queue publishes to the queue's consumers (protocol 14.5).

    The home chooses a consumer for each delivery, and the queue has to agree to it. The home reports to the queue how
    each delivery ended, also if the consumer gave the delivery back, or went away with it.
    """

    __slots__ = ()

    name = QUEUE
    is_of_set = True
    rests = False

    def counts_again(self, state: int) -> bool:
        return True

    def sum_up(self, records: Iterable[Record]) -> None:
        """Write into each record the refusals that the edge reports to the home. Only one consumer has each delivery,
        and the edge has counted the consumer's refusals as they came."""
        for record in records:
            record.sum_up(None if record.taken else record.refusals or NOT_HAD)

    def place(self, record: Record) -> bytes:
        """The delivery-tag, by which the waiting records are sorted. It begins with the position of the message in the
        queue, so tags sort as messages do."""
        return record.tag

    def outcome(self, refusals: Refusals) -> DeliveryOutcome:
        rejected, _, modified, failed = refusals
        if rejected:
            return DeliveryOutcome.REJECTED
        return DeliveryOutcome.MODIFIED if modified or failed else DeliveryOutcome.RELEASED

    def seek(self, choosing: Choosing, stream: HomeStream, records: list[Record]) -> None:
        """Ask only one consumer for each record: the queue has told the home which consumer may have it."""
        choosing.ask_holders(stream, records)

    def offer_waiting(self, choosing: Choosing, stream: HomeStream) -> None:
        if stream.link is not None:  # without a link the queue cannot agree to a consumer
            choosing.share_out(stream, choosing.propose)
            choosing.want(stream)

    def decide(self, home: AtHome, stream: HomeStream, records: list[Record]) -> None:
        """End each record with its outcome, with one exception: if no consumer had the record, and the chosen consumer
        is still there, the home offers it to another consumer."""
        over: list[Record] = []
        left: list[Record] = []
        for record in records:
            (over if _is_over(home.balancing, record) else left).append(record)
        if over:
            home.accept(stream, over)
        home.balancing.choose_again(stream, left)
        if left and stream.link is not None:
            # The queue may still keep these messages for a consumer that has ended in a part of the mesh that was cut
            # off (protocol 14.5).
            home.balancing.tell(stream)

    def decide_early(self, home: AtHome, stream: HomeStream, records: list[Record]) -> None:
        """Choose another consumer for records that the chosen consumer had no room for. The home offers these records
        for the first time, so no consumer has had them. The new choice comes before the home offers any later
        record."""
        choosing = home.balancing
        left = [
            record
            for record in records
            if record not in choosing.asked and not record.taken and not any(record.refusals or NOT_HAD)
            if record.chosen and choosing.is_there(record.chosen)
        ]
        choosing.choose_again(stream, left)

    def given_back(self, edge: AtEdge, subscriber: Any, records: list[Record], *, failed: bool) -> list[Record]:
        edge.end(subscriber, records, failed=failed)
        return []

    def subscriber_ended(self, subscriber: Any, records: Iterable[Record]) -> None:
        """Count each of these records as failed, because the consumer may have begun to process it."""
        for record in records:
            if record.chosen == subscriber.name:
                record.count(GONE)


def _is_over(choosing: Choosing, record: Record) -> bool:
    """Whether this delivery of a queue has ended, now that the home awaits no further answer about it. If it has, enter
    the sum of its refusals into the record."""
    if record.taken:
        record.sum_up(None)
    elif not any(record.refusals or NOT_HAD):
        if not record.chosen or choosing.is_there(record.chosen):
            return False
        record.sum_up(GONE if record.refusals is None else refusal(DeliveryOutcome.RELEASED))
    return True


EACH_TO_ALL: Final = TopicKind()
EACH_TO_ONE: Final = BalancedKind()
EACH_TO_NEAREST: Final = ClosestKind()
OF_QUEUES: Final = QueueKind()
OF_DYNAMIC_NODES: Final = DynamicKind()
OF_EGRESSES: Final = EgressKind()
NAMED: Final[dict[str, AddressKind]] = {
    kind.name: kind for kind in (EACH_TO_ALL, EACH_TO_ONE, EACH_TO_NEAREST, OF_QUEUES)
}


class AddressKinds:
    """Finds the kind of an address by its prefix."""

    def __init__(self, named: Iterable[tuple[str, str]]) -> None:
        """`named`: pairs of an address prefix and the name of the kind that addresses with this prefix have. The empty
        prefix names the kind of all other addresses."""
        longest_first = sorted(named, key=lambda pair: len(pair[0]), reverse=True)
        self._prefixes = [(prefix, NAMED[name]) for prefix, name in longest_first]

    def other_within(self, pattern: str) -> str | None:
        """If the pattern may cover addresses of two kinds, a prefix of the addresses of the second kind; None if all
        addresses that the pattern may cover are of one kind."""
        begin, alone = parts(pattern)
        kind = self.of(begin)
        within = [prefix for prefix, other in self._prefixes if other is not kind and prefix.startswith(begin)]
        if alone is not None and self.of(alone) is not kind:
            within.append(alone)
        return within[0] if within else None

    def of(self, address: str) -> AddressKind:
        """The kind that belongs to the longest matching prefix; a topic if no prefix matches."""
        if is_dynamic(address):
            return OF_DYNAMIC_NODES
        if address.startswith(INSIDE):
            return OF_EGRESSES if is_egress(address) else EACH_TO_ALL
        return next((kind for prefix, kind in self._prefixes if address.startswith(prefix)), EACH_TO_ALL)

    def prefix_of(self, address: str) -> str | None:
        """The longest prefix of the topology with which the address begins; None if there is none."""
        return next((prefix for prefix, _ in self._prefixes if address.startswith(prefix)), None)


def verdict(record: Record) -> Refusals | None:
    """The answer of this router's subscribers to a delivery of a balanced address.

    None if a subscriber has accepted the delivery, *rejected* if a subscriber has rejected it. If the chosen subscriber
    has given it back, the answer is the outcome with which it did so; a subscriber that refuses a delivery for itself
    counts as *modified*. In all other cases the answer is `NOT_HAD`.
    """
    if record.taken:
        return None
    if DeliveryOutcome.REJECTED in record.locals.values():
        return refusal(DeliveryOutcome.REJECTED)
    chosen = next((state for subscriber, state in record.locals.items() if subscriber.name == record.chosen), None)
    return (refusal(DeliveryOutcome(chosen)) if chosen in GIVEN_BACK else None) or NOT_HAD
