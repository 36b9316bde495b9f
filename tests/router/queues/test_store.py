"""The store of replica sets has what was written: as a model has it, and after a kill at any time."""

import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from router.disk.room import SPARE
from router.queues.boot import boot_id
from router.queues.store import MERGE, SCRUBBED, SCRUBBED_BYTES, FullError, QueueStore, QueueStoreError, Sync
from tests.disk import full_disk
from tests.router.queues.model import Drawing, ModelStore, rows_of
from tests.set_store import sent_behind
from topic.queues.bodies.message_rows import about_key, body_key
from topic.queues.copying.pieces import Section, piece_of, read_piece, section_of
from topic.queues.positions import position_of
from topic.queues.proposals import Enqueue, encode_proposal
from topic.queues.state import entry
from topic.queues.storing import ReadBodies, ReadPiece, Renew, Write
from topic.raft.configuration import Configuration, Replica
from topic.raft.life import SetLife
from topic.raft.log import Entry, Snapshot
from topic.raft.messages import PIECE, Hard, Persist, StagedPiece

SETS = ("q0", "q1", "eu")
ME = Replica("a", b"a")
HARD = Hard(SetLife(7, "a"), b"map", True, 3, ME)


def identities(seed: str = "stores") -> Iterator[bytes]:
    random = Random(seed)
    while True:
        yield random.randbytes(8)


def opened(path: Path, sync: Sync = Sync.DISK, boot: str = "first", seed: str = "stores") -> QueueStore:
    return QueueStore(path, "mesh", "a", SETS, sync, boot, identities(seed).__next__)


def model_of(store: QueueStore) -> ModelStore:
    """One that has the same stores, all empty."""
    stores = iter([content.store for content in store.contents.values()])
    return ModelStore([*store.contents], stores.__next__)


def copied(path: Path, to: Path) -> Path:
    """The files as they are, as a kill would leave them."""
    to.mkdir(parents=True)
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copyfile(file, to / file.name)
    return to / path.name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queues.db"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sync", Sync)
def test_a_store_has_what_a_model_has(path: Path, sync: Sync, seed: int) -> None:
    """Whether it was closed or killed in between."""
    drawing = Drawing(seed)
    store = opened(path, sync)
    model = model_of(store)
    for step in range(60):
        store.write(drawing.changes(model))
        piece = drawing.piece(model)
        assert piece is None or store.read(piece) == model.read(piece)
        bodies = drawing.read(model)
        assert store.bodies(bodies) == model.bodies(bodies)
        if drawing.random.random() < 0.1:
            store.merge()
        if drawing.random.random() < 0.1:
            if drawing.random.random() < 0.5:
                path = copied(path, path.parent / str(step))
            store.close()
            store = opened(path, sync, seed=str(step))
            model.reopen()
            assert store.contents == model.contents and not store.notes
    store.close()


def test_a_kill_between_any_two_writes_loses_nothing(path: Path, tmp_path: Path) -> None:
    """Nor does one between a write and its mark, or within a write: that write is not there then, or all of it is."""
    drawing = Drawing("kills")
    store = opened(path)
    model = model_of(store)
    for step in range(16):
        before = model.copy()
        if step % 10 == 9:
            store.merge()
        killed = copied(path, tmp_path / f"{step} before")
        store.write(drawing.changes(model))
        after = copied(path, tmp_path / f"{step} after")
        unmarked = copied(path, tmp_path / f"{step} unmarked")
        torn = copied(path, tmp_path / f"{step} torn")
        for one in (unmarked, torn):
            shutil.copyfile(f"{killed}-mark", f"{one}-mark")
        tear(Path(f"{killed}-wal"), Path(f"{torn}-wal"), drawing.random)
        for found, expected in ((killed, before), (torn, before), (unmarked, model), (after, model)):
            with opened(found) as reopened:
                assert reopened.contents == expected.contents, found
                assert not reopened.notes
    store.close()


def tear(former: Path, log: Path, random: Random) -> None:
    """Of what the last write has put into the log, in front of its last byte, only a part is there."""
    old, new = former.read_bytes(), log.read_bytes()
    changed = [place for place in range(len(new)) if new[place : place + 1] != old[place : place + 1]]
    cut = random.randint(max(changed[0], 32), changed[-1])
    log.write_bytes(new[:cut] + old[cut:])


