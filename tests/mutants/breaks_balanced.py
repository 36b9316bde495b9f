"""Breakages of balanced addresses (protocol 12)."""

from collections.abc import Iterable

from tests.mutants.mutant import KILLS, MOVING, RESUMING, Method, mutant
from tests.topic import test_balanced as balanced
from tests.topic import test_dynamic as dynamic
from tests.topic import test_kinds as of_kinds
from tests.topic import test_rests as resting
from topic.delivery import kinds
from topic.delivery.kinds import AddressKinds, BalancedKind
from topic.delivery.outcomes import NOT_HAD, Refusals
from topic.delivery.record import AWAITING_HOME, AddressKind, HomeStream, Record
from topic.edge.consumers import Consumers
from topic.edge.subscriber import LocalSubscriber
from topic.home.audiences import Audiences
from topic.home.balancing import Balancing
from topic.home.rests import Rests
from topic.settings import BackOff

SHARED = {"balanced": True, "subscribers": 3, "messages": 25}
BUSY = SHARED | {"think": 2.0}
RETURNING = RESUMING | SHARED | {"refusing": 0.5, "redeliveries": 5, "back_off": BackOff(0.3, 3, 4.0)}


@mutant(BalancedKind, "holders", by="1", **KILLS | BUSY)
def holders_not_looked_for(_: Method) -> Method:
    """12.4: a delivery that comes again goes to the subscriber that has it."""

    def broken(kind: BalancedKind, record: Record, subscribers: list[LocalSubscriber]) -> list[LocalSubscriber]:
        for subscriber in [s for s, state in record.locals.items() if state == AWAITING_HOME]:
            record.stop_awaiting(subscriber, has_it=False)
        return []

    return broken


@mutant(Balancing, "claimed", by="1", scenario=balanced.test_who_has_it_by_its_map_goes_before_who_has_room)
def claims_not_heard(_: Method) -> Method:
    """12.4: if a subscriber's map names a delivery, no other subscriber is offered the delivery."""

    def broken(balancing: Balancing, stream: HomeStream, record: Record, router: str) -> None: ...

    return broken


@mutant(
    BalancedKind, "owed", by="1", scenario=balanced.test_what_one_was_chosen_for_it_is_given_again_whatever_its_map_says
)
def map_of_moved_subscriber_decides(_: Method) -> Method:
    """12.5: a subscriber that moves gets the delivery for which it was chosen, even if its map lacks it."""

    def broken(kind: BalancedKind, record: Record, subscribers: list[LocalSubscriber]) -> list[LocalSubscriber]:
        return kind.offered(record, [s for s in subscribers if s.has(record)])

    return broken


@mutant(BalancedKind, "concerns", by="1", **KILLS | BUSY)
def nobody_awaited_by_name(_: Method) -> Method:
    """12.4: orphans that may have the delivery are awaited by name."""

    def broken(kind: BalancedKind, record: Record, subscriber: bytes) -> bool:
        return False

    return broken


@mutant(Audiences, "_is_asked", by="1", **MOVING | BUSY)
def asked_twice(_: Method) -> Method:
    """12: a router gets no second Forward of a delivery before it has answered the first one."""

    def broken(home: Audiences, record: Record, name: bytes) -> bool:
        return False

    return broken


@mutant(kinds, "verdict", by="1", **MOVING | BUSY)
def home_forgets_acceptance_of_ended_subscriber(_: Method) -> Method:
    """12.3: an acceptance counts even if its subscriber has gone."""

    def broken(record: Record) -> Refusals | None:
        return None if 0x24 in record.locals.values() else NOT_HAD

    return broken


@mutant(LocalSubscriber, "has", by="1", **RESUMING | BUSY | {"partial": 0.5, "restless": 1.0, "room": 1})
def incomplete_map_believed(original: Method) -> Method:
    """12.4: a subscriber may have a delivery that its incomplete map lacks."""

    def broken(subscriber: LocalSubscriber, record: Record) -> bool:
        incomplete, subscriber.incomplete = subscriber.incomplete, False
        try:
            return bool(original(subscriber, record))
        finally:
            subscriber.incomplete = incomplete

    return broken


@mutant(
    LocalSubscriber,
    "takes",
    by="5",
    scenario=balanced.test_of_offers_beyond_its_room_one_gets_the_first_and_another_the_rest,
)
def offers_beyond_its_room_kept(_: Method) -> Method:
    """12.2: a delivery offered to a subscriber that has no room left goes to another one."""

    def broken(subscriber: LocalSubscriber, records: list[Record]) -> int:
        return len(records)

    return broken


@mutant(
    LocalSubscriber,
    "may_have",
    by="1",
    scenario=balanced.test_who_has_it_by_its_map_is_given_it_though_its_room_is_used,
)
def map_of_chosen_subscriber_ignored(_: Method) -> Method:
    """12.4: a subscriber whose map names a delivery gets the delivery even without room."""

    def broken(subscriber: LocalSubscriber, records: list[Record]) -> bool:
        return subscriber.incomplete

    return broken


