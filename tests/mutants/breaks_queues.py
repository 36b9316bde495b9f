"""Breakages of queues (protocol 14)."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from tests.failures import bare, died
from tests.mutants.mutant import KILLS, MOVING, PARTITIONS, RESUMING, Method, mutant
from topic.actions import AnswerDeliveries
from topic.delivery.kinds import UNASSIGNED
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import HomeStream
from topic.directory.entry import LinkEntry
from topic.home.balancing import NO_AUDIENCE, Balancing
from topic.queues.leader.egress import Egress
from topic.queues.leader.ingress import Ingress
from topic.queues.leader.leaders import LedSet
from topic.queues.leader.letters import Letters
from topic.queues.logged.message_log import MessageEnd
from topic.queues.messages import QueuedMessages
from topic.queues.operations import QueueId, QueueSettings
from topic.queues.outgoing.outbox import Letter, Why
from topic.queues.proposals import Enqueue, Enqueued
from topic.queues.state import SetState
from topic.raft.life import SetLife

QUEUED: dict[str, Any] = {
    "sets": 1,
    "queues": 1,
    "disk": 0.05,
    "never_started": False,
    "subscribers": 3,
    "messages": 25,
}
BUSY = QUEUED | {"think": 0.5, "window": 10}
MORTAL: dict[str, Any] = {"ttl": 0.5, "disk": 0.2}
FUSSY = BUSY | {"refusing": 0.7, "publishers": 3}
DYING = FUSSY | {"queues": 2, "dead_letters": 1.0}
BOUND = BUSY | {"bound": 1.0, "publishers": 3}
SINGLE = BUSY | {"single": 1.0, "publishers": 3}
TALKATIVE = FUSSY | {"annotated": 1.0}


@mutant(Egress, "_runs", by="1", **MOVING | BUSY)
def offered_without_a_reservation(_: Method) -> Method:
    """14.5: a message is offered to a consumer when its `Reserve` for that consumer is decided."""

    def broken(egress: Egress, records: Iterable[Any]) -> Sequence[tuple[int, int]]:
        return []

    return broken


@mutant(Egress, "send_outcomes", by="1", **KILLS | BUSY)
def settled_before_the_dequeue(_: Method) -> Method:
    """14.5: a consumer is settled when the `Dequeue` of its message is decided."""

    def broken(egress: Egress, action: AnswerDeliveries) -> None:
        egress._over += action.records
        egress.node.topic.settle(egress.stream, action.records)
        egress.go_on()

    return broken


@mutant(Balancing, "ask_holders", by="1", **KILLS | BUSY)
def next_leader_does_not_ask_holders(_: Method) -> Method:
    """14.7: the holder of a reserved message is asked before another consumer gets it."""

    def broken(balancing: Balancing, stream: Any, records: list[Any]) -> None:
        balancing._place(stream, records, NO_AUDIENCE)
        for record in records:
            stream.take_holder(record)
        stream.wait_for_room(records)
        balancing.offer_waiting_to(stream.address)

    return broken


@mutant(Ingress, "_propose", (Ingress, "decided"), by="1", **KILLS | BUSY)
def answered_before_it_is_decided(propose: Method, decided: Method) -> tuple[Method, ...]:
    """14.3: a delivery is answered when a majority has its `Enqueue`."""
    return answering_early(propose, decided, lambda ingress: not ingress._binding)


def answering_early(propose: Method, decided: Method, is_broken: Callable[[Ingress], bool]) -> tuple[Method, ...]:
    """Mutants in which some ingresses answer when they propose."""

    def broken(ingress: Ingress) -> bool:
        before = {*ingress._asked}
        is_free: bool = propose(ingress)
        for index, asked in ingress._asked.items() if is_broken(ingress) else ():
            if index not in before and asked.records and not asked.records[0].presettled:
                ingress.node.topic.outcomes(ingress.subscriber, asked.records, DeliveryOutcome.ACCEPTED)
        return is_free

    def also_broken(ingress: Ingress, index: int, answer: Enqueued | None) -> None:
        decided(ingress, index, None if is_broken(ingress) else answer)

    return broken, also_broken


@mutant(Ingress, "forget", by="1", **MOVING | BUSY)
def settlements_not_proposed(_: Method) -> Method:
    """14.3: when a publisher has settled a delivery, the leader proposes `Settled`."""

    def broken(ingress: Ingress, keys: Sequence[bytes]) -> None: ...

    return broken


@mutant(QueuedMessages, "enqueue", by="1", **KILLS | BUSY)
def enqueued_again(original: Method) -> Method:
    """14.3: a repeated delivery gets its first answer."""

    def broken(messages: QueuedMessages, queue: Any, settings: Any, index: int, asked: Enqueue) -> Enqueued:
        messages._answers = {key: one for key, one in messages._answers.items() if key not in asked.keys}
        return original(messages, queue, settings, index, asked)  # type: ignore[no-any-return]

    return broken


@mutant(LedSet, "_next_clock", by="1", **PARTITIONS | BUSY)
def attaches_by_number_alone(_: Method) -> Method:
    """14.2: the attaches of a later leader have higher clocks."""

    def broken(led: LedSet) -> int:
        led._attaches += 1
        return led._attaches

    return broken


@mutant(Egress, "_publish", by="1", **MOVING | BUSY)
def last_first(original: Method) -> Method:
    """14.4: messages come in the order in which the queue got them."""

    def broken(egress: Egress) -> None:
        egress._free.sort(reverse=True)
        original(egress)

    return broken


@mutant(QueuedMessages, "purge", by="1", **RESUMING | BUSY | {"purges": 8})
def purged_from_consumers(_: Method) -> Method:
    """14.8: a `Purge` takes no message that a consumer has."""

    def broken(messages: QueuedMessages, queue: QueueId, position: int) -> int:
        messages.purges += 1
        return messages._take_out(queue, [at for at in messages.of(queue) if at <= position], MessageEnd.PURGED)

    return broken


@mutant(QueuedMessages, "is_purged", (QueuedMessages, "_not_purged"), by="1", **RESUMING | FUSSY | {"purges": 8})
def purged_messages_come_back(_: Method, __: Method) -> tuple[Method, ...]:
    """14.8: a message that was purged leaves its queue when it comes back."""

    def broken(messages: QueuedMessages, queue: QueueId, position: int) -> bool:
        return False

    def also_broken(messages: QueuedMessages, queue: QueueId, back: list[int]) -> list[int]:
        return back

    return broken, also_broken


@mutant(QueuedMessages, "expire", by="1", **RESUMING | BUSY | MORTAL)
def expired_at_consumers(_: Method) -> Method:
    """14.9: an `Expire` takes no message that a consumer has."""

    def broken(messages: QueuedMessages, queue: QueueId, runs: Sequence[Any], settings: QueueSettings) -> None:
        messages._take_out(queue, messages._there(queue, runs), MessageEnd.EXPIRED)

    return broken


@mutant(Egress, "_sort_out_expired", by="1", **MOVING | BUSY | MORTAL)
def offered_after_its_time(_: Method) -> Method:
    """14.9: no consumer is offered a message whose time is over."""

    def broken(egress: Egress) -> None: ...

    return broken


@mutant(Egress, "_end_of", by="1", **MOVING | BUSY | MORTAL)
def offered_after_its_time_before_it_is_decided(_: Method) -> Method:
    """14.9: no consumer is offered such a message even if its `Enqueue` is not decided yet."""

    def broken(egress: Egress, position: int) -> float:
        return egress._messages.expiring.get(position, (None, math.inf))[1]

    return broken


@mutant(LedSet, "timed", by="1", **RESUMING | BUSY | MORTAL)
def a_queue_forgets_times(_: Method) -> Method:
    """14.9: an `Enqueue` has the time at which each message expires."""

    def broken(led: LedSet, asked: Enqueue) -> Enqueue:
        return asked

    return broken


@mutant(QueueSettings, "has_room", by="1", **RESUMING | BUSY | {"settings": 8})
def full_queues_take_more(_: Method) -> Method:
    """14.3: an `Enqueue` refuses each message for which the queue has no room."""

    def broken(settings: QueueSettings, messages: int, size: int) -> bool:
        return settings.limit_messages is None or messages <= settings.limit_messages + 1

    return broken


@mutant(Egress, "_note_refusers", by="1", **RESUMING | FUSSY)
def consumer_gets_refused_message_again(_: Method) -> Method:
    """14.6: a consumer that has refused a message for itself does not get it again."""

    def broken(egress: Egress, records: Iterable[Any]) -> None: ...

    return broken


@mutant(Ingress, "_propose", (Ingress, "decided"), by="1", **KILLS | BOUND)
def a_binding_answers_before_it_is_decided(propose: Method, decided: Method) -> tuple[Method, ...]:
    """14.10: a message is not accepted before each bound queue has it."""
    return answering_early(propose, decided, lambda ingress: bool(ingress._binding))


@mutant(SetState, "_enqueue_bound", by="1", **RESUMING | BOUND)
def two_bindings_give_two_copies(_: Method) -> Method:
    """14.10: a message that matches two bindings of a queue is in the queue once."""

    def broken(state: SetState, asked: Enqueue, entry: QueueId) -> Enqueued:
        queue = state.get(asked.queue)
        if queue is None or state.bindings.get(asked.binding) is None:
            return Enqueued(frozenset(), None, ())
        return state.messages.enqueue(queue.id, queue.settings, entry.index, asked)

    return broken


@mutant(LedSet, "_end_unbound", by="45", **RESUMING | BOUND | {"settings": 8})
def unbound_links_stay(_: Method) -> Method:
    """14.10: the leader ends the link of a binding that is gone."""

    def broken(led: LedSet) -> None: ...

    return broken


@mutant(QueuedMessages, "reject", by="1", **RESUMING | DYING)
def rejected_for_good(_: Method) -> Method:
    """14.11: a message that consumers reject is a dead letter."""

    def broken(
        messages: QueuedMessages, queue: QueueId, runs: Any, settings: QueueSettings, annotations: Mapping[int, bytes]
    ) -> None:
        messages.dequeue(queue, runs)

    return broken


@mutant(QueueSettings, "most_failed", by="1", **RESUMING | DYING)
def failed_once_more(original: Any) -> Any:
    """14.11: a message that has failed more often than its queue allows is a dead letter."""
    return property(lambda settings: original.fget(settings) + 1)


@mutant(Letters, "_publish", by="1", **RESUMING | DYING)
def posted_before_it_is_accepted(original: Method) -> Method:
    """14.11: a message leaves the outbox when its address has accepted it."""

    def broken(letters: Letters) -> None:
        before = {*letters.open}
        original(letters)
        if fresh := [record for record in letters.open if record not in before]:
            letters._taken += fresh
            letters._log.wait(letters)

    return broken


@mutant(Letters, "attach_as_leader", by="1", **KILLS | DYING)
def next_leader_publishes_under_other_keys(original: Method) -> Method:
    """14.11: all leaders give a dead letter the same key."""

    def broken(letters: Letters, life: SetLife, clock: int, now: float, *, doubts: bool) -> None:
        original(letters, attrs.evolve(life, clock=life.clock + clock), clock, now, doubts=doubts)

    return broken


@mutant(Balancing, "_served", by="1", **RESUMING | SINGLE)
def all_consumers_are_active(_: Method) -> Method:
    """14.14: home chooses one consumer for all deliveries of a queue with a single active one."""

    def broken(balancing: Balancing, stream: HomeStream) -> Collection[LinkEntry]:
        if stream.serves_one and stream.served is None:
            stream.serve(UNASSIGNED)
        return balancing.directory.subscribers(stream.address)

    return broken


@mutant(HomeStream, "having", by="1", **MOVING | SINGLE)
def next_consumer_does_not_wait(_: Method) -> Method:
    """14.14: the next consumer is chosen when the egress has settled all messages that the former one had."""

    def broken(stream: HomeStream) -> set[bytes]:
        return set()

    return broken


@mutant(Balancing, "_served", (Balancing, "_serve_next"), by="1", **MOVING | SINGLE | {"quitting": 0.5})
def no_consumer_is_next(original: Method, _: Method) -> tuple[Method, ...]:
    """14.14: home chooses another consumer when the active one has ended."""

    def broken(balancing: Balancing, stream: HomeStream) -> Collection[LinkEntry]:
        if stream.served is None:
            return original(balancing, stream)  # type: ignore[no-any-return]
        return [entry for entry in balancing.directory.subscribers(stream.address) if entry.name == stream.served]

    def also_broken(balancing: Balancing, stream: HomeStream, gone: bytes) -> None: ...

    return broken, also_broken


@mutant(Egress, "_annotations", by="1", **RESUMING | TALKATIVE)
def annotations_are_not_proposed(_: Method) -> Method:
    """14.6: the leader writes the consumer's annotations into the `Free`."""

    def broken(egress: Egress, position: int, added: bytes) -> bytes:
        return b""

    return broken


