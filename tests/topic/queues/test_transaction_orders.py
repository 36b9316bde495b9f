"""A transaction of two enqueues and two dequeues, in all orders of entries that its set may decide (protocol 14.20).

A leader change, a repeated commit and a lost link reach the state of the set only as entries: the transaction once
more, a message that is processed or goes to another consumer, and a limit that makes a queue full. A replica may begin
anew from the rows of its state between any two entries. The search plays all orders, with and without that.
"""

from itertools import permutations

import pytest

from tests.topic.queues.test_messages import ONE, OTHER, at, filled, propose
from tests.topic.queues.test_state import LIFE
from tests.topic.raft.mutants import Broken, must_notice
from topic.queues.operations import Configure, Done, QueueSettings, encode
from topic.queues.proposals import Dequeue, Enqueue, Proposal, Reserve, Retire, Transact, Transacted, encode_proposal
from topic.queues.state import SetState, entry

FIRST, AGAIN, ELSEWHERE, PROCESSED, FULL, NEXT = range(6)
"""The entries: the transaction, twice; a message of it goes to another consumer, another one is processed; the queue is
full; the next transaction of the router, which waits for no earlier answer any more."""


def whole_and_once(is_anew: bool = False) -> None:
    carried_out = 0
    for order in permutations(range(6)):
        carried_out += _play(order, is_anew)
    assert 0 < carried_out < 720


@pytest.mark.parametrize("is_anew", [False, True])
def test_a_transaction_takes_effect_as_a_whole_and_once_in_each_order_of_entries(is_anew: bool) -> None:
    whole_and_once(is_anew)


def _play(order: tuple[int, ...], is_anew: bool) -> bool:
    """Returns whether the transaction was carried out."""
    state, queue = filled(1, 2, 3)
    propose(state, 3, Reserve(queue, ONE, [(at(0), at(2))]))
    [known] = state
    posts, runs = [Enqueue(known.name, [], [], [b"4", b"5"])], [(at(0), at(1))]
    asked = Transact("d", 1, 0, 0, "", posts, [Retire(queue, ONE.name, False, runs)])
    later = Transact("d", 1, 1, 1, "", [Enqueue(known.name, [], [], [b"6"])], [])
    full = Configure(known.name, queue, known.version, QueueSettings(limit_messages=2))
    others: dict[int, Proposal] = {
        ELSEWHERE: Reserve(queue, OTHER, [(at(0), at(0))]),
        PROCESSED: Dequeue(queue, [(at(1), at(1))]),
        NEXT: later,
    }
    answers, done = list[bool](), 0
    for index, one in enumerate(order, 4):
        before = [*state.messages.of(queue)]
        if one == FULL:
            state.apply(index, entry(LIFE, encode(full)))
        elif one in (FIRST, AGAIN):
            answer = state.apply(index, entry(LIFE, encode_proposal(asked)))
            assert isinstance(answer, Transacted)
            now = [*state.messages.of(queue)]
            left, new = {*before} - {*now}, {*now} - {*before}
            assert (left, len(new)) in (({at(0), at(1)}, 2), (set(), 0)), f"half of it, in order {order}"
            done += bool(new)
            answers.append(isinstance(answer.answer, Done))
        else:
            state.apply(index, entry(LIFE, encode_proposal(others[one])))
        state.check()
        if is_anew:
            state = SetState(state.rows)
    assert done == (True in answers), f"carried out {done} times, and {answers} is answered, in order {order}"
    late = order.index(NEXT) < max(order.index(FIRST), order.index(AGAIN))
    assert late or answers[0] == answers[1], f"the second answer is another one, in order {order}"
    assert done == 1 or {at(2)} <= {*state.messages.of(queue)}
    return bool(done)


BROKEN: list[Broken] = [
    # half a commit
    (SetState, "_commit", "in asked.retires", "in ()", whole_and_once),
    (SetState, "_commit", "in asked.enqueues", "in ()", whole_and_once),
    (SetState, "_why_not", "not has or", "", whole_and_once),
    # a discharge that comes twice
    (SetState, "_transact", "self._transactions.answer(asked), False", "None, False", whole_and_once),
]


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