def appended(number: int, first: int, *data: bytes, hard: Hard = HARD) -> Write:
    return Write("q0", Persist(number, hard, (), None, first, tuple(Entry(hard.term, one) for one in data)))


def test_a_set_of_which_nothing_is_there_begins_with_an_identity_of_its_own(path: Path) -> None:
    with opened(path) as store:
        stores = [content.store for content in store.contents.values()]
        assert len({*stores}) == 3 and not store.notes
        assert [content.content.hard for content in store.contents.values()] == [Hard()] * 3
    with opened(path, seed="others") as store:
        assert [content.store for content in store.contents.values()] == stores


def test_a_set_that_the_topology_has_no_more_is_there_when_it_comes_back(path: Path) -> None:
    with opened(path) as store:
        store.write([appended(1, 1, b"x")])
        content = store.contents["q0"]
    with QueueStore(path, "mesh", "a", ["eu"], Sync.DISK, "first", identities("others").__next__) as store:
        assert [*store.contents] == ["eu"]
    with opened(path) as store:
        assert store.contents["q0"].store == content.store
        assert store.contents["q0"].content.entries == (Entry(3, b"x"),)


def test_a_state_of_this_replica_stays_while_a_leader_sends_its_own(path: Path) -> None:
    """And a read goes on behind the rows that were read before, as long as the snapshot is the same."""
    first, second = piece_of([(b"a", bytes(PIECE))]), piece_of([(b"b", b"theirs")])
    with opened(path) as store:
        store.write([appended(1, 1, b"x", b"y")])
        store.write([Write("q0", Persist(2, HARD, (StagedPiece(9, 0, first[0]),), None, 3, ()))])
        compacted = Persist(3, HARD, (), Snapshot(1, 3, Configuration((ME,))), 3, ())
        store.write([Write("q0", compacted, {b"a": b"mine"})])
        assert store.read(ReadPiece("q0", 1, b"")) == piece_of([(b"a", b"mine")])
        installed = Persist(4, HARD, (StagedPiece(9, 1, second[0]),), Snapshot(9, 3, Configuration((ME,))), 10, ())
        store.write([Write("q0", installed)])
        assert store.read(ReadPiece("q0", 9, b"")) == (first[0], False)
        assert store.read(ReadPiece("q0", 9, b"a")) == second
        assert store.read(ReadPiece("q0", 1, b"")) is None
        store.write([Write("q0", Persist(5, HARD, (), Snapshot(10, 3, Configuration((ME,))), 11, ()), {b"a": None})])
        assert store.read(ReadPiece("q0", 10, b"")) == second


def test_a_part_that_is_void_is_kept_in_a_file_of_its_own(path: Path) -> None:
    with opened(path) as store:
        store.write([appended(1, 1, b"x"), Renew("q0", b"other", "the state differs")])
        store.write([appended(1, 1, b"z", hard=Hard())])
        assert store.notes == [
            f"{path}: replica set q0 begins anew here, because the state differs. "
            f"Its former content is kept in {path}.q0.former-1"
        ]
    with opened(path) as store:
        assert store.contents["q0"].store == b"other"
        assert store.contents["q0"].content.entries == (Entry(0, b"z"),)
    kept = Path(f"{path}.q0.former-1")
    with QueueStore(kept, "mesh", "a", ["q0"], Sync.DISK, "first", identities("others").__next__) as store:
        assert store.contents["q0"].content.entries == (Entry(3, b"x"),)


def test_a_file_that_was_not_synced_is_void_when_the_machine_has_started_again(path: Path, tmp_path: Path) -> None:
    with opened(path, Sync.MEMORY) as store:
        store.write([appended(1, 1, b"x")])
        killed = [copied(path, tmp_path / str(number)) for number in range(3)]
    for sync, boot, place in ((Sync.MEMORY, "first", 0), (Sync.MEMORY, "second", 1), (Sync.DISK, "second", 2)):
        with opened(killed[place], sync, boot, seed="others") as found:
            is_same = found.contents["q0"].content.entries == (Entry(3, b"x"),)
            assert is_same is (boot == "first") is not bool(found.notes)
    with opened(path, Sync.MEMORY, "second") as store:  # it was closed in order
        assert store.contents["q0"].content.entries == (Entry(3, b"x"),)
        killed = [copied(path, tmp_path / "again")]
    with opened(killed[0], Sync.MEMORY, "third", seed="others") as found:
        assert "`sync: memory` was set" in found.notes[0] and not found.contents["q0"].content.entries


