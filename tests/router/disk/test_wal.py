"""Gaps in a write-ahead log, which SQLite takes for its end."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from router.disk.sqlite import DamagedError, SqliteFile, UnusableError
from router.disk.wal import FRAME, HEADER, PAGE, gap
from tests.router.disk.test_sqlite import ALONE

STEP = FRAME.size + PAGE
TRANSACTIONS = 5


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """Five transactions of one frame each, behind the frames of a table, in a log that had more before."""
    path = tmp_path / "list.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 0"):
            connection.execute(f"PRAGMA {statement}")
        connection.execute("CREATE TABLE item (name TEXT)")
        for _ in range(2 * TRANSACTIONS):
            connection.execute("INSERT INTO item VALUES ('former')")
        connection.execute("PRAGMA wal_checkpoint")
        for number in range(TRANSACTIONS):
            connection.execute("INSERT INTO item VALUES (?)", (f"item {number}",))
        yield Path(f"{path}-wal")


def flip(log: Path, frame: int, offset: int) -> None:
    """A bit of a frame, counted from 1."""
    data = bytearray(log.read_bytes())
    data[HEADER.size + (frame - 1) * STEP + offset] ^= 1
    log.write_bytes(data)


def test_a_whole_log_has_none_whatever_is_left_of_an_earlier_one(log: Path) -> None:
    assert log.stat().st_size > HEADER.size + TRANSACTIONS * STEP
    assert gap(str(log)) == ""
    assert gap(f"{log}-missing") == ""


@pytest.mark.parametrize("offset", [0, 4, 9, 14, 17, 23, FRAME.size, STEP - 1])
@pytest.mark.parametrize("frame", range(1, TRANSACTIONS))
def test_a_bad_frame_before_the_last_transaction_is_one(log: Path, frame: int, offset: int) -> None:
    """But for one: where the salt of the frame before the last is damaged, the two are like one that is torn."""
    flip(log, frame, offset)
    is_like_a_tear = frame == TRANSACTIONS - 1 and offset in (9, 14)
    count = TRANSACTIONS - frame + (offset not in (9, 14))
    found = f"damaged: frame {frame} of the write-ahead log, before the ends of {count} transactions"
    assert gap(str(log)) == ("" if is_like_a_tear else found)


def test_a_torn_last_transaction_is_none(log: Path) -> None:
    flip(log, TRANSACTIONS, 100)
    assert gap(str(log)) == ""
    for size in range(HEADER.size + (TRANSACTIONS - 1) * STEP, HEADER.size + TRANSACTIONS * STEP, 500):
        data = log.read_bytes()
        log.write_bytes(data[:size])
        assert gap(str(log)) == ""
        log.write_bytes(data)


@pytest.mark.parametrize("offset", [0, 6, 9, 12, 16, 22, 27, 31])
def test_a_bad_header_is_one(log: Path, offset: int) -> None:
    flip(log, 1, offset - HEADER.size)
    assert "damaged: the header of the write-ahead log" in gap(str(log))


def test_a_log_that_was_cut_to_its_header_is_like_a_new_one(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: HEADER.size])
    assert gap(str(log)) == ""


def test_a_file_with_a_gap_in_its_log_is_damaged_before_sqlite_opens_it(tmp_path: Path) -> None:
    form = attrs.evolve(ALONE, settings=("journal_mode = WAL", "synchronous = FULL"), is_synced=True)
    path = tmp_path / "list.db"
    log = Path(f"{path}-wal")
    with closing(SqliteFile(path, form)) as file:
        for _ in range(TRANSACTIONS):
            with file.transaction():
                file.connection.execute("INSERT INTO item VALUES ('x', 0)")
        kept = path.read_bytes(), log.read_bytes()
    for file_of, data in zip((path, log), kept, strict=True):
        file_of.write_bytes(data)
    flip(log, 2, 200)
    damaged = log.read_bytes()
    with pytest.raises(DamagedError, match="frame 2 of the write-ahead log"):
        SqliteFile(path, form)
    assert log.read_bytes() == damaged
    log.write_bytes(kept[1])
    with closing(SqliteFile(path, form)) as file:
        assert file.connection.execute("SELECT count(*) FROM item").fetchone() == (TRANSACTIONS,)


def test_a_damaged_file_is_told_from_one_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "list.db"
    for data in (b"", b"\n", b"some text\n" * 100):
        path.write_bytes(data)
        with pytest.raises(DamagedError):
            SqliteFile(path, ALONE)
    path.unlink()
    SqliteFile(path, attrs.evolve(ALONE, application=7)).close()
    with pytest.raises(UnusableError) as caught:
        SqliteFile(path, ALONE)
    assert not isinstance(caught.value, DamagedError)