@mutant(Consumers, "announce", by="5", **RESUMING | SHARED)
def told_of_room_once(original: Method) -> Method:
    """12.2: when a home has used up the announced room, the edge announces the room again."""

    def broken(consumers: Consumers, subscriber: LocalSubscriber) -> None:
        if not subscriber.offered:
            original(consumers, subscriber)

    return broken


@mutant(Balancing, "choose_again", by="5", **RESUMING | SHARED | {"refusing": 0.5})
def given_back_for_good(_: Method) -> Method:
    """12.3: a delivery that a subscriber gives back is offered again."""

    def broken(balancing: Balancing, stream: HomeStream, records: Iterable[Record]) -> None: ...

    return broken


@mutant(Balancing, "_is_for_nobody_else", by="2", **RESUMING | SHARED | {"refusing": 0.5})
def refused_by_one_is_refused_by_all(_: Method) -> Method:
    """12.3: a delivery that one subscriber refuses for itself is offered to another one."""

    def broken(balancing: Balancing, stream: HomeStream, record: Record) -> bool:
        return True

    return broken


@mutant(
    Balancing,
    "_is_refused",
    by="1",
    scenario=balanced.test_another_home_learns_who_has_refused_a_delivery_for_itself,
)
def refused_for_itself_forgotten(original: Method) -> Method:
    """12.3: a subscriber that has refused a delivery for itself is not offered it again."""

    def broken(balancing: Balancing, stream: HomeStream, record: Record) -> bool:
        is_refused = bool(original(balancing, stream, record))
        record.refused_by = ()
        return is_refused

    return broken


@mutant(Consumers, "announce_anew", by="5", scenario=balanced.test_room_that_is_told_before_an_older_refusal_counts)
def room_not_told_behind_a_refusal_that_waited(_: Method) -> Method:
    """12.2: after a refusal the home takes the subscriber for full, until its router announces room again."""

    def broken(consumers: Consumers, home: str) -> None: ...

    return broken


@mutant(Balancing, "_is_over", by="2", scenario=dynamic.test_what_is_lost_with_the_router_of_its_subscriber_is_rejected)
def awaits_another_at_a_dynamic_node(_: Method) -> Method:
    """12.8: a dynamic node ends with its subscriber."""

    def broken(balancing: Balancing, stream: HomeStream) -> bool:
        return False

    return broken


@mutant(
    Balancing,
    "_cost_to",
    by="5",
    scenario=balanced.test_the_nearest_with_room_comes_first_and_shares_only_with_who_is_as_near,
)
def home_ignores_cost_of_path(_: Method) -> Method:
    """12.10: at a closest address the subscriber with the least cost comes first."""

    def broken(balancing: Balancing, router: str) -> int:
        return 0

    return broken


@mutant(AddressKinds, "of", by="1", scenario=of_kinds.test_the_longest_prefix_counts_whatever_the_order)
def first_prefix_counts(original: Method) -> Method:
    """2, Address: the longest prefix decides the kind of an address."""

    def broken(self: AddressKinds, address: str) -> AddressKind:
        self._prefixes.sort(key=lambda pair: len(pair[0]))
        found: AddressKind = original(self, address)
        return found

    return broken


@mutant(Rests, "begin", by="1", **RETURNING)
def offered_again_at_once(_: Method) -> Method:
    """12.11: a delivery that a subscriber has given back rests before it is offered again."""

    def broken(rests: Rests, stream: HomeStream, record: Record) -> bool:
        return False

    return broken


@mutant(BackOff, "pause", by="1", scenario=resting.test_each_pause_is_longer_until_the_last_return_is_final)
def pauses_are_equal(_: Method) -> Method:
    """12.11: each rest of a delivery is longer than the one before it."""

    def broken(back_off: BackOff, times: int) -> float:
        return back_off.after

    return broken


@mutant(Rests, "ended", by="5", **RETURNING)
def rests_for_ever(_: Method) -> Method:
    """12.11: a delivery whose rest is over is offered again."""

    def broken(rests: Rests, now: float) -> list[tuple[HomeStream, list[Record]]]:
        return []

    return broken


@mutant(HomeStream, "is_waiting", by="1", scenario=resting.test_it_rests_for_all_also_for_who_comes_meanwhile)
def rest_ends_with_the_next_decision(_: Method) -> Method:
    """12.11: a rest does not end when the home decides about other subscribers."""

    def broken(stream: HomeStream, record: Record) -> bool:
        return record in stream.unassigned

    return broken


@mutant(HomeStream, "wait_no_more", by="4", scenario=resting.test_what_its_publisher_settles_or_leaves_rests_no_more)
def settled_deliveries_rest_on(original: Method) -> Method:
    """12.11: a delivery that its publisher settles rests no longer."""

    def broken(stream: HomeStream, records: list[Record]) -> None:
        resting = {**stream.resting}
        original(stream, records)
        stream.resting.update(resting)

    return broken
