"""A store of replica sets that is damaged by hand: what it has under an identity is all that was acknowledged by it.

Else the set has another identity, or the file is refused: then its replica does not vote. One loss is not seen: that of
the last transactions, if the mark is lost with them. A power failure may do that where a disk says that it has what it
has not. `UNSEEN` has these ways: cuts of the log between two transactions, and damage that looks like a torn last one.
The leader of a set remembers what the replica has acknowledged, and has its store set aside (`Distrust`, in
`topic/raft/messages.py`).
"""

import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import attrs
import pytest

from router.disk.wal import FRAME, HEADER, PAGE
from router.queues.store import QueueStore, QueueStoreError, Sync
from tests.router.queues.model import Drawing
from tests.router.queues.test_store import SETS, appended, compact, copied, identities, model_of, opened
from topic.queues.rows import PackedRows
from topic.queues.storing import SetContent
from topic.raft.messages import StoreContent

STEP = FRAME.size + PAGE


@attrs.frozen
class Example:
    """Files of one store, and what it has."""

    killed: Path
    """With a log; after a kill."""
    closed: Path
    """Without one."""
    earlier: Path
    """As the killed one, some transactions before."""
    merged: Path
    """The same, from before the last merge."""
    other: Path
    """Of another router."""
    contents: Mapping[str, SetContent]
    history: Sequence[Mapping[str, SetContent]]
    """What the store had after each write."""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    return written(tmp_path_factory.mktemp("example"))


def written(folder: Path) -> Example:
    path = folder / "queues.db"
    drawing = Drawing("a fourth", renews=False)
    other = folder / "other.db"
    with QueueStore(other, "mesh", "b", SETS, Sync.DISK, "first", identities("other").__next__) as store:
        model = model_of(store)
        for _ in range(20):
            store.write(drawing.changes(model))
        other = copied(other, folder / "foreign")
    history = []
    with opened(path) as store:
        model = model_of(store)
        for step in range(40):
            if step == 20:
                merged = copied(path, folder / "merged")
            if step in (10, 25):
                store.merge()
            if step == 35:
                earlier = copied(path, folder / "earlier")
            store.write(drawing.changes(model))
            history.append(model.contents)
        killed = copied(path, folder / "killed")
    assert any(part.entries for part in model.parts.values()) and any(part.rows for part in model.parts.values())
    return Example(killed, copied(path, folder / "closed"), earlier, merged, other, model.contents, history)


def ends(log: Path) -> list[int]:
    """The frames of the log at which its transactions end: those of the present salts."""
    data = log.read_bytes()
    salts = HEADER.unpack_from(data)[4:6]
    frames = [FRAME.unpack_from(data, start) for start in range(HEADER.size, len(data), STEP)]
    return [number for number, frame in enumerate(frames) if frame[1] and frame[2:4] == salts]


def outcome(path: Path, contents: Mapping[str, SetContent]) -> str:
    """What came of opening the files: the names of the sets that are what they were; or why the file was refused.
    Asserts that nothing is less under its identity, and that what began anew is kept."""
    try:
        store = opened(path, seed="anew")
    except QueueStoreError as error:
        return str(error)
    with store:
        same = [name for name in SETS if store.contents[name].store == contents[name].store]
        for name in SETS:
            expected = (
                contents[name] if name in same else SetContent(store.contents[name].store, StoreContent(), PackedRows())
            )
            assert store.contents[name] == expected, f"{name} is less than it was"
        assert len(same) == len(SETS) or (store.notes and any(path.parent.glob("*.former-*")))
        present = store.contents
        store.write([appended(1, present["q0"].content.snapshot.index + 1, b"goes on")])
    with opened(path, seed="again") as store:
        for name in ("q1", "eu"):
            assert store.contents[name] == present[name], "it is not what it was when it was opened"
        assert store.contents["q0"].store == present["q0"].store and not store.notes
    return " ".join(same)


# what is done to a file

Damage = Callable[[bytearray, Example], object]