def test_a_file_that_is_synced_outlives_the_machine(path: Path, tmp_path: Path) -> None:
    with opened(path) as store:
        store.write([appended(1, 1, b"x")])
        killed = copied(path, tmp_path / "killed")
    with opened(killed, Sync.MEMORY, "second") as store:
        assert store.contents["q0"].content.entries == (Entry(3, b"x"),)


def test_the_file_of_another_router_is_refused_and_left_as_it_was(path: Path) -> None:
    opened(path).close()
    before = path.read_bytes()
    for mesh, router in (("mesh", "b"), ("other", "a")):
        with pytest.raises(
            QueueStoreError, match=f"{path}: .* belongs to router a of mesh mesh, expected {router} of {mesh}"
        ):
            QueueStore(path, mesh, router, SETS, Sync.DISK, "first", identities().__next__)
    assert path.read_bytes() == before


def test_a_file_has_one_holder(path: Path) -> None:
    with opened(path), pytest.raises(QueueStoreError, match="locked: another running process uses it"):
        opened(path)
    opened(path).close()


def test_a_log_without_its_file_is_set_aside(path: Path, tmp_path: Path) -> None:
    with opened(path) as store:
        store.write([appended(1, 1, b"x")])
        killed = copied(path, tmp_path / "killed")
    killed.unlink()
    with opened(killed, seed="others") as found:
        assert "it is missing" in found.notes[0] and not found.contents["q0"].content.entries
        assert Path(f"{killed}.former-1-wal").exists()


def compact(store: QueueStore, index: int) -> None:
    """Let a snapshot stand for all entries, up to this one."""
    snapshot = Snapshot(index, 3, Configuration((ME,)))
    store.write([Write("q0", Persist(1, HARD, (), snapshot, index + 1, ()), {b"key": b"state of %d" % index})])


def test_the_files_do_not_grow_for_ever(path: Path) -> None:
    """They have what a set needs and some free pages, however many entries went by."""
    with opened(path) as store:
        sizes = []
        for last in range(400, 12_001, 400):
            for first in range(last - 399, last, 100):
                store.write([appended(1, first, *[bytes(1000)] * 100)])
            compact(store, last)
            store.merge()
            sizes.append(sum(file.stat().st_size for file in path.parent.iterdir()))
        assert max(sizes[2:]) < sizes[1] + 200_000
        store.write([appended(1, 12_001, *[bytes(1000)] * 20_000)])
        store.merge()
        large = path.stat().st_size
        compact(store, 32_000)
        for _ in range(6):
            store.merge()
        assert path.stat().st_size < large / 2
        store.write([appended(1, 32_001, b"x")])
        assert Path(f"{path}-wal").stat().st_size <= 4 * MERGE


# a disk that fails


class FailingConnection:
    """SQLite's, whose fsync fails once: then the transaction is undone."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._has_failed = False

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement == "COMMIT" and not self._has_failed:
            self._has_failed = True
            self._connection.execute("ROLLBACK")
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_write_that_fails_is_never_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have dropped what it could not write, and say next time that it is there."""
    store = opened(path)
    store.write([appended(1, 1, b"x")])
    failing = FailingConnection(store._connection)
    for owner, name in ((store, "_connection"), (store._file, "connection")):
        monkeypatch.setattr(owner, name, failing)
    with pytest.raises(QueueStoreError, match=f"{path}: replica sets cannot be stored: disk I/O error"):
        store.write([appended(2, 2, b"lost")])
    for _ in range(2):
        with pytest.raises(QueueStoreError, match="has failed before"):
            store.write([appended(2, 2, b"lost")])
    monkeypatch.undo()
    store.close()
    with opened(path) as store:
        assert store.contents["q0"].content.entries == (Entry(3, b"x"),) and not store.notes


