"""Breakages of queues (protocol 14)."""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.mutants.mutant import KILLS, MOVING, PARTITIONS, Method, mutant
from topic.actions import AnswerDeliveries
from topic.delivery.outcomes import DeliveryOutcome
from topic.home.balancing import NO_AUDIENCE, Balancing
from topic.queues.leader.egress import Egress
from topic.queues.leader.ingress import Ingress
from topic.queues.leader.leaders import LedSet
from topic.queues.messages import QueuedMessages
from topic.queues.proposals import Enqueue, Enqueued

QUEUED: dict[str, Any] = {
    "sets": 1,
    "queues": 1,
    "disk": 0.05,
    "never_started": False,
    "subscribers": 3,
    "messages": 25,
}
BUSY = QUEUED | {"think": 0.5, "window": 10}


@mutant(Egress, "_runs", by="1", **MOVING | BUSY)
def offered_without_a_reservation(_: Method) -> Method:
    """14.5: a message is offered to a consumer when its `Reserve` for that consumer is decided."""

    def broken(egress: Egress, records: Iterable[Any]) -> Sequence[tuple[int, int]]:
        return []

    return broken


@mutant(Egress, "tell", by="1", **KILLS | BUSY)
def settled_before_the_dequeue(_: Method) -> Method:
    """14.5: a consumer is settled when the `Dequeue` of its message is decided."""

    def broken(egress: Egress, action: AnswerDeliveries) -> None:
        egress._over += action.records
        egress.node.topic.settle(egress.stream, action.records)
        egress.go_on()

    return broken


@mutant(Balancing, "ask_holders", by="1", **KILLS | BUSY)
def next_leader_does_not_ask_holders(_: Method) -> Method:
    """14.7: who has a reserved message is asked before another one is offered it."""

    def broken(balancing: Balancing, stream: Any, records: list[Any]) -> None:
        balancing._place(stream, records, NO_AUDIENCE)
        for record in records:
            stream.take_holder(record)
        stream.wait_for_room(records)
        balancing.go_on_at(stream.address)

    return broken


@mutant(Ingress, "_propose", (Ingress, "decided"), by="1", **KILLS | BUSY)
def answered_before_it_is_decided(propose: Method, decided: Method) -> tuple[Method, ...]:
    """14.3: a delivery is answered when a majority has its `Enqueue`."""

    def broken(ingress: Ingress) -> None:
        before = {*ingress._asked}
        propose(ingress)
        for index, asked in ingress._asked.items():
            if index not in before and asked.records and not asked.records[0].presettled:
                ingress.node.topic.outcomes(ingress.subscriber, asked.records, DeliveryOutcome.ACCEPTED)

    def also_broken(ingress: Ingress, index: int, answer: Enqueued | None) -> None:
        decided(ingress, index, None)

    return broken, also_broken


@mutant(Ingress, "forget", by="1", **MOVING | BUSY)
def settlements_not_proposed(_: Method) -> Method:
    """14.3: when a publisher has settled a delivery, the leader proposes `Settled`."""

    def broken(ingress: Ingress, keys: Sequence[bytes]) -> None: ...

    return broken


@mutant(QueuedMessages, "enqueue", by="1", **KILLS | BUSY)
def enqueued_again(original: Method) -> Method:
    """14.3: a delivery that comes again gets its first answer."""

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
