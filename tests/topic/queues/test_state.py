"""The list of declared queues: what operations do to it, and that all replicas have the same."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topic.queues.operations import (
    MOST_WHY,
    Answer,
    Configure,
    Declare,
    Delete,
    Done,
    Operation,
    Purge,
    QueueId,
    QueueSettings,
    Refused,
    RefusedFor,
    decode,
    decode_answer,
    encode,
    encode_answer,
)
from topic.queues.state import SetState, entry
from topic.raft.life import SetLife

ROOT = Path(__file__).parent.parent.parent.parent
LIFE = SetLife(100, "a")
LIMITED = QueueSettings(limit_messages=10)


def apply(queues: SetState, index: int, operation: Operation, life: SetLife = LIFE) -> Answer:
    answer = queues.apply(index, entry(life, encode(operation)))
    queues.check()
    assert isinstance(answer, Done | Refused)
    return answer


def reason(answer: Answer) -> RefusedFor:
    assert isinstance(answer, Refused)
    return answer.reason


def done(index: int, version: int = 0, life: SetLife = LIFE) -> Done:
    """Of the queue that was declared at this index; its settings are of the other one, if one is given."""
    return Done(QueueId(life, index), QueueId(life, version or index))


def test_a_declared_queue_has_the_life_and_the_index_for_a_name() -> None:
    queues = SetState()
    assert apply(queues, 7, Declare("queue/a", LIMITED)) == done(7)
    found = queues.get("queue/a")
    assert found is not None and (found.id, found.settings) == (QueueId(LIFE, 7), LIMITED)


def test_a_declare_that_is_decided_twice_declares_once() -> None:
    queues = SetState()
    first = apply(queues, 7, Declare("queue/a", LIMITED))
    assert apply(queues, 9, Declare("queue/a", LIMITED)) == first
    assert len(queues) == 1


def test_a_declare_with_other_settings_names_the_difference() -> None:
    queues = SetState()
    apply(queues, 7, Declare("queue/a", LIMITED))
    answer = apply(queues, 8, Declare("queue/a", QueueSettings(limit_bytes=5)))
    assert answer == Refused(
        RefusedFor.DIFFERS, 'queue "queue/a" exists with limit-messages 10, expected limit-bytes 5B'
    )
    assert [queue.settings for queue in queues] == [LIMITED]


def test_a_queue_is_configured_and_deleted_by_its_id() -> None:
    queues, id_ = SetState(), QueueId(LIFE, 7)
    apply(queues, 7, Declare("queue/a"))
    assert apply(queues, 8, Configure("queue/a", id_, id_, LIMITED)) == done(7, 8)
    assert [queue.settings for queue in queues] == [LIMITED]
    assert apply(queues, 9, Delete("queue/a", id_)) == done(7, 8)
    assert len(queues) == 0 and queues.rows.digest == SetState().rows.digest


def test_a_change_of_settings_that_is_decided_twice_does_not_undo_another_one() -> None:
    """Its answer was lost with a leader. Another client changes the settings before it is asked again."""
    queues, id_ = SetState(), QueueId(LIFE, 7)
    apply(queues, 7, Declare("queue/a"))
    change, other = Configure("queue/a", id_, id_, LIMITED), QueueSettings(limit_bytes=5)
    assert apply(queues, 8, change) == done(7, 8)
    assert apply(queues, 9, change) == done(7, 8), "it is as it was asked for"
    assert apply(queues, 10, Configure("queue/a", id_, QueueId(LIFE, 8), other)) == done(7, 10)
    why = f'queue "queue/a" was changed meanwhile: it has limit-bytes 5B (version {QueueId(LIFE, 10)})'
    assert apply(queues, 11, change) == Refused(RefusedFor.CHANGED, why)
    assert [queue.settings for queue in queues] == [other]


def test_a_change_back_to_former_settings_is_another_version() -> None:
    queues, id_ = SetState(), QueueId(LIFE, 7)
    apply(queues, 7, Declare("queue/a"))
    change = Configure("queue/a", id_, id_, LIMITED)
    apply(queues, 8, change)
    apply(queues, 9, Configure("queue/a", id_, QueueId(LIFE, 8), QueueSettings()))
    assert reason(apply(queues, 10, change)) is RefusedFor.CHANGED
    assert [queue.settings for queue in queues] == [QueueSettings()]


def test_a_queue_that_is_gone_is_not_found() -> None:
    queues, id_ = SetState(), QueueId(LIFE, 7)
    apply(queues, 7, Declare("queue/a"))
    apply(queues, 8, Delete("queue/a", id_))
    assert reason(apply(queues, 9, Delete("queue/a", id_))) is RefusedFor.NOT_FOUND
    assert reason(apply(queues, 10, Configure("queue/a", id_, id_, LIMITED))) is RefusedFor.NOT_FOUND


@pytest.mark.parametrize("life", [LIFE, SetLife(100, "b")])
def test_an_operation_on_a_deleted_queue_does_not_touch_the_next_one_of_its_name(life: SetLife) -> None:
    """Trap 4: also if a new life gives the same index again."""
    queues, former = SetState(), QueueId(LIFE, 7)
    apply(queues, 7, Declare("queue/a"))
    apply(queues, 8, Delete("queue/a", former))
    later = 9 if life == LIFE else 7
    assert apply(queues, later, Declare("queue/a"), life) == done(later, life=life)
    assert reason(apply(queues, 10, Delete("queue/a", former))) is RefusedFor.NOT_FOUND
    assert len(queues) == 1


def test_the_number_of_queues_of_a_set_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topic.queues.state.MOST_QUEUES", 2)
    queues = SetState()
    apply(queues, 1, Declare("queue/a"))
    apply(queues, 2, Declare("queue/b"))
    assert reason(apply(queues, 3, Declare("queue/c"))) is RefusedFor.TOO_MANY
    assert apply(queues, 4, Declare("queue/b")) == done(2)


# traps 13 and 14: no input ends a replica, and no two replicas differ by it


@given(st.lists(st.binary(max_size=40)))
def test_any_bytes_are_answered_and_change_nothing(log: list[bytes]) -> None:
    queues = SetState()
    apply(queues, 1, Declare("queue/a"))
    before = queues.rows.digest
    for index, data in enumerate(log, 2):
        answer = queues.apply(index, data)
        assert isinstance(answer, Refused) and answer.reason is RefusedFor.MALFORMED
    assert queues.rows.digest == before


operations = st.builds(
    lambda kind, name, id_, former, limit: {
        0: Declare(name, QueueSettings(limit)),
        1: Configure(name, id_, former, QueueSettings(limit)),
        2: Delete(name, id_),
        3: Purge(name, id_, former.index),
    }[kind],
    st.integers(0, 3),
    st.sampled_from("abc"),
    st.builds(QueueId, st.just(LIFE), st.integers(1, 9)),
    st.builds(QueueId, st.just(LIFE), st.integers(1, 9)),
    st.sampled_from((None, 1, 2)),
)


@given(st.lists(operations, max_size=30), st.integers(0, 30))
def test_a_replica_that_goes_on_behind_a_snapshot_is_equal(log: list[Operation], at: int) -> None:
    """Trap 3, too: state and index are one snapshot, and the rest is applied again."""
    whole, part = SetState(), SetState()
    answers = [apply(whole, index, operation) for index, operation in enumerate(log, 1)]
    for index, operation in enumerate(log[:at], 1):
        apply(part, index, operation)
    restored = SetState([*part.rows])
    assert restored.rows.digest == part.rows.digest
    again = [apply(restored, index, operation) for index, operation in enumerate(log[at:], at + 1)]
    assert again == answers[at:]
    assert (restored.rows.digest, list(restored)) == (whole.rows.digest, list(whole))


PROGRAM = """
from topic.queues.operations import Configure, Declare, Delete, QueueId, QueueSettings, encode
from topic.queues.state import SetState, entry
from topic.raft.life import SetLife
queues = SetState()
for index in range(1, 500):
    name, id = f"queue/{index * 7 % 50}", QueueId(SetLife(100, "a"), index - 20)
    settings = QueueSettings(index % 3 or None, index % 4 or None)
    kinds = Declare(name, settings), Declare(name, settings), Configure(name, id, id, settings), Delete(name, id)
    queues.apply(index, entry(SetLife(100, "a"), encode(kinds[index % 4])))