def test_a_disk_that_fills_in_the_middle_of_a_write_ends_the_store(path: Path, tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost, and nothing else is acknowledged."""
    store = opened(path)
    store.write([appended(1, 1, b"x")])
    with full_disk(), pytest.raises(QueueStoreError):
        store.write([appended(2, 2, b"lost")])
    with pytest.raises(QueueStoreError, match="has failed before"):
        store.write([appended(2, 2, b"lost")])
    killed = copied(path, tmp_path / "killed")
    store.close()
    for found in (killed, path):
        with opened(found) as store:
            assert store.contents["q0"].content.entries == (Entry(3, b"x"),) and not store.notes


def test_a_log_that_cannot_be_merged_ends_the_store(path: Path) -> None:
    store = opened(path)
    store.write([appended(1, 1, b"x")])
    with full_disk(), pytest.raises(QueueStoreError, match="cannot be merged"):
        store.merge()
    with pytest.raises(QueueStoreError, match="has failed before"):
        store.write([appended(2, 2, b"lost")])
    store.close()
    with opened(path) as store:
        assert store.contents["q0"].content.entries == (Entry(3, b"x"),) and not store.notes


def test_a_full_disk_is_noticed_before_anything_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as store:
        log = Path(f"{path}-wal")
        before = log.read_bytes()
        with monkeypatch.context() as patched:
            found = SimpleNamespace(f_blocks=1, f_bavail=SPARE + 1500, f_frsize=1)
            patched.setattr(os, "statvfs", lambda path: found)
            with pytest.raises(FullError, match=f"{path}: replica sets cannot be stored: No space left on device"):
                store.write([appended(1, 1, bytes(1000))])
            assert log.read_bytes() == before
            store.write([appended(1, 1, b"small")])
        store.write([appended(2, 2, bytes(1000))])


def test_a_damaged_row_is_not_sent(path: Path) -> None:
    with opened(path) as store:
        store.write([appended(1, 1, b"x")])
        compact(store, 1)
        store._connection.execute("UPDATE row SET value = 'other'")
        with pytest.raises(QueueStoreError, match="a row of the state of set q0 does not match its checksum"):
            store.read(ReadPiece("q0", 1, b""))


ONE, TWO = position_of(1, 1), position_of(1, 2)
BODIES = {about_key(ONE): b"about 1", body_key(ONE): b"1", about_key(TWO): b"about 2", body_key(TWO): bytes(9000)}
LARGE = "length(value) > 100", "length(data) > 100"
"""Which rows of a table have the large body, if it is in a row of its own, and if it is in its entry."""


def enqueued(*messages: bytes) -> bytes:
    """An entry that puts these into a queue."""
    return entry(HARD.life, encode_proposal(Enqueue("queue", (), (), messages)))


def bodies_in_entry(store: QueueStore) -> None:
    """The snapshot has two of the three messages of an entry."""
    store.write([appended(1, 1, enqueued(b"none", b"1", bytes(9000)))])
    snapshot = Snapshot(1, 3, Configuration((ME,)))
    store.write([Write("q0", Persist(2, HARD, (), snapshot, 2, ()), {**BODIES, b"q": b"1", b"a": b"2"})])


def bodies_in_rows(store: QueueStore) -> None:
    """A leader has sent a snapshot with these messages."""
    piece, _ = piece_of(sent_behind({b"a": b"2", **BODIES, b"q": b"1"}, b""))
    snapshot = Snapshot(1, 3, Configuration((ME,)))
    store.write([Write("q0", Persist(1, HARD, (StagedPiece(1, 0, piece),), snapshot, 2, ()))])


WAYS = pytest.mark.parametrize("with_bodies", [bodies_in_rows, bodies_in_entry])


@WAYS
def test_bodies_are_read_one_by_one(path: Path, with_bodies: Callable[[QueueStore], None]) -> None:
    """What the store finds as it is opened has none of them."""
    with opened(path) as store:
        with_bodies(store)
    with opened(path) as store:
        keys = [key for key, _ in store.contents["q0"].rows]
        assert keys == [b"a", about_key(ONE), about_key(TWO), b"q"] and not store.notes
        read = ReadBodies("q0", 1, [TWO, position_of(1, 3), ONE, position_of(9, 0)])
        assert store.bodies(read) == [bytes(9000), None, b"1", None]


@WAYS
def test_a_piece_has_each_body_behind_the_row_about_it(path: Path, with_bodies: Callable[[QueueStore], None]) -> None:
    with opened(path) as store:
        with_bodies(store)
        rows = [*sent_behind({b"a": b"2", **BODIES, b"q": b"1"}, b"")]
        assert store.read(ReadPiece("q0", 1, b"")) == piece_of(rows)
        for place, (key, _) in enumerate(rows):
            if key not in (about_key(ONE), about_key(TWO)):
                assert store.read(ReadPiece("q0", 1, key)) == piece_of(rows[place + 1 :])


def test_only_messages_of_an_earlier_snapshot_count(path: Path) -> None:
    pieces = [piece_of(rows)[0] for rows in ([(b"x", b"1")], [(b"y", b"2")])]
    with opened(path) as store:
        store.write([Write("q0", Persist(1, HARD, (StagedPiece(7, 0, pieces[0]),), None, 1, ()))])
        snapshot = Snapshot(9, 3, Configuration((ME,)))
        store.write([Write("q0", Persist(2, HARD, (StagedPiece(9, 1, pieces[1]),), snapshot, 10, ()))])
        assert store.read(ReadPiece("q0", 9, b"")) == (pieces[1], True)


def test_a_piece_has_runs_of_few_messages(path: Path) -> None:
    """To find them takes the thread of the disk some time."""
    rows = {b"a": b"2"}
    for number in range(5):
        rows.update(rows_of(position_of(1, 3 * number), b""))
    piece, _ = piece_of(sent_behind(rows, b""))
    with opened(path) as store, pytest.MonkeyPatch.context() as patched:
        store.write(
            [Write("q0", Persist(1, HARD, (StagedPiece(1, 0, piece),), Snapshot(1, 3, Configuration((ME,))), 2, ()))]
        )
        patched.setattr("router.queues.store.IN_RUNS", 2)
        found, counts, after, is_last = dict[bytes, bytes](), list[int](), b"", False
        while not is_last and len(counts) < 9:
            read = store.read(ReadPiece("q0", 1, after))
            assert read is not None
            some, is_last = read_piece(read[0]), read[1]
            counts.append(sum(section_of(key) is Section.RUNS for key, _ in some))
            found.update(some)
            after = some[-1][0]
        assert counts == [2, 2, 1] and found == dict(sent_behind(rows, b""))


@WAYS
def test_a_damaged_body_is_not_read(path: Path, with_bodies: Callable[[QueueStore], None]) -> None:
    """Nor sent. A scrub finds it, too."""
    with opened(path) as store:
        with_bodies(store)
        store._connection.execute(f"UPDATE body SET value = 'other' WHERE {LARGE[0]}")
        changed = "CAST(substr(data, 1, length(data) - 1) || x'01' AS BLOB)"
        store._connection.execute(f"UPDATE entry SET data = {changed} WHERE {LARGE[1]}")
        found = store.bodies(ReadBodies("q0", 1, [ONE, TWO]))
        assert found in ([b"1", None], [None, None])
        with pytest.raises(QueueStoreError, match="the body of a message of set q0 is missing, or does not match"):
            store.read(ReadPiece("q0", 1, b""))
        scrubbed = [store.scrub() for _ in SCRUBBED]
        tables = ("body", "entry")
        assert any({"q0": f"a scrub found a damaged row of table {table}"} in scrubbed for table in tables)


@WAYS
def test_a_lost_body_is_noticed_at_the_start(path: Path, with_bodies: Callable[[QueueStore], None]) -> None:
    with opened(path) as store:
        with_bodies(store)
        for table, large in zip(("body", "entry"), LARGE, strict=True):
            store._connection.execute(f"DELETE FROM {table} WHERE {large}")
        identity = store.contents["q0"].store
    with opened(path, seed="anew") as store:
        assert re.search("its state has 1 bodies, expected 2|0 entries with bodies, expected 1", store.notes[0])
        assert store.contents["q0"].store != identity


def test_a_body_that_stays_in_its_entry_is_not_written_again(path: Path) -> None:
    """It counts once, so the log is merged no sooner for it."""
    with opened(path) as store:
        store.write([appended(1, 1, enqueued(bytes(MERGE // 2)))])
        changes = dict(rows_of(position_of(1, 0), bytes(MERGE // 2)))
        store.write([Write("q0", Persist(2, HARD, (), Snapshot(1, 3, Configuration((ME,))), 2, ()), changes)])
        assert not store.is_to_be_merged


def test_an_entry_goes_with_the_last_of_its_messages(path: Path) -> None:
    """It goes earlier when most of its bytes are those of messages that are gone: the others get rows of their own."""
    counts = "SELECT (SELECT count(*) FROM entry), (SELECT count(*) FROM body)"

    def take(number: int, *places: int) -> tuple[int, int]:
        changes: dict[bytes, bytes | None] = {}
        for place in places:
            changes |= {about_key(position_of(1, place)): None, body_key(position_of(1, place)): None}
        snapshot = Snapshot(number, 3, Configuration((ME,)))
        store.write([appended(2 * number, number, b"another")])
        store.write([Write("q0", Persist(2 * number + 1, HARD, (), snapshot, number + 1, ()), changes)])
        found: tuple[int, int] = store._connection.execute(counts).fetchone()
        return found

    with opened(path) as store:
        store.write([appended(1, 1, enqueued(bytes(3000), bytes(501), bytes(500), bytes(500)))])
        bodies = {position_of(1, 0): bytes(3000), position_of(1, 1): bytes(501), position_of(1, 3): bytes(500)}
        changes = dict(row for at, body in bodies.items() for row in rows_of(at, body))
        store.write([Write("q0", Persist(2, HARD, (), Snapshot(1, 3, Configuration((ME,))), 2, ()), changes)])
        assert store._connection.execute(counts).fetchone() == (1, 0)
        assert take(2, 3) == (1, 0)
        assert store.bodies(ReadBodies("q0", 1, [*bodies]))[:2] == [bytes(3000), bytes(501)]
        assert take(3, 0) == (0, 1)
        assert store.bodies(ReadBodies("q0", 2, [position_of(1, 1)])) == [bytes(501)]
        assert take(4, 1) == (0, 0)
    with opened(path) as store:
        assert not store.notes


def test_a_damaged_piece_does_not_become_the_state(path: Path) -> None:
    piece, _ = piece_of([(b"a", b"theirs")])
    with opened(path) as store:
        store.write([appended(1, 1, b"x"), Write("q0", Persist(2, HARD, (StagedPiece(9, 0, piece),), None, 2, ()))])
        store._connection.execute("UPDATE piece SET data = 'other'")
        installed = Persist(3, HARD, (StagedPiece(9, 1, piece),), Snapshot(9, 3, Configuration((ME,))), 10, ())
        with pytest.raises(QueueStoreError, match="a piece of a leader's snapshot does not match its checksum"):
            store.write([Write("q0", installed)])
    with opened(path) as store:
        assert store.contents["q0"].content.entries == (Entry(3, b"x"),) and not store.notes


def test_a_scrub_reads_few_bytes_at_once(path: Path) -> None:
    """Entries may be large. It reads all of them in the end."""
    with opened(path) as store:
        store.write([appended(1, 1, *[bytes(SCRUBBED_BYTES // 2)] * 6)])
        last = store._connection.execute("SELECT max(key) FROM entry").fetchone()
        places = []
        for _ in range(3):
            assert not store.scrub()
            places.append(store._scrubbed)
        assert [key for table, key in places if table == "entry"] == [last[0] - 4, last[0] - 2, last[0]]
        store._connection.execute("UPDATE entry SET term = 9 WHERE key = ?", last)
        assert {"q0": "a scrub found a damaged row of table entry"} in [store.scrub() for _ in range(8)]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entry SET data = 'other' WHERE key = 7",
        "UPDATE row SET value = 'other'",
        "UPDATE piece SET data = 'other'",
        "REPLACE INTO entry VALUES (?, ?, ?, ?, ?)",
    ],
)
def test_a_scrub_finds_what_is_not_what_was_written(path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a row that is whole, and of another time."""
    monkeypatch.setitem(SCRUBBED, "entry", 3)
    with opened(path) as store:
        store.write([appended(1, 1, b"")])
        compact(store, 1)
        store.write([appended(2, 2, *[b"%d" % number for number in range(9)])])
        store.write([Write("q0", Persist(3, HARD, (StagedPiece(99, 0, b"piece"),), None, 11, ()))])
        store.write([Write("q1", appended(1, 1, *[b"%d" % number for number in range(9)]).persist)])
        assert [store.scrub() for _ in range(20)] == 20 * [{}]
        row = store._connection.execute("SELECT * FROM entry WHERE key = 7").fetchone()
        store.write([appended(7, 7, b"later")])
        store._connection.execute(damage, row if "?" in damage else ())
        found = [one for _ in range(20) if (one := store.scrub())]
        assert found and {name for one in found for name in one} == {"q0"}


def test_a_machine_has_one_boot_id() -> None:
    assert boot_id() == boot_id() != ""