@mutant(Egress, "_annotations", by="1", **RESUMING | TALKATIVE)
def the_last_annotations_count(_: Method) -> Method:
    """14.6: the leader merges the consumer's annotations with the earlier ones."""

    def broken(egress: Egress, position: int, added: bytes) -> bytes:
        return added

    return broken


@mutant(QueuedMessages, "_came_back", by="1", **RESUMING | TALKATIVE)
def a_message_forgets_annotations(original: Method) -> Method:
    """14.6: the state keeps the annotations of consumers for the next one."""

    def broken(messages: QueuedMessages, position: int, *, failed: bool, annotations: bytes = b"") -> None:
        original(messages, position, failed=failed)

    return broken


@mutant(Letters, "_text", by="1", **RESUMING | DYING | {"annotated": 1.0})
def dead_letters_lose_annotations(original: Method) -> Method:
    """14.6: a dead letter has the annotations of consumers."""

    def broken(letters: Letters, letter: Letter, message: bytes, added: bytes) -> bytes | None:
        return original(letters, letter, bare(message), added)  # type: ignore[no-any-return]

    return broken


@mutant(QueuedMessages, "retry", by="1", **RESUMING | DYING | {"retries": 20})
def retried_from_consumers(_: Method) -> Method:
    """14.12: a `Retry` takes no message that a consumer has."""

    def broken(messages: QueuedMessages, queue: QueueId, runs: Sequence[Any], address: str) -> int:
        return messages._send(queue, messages._there(queue, runs), address, Why.RETRIED)

    return broken


@mutant(Letters, "_text", by="1", **RESUMING | DYING | {"retries": 20})
def retried_messages_die_again(original: Method) -> Method:
    """14.12: a message that is retried goes back as it is."""

    def broken(letters: Letters, letter: Letter, message: bytes, added: bytes) -> bytes | None:
        is_retried = letter.sending.why is Why.RETRIED
        text: bytes | None = died(message) if is_retried else original(letters, letter, message, added)
        return text

    return broken
