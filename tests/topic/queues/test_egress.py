"""Consumers of a queue, through its egress: each message is for one of them, and leaves the queue when it is accepted.

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

import math
from functools import partial
from typing import Any
from unittest.mock import patch

import attrs
import pytest

from tests.failures import NO_ANNOTATIONS, marked
from tests.topic.bench import reader_at
from tests.topic.clients import Pen, Reader
from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, WITH_QUEUES, QueueBench, with_patches
from tests.topic.queues.test_ingress import publisher, unsettled
from tests.topic.raft.mutants import Broken, must_notice
from topic.actions import DELETED, EXPIRED, Detach, Note
from topic.delivery.kinds import BalancedKind, EgressKind
from topic.delivery.outcomes import MOST_ANNOTATIONS, DeliveryOutcome
from topic.delivery.record import HomeStream, Record
from topic.delivery.room import SubscriberRoom
from topic.directory.entry import Lifetime
from topic.ends.nobody import Nobody
from topic.home.balancing import Balancing
from topic.home.home import Home
from topic.identity import egress_address, is_egress
from topic.queues import messages
from topic.queues.leader import egress
from topic.queues.leader.egress import Egress
from topic.queues.leader.ingress import Ingress, term_clock
from topic.queues.leader.leaders import PATIENCE_S, LedSet, SetLeaders
from topic.queues.leader.log import MessageView
from topic.queues.leader.publisher import AHEAD, SetPublisher
from topic.queues.messages import QueuedMessages, Returns
from topic.queues.operations import Delete, Done, Purge
from topic.queues.proposals import DEQUEUE, ENQUEUE, RESERVE, SETTLED
from topic.queues.replica import SetReplica
from topic.queues.state import read_entry
from topic.termini import attaches
from topic.termini.changes import Changes
from topic.termini.generations import Generations

ACCEPTED, REJECTED, RELEASED, MODIFIED = DeliveryOutcome
ADDRESS = egress_address(SET, QUEUE)
SHORT = attrs.evolve(WITH_QUEUES, terminus=5.0, boot_wait=1.0)


def plain(bench: QueueBench, router: str, name: str = "s", **options: Any) -> Reader:
    """A consumer that does not resume."""
    return bench.subscriber(router, name, address=ADDRESS, **options)


def lasting(bench: QueueBench, router: str, name: str = "s", **options: Any) -> Reader:
    return reader_at(bench, router, name, address=ADDRESS, **options)


def filled(*messages: bytes, routers: str = "abcde", at: str = "e") -> tuple[QueueBench, Pen]:
    """A queue with these messages, which are settled."""
    bench = QueueBench(*routers)
    pen = publisher(bench, at)
    if messages:
        pen.send(*messages)
        pen.settle(*messages)
    return bench, pen


def at_rest(bench: QueueBench) -> bool:
    """The queue is empty, and nothing is kept of what was in it."""
    rows = {len(bench.sets(name).state(SET).rows) for name in bench.names if name in "abc"}
    return rows == {1} and bench.records() == {} and unsettled(bench, bench.leader) == []


@pytest.mark.parametrize("router", ["a", "b", "d"])
def test_a_message_leaves_the_queue_when_a_consumer_has_accepted_it(router: str) -> None:
    bench, _ = filled(b"1", b"2")
    reader = plain(bench, router)
    assert reader.delivered == [b"1", b"2"]
    assert bench.messages("b") == [b"1", b"2"]
    reader.accept(b"1")
    assert bench.messages("b") == [b"2"] and reader.settled_messages == [b"1"]
    reader.accept(b"2")
    bench.wait(1)
    assert at_rest(bench)


def test_messages_go_to_consumers_as_they_are_enqueued() -> None:
    bench, pen = filled()
    reader = plain(bench, "d", credit=2)
    pen.send(b"1", b"2", b"3")
    assert reader.delivered == [b"1", b"2"]
    reader.accept(b"1")
    reader.grant(2)
    assert reader.delivered == [b"1", b"2", b"3"]


def test_a_leader_takes_an_egress_back_from_a_former_life() -> None:
    """Router b led that life, with later clocks, and attaches the egress once more."""
    bench, pen = filled()
    reader = plain(bench, "d")
    led, former = bench.at("a").node.led[SET], bench.at("b").node
    entry = led.egresses[bench.queue].known()
    assert entry is not None
    clock = term_clock(*led.since, 1000)
    former.topic.attach_publisher(entry.identity, Nobody(), former.now(), lifetime=entry.lifetime, clock=clock)
    bench.flow()
    bench.wait(ELECTED_S)
    pen.send(b"1")
    assert reader.delivered == [b"1"]


def test_an_egress_that_begins_expects_what_was_proposed_before() -> None:
    bench, pen = filled()
    bench.hanging |= {*"abc"}
    pen.send(b"1")
    reader = plain(bench, "d")
    pen.send(b"2")
    bench.hanging.clear()
    bench.flow()
    reader.accept(b"1", b"2")
    pen.settle(b"1", b"2")
    bench.wait(1)
    assert reader.delivered == [b"1", b"2"] and at_rest(bench)


def test_an_egress_that_begins_has_found_what_was_decided_together() -> None:
    """The egress begins after the state has the message, and before the leader has handled the answer to its entry."""
    bench, pen = filled()
    with pytest.MonkeyPatch.context() as busy:
        busy.setattr(SetLeaders, "follow", lambda self, now: None)
        pen.send(b"1")
        reader = plain(bench, "d")
        assert len(bench.sets("a").state(SET).messages.of(bench.queue)) == 1
    bench.flow()
    bench.wait(1)
    pen.settle(b"1")
    [egress] = bench.at("a").node.led[SET].egresses.values()
    assert reader.delivered == [b"1"] and len(egress.open) == 1
    reader.accept(b"1")
    bench.wait(1)
    assert bench.messages("a") == [] and bench.records() == {}


def test_proposal_without_a_waiting_client_goes_with_the_next_entry() -> None:
    bench, pen = filled(b"1")
    reader = plain(bench, "d", credit=1)
    bench.is_patient = True
    former = last_of(bench)
    reader.accept(b"1")
    reader.grant(5)
    assert last_of(bench) == former
    pen.send(b"2")
    assert kinds_after(bench, former) == [ENQUEUE, DEQUEUE, RESERVE] and reader.settled_messages == [b"1"]
    pen.settle(b"2")
    pen.send(b"3")
    assert kinds_after(bench, former + 3) == [SETTLED, ENQUEUE, RESERVE]


def kinds_after(bench: QueueBench, index: int) -> list[int]:
    """The kinds of the proposals behind this log index."""
    log = bench.sets(bench.leader)._replicas[SET].raft.log
    return [read_entry(one.data)[1][0] for one in log.entries(index + 1, log.last)]


def test_proposal_without_a_waiting_client_is_made_soon() -> None:
    bench, pen = filled()
    reader = plain(bench, "d")
    bench.is_patient = True
    pen.send(b"1")
    pen.settle(b"1")
    reader.accept(b"1")
    assert not at_rest(bench)
    bench.now += PATIENCE_S
    bench._time(bench.leader)
    bench.flow()
    assert at_rest(bench)
    bench.wait(1)
    assert bench.at(bench.leader).node.led[SET].deadline == math.inf


def test_a_message_whose_consumer_waits_costs_one_round_of_the_log() -> None:
    """Its reservation is proposed together with it. No consumer is offered it before both are decided."""
    bench, pen = filled()
    reader = plain(bench, "d")
    bench.hanging |= {*"abc"}
    former = last_of(bench)
    pen.send(b"1")
    assert last_of(bench) == former + 2 and reader.delivered == []
    bench.hanging.clear()
    bench.flow()
    assert reader.delivered == [b"1"]
    reader.accept(b"1")
    pen.settle(b"1")
    bench.wait(1)
    assert at_rest(bench)


def last_of(bench: QueueBench) -> int:
    """The last index of the leader's log."""
    return bench.sets(bench.leader)._replicas[SET].raft.log.last


