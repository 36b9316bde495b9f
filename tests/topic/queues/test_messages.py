"""Messages in queues: each is enqueued once, in the order of the log, whatever becomes of its queue."""

from collections.abc import Callable
from typing import Any

import attrs
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topic.queues.test_state import LIFE
from tests.topic.raft.mutants import Mutant
from topic.directory.entry import Lifetime, LinkEntry, Role, Status
from topic.identity import KEY_LENGTH, Epoch, LinkIdentity, link_name
from topic.queues.bodies.message_rows import MESSAGE, body_digest, body_key
from topic.queues.messages import KEY, PURGED, RETURNS, Passed, QueuedMessages, Returns
from topic.queues.operations import Declare, Delete, Done, Purge, QueueId, QueueSettings, Refused, Retry, encode
from topic.queues.positions import MOST_PLACES, position_of, runs_of
from topic.queues.proposals import (
    DEQUEUE,
    ENQUEUE,
    EXPIRE,
    FREE,
    RESERVE,
    SETTLED,
    UNRESERVE,
    Dequeue,
    Enqueue,
    Enqueued,
    Expire,
    Free,
    Given,
    Posted,
    Proposal,
    Reject,
    Reserve,
    Settled,
    Transacted,
    Unreserve,
    encode_proposal,
    read_proposal,
)
from topic.queues.reservations import CONSUMER, RESERVED
from topic.queues.state import SetState, entry
from topic.raft.life import SetLife

ALL = frozenset[int]()
ATTACH, LATER = Epoch(1, "a", 1), Epoch(2, "b", 1)
RUN = [[1, "a", 1, 0, 1]]


def consumer(name: str, clock: int = 1) -> LinkEntry:
    identity = LinkIdentity(name, "link", "_sets/q0/out/queue/1")
    return LinkEntry(Role.SUBSCRIBER, link_name(identity), identity, Epoch(clock, "a", 1), lifetime=Lifetime(60))


ONE, OTHER = consumer("one"), consumer("other")


def key(number: int) -> bytes:
    return b"%032d" % number


def propose(state: SetState, index: int, proposal: Proposal) -> Enqueued | None:
    answer = state.apply(index, entry(LIFE, encode_proposal(proposal)))
    state.check()
    assert not isinstance(answer, Done | Refused | Transacted)
    return answer


def enqueue(state: SetState, index: int, queue: str, *numbers: int) -> frozenset[int]:
    """Messages that are named after their keys. Returns the places of those that were refused."""
    answer = propose(state, index, asked(queue, *numbers))
    assert isinstance(answer, Enqueued)
    return answer.refused


def asked(queue: str, *numbers: int, attach: Epoch = ATTACH) -> Enqueue:
    """Each delivery has its number as its place in its publisher's order, too."""
    given = [Given(attach, number, 1) for number in numbers]
    return Enqueue(queue, [key(one) for one in numbers], given, [b"%d" % one for one in numbers])


def declare(state: SetState, index: int, name: str, **settings: Any) -> QueueId:
    answer = state.apply(index, entry(LIFE, encode(Declare(name, QueueSettings(**settings)))))
    assert isinstance(answer, Done)
    return answer.id


def delete(state: SetState, index: int, name: str, id_: QueueId) -> None:
    assert isinstance(state.apply(index, entry(LIFE, encode(Delete(name, id_)))), Done)
    state.check()


def test_messages_are_in_the_order_of_the_log() -> None:
    state = SetState()
    one, other = declare(state, 1, "queue/1"), declare(state, 2, "queue/2")
    assert (
        enqueue(state, 3, "queue/1", 5, 4) == enqueue(state, 4, "queue/2", 6) == enqueue(state, 5, "queue/1", 3) == ALL
    )
    assert state.messages.of(one) == {position_of(3, 0): b"5", position_of(3, 1): b"4", position_of(5, 0): b"3"}
    assert [*state.messages.of(other).values()] == [b"6"]