def flipped(start: int, bit: int = 0) -> Damage:
    def damage(data: bytearray, example: Example) -> None:
        data[start] ^= 1 << bit

    return damage


def zeroed(start: int, size: int) -> Damage:
    def damage(data: bytearray, example: Example) -> None:
        data[start : start + size] = bytes(len(data[start : start + size]))

    return damage


def cut(size: int) -> Damage:
    def damage(data: bytearray, example: Example) -> None:
        del data[size:]

    return damage


def swapped(one: int, other: int, size: int) -> Damage:
    def damage(data: bytearray, example: Example) -> None:
        first = data[one : one + size]
        data[one : one + size], data[other : other + size] = data[other : other + size], first

    return damage


def taken(which: str, suffix: str, start: int, size: int) -> Damage:
    """A block of the same place in another file."""

    def damage(data: bytearray, example: Example) -> None:
        there = Path(f"{getattr(example, which)}{suffix}").read_bytes()
        data[start : start + size] = there[start : start + size]

    return damage


def frame(number: int, offset: int = 0) -> int:
    return HEADER.size + number * STEP + offset


def damaged(example: Example, files: str, suffix: str, damage: Damage, to: Path) -> Path:
    path = copied(getattr(example, files), to)
    file = Path(f"{path}{suffix}")
    data = bytearray(file.read_bytes())
    before = bytes(data)
    damage(data, example)
    assert data != before, "nothing was damaged"
    file.write_bytes(data)
    return path


# ways

LAST = -1
"""Frames and transactions may be counted from the end."""


def in_frame(transaction: int, place: int, offset: int, size: int = 0) -> Damage:
    """Flip a bit, or zero some bytes, in a frame of a transaction of the log. Place: 0 is the first frame of it, -1 the
    one that commits it."""

    def damage(data: bytearray, example: Example) -> None:
        found = ends(Path(f"{example.killed}-wal"))
        first = found[transaction - 1] + 1 if transaction % len(found) else 0
        start = frame(first + place if place >= 0 else found[transaction], offset)
        (zeroed(start, size) if size else flipped(start))(data, example)

    return damage


def at_end(damage: Callable[[int], Damage], transaction: int, further: int = 0) -> Damage:
    """At the end of a transaction of the log, or some bytes further."""

    def done(data: bytearray, example: Example) -> None:
        damage(frame(ends(Path(f"{example.killed}-wal"))[transaction] + 1) + further)(data, example)

    return done


def exchanged(one: int, other: int, *, ends_too: bool) -> Damage:
    """Two transactions' first frames change places, or the frames that commit them."""

    def damage(data: bytearray, example: Example) -> None:
        found = ends(Path(f"{example.killed}-wal"))
        first, second = (frame(found[number] if ends_too else found[number - 1] + 1) for number in (one, other))
        swapped(first, second, STEP)(data, example)

    return damage


def replaced(which: str, suffix: str) -> Damage:
    def damage(data: bytearray, example: Example) -> None:
        data[:] = Path(f"{getattr(example, which)}{suffix}").read_bytes()

    return damage


