"""What a replica tells the delivery log of the messages of its queues."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.topic.queues.test_messages import ONE, asked, declare, delete, enqueue, key, propose
from tests.topic.raft.mutants import Broken, must_notice
from topic.identity import KeyMaker, egress_of, link_name
from topic.journal import Event
from topic.queues.logged.message_log import ReplicaLog, generation_of
from topic.queues.messages import QueuedMessages
from topic.queues.operations import Done, Purge, QueueId, encode
from topic.queues.positions import delivery_tag, position_of
from topic.queues.proposals import Dequeue, Enqueue, Expire, Free, Reserve
from topic.queues.state import SetState, entry
from topic.raft.life import SetLife

QUEUE = "queue/1"
EGRESS = egress_of("q0", QUEUE)


class Told:
    """A state, and what it tells of one queue."""

    def __init__(self) -> None:
        self.log = ReplicaLog("q0", lambda queue: self.state.name_of(queue))
        self.state = SetState((), self.log)
        self.queue = declare(self.state, 1, QUEUE, limit_messages=3)

    def take(self) -> list[tuple[Event, list[bytes], int, list[int] | None, str | None]]:
        """Event, keys, n, ns and detail of each entry since the last call."""
        found = []
        for logged in self.log.out:
            columns: dict[str, Any] = {**logged.columns}
            assert columns.pop("address") == EGRESS.address
            found.append((logged.event, *(columns[name] for name in ("keys", "n", "ns", "detail"))))
        self.log.out.clear()
        return found

    def delivery(self, position: int, times: int = 0) -> bytes:
        """The key of a delivery of the egress."""
        return KeyMaker(link_name(EGRESS), generation_of(self.queue)).key(delivery_tag(position, times))


def test_what_is_enqueued_is_told_by_the_keys_of_the_deliveries_that_brought_it() -> None:
    told = Told()
    enqueue(told.state, 2, QUEUE, 1, 2)
    assert told.take() == [(Event.ENQUEUED, [key(1), key(2)], position_of(2, 0), None, None)]
    enqueue(told.state, 3, QUEUE, 1, 3, 4)  # the queue has the first, and no room for the last
    assert told.take() == [(Event.ENQUEUED, [key(3)], position_of(3, 1), None, None)]
    enqueue(told.state, 4, QUEUE, 2)
    assert told.take() == []


def test_places_with_a_gap_are_listed() -> None:
    told = Told()
    enqueue(told.state, 2, QUEUE, 1)
    enqueue(told.state, 3, QUEUE, 2, 1, 3)
    assert told.take()[-1] == (Event.ENQUEUED, [key(2), key(3)], -1, [position_of(3, 0), position_of(3, 2)], None)


def test_settled_messages_are_told_by_the_first_deliveries_to_consumers() -> None:
    told = Told()
    propose(told.state, 2, Enqueue(QUEUE, [], [], [b"x"]))
    assert told.take() == [(Event.ENQUEUED, [told.delivery(position_of(2, 0))], position_of(2, 0), None, None)]


def test_what_comes_back_and_leaves_is_told_by_its_delivery() -> None:
    told = Told()
    enqueue(told.state, 2, QUEUE, 1)
    told.take()
    at = position_of(2, 0)
    propose(told.state, 3, Reserve(told.queue, ONE, [(at, at)]))
    propose(told.state, 4, Free(told.queue, [(at, at)], failed=True))
    propose(told.state, 5, Free(told.queue, [(at, at)], failed=True))  # it is free already
    propose(told.state, 6, Dequeue(told.queue, [(at, at)]))
    assert told.take() == [
        (Event.RETURNED, [told.delivery(at)], at, None, None),
        (Event.LEFT, [told.delivery(at, 1)], at, None, "dequeued"),
    ]


def purge(state: SetState, index: int, queue: QueueId) -> None:
    assert isinstance(
        state.apply(index, entry(SetLife(1, "a"), encode(Purge(QUEUE, queue, position_of(index, 0))))), Done
    )


@pytest.mark.parametrize(
    ("why", "take_out"),
    [
        ("expired", lambda told: propose(told.state, 9, Expire(told.queue, [(position_of(2, 0), position_of(2, 0))]))),
        ("purged", lambda told: purge(told.state, 9, told.queue)),
        ("deleted", lambda told: delete(told.state, 9, QUEUE, told.queue)),
    ],
)
def test_a_message_that_nobody_gets_leaves_for_a_reason(why: str, take_out: Callable[[Told], None]) -> None:
    told = Told()
    enqueue(told.state, 2, QUEUE, 1)
    told.take()
    take_out(told)
    assert told.take() == [(Event.LEFT, [told.delivery(position_of(2, 0))], position_of(2, 0), None, why)]


def test_a_state_knows_how_many_messages_it_has_and_where() -> None:
    told = Told()
    propose(told.state, 2, asked(QUEUE, 1, 2, 3))
    propose(told.state, 3, Dequeue(told.queue, [(position_of(2, 1), position_of(2, 1))]))
    restored = SetState([*told.state.rows])
    for state in (told.state, restored):
        assert (state.messages.count, state.messages.positions_sum) == (2, position_of(2, 0) + position_of(2, 2))


# rules broken on purpose

BROKEN: list[Broken] = [
    (QueuedMessages, "enqueue", "brought += [key] * is_taken", "brought += [key]",
     test_what_is_enqueued_is_told_by_the_keys_of_the_deliveries_that_brought_it),
    (QueuedMessages, "free", "self._log.returned(queue, self._tags(positions), positions)", "pass",
     test_what_comes_back_and_leaves_is_told_by_its_delivery),
    (QueuedMessages, "_take_out", "self._log.left(queue, self._tags(positions), positions, why)", "pass",
     test_what_comes_back_and_leaves_is_told_by_its_delivery),
    (QueuedMessages, "_tags", "self.returns(position).times", "0",
     test_what_comes_back_and_leaves_is_told_by_its_delivery),
    (QueuedMessages, "_out_of_queue", "self.positions_sum -= position", "pass",
     test_a_state_knows_how_many_messages_it_has_and_where),
    (ReplicaLog, "_tell", "is_run = positions[-1] - positions[0] == len(positions) - 1", "is_run = True",
     test_places_with_a_gap_are_listed),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