def test_a_message_that_the_queue_has_no_room_for_is_for_no_consumer() -> None:
    bench = QueueBench(*"abcde", declares=False)
    bench.queue = bench.declare(QUEUE, limit_messages=1)
    pen, reader = publisher(bench, "e"), plain(bench, "d")
    bench.hanging |= {*"abc"}
    pen.send(b"1", b"2")
    pen.send(b"3")
    bench.hanging.clear()
    bench.flow()
    assert reader.delivered == [b"1"]
    assert pen.outcomes == {b"1": ACCEPTED, b"2": REJECTED, b"3": REJECTED}
    reader.accept(b"1")
    pen.send(b"4")
    assert reader.delivered == [b"1", b"4"]
    reader.accept(b"4")
    pen.settle(b"1", b"2", b"3", b"4")
    bench.wait(1)
    assert at_rest(bench)


def test_a_message_that_comes_again_is_for_one_consumer_once() -> None:
    """The leader has copied it to one voter when it dies: the next leader has it, and its publisher sends it again."""
    bench, pen = filled()
    reader = plain(bench, "d")
    bench.hanging |= {"a", "c"}
    pen.send(b"1")
    bench.stop("a")
    bench.hanging.clear()
    bench.wait(ELECTED_S)
    assert pen.outcomes == {b"1": ACCEPTED} and reader.delivered == [b"1"]
    reader.accept(b"1")
    pen.settle(b"1")
    bench.wait(1)
    assert reader.settled_messages == [b"1"] and bench.records() == {}


def test_a_message_of_a_queue_that_is_deleted_meanwhile_goes_to_its_successor() -> None:
    bench, pen = filled()
    reader = plain(bench, "d")
    bench.hanging |= {*"abc"}
    bench.at("a").node.ask(Delete(QUEUE, bench.queue))
    bench.collect("a")
    pen.send(b"1")
    bench.hanging.clear()
    bench.flow()
    [queue] = bench.sets("a").state(SET)
    assert queue.id != bench.queue and reader.delivered == [] and is_told_of_the_end(reader)
    again = plain(bench, "d")
    assert again.delivered == [b"1"]
    again.accept(b"1")
    pen.settle(b"1")
    bench.wait(1)
    assert at_rest(bench)


def test_each_message_is_for_one_consumer() -> None:
    bench, _ = filled(*(b"%d" % number for number in range(20)))
    readers = [plain(bench, router, router, credit=3) for router in "abde"]
    for _ in range(20):
        for reader in readers:
            left = [message or b"" for message in reader.delivered if message not in reader.settled_messages]
            reader.accept(*left[:1])
            reader.grant(3 - len(left[1:]))
    delivered = [message for reader in readers for message in reader.delivered]
    assert len(delivered) == 20 and {*delivered} == {b"%d" % number for number in range(20)}
    bench.wait(1)
    assert at_rest(bench)


def test_nothing_is_offered_before_a_majority_knows_to_whom() -> None:
    bench, _ = filled(b"1")
    bench.hanging |= {"b", "c"}
    reader = plain(bench, "a")
    assert reader.delivered == []
    bench.hanging.clear()
    bench.flow()
    assert reader.delivered == [b"1"]


def test_nothing_is_settled_before_a_majority_knows_that_it_is_over() -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, "a")
    bench.hanging |= {"b", "c"}
    reader.accept(b"1")
    assert reader.settled_messages == []
    bench.hanging.clear()
    bench.flow()
    assert reader.settled_messages == [b"1"]


@pytest.mark.parametrize("kind", [plain, lasting])
@pytest.mark.parametrize("router", ["b", "d"])
def test_a_consumer_goes_on_with_what_it_has_when_the_leader_changes(router: str, kind: Any) -> None:
    bench, pen = filled(b"1", b"2", b"3")
    reader = kind(bench, router, credit=2)
    other = kind(bench, "e", "t", credit=5)
    assert (reader.delivered, other.delivered) == ([b"1", b"2"], [b"3"])
    reader.accept(b"1")
    bench.stop("a")
    bench.wait(ELECTED_S)
    pen.send(b"4")
    assert (reader.delivered, other.delivered) == ([b"1", b"2"], [b"3", b"4"])
    reader.accept(b"2")
    other.accept(b"3", b"4")
    assert bench.messages(bench.leader) == []
    assert set(reader.settled_messages) == {b"1", b"2"}


@pytest.mark.parametrize("kind", [plain, lasting])
def test_the_leader_dies_before_it_has_taken_what_was_accepted(kind: Any) -> None:
    bench, _ = filled(b"1")
    reader, other = kind(bench, "d"), kind(bench, "e", "t")
    bench.hanging |= {"b", "c"}
    [holder] = [one for one in (reader, other) if one.delivered]
    holder.accept(b"1")
    assert holder.settled_messages == []
    bench.stop("a")
    bench.hanging.clear()
    bench.wait(ELECTED_S)
    assert bench.messages(bench.leader) == [] and holder.settled_messages == [b"1"]
    assert len(reader.delivered + other.delivered) == 1


def test_message_of_a_plain_consumer_goes_to_another_when_its_router_dies() -> None:
    bench, _ = filled(b"1")
    plain(bench, "d")
    other = plain(bench, "b", "t")
    assert other.delivered == []
    bench.stop("d")
    bench.wait(10)
    assert other.delivered == [b"1 failed 1"]
    other.accept(b"1 failed 1")
    assert bench.messages("a") == []


@pytest.mark.parametrize("has_accepted", [False, True])
def test_a_consumer_resumes_elsewhere_when_its_router_dies(has_accepted: bool) -> None:
    bench, _ = filled(b"1")
    reader, other = lasting(bench, "d"), plain(bench, "b", "t")
    assert reader.delivered == [b"1"]
    [record] = [record for record, _ in reader.handed]
    bench.stop("d")
    bench.wait(10)
    assert other.delivered == [], "it waits for the consumer that has it"
    state = ACCEPTED if has_accepted else 0
    again = lasting(bench, "e", unsettled={record.key: state}, seen=reader.end.epoch)
    if not has_accepted:
        assert again.resumed == [(b"1", 0, False)]
        bench.tick("e").outcomes(again.end, [bench.cores["e"].records.by_key[record.key]], ACCEPTED)
        bench.flow()
    bench.wait(1)
    assert bench.messages("a") == [] and other.delivered == []


def test_a_consumer_that_resumes_has_room_before_the_egress_has_answered_an_echo() -> None:
    """Home gives it nothing before the answer, which is an entry. Nothing else happens then."""
    bench, _ = filled(b"1")
    reader = lasting(bench, "d", credit=0)
    reader.vanish()
    bench.hanging |= {"b", "c"}
    again = lasting(bench, "e", unsettled={}, seen=reader.end.epoch, credit=1)
    assert again.delivered == []
    bench.hanging.clear()
    bench.flow()
    assert again.delivered == [b"1"]


def test_a_consumer_that_no_router_knows_is_waited_for() -> None:
    """Only the former leader was in contact with the router of the consumer, and both are dead."""
    bench = QueueBench(*"abcde")
    for other in "bce":
        bench.part("d", other)
    pen = publisher(bench, "e")
    pen.send(b"1")
    reader = lasting(bench, "d")
    assert reader.delivered == [b"1"]
    bench.stop("d")
    bench.stop("a")
    bench.wait(ELECTED_S)
    taker = plain(bench, "b", "t")
    assert taker.delivered == []
    [record] = [record for record, _ in reader.handed]
    again = lasting(bench, "e", unsettled={record.key: ACCEPTED}, seen=reader.end.epoch)
    bench.wait(1)
    assert bench.messages(bench.leader) == [] and taker.delivered == again.delivered == []


