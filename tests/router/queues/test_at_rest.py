"""A store that no process uses is read, and stays as it is."""

from pathlib import Path

from router.disk.wal import HEADER
from router.queues.at_rest import read_at_rest
from router.queues.boot import boot_id
from router.queues.store import STORE, QueueStore, Sync
from tests.router.queues.test_store import HARD, SETS, copied, identities
from topic.queues.storing import Write
from topic.raft.life import NO_LIFE
from topic.raft.log import Entry
from topic.raft.messages import Persist


def opened(path: Path) -> QueueStore:
    return QueueStore(path, "mesh", "a", SETS, Sync.DISK, boot_id(), identities().__next__)


def write(store: QueueStore, index: int) -> None:
    store.write([Write("q1", Persist(index, HARD, (), None, index, (Entry(3, b"%d" % index),)))])


def test_what_a_store_has_is_read_from_a_copy(tmp_path: Path) -> None:
    path = tmp_path / STORE
    with opened(path) as store:
        write(store, 1)
        killed = copied(path, tmp_path / "killed")
        assert read_at_rest(path) is None, "a process uses it"
    before = {file.name: file.read_bytes() for file in killed.parent.iterdir()}
    found = read_at_rest(killed)
    assert found is not None and found[0] == "a" and {*found[1]} == {*SETS}
    assert [entry.data for entry in found[1]["q1"].content.entries] == [b"1"]
    assert {file.name: file.read_bytes() for file in killed.parent.iterdir()} == before
    with opened(killed) as again:
        assert {name: one.store for name, one in again.contents.items()} == {
            name: one.store for name, one in found[1].items()
        }


def test_a_part_with_less_than_was_acknowledged_is_empty(tmp_path: Path) -> None:
    path = tmp_path / STORE
    with opened(path) as store:
        write(store, 1)
        earlier = copied(path, tmp_path / "earlier")
        write(store, 2)
        later = copied(path, tmp_path / "later")
    for suffix in ("", "-wal"):
        (later.parent / f"{STORE}{suffix}").write_bytes((earlier.parent / f"{STORE}{suffix}").read_bytes())
    found = read_at_rest(later)
    assert found is not None and found[1]["q1"].content.hard.life == NO_LIFE


def test_a_store_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    path = tmp_path / STORE
    assert read_at_rest(path) is None
    path.write_bytes(b"no database" * 1000)
    assert read_at_rest(path) is None
    (tmp_path / "own").mkdir()
    with opened(tmp_path / "own" / STORE) as store:
        write(store, 1)
        write(store, 2)
        killed = copied(tmp_path / "own" / STORE, tmp_path / "killed")
    log = killed.parent / f"{STORE}-wal"
    data = bytearray(log.read_bytes())
    data[HEADER.size + 30] ^= 1
    log.write_bytes(data)
    assert read_at_rest(killed) is None