def test_a_delivery_that_comes_again_is_enqueued_once() -> None:
    """Within a batch, in a later entry, and until it is settled."""
    state = SetState()
    queue = declare(state, 1, "queue/1")
    assert enqueue(state, 2, "queue/1", 1, 1) == enqueue(state, 3, "queue/1", 2, 1) == ALL
    assert [*state.messages.of(queue).values()] == [b"1", b"2"]
    propose(state, 4, Settled([key(1), key(9)]))
    assert state.messages.unsettled == {b"": [key(2)]}
    assert [*state.messages.of(queue).values()] == [b"1", b"2"], "a message that was enqueued stays"
    enqueue(state, 5, "queue/1", 1)  # its publisher has used the tag again
    assert [*state.messages.of(queue).values()] == [b"1", b"2", b"1"]


def test_a_key_is_of_another_delivery_later_on_the_same_attach() -> None:
    """Its publisher has used the tag again, and the leader that knew of the settlement is gone."""
    state = SetState()
    queue = declare(state, 1, "queue/1")

    def give(attach: Epoch, place: int, message: bytes) -> None:
        propose(
            state, 2 + len(state.messages.of(queue)), Enqueue("queue/1", [key(1)], [Given(attach, place, 1)], [message])
        )

    give(ATTACH, 3, b"old")
    give(ATTACH, 3, b"old, forwarded again")
    give(LATER, 0, b"old, on the next attach")
    give(ATTACH, 4, b"old, from a home that does not know of that attach")
    give(LATER, 5, b"new")
    assert [*state.messages.of(queue).values()] == [b"old", b"new"]


def test_a_delivery_keeps_its_first_answer() -> None:
    """Trap 17: also when the queue comes or goes in between."""
    state = SetState()
    queue = declare(state, 1, "queue/1", limit_messages=1)
    assert enqueue(state, 2, "queue/1", 1, 2) == {1}
    delete(state, 3, "queue/1", queue)
    assert enqueue(state, 4, "queue/1", 2, 1) == {0}
    assert not len(state), "nothing is new, so nothing declares a queue"
    assert enqueue(state, 5, "queue/1", 2, 1, 3) == {0}
    [later] = state
    assert [*state.messages.of(later.id).values()] == [b"3"], "what an earlier queue of the name had stays away"


def test_a_queue_that_is_deleted_leaves_no_rows() -> None:
    state = SetState()
    queue = declare(state, 1, "queue/1")
    empty = state.rows.digest
    enqueue(state, 2, "queue/1", 1, 2, 3)
    propose(state, 3, Settled([key(1), key(2), key(3)]))
    assert len(state.rows) == 4
    delete(state, 4, "queue/1", queue)
    assert len(state.rows) == 0
    declare(state, 1, "queue/1")
    assert state.rows.digest == empty


# what consumers get


def filled(*numbers: int) -> tuple[SetState, QueueId]:
    """A state whose queue has these messages, at the positions `at(0)`, `at(1)`, …"""
    state = SetState()
    queue = declare(state, 1, "queue/1")
    enqueue(state, 2, "queue/1", *numbers)
    return state, queue


def at(place: int) -> int:
    return position_of(2, place)


def holders(state: SetState, queue: QueueId) -> list[LinkEntry | None]:
    """By position, the consumers that the messages are reserved for."""
    entries = {entry.name: entry for entry in state.messages.reserved.consumers}
    reserved = state.messages.reserved
    return [entries[reserved.at(at)] if reserved.has(at) else None for at in state.messages.of(queue)]


def test_messages_are_reserved_given_back_and_taken() -> None:
    state, queue = filled(1, 2, 3, 4)
    propose(state, 3, Reserve(queue, ONE, [(at(0), at(2))]))
    propose(state, 4, Reserve(queue, OTHER, [(at(3), at(3))]))
    assert holders(state, queue) == [ONE, ONE, ONE, OTHER]
    propose(state, 5, Free(queue, [(at(1), at(1))], failed=True))
    assert holders(state, queue) == [ONE, None, ONE, OTHER]
    assert [state.messages.returns(at(place)).failed for place in range(4)] == [0, 1, 0, 0]
    propose(state, 6, Dequeue(queue, [(at(0), at(1)), (at(3), at(3))]))
    assert [*state.messages.of(queue).values()] == [b"3"] and holders(state, queue) == [ONE]
    propose(state, 7, Reserve(queue, OTHER, [(at(0), at(3))]))
    assert holders(state, queue) == [OTHER], "what is gone stays gone, and the last consumer has the rest"