def test_a_message_comes_back_whose_consumer_no_router_knows() -> None:
    """All routers were restarted. The queue was purged, and has no consumer any more."""
    bench, _ = filled(b"1")
    assert plain(bench, "d").delivered == [b"1"]
    purge(bench)
    for name in "abcde":
        bench.stop(name)
    for name in "abcde":
        bench.start(name, 2)
    bench.wait(ELECTED_S)
    assert bench.messages(bench.leader) == []


def test_a_queue_has_an_egress_with_its_first_consumer() -> None:
    """So a leader takes over many queues that nobody uses at once."""
    bench, _ = filled(b"1", b"2")
    assert not bench.at("a").node.led[SET].egresses
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert not bench.at(bench.leader).node.led[SET].egresses
    assert plain(bench, "e").delivered == [b"1", b"2"]


def test_the_leader_dies_as_a_queue_is_deleted() -> None:
    """It has not closed the egress. The next leader does, and does not declare the queue again."""
    bench, _ = filled(b"1")
    plain(bench, "d").close()
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(LedSet, "_close_deleted", lambda self: None)
        delete(bench)
        bench.stop("a")
    bench.wait(ELECTED_S)
    live = [entry.identity.address for entry in bench.cores["c"].directory.entries() if entry.live]
    assert not [*bench.sets("b").state(SET)] and not [address for address in live if is_egress(address)]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_leader_takes_over_the_egress_that_a_returning_router_tells_of(is_deleted: bool) -> None:
    """The only consumer has left, and all other routers have been restarted, so the leader did not know the egress."""
    bench, _ = filled()
    plain(bench, "e").close()
    bench.part_from_all("d")
    if is_deleted:
        delete(bench)
    bench.restart_all_but("d")
    assert bench.at(bench.leader).node.led[SET].egresses == {}
    bench.meet_again("d")
    for name in "abcde":
        entries = [one for one in bench.cores[name].directory.entries() if one.live and is_egress(one.identity.address)]
        homes = [(one.epoch.router, one.epoch.incarnation) for one in entries]
        assert homes == ([] if is_deleted else [(bench.leader, 2)])


def test_only_what_a_consumer_has_waits_for_it() -> None:
    """Its router is dead, like the leader: what others had is theirs, or goes to others."""
    bench, _ = filled(b"1", b"2", b"3")
    gone, here = lasting(bench, "d", credit=1), plain(bench, "e", "t", credit=1)
    plain(bench, "d", "u", credit=1)
    assert (gone.delivered, here.delivered) == ([b"1"], [b"2"])
    bench.stop("d")
    bench.stop("a")
    bench.wait(ELECTED_S + 10)
    here.accept(b"2")
    here.grant(5)
    assert here.delivered == [b"2", b"3 failed 1"] and here.settled_messages == [b"2"]
    here.accept(b"3 failed 1")
    assert bench.messages(bench.leader) == [b"1"]


@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize("router", ["b", "d"])
def test_consumer_that_gives_a_message_back_keeps_it_from_nobody(router: str, is_asked: bool) -> None:
    """Its map says so while nobody leads. The next leader asks the consumer that has the message, or gives it to one if
    that has gone, at the same router."""
    bench, _ = filled(b"1")
    fussy = lasting(bench, router, credit=1)
    fussy.answer(MODIFIED, b"1")
    other = lasting(bench, router, "t") if is_asked else plain(bench, "e", "t")
    assert other.delivered == [b"1"]
    bench.stop("a")
    if not is_asked:
        bench.stop("e")
    [record] = [record for record, _ in fussy.handed]
    fussy.vanish()
    again = lasting(bench, router, unsettled={record.key: MODIFIED}, seen=fussy.end.epoch, credit=0)
    bench.wait(ELECTED_S)
    assert bench.leader == "b"
    taker, message = (other, b"1") if is_asked else (plain(bench, router, "u"), b"1 failed 1")
    assert taker.delivered == [message]
    taker.accept(message)
    again.grant(1)
    bench.wait(1)
    assert bench.messages(bench.leader) == [] and again.map == {} and again.resumed == []


@pytest.mark.parametrize("outcome", [RELEASED, MODIFIED])
@pytest.mark.parametrize("router", ["a", "d"])
def test_returned_message_is_resumed_with_its_own_outcome(router: str, outcome: DeliveryOutcome) -> None:
    bench, _ = filled(b"1")
    fussy = lasting(bench, router, credit=1)
    [(record, _)] = fussy.handed
    bench.hanging |= {*"abc"}
    fussy.answer(outcome, b"1")
    fussy.vanish()
    again = lasting(bench, router, unsettled={record.key: outcome}, seen=fussy.end.epoch)
    assert again.map == {record.key: outcome} and again.resumed == [(None, outcome, False)]
    bench.hanging.clear()
    bench.flow()
    assert again.settled == [record] and again.delivered == [b"1"]


def test_released_message_goes_to_others_without_limit() -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, "d")
    for _ in range(12):
        reader.answer(RELEASED, reader.delivered[-1] or b"")
    assert bench.messages("a") == [b"1"]
    reader.accept(b"1")
    bench.wait(1)
    assert at_rest(bench)


def back(bench: QueueBench, router: str = "b") -> list[Returns]:
    """How often each message of the queue came back, as a router knows."""
    messages = bench.sets(router).state(SET).messages
    return [messages.returns(at) for at in messages.of(bench.queue)]


def reserved(bench: QueueBench) -> int:
    return bench.sets("b").state(SET).messages.reserved_of(bench.queue)


@pytest.mark.parametrize("router", ["a", "d"])
@pytest.mark.parametrize(
    ("outcome", "failed", "failures"), [(RELEASED, False, 0), (MODIFIED, False, 0), (MODIFIED, True, 1)]
)
def test_the_log_has_what_a_consumer_gives_back(
    router: str, outcome: DeliveryOutcome, failed: bool, failures: int
) -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, router, credit=1)
    reader.answer(outcome, b"1", failed=failed)
    assert back(bench) == [Returns(1, failures)] and reserved(bench) == 0
    assert reader.settled_messages == [b"1"], "it is settled: that delivery is over"
    reader.grant(1)
    assert reader.delivered == [b"1", marked(b"1", failures)]
    first, second = (record.key for record, _ in reader.handed)
    assert first != second, "the next delivery has another key"
    reader.accept(marked(b"1", failures))
    bench.wait(1)
    assert at_rest(bench)


def test_nothing_is_published_anew_before_a_majority_knows_that_it_came_back() -> None:
    bench, _ = filled(b"1")
    reader, other = plain(bench, "d", credit=1), plain(bench, "e", "t")
    bench.hanging |= {"b", "c"}
    reader.answer(RELEASED, b"1")
    assert reader.settled_messages == [] and other.delivered == []
    bench.hanging.clear()
    bench.flow()
    assert reader.settled_messages == [b"1"] and other.delivered == [b"1"]


@pytest.mark.parametrize("router", ["a", "d"])
def test_the_next_consumer_reads_what_consumers_have_added(router: str) -> None:
    bench, _ = filled(b"1", b"2")
    reader = plain(bench, router)
    reader.answer(MODIFIED, b"1", annotations=b"x")
    assert reader.delivered[2:] == [b"1 with x"]
    reader.answer(RELEASED, b"1 with x")
    reader.answer(MODIFIED, b"1 with x", failed=True, annotations=b"y")
    assert reader.delivered[3:] == [b"1 with x", b"1 with xy failed 1"]
    reader.answer(MODIFIED, b"1 with xy failed 1", annotations=NO_ANNOTATIONS)
    reader.answer(MODIFIED, b"1 with xy failed 1", annotations=bytes(MOST_ANNOTATIONS - 1))
    assert reader.delivered[5:] == 2 * [b"1 with xy failed 1"], "these are none, or too long with those before"


