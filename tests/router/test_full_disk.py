"""A delivery log whose disk fills: it breaks off, says so in what it has already, and counts what it does not write."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.disk.room import SPARE, check_room
from tests.router.test_journal import Writer
from topic import tail
from topic.blocks import LogEntry, read_blocks
from topic.journal import SEGMENT_LIMIT, Event


class Disk:
    """A disk under `pwrite`, with room for so many more bytes: what does not fit is written in part, then fails."""

    def __init__(self) -> None:
        self.room = 1 << 40
        self._pwrite = os.pwrite

    def pwrite(self, file: int, data: bytes, at: int) -> int:
        if data and not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._pwrite(file, data[: self.room], at)
        self.room -= written
        return written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr("router.journal.os.pwrite", made.pwrite)
    return made


@pytest.fixture
def writer(tmp_path: Path, disk: Disk) -> Writer:
    return Writer(tmp_path)


def read(writer: Writer) -> list[LogEntry]:
    """All entries, of blocks that are all there and whole."""
    blocks = []
    for path in sorted(writer.directory.iterdir()):
        found, damage = read_blocks(path.read_bytes())
        assert damage is None
        blocks += found
    assert [block.number for block in blocks] == list(range(len(blocks)))
    return [entry for block in blocks for entry in block.entries()]


def told(writer: Writer) -> list[int | str]:
    """The numbers of the entries, and what is said of gaps."""
    return [entry.detail or "" if entry.event is Event.GAP else entry.time for entry in read(writer)]


def write(writer: Writer, count: int) -> None:
    for _ in range(count):
        writer.append()
        writer.file.save()


def test_what_was_saved_before_the_disk_was_full_is_there_and_the_log_says_that_it_breaks_off(
    writer: Writer, disk: Disk
) -> None:
    write(writer, 2)
    disk.room = 0
    writer.file.flush()
    write(writer, 3)
    path = writer.directory / "1-000000.oml"
    assert told(writer) == [1, 2, f'{{"why": "{path}: No space left on device"}}']
    assert (writer.file.why, writer.file.missing) == (f"{path}: No space left on device", 3)


def test_once_there_is_room_again_all_is_written_and_what_is_missing_counted(writer: Writer, disk: Disk) -> None:
    write(writer, 2)
    disk.room = 0
    writer.file.flush()
    write(writer, 3)
    disk.room = 1 << 40
    writer.file.flush()
    write(writer, 2)
    assert (writer.file.why, writer.file.missing) == ("", 3)
    assert [one for one in told(writer) if "why" not in str(one)] == [1, 2, '{"entries": 3}', 6, 7]
    disk.room = 0
    writer.file.flush()
    write(writer, 4)
    disk.room = 1 << 40
    writer.file.close()
    assert told(writer)[-1] == '{"entries": 4}' and writer.file.missing == 7


def test_a_tail_that_is_full_has_room_to_say_so(writer: Writer, disk: Disk) -> None:
    """The entry for which there was none is missing, too."""
    disk.room = 100
    for _ in range(3):
        writer.append("x" * (tail.REGION // 3))
        writer.file.save()
    assert [one for one in told(writer) if "why" not in str(one)] == [1, 2] and "why" in str(told(writer)[-1])
    assert writer.file.missing == 1


def test_there_is_room_for_any_reason(tmp_path: Path, disk: Disk) -> None:
    """A character of a path may take twelve bytes in the log."""
    writer = Writer(tmp_path / ("\N{GRINNING FACE}" * 60) / ("\N{GRINNING FACE}" * 60) / ("\N{GRINNING FACE}" * 60))
    disk.room = 0
    while not writer.file.why:
        write(writer, 1)
    assert "why" in str(told(writer)[-1])


def test_a_segment_that_cannot_be_begun_leaves_no_file_and_the_log_breaks_off_in_the_one_before(
    writer: Writer, disk: Disk
) -> None:
    disk.room = SEGMENT_LIMIT + 2 * 1024
    writer.append("x" * SEGMENT_LIMIT)
    writer.file.save()
    write(writer, 2)
    assert [path.name for path in writer.directory.iterdir()] == ["1-000000.oml"]
    assert told(writer)[0] == 1 and "why" in str(told(writer)[-1]) and writer.file.missing == 2
    disk.room = 1 << 40
    writer.file.flush()
    write(writer, 1)
    assert told(writer)[-2:] == ['{"entries": 2}', 4]


def test_a_log_that_must_be_whole_names_file_and_reason(tmp_path: Path, disk: Disk) -> None:
    writer = Writer(tmp_path, goes_on=False)
    write(writer, 1)
    disk.room = 0
    with pytest.raises(OSError, match=r"No space left on device: '.*1-000000\.oml'"):
        writer.file.flush()


def test_a_log_that_cannot_be_begun_names_file_and_reason(tmp_path: Path, disk: Disk) -> None:
    disk.room = 1024
    with pytest.raises(OSError, match=r"No space left on device: '.*1-000000\.oml'"):
        Writer(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_system_that_is_all_but_full_is_not_even_tried(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    write(writer, 1)
    left = SimpleNamespace(f_blocks=1000, f_frsize=4096, f_bavail=SPARE // 4096 - 1)
    monkeypatch.setattr("router.disk.room.os.statvfs", lambda path: left)
    writer.file.flush()
    assert writer.file.why.endswith("1-000000.oml: No space left on device")
    left.f_bavail += 1
    writer.file.flush()
    assert not writer.file.why
    left.f_blocks = left.f_bavail = 0
    check_room(writer.directory)


STEPS = ["append", "append", "save", "flush", "large", "full", "little", "room"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_whatever_the_disk_does_the_log_is_whole_up_to_where_it_says_that_it_breaks_off(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    disk = Disk()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("router.journal.os.pwrite", disk.pwrite)
        writer, saved = Writer(tmp_path_factory.mktemp("log")), 0
        for step in steps:
            if step == "append":
                writer.append()
            elif step == "large":
                writer.append("x" * (tail.REGION // 2))
            elif step in ("save", "flush"):
                writer.file.save() if step == "save" else writer.file.flush()
                saved = writer.count
            else:
                disk.room = {"full": 0, "little": tail.REGION // 2, "room": 1 << 40}[step]
        entries = read(writer)
        numbers = [entry.time for entry in entries if entry.event is not Event.GAP]
        assert len(numbers) + writer.file.missing == saved
        begins = next((at for at, entry in enumerate(entries) if entry.event is Event.GAP), len(entries))
        assert numbers[:begins] == list(range(1, begins + 1)) and numbers == sorted(numbers)
        assert (begins < len(entries)) == bool(writer.file.missing or writer.file.why or "why" in str(told(writer)))
