"""One local subscriber, and the records that wait for it: gates, credit, and what is settled meanwhile (protocol 6)."""

import pytest

from tests.topic.clients import NEWS
from topic.delivery.gates import UNPROVEN
from topic.delivery.kinds import EACH_TO_ALL
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import QUEUED, WITHHELD, Record, Stream, name_all, settle
from topic.edge.delivery import name_fresh
from topic.edge.subscriber import CLEAR_AWAY, LocalSubscriber
from topic.identity import Epoch, LinkIdentity

P = b"publisher123"


@pytest.fixture
def subscriber() -> LocalSubscriber:
    return LocalSubscriber(b"subscriber12", LinkIdentity("s", "in", NEWS), EACH_TO_ALL)


def records(subscriber: LocalSubscriber, count: int) -> list[Record]:
    """Forwarded for it, n 0 and so on."""
    stream = Stream(P, LinkIdentity("p", "out", NEWS), Epoch(1, "a", 1), b"12345678", EACH_TO_ALL)
    made = [Record(stream, b"%032d" % n, b"", b"message") for n in range(count)]
    for n, record in enumerate(made):
        record.n = n
        stream.records[n] = record
    name_all(made, [subscriber])
    return made


def test_records_older_than_the_gate_pass(subscriber: LocalSubscriber) -> None:
    some = records(subscriber, 4)
    subscriber.gate(P, "a", 2)
    subscriber.credit = 10
    assert subscriber.offer(P, some) == some[:2]
    assert subscriber.open_gate(P) == some[2:]


def test_a_gate_that_is_proven_lets_go_what_is_older_than_it_then_is(subscriber: LocalSubscriber) -> None:
    some = records(subscriber, 4)
    subscriber.gate(P, "a", UNPROVEN)
    subscriber.offer(P, some)
    subscriber.gate(P, "a", 2)
    subscriber.credit = 10
    assert subscriber.next_ready() == some[:2]
    assert subscriber.open_gate(P) == some[2:]


def test_settled_waiting_records_do_not_pile_up(subscriber: LocalSubscriber) -> None:
    some = records(subscriber, CLEAR_AWAY + 4)
    kept, resumed = some[0], some[1]
    subscriber.gate(P, "a", 3)
    subscriber.offer(P, some)
    subscriber.resuming[resumed] = 0
    settle(some[1:])
    for _ in some:
        subscriber.skip_settled()
    assert list(subscriber.ready) == [kept, resumed] and subscriber.open_gate(P) == []


def test_the_settlement_of_what_is_still_to_be_resumed_is_owed_once(subscriber: LocalSubscriber) -> None:
    queued, awaited = records(subscriber, 2)
    subscriber.offer(P, [queued])
    awaited.locals[subscriber] = WITHHELD
    for record in (queued, awaited):
        subscriber.resuming[record] = 0
        subscriber.owe(record)
    assert list(subscriber.ready) == [queued, awaited]


@pytest.mark.parametrize("on_its_link", [True, False])
def test_subscriber_gets_returned_record_again_on_the_same_link(subscriber: LocalSubscriber, on_its_link: bool) -> None:
    [record] = records(subscriber, 1)
    if on_its_link:
        subscriber.attempts[record] = 1
    record.stop_awaiting(subscriber, has_it=True)
    assert record.locals[subscriber] == DeliveryOutcome.RELEASED
    assert name_fresh(record, [subscriber], QUEUED) == [subscriber] * on_its_link


@pytest.mark.parametrize("reason", ["settled", "presettled", "another key"])
def test_a_map_names_nothing_that_waits_and_is_over_or_another_delivery(
    subscriber: LocalSubscriber, reason: str
) -> None:
    [record] = records(subscriber, 1)
    record.stream.withhold_for(record, [subscriber])
    assert record.stream.put_off(record.key) is record
    record.presettled = reason == "presettled"
    if reason == "settled":
        settle([record])
    assert record.stream.put_off(b"another" if reason == "another key" else record.key) is None


def test_a_link_is_given_what_it_has_room_for_and_the_one_that_no_longer_fits(subscriber: LocalSubscriber) -> None:
    some = records(subscriber, 5)
    subscriber.credit, subscriber.room = 10, 2 * len(b"message") + 1
    assert subscriber.offer(P, some) == some[:3]
    assert subscriber.room < 0 < subscriber.credit
    assert subscriber.next_ready() == []
    subscriber.room = 1
    assert subscriber.next_ready() == some[3:4]
    subscriber.room = 100
    assert subscriber.next_ready() == some[4:]
    assert subscriber.credit == 5


def test_new_records_wait_behind_records_that_wait_for_room(subscriber: LocalSubscriber) -> None:
    some = records(subscriber, 3)
    subscriber.credit, subscriber.room = 10, 1
    assert subscriber.offer(P, some[:2]) == some[:1]
    subscriber.room = 100
    assert subscriber.offer(P, some[2:]) == []
    assert subscriber.next_ready() == some[1:]


def test_what_is_not_for_it_any_more_is_resumed_when_it_is_settled_and_not_before(subscriber: LocalSubscriber) -> None:
    """Its publisher has gone while that waited for a sign of its life: nobody forwards it again."""
    [record] = records(subscriber, 1)
    subscriber.gate(P, "a", UNPROVEN)
    subscriber.offer(P, [record])
    subscriber.resuming[record] = 0
    subscriber.credit = 10
    record.stop_awaiting(subscriber, has_it=False)
    subscriber.ready.extend(subscriber.open_gate(P))
    assert subscriber.next_ready() == []
    settle([record])
    subscriber.owe(record)
    assert subscriber.next_ready() == [record]