def test_an_entry_does_not_grow_with_what_consumers_add_to_many_messages() -> None:
    bench, _ = filled(*(b"%d" % number for number in range(200)))
    reader = plain(bench, "d", credit=200)
    former, added = last_of(bench), bytes(MOST_ANNOTATIONS)
    with patch.object(messages, "MOST_ANNOTATED", 150 * MOST_ANNOTATIONS):
        reader.answer(MODIFIED, *(b"%d" % number for number in range(200)), annotations=added)
    log = bench.sets(bench.leader)._replicas[SET].raft.log
    sizes = [entry.size for entry in log.entries(former + 1, log.last)]
    assert max(sizes) < AHEAD + 2 * MOST_ANNOTATIONS and sum(sizes) < 160 * MOST_ANNOTATIONS
    assert sum(returns.annotations == added for returns in back(bench)) == 150


@pytest.mark.parametrize("leads", ["before", "after"])
def test_annotations_of_a_consumer_outlive_the_leader(leads: str) -> None:
    """It dies before or after a majority knows of it."""
    bench, _ = filled(b"1")
    reader, other = lasting(bench, "d", credit=1), plain(bench, "e", "t", credit=0)
    if leads == "before":
        for voter in "bc":
            bench.hold("a", voter)
    reader.answer(MODIFIED, b"1", annotations=b"x")
    bench.stop("a")
    bench.let_go()
    bench.wait(ELECTED_S)
    other.grant(1)
    assert other.delivered == [b"1 with x"]


@pytest.mark.parametrize("router", ["a", "d"])
def test_consumer_that_ends_with_a_message_has_failed(router: str) -> None:
    bench, _ = filled(b"1", b"2")
    reader = plain(bench, router, credit=1)
    reader.close()
    assert back(bench) == [Returns(1, 1), Returns()] and reserved(bench) == 0
    other = plain(bench, "e", "t")
    assert other.delivered == [b"1 failed 1", b"2"]


def test_consumer_lost_with_its_router_has_failed() -> None:
    """Its former router has told that it left. Its next one dies before it can answer."""
    bench, _ = filled(b"1")
    reader, other = lasting(bench, "d"), plain(bench, "c", "t")
    [record] = [record for record, _ in reader.handed]
    reader.vanish()
    bench.hold("a", "e")
    lasting(bench, "e", unsettled={record.key: 0}, seen=reader.end.epoch)
    bench.stop("e")
    bench.wait(100)
    assert other.delivered == [b"1 failed 1"]


def test_consumer_that_expires_with_a_message_has_failed() -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, "d", lifetime=Lifetime(5, "connection-close", 1))
    reader.vanish()
    bench.wait(30)
    assert back(bench) == [Returns(1, 1)] and reserved(bench) == 0
    other = plain(bench, "e", "t")
    assert other.delivered == [b"1 failed 1"]


def test_acceptance_of_a_lost_message_takes_nothing_from_the_next_consumer() -> None:
    """Its map has the former delivery of the message."""
    bench, _ = filled(b"1")
    reader = plain(bench, "d", lifetime=Lifetime(5, "connection-close", 1))
    [record] = [record for record, _ in reader.handed]
    reader.vanish()
    bench.wait(30)
    other = plain(bench, "e", "t")
    assert other.delivered == [b"1 failed 1"]
    lasting(bench, "e", unsettled={record.key: ACCEPTED}, seen=reader.end.epoch)
    bench.wait(1)
    assert bench.messages("a") == [b"1"]
    other.accept(b"1 failed 1")
    assert bench.messages("a") == []


def test_a_consumer_that_has_gone_before_it_had_a_message_has_not_failed() -> None:
    """Its offer is under way."""
    bench, _ = filled()
    reader = plain(bench, "d", credit=1)
    bench.hold("a", "d")
    publisher(bench, "e", name="q").send(b"1")
    assert reader.delivered == [] and reserved(bench) == 1
    reader.close()
    bench.let_go()
    assert reader.delivered == [] and back(bench) == [Returns(1, 0)] and reserved(bench) == 0
    assert plain(bench, "e", "t").delivered == [b"1"]


def test_a_consumer_that_has_gone_as_the_queue_agrees_to_it_has_nothing_reserved() -> None:
    bench, _ = filled(b"1")
    bench.hanging |= {"b", "c"}
    reader = plain(bench, "d")
    reader.close()
    bench.hanging.clear()
    bench.flow()
    assert reader.delivered == [] and [one.failed for one in back(bench)] == [0] and reserved(bench) == 0
    assert plain(bench, "e", "t").delivered == [b"1"]


def test_returned_message_has_its_old_place() -> None:
    bench, _ = filled(b"1", b"2", b"3", b"4")
    reader = plain(bench, "d", credit=2)
    assert reader.delivered == [b"1", b"2"]
    reader.answer(RELEASED, b"1")
    reader.grant(2)
    assert reader.delivered == [b"1", b"2", b"1", b"3"]


def test_returned_message_goes_before_messages_that_wait() -> None:
    """The second message waits at the home, as the only consumer with room has refused it. So does the first one,
    when that consumer has no room for it."""
    bench, _ = filled(b"1", b"2")
    reader, fussy = plain(bench, "d", credit=1), plain(bench, "e", "t", credit=1)
    assert (reader.delivered, fussy.delivered) == ([b"1"], [b"2"])
    fussy.answer(MODIFIED, b"2", final=True)
    fussy.grant(1)
    bench.hold("e", "a")
    fussy.grant(0)
    reader.answer(RELEASED, b"1")
    bench.let_go()
    assert fussy.delivered == [b"2"]
    taker = plain(bench, "b", "u", credit=1)
    assert taker.delivered == [b"1"]


@pytest.mark.parametrize("credit", [1, 2, 3])
def test_message_refused_for_lack_of_room_comes_before_later_reserved_ones(credit: int) -> None:
    """The consumer has taken its credit back, so its router refuses the first message. The second one is reserved for
    the consumer then. With a credit of 1 the first one waits for room, else it is reserved again, after the second.
    With a credit of 3 the third one is reserved together with the first one, and then with the second one, too."""
    bench, pen = filled()
    reader = plain(bench, "d", credit=2)
    bench.hold("d", "a")
    reader.grant(0)
    pen.send(b"1")
    bench.hanging |= {"b", "c"}
    pen.send(b"2", b"3")
    bench.let_go()
    reader.grant(credit)
    bench.hanging.clear()
    bench.flow()
    assert reader.delivered == [b"1", b"2", b"3"][:credit]


@pytest.mark.parametrize("router", ["a", "d"])
def test_message_that_one_consumer_refuses_for_itself_goes_to_another(router: str) -> None:
    bench, _ = filled(b"1", b"2")
    reader = plain(bench, router, credit=1)
    reader.answer(MODIFIED, b"1", final=True, failed=True)
    reader.grant(1)
    assert reader.delivered == [b"1", b"2"], "what it has refused holds up nothing else"
    assert back(bench) == [Returns(1, 1), Returns()]
    other = plain(bench, "e", "t")
    assert other.delivered == [b"1 failed 1"]
    other.answer(MODIFIED, b"1 failed 1", final=True)
    reader.grant(1)
    other.grant(1)
    assert reader.delivered == [b"1", b"2"] and other.delivered == [b"1 failed 1"], "both have refused it"
    third = plain(bench, "b", "u")
    assert third.delivered == [b"1 failed 1"]


def refused_by_one(most: SubscriberRoom, count: int = 10) -> tuple[QueueBench, Reader, list[bytes]]:
    """A consumer has refused for itself all messages of a queue, and has room again. Home keeps `most` of them."""
    messages = [b"%d" % number for number in range(count)]
    with patch.object(egress, "MOST_REFUSED", most):
        bench, _ = filled(*messages)
        reader = plain(bench, "d", credit=count)
        reader.answer(MODIFIED, *messages, final=True)
        assert reader.delivered == messages
        reader.grant(count)
    return bench, reader, messages


