"""The delivery log's format: what is appended is what is read, and what cannot be read is told apart."""

import zlib
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topic.blocks import Damage, LogEntry, read_blocks
from topic.journal import HEADER_LENGTH, MAGIC, Block, Event, LoggedOutcome, parse_segment_name, segment_name
from topic.tail import REGION, Tail

KEY = b"k" * 32
names = st.none() | st.text("abcdefghij/.", min_size=1, max_size=12)


def rows() -> st.SearchStrategy[dict[str, Any]]:
    def whole(keys: list[bytes]) -> st.SearchStrategy[dict[str, Any]]:
        each = st.lists(st.integers(0, 1 << 40), min_size=len(keys), max_size=len(keys))
        tags = st.lists(st.binary(max_size=32), min_size=len(keys), max_size=len(keys))
        return st.fixed_dictionaries(
            {
                "event": st.sampled_from(Event),
                "time_us": st.integers(0, 1 << 52),
                "hlc": st.integers(0, (1 << 63) - 1),
                "keys": st.just(keys),
                "outcome": st.sampled_from(LoggedOutcome),
                "n": st.integers(-1, 1 << 40),
                "ns": st.none() | each,
                "tags": st.none() | tags,
                "generation": st.none() | st.binary(min_size=8, max_size=8),
                **dict.fromkeys(("address", "publisher", "subscriber", "peer", "epoch", "detail"), names),
            }
        )

    told_of_often = st.lists(st.integers(0, 9), max_size=8).map(lambda some: [b"%032d" % one for one in some])
    in_order = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(
        lambda ends: [b"%032d" % one for one in range(*ends)]
    )
    return (told_of_often | in_order).flatmap(whole)


def written(source: str, *batches: list[dict[str, Any]]) -> list[bytes]:
    block = Block(source, "router", 7, host="host")
    encoded = []
    for batch in batches:
        for row in batch:
            block.append(**row)
        encoded.append(block.encode())
        block.begin_next()
    return encoded


def blocks(count: int) -> list[bytes]:
    boot: dict[str, Any] = {"event": Event.BOOT, "time_us": 1, "hlc": 2}
    received: dict[str, Any] = {"event": Event.RECEIVED, "time_us": 2, "hlc": 3, "keys": [KEY], "n": 4}
    return written("a", *([[boot, received]] * count))


@given(st.lists(st.lists(rows(), min_size=1, max_size=5), min_size=1, max_size=3))
def test_reader_returns_the_appended_entries(batches: list[list[dict[str, Any]]]) -> None:
    views, damage = read_blocks(b"".join(written("a", *batches)))

    assert damage is None
    assert [(view.source, view.role, view.incarnation, view.host) for view in views] == [
        ("a", "router", 7, "host")
    ] * len(batches)
    assert [view.number for view in views] == list(range(len(batches)))
    read = [entry for view in views for entry in view.entries()]
    assert read == [entry_of(row) for batch in batches for row in batch]


def entry_of(row: dict[str, Any]) -> LogEntry:
    """What an entry is expected to be read as."""
    keys, first = row["keys"], row["n"]
    consecutive = tuple(first + i if first >= 0 else -1 for i in range(len(keys)))
    texts = [row[name] for name in ("address", "publisher", "subscriber", "peer")]
    generation = row["generation"] and row["generation"].hex()
    ns = consecutive if row["ns"] is None else tuple(row["ns"])
    tags = None if row["tags"] is None else tuple(row["tags"])
    fixed = (row["event"], row["outcome"], row["time_us"], row["hlc"])
    fields: Any = (*fixed, *texts, generation, row["epoch"], row["detail"], tuple(keys), ns, tags)
    return LogEntry(*fields)


def test_names_may_be_the_ascii_bytes_of_the_cores() -> None:
    block = Block("a", "router", 1)
    block.append(Event.CLOSED, time_us=0, hlc=1, publisher=b"abcdefghijkl", peer="eightlet", generation=b"12345678")
    (view,), _ = read_blocks(block.encode())
    (entry,) = view.entries()
    assert (entry.publisher, entry.peer, entry.generation) == ("abcdefghijkl", "eightlet", b"12345678".hex())


def test_the_next_block_begins_empty() -> None:
    block = Block("a", "router", 1)
    block.append(Event.RECEIVED, time_us=0, hlc=1, keys=[KEY], tags=[b"t"])
    assert len(block) == 1 and block.unsaved() is not None
    block.begin_next()
    assert len(block) == 0 and block.unsaved() is None


def test_a_delivery_that_is_told_of_again_takes_its_key_once() -> None:
    keys = [b"%032d" % number for number in range(100)]
    block = Block("a", "router", 1)
    for told in (keys, keys[:50], keys[50:80], keys[80:], keys):
        block.append(Event.ACCEPTED, time_us=0, hlc=1, keys=told)
    encoded = block.encode()
    (view,), _ = read_blocks(encoded)
    assert view.keys == b"".join(keys * 3)
    assert encoded.count(keys[0]) == encoded.count(keys[-1]) == 1