def test_a_consumer_is_known_while_it_has_a_message() -> None:
    state, queue = filled(1, 2)
    later = consumer("one", 2)
    propose(state, 3, Reserve(queue, ONE, [(at(0), at(0))]))
    propose(state, 4, Reserve(queue, later, [(at(1), at(1))]))
    assert state.messages.reserved.consumers == [later]
    propose(state, 5, Reserve(queue, OTHER, [(at(1), at(1))]))
    assert state.messages.reserved.consumers == [later, OTHER]
    propose(state, 6, Free(queue, [(at(0), at(0))], failed=False))
    assert state.messages.reserved.consumers == [OTHER]
    propose(state, 7, Dequeue(queue, [(at(1), at(1))]))
    propose(state, 8, Reserve(queue, ONE, [(at(1), at(1))]))
    assert state.messages.reserved.consumers == []


def test_a_message_fails_only_when_somebody_had_it() -> None:
    state, queue = filled(1)
    propose(state, 3, Free(queue, [(at(0), at(0))], failed=True))
    assert state.messages.returns(at(0)) == Returns()
    for index, failed in enumerate((True, False, True), 4):
        propose(state, index, Reserve(queue, ONE, [(at(0), at(0))]))
        propose(state, index, Free(queue, [(at(0), at(0))], failed=failed))
    assert state.messages.returns(at(0)) == Returns(3, 2)


def test_the_last_message_of_a_run_takes_its_row_along() -> None:
    state, queue = filled(1, 2, 3)
    propose(state, 3, Settled([key(1), key(2), key(3)]))
    propose(state, 4, Reserve(queue, ONE, [(at(0), at(2))]))
    propose(state, 5, Free(queue, [(at(1), at(1))], failed=True))
    assert len(state.rows) == 1 + 3 + 2 + 1 + 1
    for place in (2, 0, 1):
        propose(state, 6, Dequeue(queue, [(at(place), at(place))]))
    assert len(state.rows) == 1


def test_a_queue_that_is_deleted_leaves_no_reservations() -> None:
    state, queue = filled(1, 2, 3)
    propose(state, 3, Settled([key(1), key(2), key(3)]))
    propose(state, 4, Reserve(queue, ONE, [(at(0), at(1))]))
    propose(state, 5, Free(queue, [(at(0), at(0))], failed=True))
    delete(state, 6, "queue/1", queue)
    assert len(state.rows) == 0
    declare(state, 7, "queue/1")
    propose(state, 8, Reserve(queue, ONE, [(at(0), at(2))]))
    propose(state, 9, Dequeue(queue, [(at(0), at(2))]))
    assert len(state.rows) == 1, "it has another id"


# purges


def purge(state: SetState, index: int, queue: QueueId, position: int) -> int:
    """How many messages were taken."""
    answer = state.apply(index, entry(LIFE, encode(Purge("queue/1", queue, position))))
    state.check()
    assert isinstance(answer, Done)
    return answer.count


def there(state: SetState, queue: QueueId) -> list[bytes]:
    rows, texts = state.messages.of(queue), [b"%d" % number for number in range(100)]
    of_digest = {body_digest(text): text for text in texts}
    return [of_digest[rows.about(position)[1]] for position in rows]


def test_a_purge_takes_what_nobody_has_up_to_its_position() -> None:
    state, queue = filled(1, 2, 3, 4)
    propose(state, 3, Reserve(queue, ONE, [(at(1), at(1))]))
    assert purge(state, 4, queue, at(2)) == 2
    assert there(state, queue) == [b"2", b"4"] and holders(state, queue) == [ONE, None]
    assert state.messages.passed_of(queue) == Passed(4, 0, 0, 2)
    assert enqueue(state, 5, "queue/1", 1) == ALL and there(state, queue) == [b"2", b"4"], "it was accepted before"


def test_a_purge_that_is_decided_twice_leaves_what_came_in_between() -> None:
    state, queue = filled(1, 2)
    assert purge(state, 3, queue, at(1)) == 2
    enqueue(state, 4, "queue/1", 3)
    assert purge(state, 5, queue, at(1)) == 0 and there(state, queue) == [b"3"]