@pytest.mark.parametrize("most", [SubscriberRoom(3, 1000), SubscriberRoom(1000, 3)])
def test_the_state_keeps_most_of_what_all_consumers_refuse(most: SubscriberRoom) -> None:
    """Else home has each of these messages in memory. Another consumer gets all of them."""
    bench, _, messages = refused_by_one(most)
    assert bench.records() == {"a": 3}
    other = plain(bench, "e", "t", credit=5)
    assert other.delivered == messages[:5]
    other.grant(5)
    assert other.delivered == messages


@pytest.mark.parametrize("most", [SubscriberRoom(3, 1000), SubscriberRoom(1000, 3)])
def test_the_state_keeps_what_a_consumer_refuses_one_after_the_other(most: SubscriberRoom) -> None:
    """Another consumer is there, and gives no credit yet."""
    with patch.object(egress, "MOST_REFUSED", most):
        bench, pen = filled()
        reader, other = plain(bench, "d"), plain(bench, "e", "t", credit=0)
        messages = [b"%d" % number for number in range(8)]
        for message in messages:
            pen.send(message)
            pen.settle(message)
            reader.answer(MODIFIED, message, final=True)
        assert bench.records() == {"a": 3} and reader.delivered == messages
        other.grant(10)
        assert other.delivered == messages


def test_refused_message_in_the_state_is_offered_again_when_a_refusal_ends() -> None:
    bench, reader, messages = refused_by_one(SubscriberRoom(3, 1000))
    reader.close()
    again = plain(bench, "d", credit=10)
    assert again.delivered == messages and bench.messages("a") == messages


def test_refused_message_in_the_state_may_be_gone_when_a_consumer_wants_it() -> None:
    bench, reader, messages = refused_by_one(SubscriberRoom(3, 1000))
    purge(bench)
    other = plain(bench, "e", "t", credit=10)
    assert other.delivered == [] and reader.delivered == messages


def test_a_refusal_ends_with_its_link_while_it_waits() -> None:
    """The message is at the home: nobody else has room."""
    bench, _ = filled(b"1")
    reader = plain(bench, "d")
    reader.answer(MODIFIED, b"1", final=True)
    assert reader.delivered == [b"1"]
    reader.close()
    again = plain(bench, "d")
    assert again.delivered == [b"1"]


def test_a_refusal_ends_with_its_link() -> None:
    """The message is at no home, as the consumer that has refused it has no credit left."""
    bench, _ = filled(b"1")
    reader = plain(bench, "d", credit=1)
    reader.answer(MODIFIED, b"1", final=True)
    reader.close()
    again = plain(bench, "d")
    assert again.delivered == [b"1"]


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("credit", [1, 2])
def test_a_refusal_ends_as_its_consumer_begins_afresh(credit: int, closes: bool) -> None:
    """Then the consumer resumes what it has begun. With a credit of 2 the message is at the home."""
    bench, _ = filled(b"1")
    reader = lasting(bench, "d", credit=credit)
    reader.answer(MODIFIED, b"1", final=True)
    (reader.close if closes else reader.vanish)()
    afresh = lasting(bench, "d", credit=0)
    afresh.vanish()
    again = lasting(bench, "d", unsettled={}, seen=afresh.end.epoch)
    assert again.delivered == [b"1"]


def test_a_refusal_stays_as_its_consumer_resumes() -> None:
    bench, _ = filled(b"1")
    reader = lasting(bench, "d", credit=1)
    reader.answer(MODIFIED, b"1", final=True)
    reader.vanish()
    again = lasting(bench, "d", unsettled={}, seen=reader.end.epoch)
    assert again.delivered == []


@pytest.mark.parametrize("kind", [plain, lasting])
@pytest.mark.parametrize("router", ["b", "d"])
def test_the_leader_dies_before_it_has_heard_that_a_consumer_failed(router: str, kind: Any) -> None:
    """The router of the consumer tells the next leader."""
    bench, _ = filled(b"1")
    reader, other = kind(bench, router), plain(bench, "e", "t", credit=0)
    for voter in "bc":
        bench.hold("a", voter)
    reader.answer(MODIFIED, b"1", failed=True)
    bench.stop("a")
    bench.let_go()
    bench.wait(ELECTED_S)
    other.grant(1)
    delivered = [*reader.delivered, *other.delivered]
    assert delivered == [b"1", b"1 failed 1"] and back(bench, bench.leader) == [Returns(1, 1)]


def test_a_message_that_came_back_has_one_key_at_all_leaders() -> None:
    bench, _ = filled(b"1")
    reader = lasting(bench, "d")
    reader.answer(MODIFIED, b"1", failed=True)
    assert reader.delivered == [b"1", b"1 failed 1"]
    reader.answer_echo()
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert reader.delivered == [b"1", b"1 failed 1"]
    reader.accept(b"1 failed 1")
    bench.wait(1)
    assert bench.messages(bench.leader) == [] and reader.settled_messages == [b"1", b"1 failed 1"]


def test_rejected_message_leaves_the_queue() -> None:
    bench, _ = filled(b"1")
    reader = plain(bench, "d")
    reader.answer(REJECTED, b"1")
    bench.wait(1)
    assert at_rest(bench)


def test_all_routers_may_die_at_once() -> None:
    bench, _ = filled(b"1", b"2", b"3", routers="abc", at="c")
    reader = lasting(bench, "b", credit=2)
    reader.accept(b"1")
    for name in "abc":
        bench.stop(name)
    for name in "abc":
        bench.start(name, 2)
    bench.wait(ELECTED_S + 15)
    [two] = [record for record, message in reader.handed if message == b"2"]
    again = lasting(bench, "c", unsettled={two.key: ACCEPTED}, seen=reader.end.epoch)
    bench.wait(2)
    assert bench.messages(bench.leader) == [b"3"] and again.delivered == [b"3"]


def without_leader(outcome: int) -> tuple[QueueBench, Reader]:
    """All routers have begun again, and disks hang. A consumer's router knows its message by its map alone, and no
    router knows the egress."""
    bench = QueueBench(*"abcd", settings=SHORT)
    pen = publisher(bench, "a")
    pen.send(b"1")
    pen.settle(b"1")
    reader = lasting(bench, "d", credit=1)
    [(record, _)] = reader.handed
    for name in "abcd":
        bench.stop(name)
    bench.hanging |= {*"abc"}
    for name in "abcd":
        bench.start(name, 2)
    return bench, lasting(bench, "d", unsettled={record.key: outcome}, seen=reader.end.epoch)


def test_accepted_message_waits_for_a_leader_without_limit() -> None:
    bench, again = without_leader(ACCEPTED)
    bench.wait(10)
    bench.hanging.clear()
    bench.wait(ELECTED_S)
    assert again.delivered == [] and bench.messages(bench.leader) == []


def test_deliveries_of_a_deleted_queue_end_later() -> None:
    """The queue is deleted before the leader reads the question of the consumer's router. The leader does not end the
    consumer, as if it had died then."""
    bench, again = without_leader(0)
    bench.wait(1)
    bench.hanging.clear()
    bench.hold("d", "a")
    bench.wait(1)
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(LedSet, "_end_consumers", lambda self, queue: None)
        delete(bench)
    bench.let_go()
    bench.wait(5)
    assert again.resumed == []
    bench.wait(2)
    assert again.resumed == [(None, 0, True)]
    again.answer_echo()
    assert bench.records() == {}


def test_a_consumer_out_of_contact_is_told_later_that_its_queue_is_deleted() -> None:
    bench, _ = filled(b"1")
    reader = lasting(bench, "d", credit=1)
    bench.part_from_all("d")
    delete(bench)
    assert reader.delivered == [b"1"] and not is_told_of_the_end(reader)
    bench.meet_again("d")
    assert is_told_of_the_end(reader) and bench.records() == {} and [*bench.sets("a").state(SET)] == []