IN_LOG: Mapping[str, Damage] = {
    "magic flipped": flipped(2),
    "version flipped": flipped(7),
    "page size flipped": flipped(10, 4),
    "salt flipped": flipped(17),
    "checksum of the header flipped": flipped(25),
    "header zeroed": zeroed(0, HEADER.size),
    "first block zeroed": zeroed(0, 512),
    "first page zeroed": zeroed(0, PAGE),
    "first frame, page number flipped": in_frame(0, 0, 3),
    "first frame, payload flipped": in_frame(0, 0, FRAME.size + 100),
    "first commit flipped": in_frame(0, -1, FRAME.size + 9),
    "first commit, size of the file flipped": in_frame(0, -1, 7),
    "middle, salt flipped": in_frame(5, 0, 9),
    "middle, checksum flipped": in_frame(5, 0, 20),
    "middle, payload flipped": in_frame(5, 1, FRAME.size + 4000),
    "middle, commit made none": in_frame(5, -1, 4, 4),
    "middle commit, payload flipped": in_frame(5, -1, FRAME.size + 50),
    "middle frame zeroed": in_frame(5, 0, 0, STEP),
    "middle block zeroed": in_frame(5, 0, STEP - 512, 512),
    "one before the last flipped": in_frame(-2, 0, FRAME.size),
    "commit of the one before the last zeroed": in_frame(-2, -1, 0, STEP),
    "last, first frame flipped": in_frame(LAST, 0, FRAME.size + 7),
    "last, commit flipped": in_frame(LAST, -1, FRAME.size + 7),
    "last commit zeroed": in_frame(LAST, -1, 0, STEP),
    "last commit, head zeroed": in_frame(LAST, -1, 0, FRAME.size),
    "cut to nothing": cut(0),
    "cut within the header": cut(20),
    "cut to the header": cut(HEADER.size),
    "cut in the first transaction": at_end(cut, 0, -1),
    "cut behind the first transaction": at_end(cut, 0),
    "cut in the middle": at_end(cut, 6, 100),
    "cut behind one before the last": at_end(cut, -2),
    "cut in the last": at_end(cut, LAST, -1),
    "two first frames exchanged": exchanged(3, 6, ends_too=False),
    "two commits exchanged": exchanged(4, 7, ends_too=True),
    "last two commits exchanged": exchanged(-2, LAST, ends_too=True),
    "a block of an earlier log": taken("merged", "-wal", 8 * PAGE, PAGE),
    "an earlier log": replaced("earlier", "-wal"),
    "a log of before the last merge": replaced("merged", "-wal"),
    "the log of another router": replaced("other", "-wal"),
}
"""Each of these is noticed."""

TABLES = "sqlite_master", "store", "part", "entry", "row"


def pages_of(file: Path) -> dict[str, int]:
    """The first page with rows of each table."""
    connection = sqlite3.connect(f"{file.as_uri()}?immutable=1", uri=True)
    found = "SELECT name, min(pageno) FROM dbstat WHERE pagetype = 'leaf' GROUP BY name"
    with closing(connection):
        try:
            return dict(connection.execute(found).fetchall())
        except sqlite3.OperationalError as error:
            pytest.skip(f"this SQLite cannot tell which page has which rows: {error}")


def in_page(table: str, offset: int, size: int = 0) -> Damage:
    """Flip a bit, or zero some bytes, in a page with rows of a table."""

    def damage(data: bytearray, example: Example) -> None:
        start = (pages_of(example.closed)[table] - 1) * PAGE + offset
        (zeroed(start, size) if size else flipped(start))(data, example)

    return damage


def in_row(find: Callable[[Example], bytes]) -> Damage:
    """Flip a bit of some bytes that a row has, also where the file has them still and needs them no more."""

    def damage(data: bytearray, example: Example) -> None:
        found = find(example)
        data[:] = data.replace(found, bytes([found[0] ^ 1]) + found[1:])

    return damage


def entry_of(example: Example) -> bytes:
    return max((entry.data for one in example.contents.values() for entry in one.content.entries), key=len)[:100]


def row_of(example: Example) -> bytes:
    return max((value for one in example.contents.values() for _, value in one.rows), key=len)[:100]


def pages_swapped(one: str, other: str) -> Damage:
    def damage(data: bytearray, example: Example) -> None:
        pages = pages_of(example.closed)
        swapped((pages[one] - 1) * PAGE, (pages[other] - 1) * PAGE, PAGE)(data, example)

    return damage


def page_taken(table: str, which: str) -> Damage:
    """The page as it was before, whole in itself."""

    def damage(data: bytearray, example: Example) -> None:
        taken(which, "", (pages_of(example.closed)[table] - 1) * PAGE, PAGE)(data, example)

    return damage