def test_a_purge_takes_nothing_that_comes_later_whatever_its_position() -> None:
    state, queue = filled(1)
    propose(state, 3, Reserve(queue, ONE, [(at(0), at(0))]))
    assert purge(state, 4, queue, 2**63 - 1) == 0
    enqueue(state, 5, "queue/1", 2)
    propose(state, 6, Reserve(queue, OTHER, [(position_of(5, 0), position_of(5, 0))]))
    propose(state, 7, Free(queue, [(at(0), at(0)), (position_of(5, 0), position_of(5, 0))], failed=False))
    assert there(state, queue) == [b"2"]


def test_what_was_purged_while_a_consumer_had_it_goes_when_it_comes_back() -> None:
    state, queue = filled(1, 2, 3, 4)
    propose(state, 3, Settled([key(one) for one in (1, 2, 3, 4)]))
    propose(state, 4, Reserve(queue, ONE, [(at(0), at(2))]))
    assert purge(state, 5, queue, at(2)) == 0
    restored = SetState([*state.rows])
    for one in (state, restored):
        propose(one, 6, Free(queue, [(at(0), at(0))], failed=True))
        propose(one, 7, Reserve(queue, OTHER, [(at(1), at(1)), (at(3), at(3))]))
        assert there(one, queue) == [b"3", b"4"] and holders(one, queue) == [ONE, OTHER]
        propose(one, 8, Dequeue(queue, [(at(2), at(2))]))
        propose(one, 9, Free(queue, [(at(3), at(3))], failed=False))
        assert there(one, queue) == [b"4"] and len(one.rows) == 3, "no purge is kept that is over"
    assert state.messages.passed_of(queue) == Passed(4, 1, 1, 2)


def test_an_earlier_purge_that_comes_later_takes_back_nothing() -> None:
    state, queue = filled(1, 2)
    propose(state, 3, Reserve(queue, ONE, [(at(0), at(1))]))
    purge(state, 4, queue, at(1))
    purge(state, 5, queue, at(0))
    propose(state, 6, Free(queue, [(at(1), at(1))], failed=False))
    assert there(state, queue) == [b"1"]
    delete(state, 7, "queue/1", queue)
    assert not [row for row in state.rows if row[0][:1] == PURGED]


Asked = tuple[str, str, list[int]]
KINDS = (
    "one", "other", "failed", "freed", "unreserve", "dequeue", "reject", "purge", "expire", "retry",
    "taken", "not taken",
)  # fmt: skip
DYING = QueueSettings(dead_letter="queue/dead", redeliveries=1)
some_numbers = st.lists(st.integers(1, 6), min_size=1)
proposals: st.SearchStrategy[Asked] = st.one_of(
    st.tuples(st.just("enqueue"), st.sampled_from("abc"), some_numbers),
    st.tuples(st.just("settle"), st.just(""), some_numbers),
    st.tuples(st.sampled_from(KINDS), st.sampled_from("abc"), some_numbers),
    st.tuples(st.sampled_from(("declare", "delete")), st.sampled_from("abc"), st.just([])),
)


def data_of(state: SetState, kind: str, name: str, numbers: list[int]) -> bytes:
    if kind == "enqueue":
        return encode_proposal(asked(name, *numbers))
    if kind == "settle":
        return encode_proposal(Settled([key(one) for one in numbers]))
    known = state.get(name)
    if kind == "declare" or known is None:
        return encode(Declare(name, QueueSettings() if name == "c" else DYING))
    if kind == "delete":
        return encode(Delete(name, known.id))
    there = [*state.messages.of(known.id)]
    if kind == "purge":
        return encode(Purge(name, known.id, there[numbers[0] % len(there)] if there else 7))
    if kind in ("taken", "not taken"):
        there = state.messages.outbox.of(known.id)
    runs = runs_of(sorted({there[number % len(there)] for number in numbers} if there else {7}))
    if kind == "retry":
        return encode(Retry(name, known.id, "queue/1", tuple(runs)))
    if kind in ("taken", "not taken"):
        return encode_proposal(Posted(known.id, runs, kind == "taken"))
    if kind in ("expire", "reject"):
        return encode_proposal(Expire(known.id, runs) if kind == "expire" else Reject(known.id, runs))
    if kind == "unreserve":
        return encode_proposal(Unreserve(known.id, runs))
    if kind in ("one", "other"):
        return encode_proposal(Reserve(known.id, ONE if kind == "one" else OTHER, runs))
    taken = Dequeue(known.id, runs) if kind == "dequeue" else Free(known.id, runs, failed=kind == "failed")
    return encode_proposal(taken)


