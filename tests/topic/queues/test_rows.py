"""Rows of a state: what a snapshot writes, what another replica is sent, and the digest."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.set_store import apply
from topic.queues.copying.pieces import MOST_KEY, piece_of, read_piece
from topic.queues.rows import Row, StateRows
from topic.raft.messages import PIECE

keys = st.sampled_from([b"a", b"b", b"ab", b"c"])
changed = st.lists(st.tuples(keys, st.none() | st.binary(max_size=3)), max_size=20)


def change(rows: StateRows, changes: list[tuple[bytes, bytes | None]]) -> None:
    there = dict(rows)
    for key, value in changes:
        if value is not None:
            rows.put(key, value)
        elif key in there:
            rows.delete(key)
        apply(there, {key: value})


@given(changed, changed)
def test_a_snapshot_and_its_changes_are_the_rows(before: list[Row], after: list[Row]) -> None:
    """Whatever came and went in between."""
    rows = StateRows()
    change(rows, [*before])
    stored = dict(rows)
    rows.take_changes()
    change(rows, [*after])
    changes, former = rows.take_changes(), dict(stored)
    apply(stored, changes)
    assert stored == dict(rows) and rows.take_changes() == {}
    assert all(former.get(key) != value for key, value in changes.items()), "a row that came and went costs nothing"
    rows.check()


@given(changed, changed)
def test_equal_rows_have_one_digest_however_they_came(some: list[Row], others: list[Row]) -> None:
    one, other = StateRows(), StateRows()
    change(one, [*some])
    change(other, [*others])
    assert (one.digest == other.digest) is (dict(one) == dict(other))
    assert StateRows(one).digest == one.digest


def test_a_row_is_not_another_one_with_the_same_bytes() -> None:
    assert StateRows([(b"ab", b"c")]).digest != StateRows([(b"a", b"bc")]).digest
    assert StateRows([(b"a", b"1"), (b"b", b"2")]).digest != StateRows([(b"a", b"2"), (b"b", b"1")]).digest


@pytest.mark.parametrize("size", [0, 10, 1000, PIECE, 3 * PIECE])
def test_pieces_are_all_rows_in_order(size: int) -> None:
    rows = [(b"%05d" % number, bytes(size)) for number in range(200)]
    found: list[Row] = []
    pieces, is_last = 0, False
    while not is_last:
        piece, is_last = piece_of(rows[len(found) :])
        assert len(piece) <= PIECE + size + 20
        found += read_piece(piece)
        pieces += 1
    assert found == rows and pieces >= min(len(rows), len(rows) * size // PIECE)


def test_no_rows_are_one_piece() -> None:
    piece, is_last = piece_of([])
    assert read_piece(piece) == [] and is_last


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        b"\xc1",
        b"\x00",
        *map(msgpack.packb, ([b"a"], [1, b""], [b"a", "text"], [b"", b""], [bytes(MOST_KEY + 1), b""])),
    ],
)
def test_what_is_no_piece_is_refused(piece: bytes) -> None:
    with pytest.raises(ValueError, match="a piece of the state of a set"):
        read_piece(piece)


def test_two_rows_of_one_key_are_no_state() -> None:
    with pytest.raises(ValueError, match="two rows of one key"):
        StateRows([(b"a", b"1"), (b"a", b"2")])