IN_FILE: Mapping[str, Damage] = {
    "first bytes flipped": flipped(3),
    "page size flipped": flipped(16, 3),
    "format flipped": flipped(19, 3),
    "application flipped": flipped(70),
    "format of ours flipped": flipped(63),
    "first block zeroed": zeroed(0, 512),
    "emptied": cut(0),
    "cut to a byte": cut(1),
    "cut to a page": cut(PAGE),
    "cut in the middle": cut(20 * PAGE + 100),
    "cut by a page": cut(-PAGE),
    **{f"{table}, kind of page flipped": in_page(table, 0) for table in TABLES[1:]},
    **{f"{table}, count of rows flipped": in_page(table, 4) for table in TABLES[1:]},
    "store, row flipped": in_row(lambda example: b"mesh"),
    "part, row flipped": in_row(lambda example: example.contents["q0"].store),
    "entry, row flipped": in_row(entry_of),
    "row, row flipped": in_row(row_of),
    **{f"{table}, page zeroed": in_page(table, 0, PAGE) for table in TABLES[1:]},
    "part and entry exchanged": pages_swapped("part", "entry"),
    "entry and row exchanged": pages_swapped("entry", "row"),
    "rows of parts from before": page_taken("part", "earlier"),
    "rows of entries from before": page_taken("entry", "merged"),
    "rows of the state from before": page_taken("row", "merged"),
    "an earlier file": replaced("earlier", ""),
    "a file of before the last merge": replaced("merged", ""),
    "the file of another router": replaced("other", ""),
    "a text": lambda data, example: data.__setitem__(slice(None), b"an operator's notes\n" * 500),
}
"""Each of these is noticed."""


@pytest.mark.parametrize("way", IN_LOG)
def test_a_damaged_log_gives_no_vote(example: Example, way: str, tmp_path: Path) -> None:
    path = damaged(example, "killed", "-wal", IN_LOG[way], tmp_path / "damaged")
    assert outcome(path, example.contents) != " ".join(SETS)


@pytest.mark.parametrize("way", IN_FILE)
def test_a_damaged_file_gives_no_vote(example: Example, way: str, tmp_path: Path) -> None:
    path = damaged(example, "closed", "", IN_FILE[way], tmp_path / "damaged")
    assert outcome(path, example.contents) != " ".join(SETS)