def unheard_of() -> QueueBench:
    """The voters begin again, and have no contact with e: so they have not booted."""
    bench = QueueBench(*"abcde")
    for name in "abc":
        bench.stop(name)
    for name in "abc":
        bench.names = (*bench.names, name)
        bench.boot(name, 2)
        for other in bench.names[:-1]:
            if other != "e":
                bench.meet(name, other)
    bench.flow()
    bench.wait(ELECTED_S)
    assert not bench.at(bench.leader).node.topic.booted
    return bench


@pytest.mark.parametrize("has_room", [True, False])
def test_a_consumer_that_has_no_room_for_a_message_gets_no_later_one_before(has_room: bool) -> None:
    """It takes credit back while two messages are on their way to it. The leader has not booted."""
    bench = unheard_of()
    first, second = plain(bench, "d", credit=2), plain(bench, "d", "t", credit=0)
    bench.hold(bench.leader, "d")
    pen = publisher(bench, "d")
    bench.let_go()
    bench.hold(bench.leader, "d")
    pen.send(b"1", b"2")
    first.grant(1)
    bench.let_go()
    assert first.delivered == [b"1"]
    (first if has_room else second).grant(3)
    pen.send(b"3")
    assert not bench.at(bench.leader).node.topic.booted
    assert first.delivered + second.delivered == [b"1", b"2", b"3"]


def test_a_set_that_is_full_takes_messages_when_others_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topic.queues.leader.ingress.FULL", 100)
    bench = QueueBench(*"abcde")
    pens = [publisher(bench, "abcde"[number % 5], name=f"p{number}") for number in range(10)]
    for number, pen in enumerate(pens):
        pen.send(bytes([number]) * 40)
    there = bench.sets("b").state(SET).messages
    assert 100 <= there.size <= 100 + 40
    told = [action.text for action in bench.actions["a"] if isinstance(action, Note)]
    assert [text for text in told if "set q0 is full" in text] == [*told] and len(told) == 1
    reader = plain(bench, "d", credit=1)
    for _ in pens:
        reader.accept(reader.delivered[-1] or b"")
        assert there.size <= 100 + 40
        reader.grant(1)
    assert len(reader.delivered) == 10 and [len(pen.outcomes) for pen in pens] == [1] * 10


def test_a_set_that_is_full_takes_messages_when_a_queue_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topic.queues.leader.ingress.FULL", 100)
    bench, pen = filled()
    pen.send(*(bytes([number]) * 40 for number in range(5)))
    assert bench.sets("a").state(SET).messages.size >= 100 and len(pen.outcomes) < 5
    delete(bench)
    assert len(pen.outcomes) == 5


def test_a_queue_without_consumers_keeps_its_messages() -> None:
    bench, _ = filled(b"1", b"2")
    assert bench.records() == {}, "only the state has them"
    reader = plain(bench, "d", credit=1)
    assert reader.delivered == [b"1"] and bench.records() == {"a": 1, "d": 1}


def test_a_consumer_that_comes_back_late_is_told_that_its_message_is_over() -> None:
    """The queue is empty, and a router leads that has had no consumer of it."""
    bench, _ = filled(b"1")
    reader = lasting(bench, "d")
    [record] = [record for record, _ in reader.handed]
    reader.accept(b"1")
    reader.close()
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert bench.messages(bench.leader) == []
    again = lasting(bench, "e", unsettled={record.key: ACCEPTED})
    bench.wait(2)
    assert [settled for _, _, settled in again.resumed] == [True]
    again.answer_echo()
    assert bench.records() == {}


# an operator takes messages out


def is_told_of_the_end(reader: Reader) -> bool:
    """Whether the consumer was told that its queue is deleted."""
    return [(one.condition, one.description) for one in reader.mine(Detach)] == [(EXPIRED, DELETED)]


def delete(bench: QueueBench) -> None:
    bench.at("a").node.ask(Delete(QUEUE, bench.queue))
    bench.collect("a")
    bench.flow()


def purge(bench: QueueBench) -> int:
    """Up to the last message. Returns how many were taken."""
    [*_, last] = bench.sets("a").state(SET).messages.of(bench.queue)
    number = bench.at("a").node.ask(Purge(QUEUE, bench.queue, last))
    bench.collect("a")
    bench.flow()
    answer = bench.at("a").answers[number]
    assert isinstance(answer, Done)
    return answer.count


def test_a_purge_leaves_what_consumers_have_and_they_accept_it() -> None:
    bench, pen = filled(b"1", b"2", b"3")
    reader = plain(bench, "d", credit=1)
    assert purge(bench) == 2 and bench.messages("b") == [b"1"]
    pen.send(b"4")
    pen.settle(b"4")
    reader.grant(5)
    reader.accept(b"1", b"4")
    bench.wait(1)
    assert reader.delivered == [b"1", b"4"] == reader.settled_messages and at_rest(bench)


@pytest.mark.parametrize("is_gone", [False, True])
def test_purge_takes_messages_that_wait_for_a_reservation(is_gone: bool) -> None:
    bench, pen = filled(b"1", b"2")
    with pytest.MonkeyPatch.context() as busy:
        busy.setattr(SetReplica, "propose", lambda self, proposals: None)
        reader = plain(bench, "d")
        if is_gone:
            reader.close()
        assert bench.records()["a"] == 2
        assert purge(bench) == 2
    pen.send(b"3")
    assert bench.messages("a") == [b"3"] and bench.records() == (
        {"a": 1, "e": 1} if is_gone else {"a": 2, "d": 1, "e": 1}
    )
    assert reader.delivered == ([] if is_gone else [b"3"])


def test_purged_message_that_comes_back_is_offered_to_nobody() -> None:
    bench, pen = filled(b"1", b"2")
    reader = plain(bench, "d", credit=1)
    other = plain(bench, "e", "t", credit=1)
    assert (reader.delivered, other.delivered) == ([b"1"], [b"2"])
    assert purge(bench) == 0
    other.accept(b"2")
    reader.answer(RELEASED, b"1")
    other.grant(1)
    pen.send(b"3")
    pen.settle(b"3")
    assert (reader.delivered, other.delivered) == ([b"1"], [b"2", b"3"]) and bench.messages("a") == [b"3"]
    other.accept(b"3")
    bench.wait(1)
    assert at_rest(bench)


def test_purge_takes_reserved_messages_that_wait_for_a_consumer() -> None:
    """The consumer has taken its credit back before the reservation was decided."""
    bench, _ = filled(b"1", b"2")
    bench.hanging |= {"b", "c"}
    reader = plain(bench, "a", credit=2)
    reader.grant(0)
    bench.hanging.clear()
    bench.flow()
    assert reader.delivered == [] and reserved(bench) == 2
    assert purge(bench) == 0 and bench.messages("b") == []
    reader.grant(2)
    bench.wait(1)
    assert reader.delivered == [] and at_rest(bench)


def test_message_purged_before_its_reservation_is_offered_to_nobody() -> None:
    bench, _ = filled(b"1", b"2")
    bench.hanging |= {"a", "c"}
    [*_, last] = bench.sets("a").state(SET).messages.of(bench.queue)
    bench.at("a").node.ask(Purge(QUEUE, bench.queue, last))
    bench.collect("a")
    reader = plain(bench, "d")
    bench.hanging.discard("a")  # both are decided together
    bench.flow()
    assert reader.delivered == []
    bench.hanging.clear()
    bench.wait(1)
    assert at_rest(bench)


def test_purged_message_that_comes_back_to_the_next_leader_is_offered_to_nobody() -> None:
    bench, _ = filled(b"1")
    reader = lasting(bench, "d")
    assert purge(bench) == 0
    bench.stop("a")
    bench.wait(ELECTED_S)
    other = plain(bench, "e", "t")
    reader.close()
    bench.wait(1)
    assert other.delivered == [] and bench.messages(bench.leader) == []


def test_a_set_that_is_full_takes_messages_when_a_queue_is_purged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topic.queues.leader.ingress.FULL", 100)
    bench, pen = filled()
    pen.send(*(bytes([number]) * 40 for number in range(5)))
    assert bench.sets("a").state(SET).messages.size >= 100 and len(pen.outcomes) < 5
    assert purge(bench) == 3 and len(pen.outcomes) == 5