@given(st.lists(proposals, max_size=20), st.integers(0, 20))
def test_a_replica_that_goes_on_behind_a_snapshot_is_equal(log: list[Asked], at: int) -> None:
    """And it has each message once, in order."""
    whole, part = SetState(), SetState()
    entries: list[bytes] = []
    for index, asked in enumerate(log, 1):
        entries.append(entry(LIFE, data_of(whole, *asked)))
        whole.apply(index, entries[-1])
        whole.check()
    for index, data in enumerate(entries[:at], 1):
        part.apply(index, data)
    restored = SetState(part.rows)
    for index, data in enumerate(entries[at:], at + 1):
        restored.apply(index, data)
    assert restored.rows.digest == whole.rows.digest
    for queue in whole:
        rows, others = restored.messages.of(queue.id), whole.messages.of(queue.id)
        assert [(at, rows.about(at)) for at in rows] == [(at, others.about(at)) for at in others]
        assert holders(restored, queue.id) == holders(whole, queue.id)
    restored.check()
    if not any(kind == "delete" for kind, *_ in log):
        passed = whole.messages.passed
        gone_for = passed.dequeued + passed.purged + passed.expired + passed.dead
        assert passed.enqueued == whole.messages.count + len(whole.messages.outbox) + gone_for


@pytest.mark.parametrize(
    "proposal",
    [
        Enqueue("queue/1", [key(1), key(2)], [Given(ATTACH, 7, 2)], [b"1", b""]),
        Enqueue("queue/1", [key(1), key(2)], [Given(ATTACH, 7, 1), Given(LATER, 0, 1)], [b"1", b""]),
        Enqueue("queue/1", [], [], [b"1", b"2"]),
        Enqueue("queue/1", [key(1)], [Given(ATTACH, 7, 1)], [b"1"], [2**63 - 1]),
        Expire(QueueId(SetLife(5, "a"), 6), [(1, 3)]),
        Reject(QueueId(SetLife(5, "a"), 6), [(1, 3)]),
        Reject(QueueId(SetLife(5, "a"), 6), [(1, 3)], {2: b"x"}),
        Unreserve(QueueId(SetLife(5, "a"), 6), [(1, 3)]),
        Posted(QueueId(SetLife(5, "a"), 6), [(1, 3)], taken=True),
        Settled([key(1)]),
        Settled([]),
        Reserve(QueueId(SetLife(5, "a"), 6), ONE, [(1, 1), (3, 9)]),
        Free(QueueId(SetLife(5, "a"), 6), [(0, 0)], failed=True),
        Dequeue(QueueId(SetLife(5, "a"), 6), []),
    ],
)
def test_a_proposal_is_read_as_it_was_written(proposal: Proposal) -> None:
    assert read_proposal(msgpack.unpackb(encode_proposal(proposal))) == proposal


