"""The region in which entries wait for their block: read whatever state its writer has left it in."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topic.tail import REGION, Tail, read_region

HEAD = ("a", "router", 7, "host")


def frame(number: int, row: int) -> bytes:
    payload: bytes = msgpack.packb((number, [[row]], b"%032d" % row))
    return payload


def written(rows: int) -> bytearray:
    region = bytearray(REGION)
    tail = Tail(region, HEAD, "boot", 3)
    for row in range(rows):
        assert tail.append(frame(3, row))
    return region


def test_what_was_appended_is_read_in_its_order() -> None:
    found = read_region(bytes(written(3)) + b"blocks")
    assert found.left is not None and (found.left.head, found.left.boot, found.left.number) == (HEAD, "boot", 3)
    assert found.left.rows == [[0], [1], [2]] and found.left.keys == b"".join(b"%032d" % row for row in range(3))
    assert (found.end, found.damaged_at) == (REGION, None)


def test_an_empty_region_and_none_at_all() -> None:
    found = read_region(bytes(written(0)))
    assert found.left is not None and (found.left.number, found.left.rows, found.damaged_at) == (3, [], None)
    assert read_region(b"OML2...").end == 0


def test_old_frames_behind_the_end_do_not_count() -> None:
    region = bytearray(REGION)
    tail = Tail(region, HEAD, "boot", 3)
    for row in range(5):
        tail.append(frame(3, row))
    tail.clear(4)
    found = read_region(bytes(region))
    assert found.left is not None and (found.left.number, found.left.rows) == (4, [])
    tail.append(frame(4, 9))
    found = read_region(bytes(region))
    assert found.left is not None and (found.left.number, found.left.rows) == (4, [[9]])


def test_there_is_room_for_a_region_of_frames_and_no_more() -> None:
    region = bytearray(REGION)
    tail = Tail(region, HEAD, "boot", 3)
    count = 0
    while tail.append(frame(3, count)):
        count += 1
    assert len(region) == REGION
    found = read_region(bytes(region))
    assert found.left is not None and len(found.left.rows) == count > 1000


@pytest.mark.parametrize("payload", [b"\xc1", msgpack.packb(5), msgpack.packb([3, []]), frame(4, 9)])
def test_a_frame_that_no_writer_of_this_block_has_made_ends_the_tail(payload: bytes) -> None:
    region = bytearray(REGION)
    tail = Tail(region, HEAD, "boot", 3)
    for written_next in (frame(3, 0), payload, frame(3, 1)):
        tail.append(written_next)
    found = read_region(bytes(region))
    assert found.left is not None and found.left.rows == [[0]] and found.damaged_at is not None


@given(st.integers(0, 250), st.integers(0, 7))
def test_a_damaged_frame_ends_the_tail_and_is_told_of(at: int, bit: int) -> None:
    """Of the lost power, or a bad disk: what came before is read."""
    region = written(3)
    whole = read_region(bytes(region))
    region[at] ^= 1 << bit
    found = read_region(bytes(region))
    assert whole.left is not None
    if found.end == whole.end and found != whole:
        assert found.damaged_at is not None and found.damaged_at <= at
        rows = found.left.rows if found.left else []
        assert rows == whole.left.rows[: len(rows)]


@given(st.binary(max_size=300))
def test_garbage_behind_the_magic_never_raises(garbage: bytes) -> None:
    read_region(b"OMT2" + garbage)