print(queues.rows.digest.hex(), [str(queue.id) for queue in queues], sorted(queues.rows))
"""


def test_replicas_do_not_differ_by_the_hashes_of_texts() -> None:
    """Trap 14."""

    def state(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", PROGRAM]
        return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout

    first = state("1")
    assert first == state("2") and len(first) > 1000


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        b"\x00",
        msgpack.packb([1]),
        msgpack.packb(["a", [[1, "a"], 2], {}]),
        msgpack.packb(["b", [[1, "a"], 2], [[1, "a"], 2], {}]),
    ],
)
def test_a_row_that_is_no_queue_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"state of a set|Queue is"):
        SetState([(b"qa", value)])


# bytes


@given(operations)
def test_an_operation_is_read_as_it_was_written(operation: Operation) -> None:
    assert decode(encode(operation)) == operation


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "unknown kind None"),
        ([7, "a"], "unknown kind 7"),
        ([True, "a"], "unknown kind True"),
        ([0, "a"], "Declare is"),
        ([0, "", {}], "name of a queue is ''"),
        ([0, "ä" * 128, {}], "1 to 255 bytes"),
        ([0, b"a", {}], "name of a queue"),
        ([0, "a", []], "settings of a queue"),
        ([0, "a", {"colour": 1}], "no setting 'colour', expected one of limit_messages, limit_bytes"),
        ([0, "a", {"limit_bytes": 0}], "limit_bytes of a queue is 0, expected a number from 1"),
        ([0, "a", {"limit_bytes": True}], "limit_bytes of a queue is True"),
        ([2, "a", [[1, "a"]]], "id of a queue"),
        ([2, "a", [[1, "a"], -1]], "id of a queue"),
        ([2, "a", [1, 1]], "life of a set"),
        ([3, "a", [[1, "a"], 2], -1], "expected a number from 0"),
        ([3, "a", [[1, "a"], 2], True], "expected a number from 0"),
        ([4, "a", [[1, "a"], 2], "b", [[2, 1]]], "ascending order"),
        ([4, "a", [[1, "a"], 2], "", [[1, 2]]], "1 to 255 bytes"),
    ],
)
def test_what_is_no_operation_is_refused(parts: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode(msgpack.packb(parts))


def test_a_name_that_is_too_long_is_not_written() -> None:
    with pytest.raises(ValueError, match="expected a text of 1 to 255 bytes"):
        encode(Declare("a" * 256))


@pytest.mark.parametrize(
    "answer",
    [
        Done(QueueId(SetLife(2**63 - 1, "a"), 0), QueueId(LIFE, 2), 3),
        Refused(RefusedFor.NO_ANSWER, "nobody"),
    ],
)
def test_an_answer_is_read_as_it_was_written(answer: Answer) -> None:
    assert decode_answer(encode_answer(answer)) == answer


def test_the_reason_of_an_answer_is_bounded() -> None:
    read = decode_answer(encode_answer(Refused(RefusedFor.DIFFERS, "ä" * MOST_WHY)))
    assert read == Refused(RefusedFor.DIFFERS, "ä" * (MOST_WHY // 2))


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [1],
        [[1, "a"], 2, 3],
        [[1, "a"], 2, [1, "a"], 4, -1],
        [[1, "a"], 2, [1, "a"], -4, 0],
        [1, 2, 3, 4, 5],
        [1, "a"],
        ["busy"],
        ["else", "why"],
        ["busy", 1],
        {},
    ],
)
def test_what_is_no_answer_is_refused(parts: Any) -> None:
    with pytest.raises(ValueError, match=r"answer about queues|RefusedFor|id of a queue|a number from 0|life of a set"):
        decode_answer(msgpack.packb(parts))


def test_an_id_is_read_as_it_is_shown() -> None:
    id_ = QueueId(SetLife(0x66A2F3C1B0001, "a-b"), 57)
    assert str(id_) == "66a2f3c1b0001-a-b-57" and QueueId.parse(str(id_)) == id_
    wrong_lives = "x-a-1", "1-1", "1--1", " 1-a-1", "A-a-1", "1_0-a-1", "0-a-1", f"{2**63:x}-a-1"
    for wrong in ("", "-", "1", *wrong_lives, "1-a", "1-a-", "1-a-+1", "1-a-1 ", f"1-a-{2**63}"):
        with pytest.raises(ValueError, match="is no id of a queue"):
            QueueId.parse(wrong)
