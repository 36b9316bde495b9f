"""A power cut leaves what a store has synced, and what it has acknowledged is synced."""

import os
from pathlib import Path

import pytest

from failover.chaos.power import cut_power
from router.disk.wal import HEADER, ends
from router.queues.store import STORE, Sync
from tests.router.queues.test_at_rest import opened, write
from tests.router.queues.test_store import copied


def entries(path: Path) -> list[bytes]:
    """Of a set, as the next process finds them. It takes the store for what was written."""
    with opened(path) as store:
        assert store.notes == []
        return [entry.data for entry in store.contents["q1"].content.entries]


def killed(tmp_path: Path, *, acknowledged: int, written: int) -> Path:
    """The files of a process that was killed: it had not come to name the last writes in the mark."""
    (tmp_path / "own").mkdir()
    path = tmp_path / "own" / STORE
    with opened(path) as store:
        for index in range(1, written + 1):
            write(store, index)
            if index == acknowledged:
                mark = Path(f"{path}-mark").read_bytes()
        found = copied(path, tmp_path / "killed")
    Path(f"{found}-mark").write_bytes(mark)
    return found


def test_what_is_acknowledged_stays(tmp_path: Path) -> None:
    path = killed(tmp_path, acknowledged=2, written=2)
    assert not cut_power(path, Sync.DISK)
    assert not Path(f"{path}-mark").exists(), "nobody has synced it"
    assert entries(path) == [b"1", b"2"]


def test_a_write_that_the_store_was_about_to_acknowledge_is_lost(tmp_path: Path) -> None:
    path = killed(tmp_path, acknowledged=2, written=3)
    assert cut_power(path, Sync.DISK)
    assert entries(path) == [b"1", b"2"]


def test_a_write_that_is_not_whole_is_none(tmp_path: Path) -> None:
    path = killed(tmp_path, acknowledged=2, written=3)
    log = f"{path}-wal"
    os.truncate(log, os.path.getsize(log) - 1)
    assert not cut_power(path, Sync.DISK)
    assert entries(path) == [b"1", b"2"]


def test_the_first_write_behind_a_merge_is_lost_alone(tmp_path: Path) -> None:
    """The log is written from its beginning again; what is behind is of an earlier log."""
    path = tmp_path / STORE
    with opened(path) as store:
        for index in range(1, 4):
            write(store, index)
        store.merge()
        mark = Path(f"{path}-mark").read_bytes()
        write(store, 4)
        found = copied(path, tmp_path / "killed")
    Path(f"{found}-mark").write_bytes(mark)
    assert len(ends(f"{found}-wal")) == 1
    assert cut_power(found, Sync.DISK)
    assert os.path.getsize(f"{found}-wal") == HEADER.size
    assert entries(found) == [b"1", b"2", b"3"]


def test_nothing_need_be_on_the_disk_of_a_store_in_memory(tmp_path: Path) -> None:
    path = killed(tmp_path, acknowledged=2, written=2)
    assert cut_power(path, Sync.MEMORY)
    assert [*path.parent.iterdir()] == []


@pytest.mark.parametrize("content", [None, b"", b"no database" * 1000])
def test_what_is_no_store_stays(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / STORE
    if content is not None:
        path.write_bytes(content)
    assert not cut_power(path, Sync.DISK)
    assert (path.read_bytes() if path.exists() else None) == content