@pytest.mark.parametrize("kind", [plain, lasting])
@pytest.mark.parametrize("router", ["a", "d"])
def test_a_queue_that_is_deleted_has_no_egress_and_no_consumer(kind: Any, router: str) -> None:
    bench, pen = filled(b"1", b"2")
    reader = kind(bench, router, credit=1)
    delete(bench)
    leaders = bench.at("a").node._leaders
    assert leaders is not None and not leaders.led[SET].egresses
    assert is_told_of_the_end(reader) and [*bench.sets("a").state(SET)] == []
    bench.wait(1)
    assert bench.records() == {}
    bench.queue = bench.declare(QUEUE)
    pen.send(b"3")
    assert reader.delivered == [b"1"] and kind(bench, router, credit=5).delivered == [b"3"]


def test_decided_entries_of_a_deleted_queue_count_nothing() -> None:
    """The end of the queue is decided first, then that a message leaves it, which another router had, too."""
    bench, _ = filled(b"1")
    plain(bench, "d", "t", credit=1).answer(RELEASED, b"1")
    reader = lasting(bench, "a")
    bench.hanging |= {"b", "c"}
    delete(bench)
    disk = bench.at("b")
    count = len(disk.waiting)
    reader.accept(b"1")
    later = disk.waiting[count:]
    del disk.waiting[count:]
    assert disk.write() and later
    bench.flow()
    disk.waiting += later
    bench.hanging.clear()
    bench.flow()
    reader.answer_echo()
    assert bench.records() == {}


def test_consumers_of_a_queue_that_was_declared_again_go_on_with_what_they_have() -> None:
    """A router is missing, so the others remember that the egress of the former queue has ended."""
    bench, pen = filled(at="d")
    plain(bench, "d").close()
    bench.stop("e")
    delete(bench)
    bench.queue = bench.declare(QUEUE)
    reader = lasting(bench, "d", credit=2)
    pen.send(b"1")
    assert reader.delivered == [b"1"]
    bench.stop("a")
    bench.wait(ELECTED_S)
    other = lasting(bench, "c", "t")
    assert other.delivered == []
    reader.accept(b"1")
    assert bench.messages(bench.leader) == [] and reader.settled_messages == [b"1"]


@pytest.mark.parametrize("is_led", [True, False])
def test_a_queue_is_declared_with_its_first_consumer(is_led: bool) -> None:
    bench = QueueBench(*"abcd", declares=False)
    if not is_led:
        bench.stop("a")
    reader = plain(bench, "d")
    if not is_led:
        bench.wait(ELECTED_S)
    assert [queue.name for queue in bench.sets(bench.leader).state(SET)] == [QUEUE]
    publisher(bench, "d").send(b"1")
    assert reader.delivered == [b"1"]