@pytest.mark.parametrize("seed", range(40))
def test_a_damage_anywhere_gives_no_vote_by_less(example: Example, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    files, suffix = random.choice((("killed", "-wal"), ("closed", ""), ("killed", ""), ("killed", "-mark")))
    size = Path(f"{getattr(example, files)}{suffix}").stat().st_size
    start, other = random.randrange(size), random.randrange(size)
    block = start // PAGE * PAGE
    damage = random.choice(
        (
            flipped(start, random.randrange(8)),
            zeroed(start, random.choice((1, 16, PAGE))),
            cut(start),
            swapped(block, other // PAGE * PAGE, PAGE),
            taken("earlier", suffix, block, PAGE),
        )
    )
    try:
        path = damaged(example, files, suffix, damage, tmp_path / "damaged")
    except AssertionError:
        return  # the block is the same there
    outcome(path, example.contents)


def test_a_bad_row_of_one_set_leaves_the_others_as_they_are(example: Example, tmp_path: Path) -> None:
    path = copied(example.closed, tmp_path / "damaged")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        [place] = connection.execute("SELECT max(key >> 48) FROM entry").fetchone()
        connection.execute("UPDATE entry SET term = term + 1 WHERE key = (SELECT max(key) FROM entry)")
    name = SETS[place]
    assert outcome(path, example.contents) == " ".join(other for other in SETS if other != name)
    kept = Path(f"{path}.{name}.former-1")
    with closing(sqlite3.connect(kept)) as connection:
        first = (place << 48) + example.contents[name].content.snapshot.index + 1
        [count] = connection.execute("SELECT count(*) FROM entry WHERE key >= ?", (first,)).fetchone()
        assert count == len(example.contents[name].content.entries)


def test_an_earlier_file_is_told_from_the_newest_change_that_there_was(example: Example, tmp_path: Path) -> None:
    path = damaged(example, "closed", "", replaced("earlier", ""), tmp_path / "damaged")
    with opened(path, seed="anew") as store:
        said = r"begins anew here, because its newest change in the file has number \d+, expected number \d+ or a later"
        assert re.search(said, store.notes[0]), store.notes


def put_page_back(path: Path, table: str, earlier: bytes) -> None:
    """The first page with rows of the table is as it was in the earlier file."""
    start = (pages_of(path)[table] - 1) * PAGE
    data = path.read_bytes()
    path.write_bytes(data[:start] + earlier[start : start + PAGE] + data[start + PAGE :])


def test_rows_of_another_time_are_noticed_though_each_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "queues.db"
    with opened(path) as store:
        store.write([appended(1, 1, b"one", b"two")])
        store.merge()
        earlier = path.read_bytes()
        store.write([appended(2, 1, b"ONE", b"TWO")])
        contents = store.contents
    put_page_back(path, "entry", earlier)
    with opened(path, seed="anew") as store:
        assert store.contents["q0"].store != contents["q0"].store and "of another time" in store.notes[0]
        assert {name: store.contents[name] for name in ("q1", "eu")} == {name: contents[name] for name in ("q1", "eu")}


def test_rows_of_a_state_of_another_time_are_noticed_though_each_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "queues.db"
    with opened(path) as store:
        store.write([appended(1, 1, *[b"x"] * 9)])
        compact(store, 1)
        store.merge()
        earlier = path.read_bytes()
        compact(store, 2)
        contents = store.contents
    put_page_back(path, "row", earlier)
    with opened(path, seed="anew") as store:
        assert store.contents["q0"].store != contents["q0"].store and "some of another time" in store.notes[0]


@pytest.mark.parametrize("way", ["cut", "zeroed", "missing"])
def test_a_lost_mark_is_no_damage(example: Example, way: str, tmp_path: Path) -> None:
    path = copied(example.killed, tmp_path / "damaged")
    mark = Path(f"{path}-mark")
    if way == "missing":
        mark.unlink()
    else:
        mark.write_bytes(mark.read_bytes()[:10] if way == "cut" else bytes(mark.stat().st_size))
    assert outcome(path, example.contents) == " ".join(SETS)


def test_a_file_that_was_in_use_before_the_present_one_is_void(example: Example, tmp_path: Path) -> None:
    """An operator puts an old disk back: the file is sound, but the router has begun anew since."""
    path = tmp_path / "damaged" / "queues.db"
    path.parent.mkdir()
    opened(path, seed="since").close()
    shutil.copyfile(example.closed, path)
    assert outcome(path, example.contents) == ""


# what a power failure may take with it


@pytest.mark.parametrize("way", IN_LOG)
def test_a_gap_in_the_log_is_noticed_without_the_mark(example: Example, way: str, tmp_path: Path) -> None:
    """So a power failure that takes the mark hides no damage, but at the end of the log."""
    path = damaged(example, "killed", "-wal", IN_LOG[way], tmp_path / "damaged")
    Path(f"{path}-mark").unlink()
    if way in UNSEEN:
        assert ends_earlier(path, example)
    else:
        assert outcome(path, example.contents) != " ".join(SETS)


UNSEEN = (
    "commit of the one before the last zeroed",
    *("last, first frame flipped", "last, commit flipped", "last commit zeroed", "last commit, head zeroed"),
    *("cut in the last", "cut behind one before the last", "cut in the middle", "cut behind the first transaction"),
    *("cut in the first transaction", "cut to the header", "cut within the header", "cut to nothing"),
    *("an earlier log", "a log of before the last merge"),
)
"""Without a mark these look like a power failure, or like an earlier time."""


def ends_earlier(path: Path, example: Example) -> bool:
    """Whether the store has what it had after one of its earlier writes."""
    with opened(path, seed="anew") as store:
        return not store.notes and store.contents in example.history[:-1]