@pytest.mark.parametrize(
    "parts",
    [
        [ENQUEUE],
        [ENQUEUE, "a", [key(1)], [b""]],
        [ENQUEUE, "", [key(1)], RUN, [b""]],
        [ENQUEUE, b"a", [key(1)], RUN, [b""]],
        [ENQUEUE, "a", [key(1)], RUN, ["text"]],
        [ENQUEUE, "a", [key(1)], RUN, []],
        [ENQUEUE, "a", [], [], []],
        [ENQUEUE, "a", [key(1)[1:]], RUN, [b""]],
        [ENQUEUE, "a", key(1), RUN, [b""]],
        [ENQUEUE, "a", [key(1)], [], [b""]],
        [ENQUEUE, "a", [], RUN, [b""]],
        [ENQUEUE, "a", [key(1)], b"", [b""]],
        [ENQUEUE, "a", [key(1)], [1], [b""]],
        [ENQUEUE, "a", [key(1)], [[1, "a", 1, 0]], [b""]],
        [ENQUEUE, "a", [key(1)], [[1, b"a", 1, 0, 1]], [b""]],
        [ENQUEUE, "a", [key(1)], [[1, "a", 1, -1, 1]], [b""]],
        [ENQUEUE, "a", [key(1)], [[1, "a", 1, 0, 2], [1, "a", 1, 2, -1]], [b""]],
        [ENQUEUE, "a", [key(1)], RUN, [b""], [1, 2]],
        [ENQUEUE, "a", [key(1)], RUN, [b""], [-1]],
        [ENQUEUE, "a", [key(1)], RUN, [b""], [True]],
        [ENQUEUE, "a", [key(1)], RUN, [b""], 1],
        [SETTLED, key(1)],
        [SETTLED, [1]],
        [SETTLED, [], []],
        [RESERVE, [1, "a"], 2, [[1, 2]], ONE.pack()[1:]],
        [RESERVE, [1, "a"], 2, [[1, 2]], attrs.evolve(ONE, role=Role.PUBLISHER).pack()],
        [RESERVE, [1, "a"], 2, [[1, 2]], attrs.evolve(ONE, status=Status.CLOSED).pack()],
        [RESERVE, [1, "a"], 2, [[1, 2]], "text"],
        [RESERVE, [1, "a"], [[1, 2]], ONE.pack()],
        [FREE, [1, "a"], 2, [[1, 2]], 1],
        [DEQUEUE, [1, "a"], 2, [[1, 2]], True],
        [DEQUEUE, [1, "a"], -2, [[1, 2]]],
        [DEQUEUE, [1, "a"], 2**63, [[1, 2]]],
        [DEQUEUE, [1, "a"], b"2", [[1, 2]]],
        [DEQUEUE, 1, 2, [[1, 2]]],
        [DEQUEUE, [1, "a"], 2, [1, 2]],
        [DEQUEUE, [1, "a"], 2, [[1, 2, 3]]],
        [DEQUEUE, [1, "a"], 2, [[2, 1]]],
        [DEQUEUE, [1, "a"], 2, [[3, 4], [1, 2]]],
        [DEQUEUE, [1, "a"], 2, [[1, 2], [2, 3]]],
        [DEQUEUE, [1, "a"], 2, [[-1, 2]]],
        [DEQUEUE, [1, "a"], 2, [[1, MOST_PLACES + 1]]],
        [EXPIRE, [1, "a"], 2, [[1, 2]], True],
        [UNRESERVE + 1, []],
        [2**63, []],
    ],
)
def test_what_is_no_proposal_is_refused(parts: list[Any]) -> None:
    state = SetState()
    declare(state, 1, "a")
    before = state.rows.digest
    assert isinstance(state.apply(2, entry(LIFE, msgpack.packb(parts))), Refused)
    assert state.rows.digest == before
    state.check()


