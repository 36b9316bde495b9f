"""Segments of a delivery log that are kept, and what each begins with."""

import os
from pathlib import Path

import pytest

from router.journal import JournalFile
from router.retention import Name, Retention
from tests.router.test_journal import Writer
from topic import tail
from topic.blocks import read_blocks
from topic.journal import Block, Event, segment_name

NAMES = [(1, 0), (1, 1), (2, 0), (2, 1)]
SIZE, AGE_S = 1000, 100


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Each segment was last written to so long before the next; and something else lies there, too."""
    for age, name in enumerate(reversed(NAMES)):
        path = tmp_path / segment_name(*name)
        path.write_bytes(bytes(SIZE))
        at = path.stat().st_mtime - age * AGE_S
        os.utime(path, (at, at))
    (tmp_path / "notes.txt").write_text("x")
    return tmp_path


@pytest.mark.parametrize(
    ("kept", "gone"),
    [
        (Retention(None, 4 * SIZE), 0),
        (Retention(None, 4 * SIZE - 1), 1),
        (Retention(None, 2 * SIZE), 2),
        (Retention(None, 1), 3),
        (Retention(3.5 * AGE_S, None), 0),
        (Retention(1.5 * AGE_S, None), 2),
        (Retention(0.001, None), 3),
        (Retention(2.5 * AGE_S, 2 * SIZE), 2),
        (Retention(1.5 * AGE_S, 3 * SIZE), 2),
    ],
)
def test_the_oldest_go_whole_and_never_the_last(kept: Retention, gone: int, log: Path) -> None:
    expired, first = kept.expired(log)
    assert expired == [log / segment_name(*name) for name in NAMES[:gone]]
    assert first == (NAMES[gone] if gone else None)


def test_that_earlier_ones_are_gone_is_told_again_and_again(log: Path) -> None:
    (log / segment_name(1, 0)).unlink()
    assert Retention(None, 9 * SIZE).expired(log) == ([], (1, 1))


class Keeper(Writer):
    """A log of which two segments of this size are kept."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.file.close()
        self.block = Block("a", "router", 2, host="host")
        self.file = JournalFile(directory, 2, self.block, kept=Retention(None, 4 * tail.REGION), restate=self.restate)
        self.told: list[Name | None] = []

    def restate(self, first: Name | None) -> None:
        self.told.append(first)
        self.block.append(Event.CONTINUED, time_us=0, hlc=1, publisher=b"p", generation=b"12345678")


def test_each_segment_begins_with_what_holds_and_says_which_is_the_first_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.journal.SEGMENT_LIMIT", 2 * tail.REGION)
    keeper = Keeper(tmp_path)
    for _ in range(3):
        keeper.append("x" * tail.REGION)
        keeper.file.save()
        deleted = [path.name for path in keeper.file.expired]
        for path in keeper.file.expired:
            path.unlink()
    assert keeper.told == [(2, 0), (2, 1), (2, 2)]
    assert deleted == [segment_name(2, 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [segment_name(2, number) for number in (2, 3)]
    blocks, _ = read_blocks((tmp_path / segment_name(2, 3)).read_bytes())
    assert [entry.event for block in blocks for entry in block.entries()] == [Event.CONTINUED]