@given(st.data())
def test_a_log_cut_anywhere_reads_up_to_its_last_whole_block(data: st.DataObject) -> None:
    whole = blocks(3)
    log = b"".join(whole)
    length = data.draw(st.integers(0, len(log)))
    ends = [0, len(whole[0]), len(whole[0] + whole[1]), len(log)]
    last = max(end for end in ends if end <= length)

    views, damage = read_blocks(log[:length])

    assert len(views) == ends.index(last)
    assert damage == (None if last == length else Damage(last, length - last, torn=True))


@given(st.data())
def test_a_changed_byte_in_the_middle_costs_its_block_and_no_other(data: st.DataObject) -> None:
    whole = blocks(3)
    log = bytearray(b"".join(whole))
    at = data.draw(st.integers(len(whole[0]), len(whole[0] + whole[1]) - 1))
    log[at] ^= data.draw(st.integers(1, 255))

    views, damage = read_blocks(bytes(log))

    assert [view.number for view in views] == [0, 2]
    assert damage == Damage(len(whole[0]), len(whole[1]), torn=False)


def test_damage_in_the_middle_is_not_taken_for_a_torn_end_behind_it() -> None:
    first, second, third = blocks(3)
    views, damage = read_blocks(first + b"junk" + second + third[:-1])
    assert [view.number for view in views] == [0, 1]
    assert damage == Damage(len(first), 4 + len(third) - 1, torn=False)


@given(st.binary(max_size=200))
def test_other_bytes_are_never_a_block(junk: bytes) -> None:
    views, damage = read_blocks(junk)
    assert views == []
    assert damage == (Damage(0, len(junk), torn=True) if junk else None)


def test_a_block_of_another_schema_is_unreadable_even_with_a_right_checksum() -> None:
    (good,) = blocks(1)
    fields = msgpack.unpackb(good[HEADER_LENGTH:])
    for forged in ({"source": "a"}, fields | {"keys": KEY[1:]}, fields | {"hlc": [1]}):
        payload = msgpack.packb(forged)
        foreign = MAGIC + len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big") + payload
        views, damage = read_blocks(foreign + good)
        assert len(views) == 1
        assert damage == Damage(0, len(foreign), torn=False)


RECEIVED: dict[str, Any] = {"event": Event.RECEIVED, "time_us": 2, "hlc": 3, "keys": [KEY], "n": 4}


def region(number: int, *entries: dict[str, Any]) -> bytes:
    """What a writer leaves that has written so many blocks, and these entries in none."""
    block, data = Block("a", "router", 7, host="host"), bytearray(REGION)
    for _ in range(number):
        block.append(**RECEIVED)
        block.begin_next()
    tail = Tail(data, block.head, "boot", number)
    for entry in entries:
        block.append(**entry)
        assert tail.append(block.unsaved() or b"")
        block.saved()
    return bytes(data)


@pytest.mark.parametrize(
    ("left", "read"), [(region(2, RECEIVED), [0, 1, 2]), (region(1, RECEIVED), [0, 1]), (region(2), [0, 1])]
)
def test_reader_returns_entries_of_the_tail_as_one_more_block(left: bytes, read: list[int]) -> None:
    views, damage = read_blocks(left + b"".join(blocks(2)))
    assert [view.number for view in views] == read and damage is None


def test_a_tail_is_read_where_there_is_no_block() -> None:
    [view], _ = read_blocks(region(0, RECEIVED, RECEIVED))
    assert [entry.keys for entry in view.entries()] == [(KEY,), (KEY,)]


def test_segment_names() -> None:
    assert parse_segment_name(segment_name(1_750_000_000_123, 17)) == (1_750_000_000_123, 17)
    assert segment_name(5, 9) < segment_name(5, 10)
    assert [parse_segment_name(name) for name in ("mesh.json", "7.oml", "a-1.oml", "1-.oml", "1-2.txt")] == [None] * 5


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("event", 3),
        ("event", [99, 0]),
        ("count", [0, 7]),
        ("address", [5, -1]),
        ("time", [1, "2"]),
        ("tags", [None, [b"1", b"2"]]),
        ("ns", [None, [-1]]),
        ("keys", b"\xff" * 32),
        ("strings", [1]),
        ("number", -1),
    ],
)
def test_a_block_that_no_writer_makes_is_damage_though_its_checksum_is_right(column: str, value: object) -> None:
    (good,) = blocks(1)
    payload = msgpack.packb(msgpack.unpackb(good[HEADER_LENGTH:]) | {column: value})
    forged = MAGIC + len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big") + payload
    assert read_blocks(forged) == ([], Damage(0, len(forged), torn=True))
    assert len(read_blocks(good)[0]) == 1