@pytest.mark.parametrize(
    "row",
    [
        (KEY + key(1), b"\x02"),
        (KEY + key(1), msgpack.packb([1, 1, "a", 1, 0])),
        (KEY + key(1)[1:], msgpack.packb([True, 1, "a", 1, 0])),
        (RETURNS + bytes(11), msgpack.packb([0, 0])),
        (RETURNS + bytes(11), msgpack.packb([1, 2])),
        (RETURNS + bytes(11), msgpack.packb([1, -1])),
        (RETURNS + bytes(11), msgpack.packb([1])),
        (RETURNS + bytes(10), msgpack.packb([1, 1])),
        (PURGED + msgpack.packb([[1, "a"], 2]), msgpack.packb([0])),
        (PURGED + msgpack.packb([1, 2]), msgpack.packb([1])),
        (PURGED + b"\x92\x92\xcc\x01\xa1a\x02", msgpack.packb([1])),
        (PURGED + bytes(16), msgpack.packb([1])),
        (RESERVED + bytes(11), msgpack.packb([0, ONE.name])),
        (RESERVED + bytes(11), msgpack.packb([0, ONE.name[1:]])),
        (RESERVED + bytes(10), msgpack.packb([0, ONE.name])),
        (CONSUMER + ONE.name, msgpack.packb(ONE.pack())),
        (CONSUMER + OTHER.name, msgpack.packb(ONE.pack())),
        (CONSUMER + ONE.name, msgpack.packb([ONE.name])),
        (MESSAGE + bytes(11), b"\xc1"),
        (MESSAGE + bytes(11), msgpack.packb([[1, "a"], 2])),
        (MESSAGE + bytes(11), msgpack.packb([[1, "a"], 2, 3, "a text of 16 let"])),
        (MESSAGE + bytes(11), msgpack.packb([[1, "a"], 2, 3, bytes(15)])),
        (MESSAGE + bytes(11), msgpack.packb([[1, "a"], 2, -3, bytes(16)])),
        (MESSAGE + bytes(11), msgpack.packb([[1, "a"], 2, 1 << 32, bytes(16)])),
        (MESSAGE + bytes(11), msgpack.packb([[1, "a"], 2, 3, bytes(16), "4"])),
        (MESSAGE + bytes(11), msgpack.packb([[1, "a"], 2, 3, bytes(16), -4])),
        (MESSAGE + bytes(11), msgpack.packb([[1, "a"], 2, 3, bytes(16), 4, 5])),
        (MESSAGE + bytes(10), msgpack.packb([[1, "a"], 2, 3, bytes(16)])),
        (MESSAGE + b"\1" + bytes(10), msgpack.packb([[1, "a"], 2, 3, bytes(16)])),
        (body_key(1), b"body"),
        (b"z", b""),
    ],
)
def test_a_row_that_is_no_message_is_refused(row: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match=r"row of the state of a set|expected the entry of a consumer|life of a set"):
        SetState([row])


def test_two_rows_that_reserve_one_message_are_refused() -> None:
    state, queue = filled(1, 2)
    propose(state, 3, Reserve(queue, ONE, [(at(0), at(1))]))
    [again] = [(key[:-1] + b"\x01", value) for key, value in state.rows if key[:1] == RESERVED]
    with pytest.raises(ValueError, match="two rows of the state of a set reserve one message"):
        SetState([*state.rows, again])


def test_keys_have_the_length_of_delivery_keys() -> None:
    assert len(key(1)) == KEY_LENGTH


# rules broken on purpose

BROKEN: list[tuple[type, str, str, str, Callable[[], None]]] = [
    (QueuedMessages, "purge", "lambda at: at <= position", "lambda at: True",
     test_a_purge_that_is_decided_twice_leaves_what_came_in_between),
    (SetState, "_change", "min(operation.position, position_of(fresh.index, 0))", "operation.position",
     test_a_purge_takes_nothing_that_comes_later_whatever_its_position),
    (QueuedMessages, "purge", "if not self.reserved.has(at)", "",
     test_a_purge_takes_what_nobody_has_up_to_its_position),
    (QueuedMessages, "purge", "MessageEnd.PURGED", "MessageEnd.DEQUEUED",
     test_a_purge_takes_what_nobody_has_up_to_its_position),
    (QueuedMessages, "purge", "and position > self._purged.get(queue, 0)", "",
     test_an_earlier_purge_that_comes_later_takes_back_nothing),
    (QueuedMessages, "purge", "self._rows.put(_purge_key(queue), msgpack.packb((position,)))", "",
     test_what_was_purged_while_a_consumer_had_it_goes_when_it_comes_back),
    (QueuedMessages, "reserve", "self._not_purged(queue, self._there(queue, runs))", "self._there(queue, runs)",
     test_what_was_purged_while_a_consumer_had_it_goes_when_it_comes_back),
    (QueuedMessages, "free", "self._not_purged(queue, back)", "back",
     test_what_was_purged_while_a_consumer_had_it_goes_when_it_comes_back),
    (QueuedMessages, "_take_out", "self._end_purge(queue)", "pass",
     test_what_was_purged_while_a_consumer_had_it_goes_when_it_comes_back),
    (QueuedMessages, "delete", "self._end_purge(queue)", "pass",
     test_an_earlier_purge_that_comes_later_takes_back_nothing),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    owner, method, old, new, scene = BROKEN[number]
    scene()
    with Mutant(owner, method, old, new, old, "").applied(), pytest.raises((Exception, pytest.fail.Exception)):
        scene()