def test_a_leader_that_is_busy_declares_later(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = QueueBench(*"abcd", declares=False)
    with monkeypatch.context() as busy:
        busy.setattr(SetReplica, "propose", lambda self, proposals: None)
        plain(bench, "d")
    bench.declare("queue/other")
    assert [queue.name for queue in bench.sets("b").state(SET)] == ["queue/other", QUEUE]


def test_the_attaches_of_leaders_are_in_order() -> None:
    """The audit orders the links of a set by their epochs, although the next leader echoes none."""
    bench, _ = filled(b"1", at="d")
    plain(bench, "d")
    for _ in range(2):
        leaders = bench.at(bench.leader).node._leaders
        assert leaders is not None
        led = leaders.led[SET]
        assert not led.ingress.subscriber.unordered
        assert [egress.stream.unordered for egress in led.egresses.values()] == [False]
        if bench.leader == "a":
            bench.stop("a")
            bench.wait(ELECTED_S)


# rules broken on purpose

BROKEN: list[Broken] = [
    (SetPublisher, "detach", "action.condition == STOLEN", "False",
     test_a_leader_takes_an_egress_back_from_a_former_life),
    (SetPublisher, "_come", "True, seen, clock", "True, NOWHERE, clock",
     test_consumers_of_a_queue_that_was_declared_again_go_on_with_what_they_have),
    (SetPublisher, "_come", "dict.fromkeys(map(self._tag, doubted), 0)", "{}",
     partial(test_a_consumer_goes_on_with_what_it_has_when_the_leader_changes, "d", lasting)),
    (Egress, "_wanted", "Reserve(self.queue, consumer, self._runs(records))", "Reserve(self.queue, consumer, [])",
     partial(test_a_consumer_goes_on_with_what_it_has_when_the_leader_changes, "d", lasting)),
    (Egress, "send_outcomes", "(self._rejected if is_rejected else self._over).extend(records)",
     "self.node.topic.settle(self.stream, records)",
     test_nothing_is_settled_before_a_majority_knows_that_it_is_over),
    (Egress, "_wanted", "self._is_due and (", "(", test_proposal_without_a_waiting_client_goes_with_the_next_entry),
    (SetPublisher, "propose_now", "self._is_due = True", "pass", test_proposal_without_a_waiting_client_is_made_soon),
    (Ingress, "_propose", "(self._new or self._is_due)", "self._is_due",
     test_proposal_without_a_waiting_client_goes_with_the_next_entry),
    (Ingress, "propose_now", "self._is_due = True", "pass", test_proposal_without_a_waiting_client_is_made_soon),
    (LedSet, "propose", "self.propose_now()", "pass", test_proposal_without_a_waiting_client_goes_with_the_next_entry),
    (LedSet, "wait", "self._node.now() + PATIENCE_S", "math.inf", test_proposal_without_a_waiting_client_is_made_soon),
    (SubscriberRoom, "fill", "size > 0 and len(found) < self.deliveries and ", "",
     test_a_queue_without_consumers_keeps_its_messages),
    (EgressKind, "offer_waiting", "choosing.propose", "choosing.assign",
     test_nothing_is_offered_before_a_majority_knows_to_whom),
    (LedSet, "_take_over_egresses", "if set_ != self._name:", "if True:",
     partial(test_the_leader_dies_before_it_has_taken_what_was_accepted, plain)),
    (LedSet, "_begin_reserved", "state.messages.reserved_queues", "()",
     test_a_message_comes_back_whose_consumer_no_router_knows),
    (LedSet, "_take_over_egresses", "entry.role is Role.PUBLISHER and state.get(name) is None", "False",
     test_the_leader_dies_as_a_queue_is_deleted),
    (SetLeaders, "follow", "if is_told_more", "if False",
     partial(test_a_leader_takes_over_the_egress_that_a_returning_router_tells_of, False)),
    (EgressKind, "seek", "choosing.ask_holders", "choosing.ask_all",
     test_only_what_a_consumer_has_waits_for_it),
    (LedSet, "__init__", "peers.remember(lasting)", "peers.remember([])",
     test_a_consumer_that_no_router_knows_is_waited_for),
    (Home, "answer_question", "self.balancing.offer_waiting(stream)", "pass",
     test_a_consumer_that_resumes_has_room_before_the_egress_has_answered_an_echo),
    (LedSet, "consumes", "known.id not in self.egresses", "False",
     test_a_consumer_that_comes_back_late_is_told_that_its_message_is_over),
    (LedSet, "follow", "self._take_more()", "pass",
     partial(with_patches, test_a_set_that_is_full_takes_messages_when_others_have_gone)),
    (LedSet, "_withdraw_gone", "self._take_more()", "pass",
     partial(with_patches, test_a_set_that_is_full_takes_messages_when_a_queue_is_deleted)),
    (LedSet, "consumes", "self._sets.propose(self._name, [Declare(queue)]) is not None", "False",
     partial(test_a_queue_is_declared_with_its_first_consumer, True)),
    (LedSet, "follow", "self.consumes(name)", "pass", partial(with_patches, test_a_leader_that_is_busy_declares_later)),
    (LedSet, "propose", "self._expect(index, proposal)", "pass",
     test_a_message_whose_consumer_waits_costs_one_round_of_the_log),
    (LedSet, "_begin", "if asked.queue == queue:", "if False:",
     test_an_egress_that_begins_expects_what_was_proposed_before),
    (Egress, "expect", "if next(iter(expected)) > self._last:", "if True:",
     test_an_egress_that_begins_has_found_what_was_decided_together),
    (Egress, "enqueued", "self._expected.pop(index, {})", "{}",
     test_a_message_that_the_queue_has_no_room_for_is_for_no_consumer),
    (LedSet, "_close_deleted", "closed=True", "closed=False",
     partial(test_a_queue_that_is_deleted_has_no_egress_and_no_consumer, plain, "d")),
    (LedSet, "_close_deleted", "self._end_consumers(name)", "pass",
     partial(test_a_queue_that_is_deleted_has_no_egress_and_no_consumer, plain, "d")),
    (LedSet, "_withdraw_gone", "egress.withdraw_gone()", "pass",
     partial(test_purge_takes_messages_that_wait_for_a_reservation, True)),
    (LedSet, "_withdraw_gone", "self._take_more()", "pass",
     partial(with_patches, test_a_set_that_is_full_takes_messages_when_a_queue_is_purged)),
    (Egress, "withdraw_gone", "in self._unassigned() if", "in () if",
     test_purge_takes_reserved_messages_that_wait_for_a_consumer),
    (Egress, "_follow", "if not self._has(position)", "if False",
     test_message_purged_before_its_reservation_is_offered_to_nobody),
    (SetPublisher, "_withdraw", "waiting[:] = [record for record in waiting if record in self.open]", "pass",
     partial(test_purge_takes_messages_that_wait_for_a_reservation, False)),
    (EgressKind, "decide", "_is_over(home.balancing, record)", "record.taken",
     partial(test_the_log_has_what_a_consumer_gives_back, "d", RELEASED, False, 0)),
    (EgressKind, "decide_early", "choosing.choose_again(stream, left)", "pass",
     partial(test_a_consumer_that_has_no_room_for_a_message_gets_no_later_one_before, True)),
    (EgressKind, "subscriber_ended", "record.count(GONE)", "pass",
     partial(test_consumer_that_ends_with_a_message_has_failed, "d")),
    (EgressKind, "counts_again", "True", "False",
     partial(test_the_leader_dies_before_it_has_heard_that_a_consumer_failed, "d", lasting)),
    (Generations, "give_up_nowhere", "is_closed or not found.stream.kind.is_of_set", "True",
     test_accepted_message_waits_for_a_leader_without_limit),
    (Generations, "give_up_nowhere", "is_closed or ", "",
     test_deliveries_of_a_deleted_queue_end_later),
    (EgressKind, "place", "record.tag", "record.n", test_returned_message_goes_before_messages_that_wait),
    (EgressKind, "given_back", "failed=failed", "failed=False",
     partial(test_the_log_has_what_a_consumer_gives_back, "d", MODIFIED, True, 1)),
    (attaches, "resume", "state or int(known)", "int(known)",
     partial(test_returned_message_is_resumed_with_its_own_outcome, "d", MODIFIED)),
    (BalancedKind, "refused", "record.sum_up(None)", "pass", test_consumer_lost_with_its_router_has_failed),
    (Record, "hold", "former[3]", "0",
     partial(test_the_leader_dies_before_it_has_heard_that_a_consumer_failed, "d", lasting)),
    (Balancing, "reserved", "if not self.is_there(name):", "if False:",
     test_a_consumer_that_has_gone_as_the_queue_agrees_to_it_has_nothing_reserved),
    (Balancing, "reserved", "sorted(stream.agreed(records, name), key=stream.kind.place)",
     "stream.agreed(records, name)",
     partial(test_message_refused_for_lack_of_room_comes_before_later_reserved_ones, 3)),
    (HomeStream, "before_waiting", "islice(unassigned, 1)", "()",
     partial(test_message_refused_for_lack_of_room_comes_before_later_reserved_ones, 1)),
    (HomeStream, "before_waiting", "self.reserving.get(subscriber, ())", "()",
     partial(test_message_refused_for_lack_of_room_comes_before_later_reserved_ones, 2)),
    (Egress, "_take", "is_refused and not left", "False",
     partial(test_the_state_keeps_most_of_what_all_consumers_refuse, SubscriberRoom(3, 1000))),
    (Egress, "_take", "left -= ", "_ = ",
     partial(test_the_state_keeps_most_of_what_all_consumers_refuse, SubscriberRoom(1000, 3))),
    (Egress, "_take", " - demand.refused", "",
     partial(test_the_state_keeps_what_a_consumer_refuses_one_after_the_other, SubscriberRoom(3, 1000))),
    (Egress, "_bring_back", "if not demand.able <= names", "if False",
     partial(test_the_state_keeps_most_of_what_all_consumers_refuse, SubscriberRoom(3, 1000))),
    (Egress, "_bring_back", "self._refusers[position] = names", "pass",
     partial(test_the_state_keeps_most_of_what_all_consumers_refuse, SubscriberRoom(3, 1000))),
    (Egress, "forget_refusals", "if subscriber in names", "if False",
     test_refused_message_in_the_state_is_offered_again_when_a_refusal_ends),
    (Balancing, "demand", "if not names.issubset(record.refused_by)", "",
     partial(test_message_that_one_consumer_refuses_for_itself_goes_to_another, "d")),
    (Balancing, "gone", "stream.may_be_offered(name)", "pass", test_a_refusal_ends_with_its_link_while_it_waits),
    (Changes, "_subscriber_changed", "entry.aware != old.aware", "True",
     test_a_refusal_stays_as_its_consumer_resumes),
    (Changes, "_subscriber_changed", "entry.aware != old.aware", "False",
     partial(test_a_refusal_ends_as_its_consumer_begins_afresh, 1, False)),
    (HomeStream, "leave_out_refusers", "self.refusers.pop(record.tag, ())", "()",
     partial(test_message_that_one_consumer_refuses_for_itself_goes_to_another, "d")),
    (Egress, "send_outcomes", "self._back += records", "self.node.topic.settle(self.stream, records)",
     test_nothing_is_published_anew_before_a_majority_knows_that_it_came_back),
    (Egress, "_note_refusers", "self._refusers[position] = ", "_ = ",
     partial(test_message_that_one_consumer_refuses_for_itself_goes_to_another, "d")),
    (Egress, "forget_refusals", "(at, names - {subscriber})", "(at, names)", test_a_refusal_ends_with_its_link),
    (Home, "outcome_in_full", "record.annotate(annotations)", "pass",
     partial(test_the_next_consumer_reads_what_consumers_have_added, "d")),
    (Egress, "_annotations", "if len(merged) <= MOST_ANNOTATIONS else b\"\"", "",
     partial(test_the_next_consumer_reads_what_consumers_have_added, "a")),
    (Egress, "_with_annotations", "size >= publisher.AHEAD", "False",
     test_an_entry_does_not_grow_with_what_consumers_add_to_many_messages),
    (Egress, "_with_annotations", " and left >= len(annotations)", "",
     test_an_entry_does_not_grow_with_what_consumers_add_to_many_messages),
    (QueuedMessages, "_came_back", "before.annotations, 0", "b'', 0",
     partial(test_the_next_consumer_reads_what_consumers_have_added, "a")),
    (SetPublisher, "_tag", "self._messages.returns(position).times", "0",
     partial(test_consumer_that_gives_a_message_back_keeps_it_from_nobody, "d", True)),
    (MessageView, "of", "returns.failed", "returns.times",
     partial(test_the_log_has_what_a_consumer_gives_back, "a", RELEASED, False, 0)),
    (QueuedMessages, "_came_back", "before.times + 1", "before.times",
     partial(test_the_log_has_what_a_consumer_gives_back, "a", RELEASED, False, 0)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
