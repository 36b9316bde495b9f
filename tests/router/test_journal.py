"""A delivery log on disk: what was saved is there, whatever becomes of its writer."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.journal import JournalFile
from tests.hangs import HANGS_S
from topic import tail
from topic.blocks import read_blocks
from topic.identity import KEY_LENGTH
from topic.journal import SEGMENT_LIMIT, Block, Event

KEY = b"k" * KEY_LENGTH


class Writer:
    """A router's log, and what its entries are numbered by."""

    def __init__(self, directory: Path, *, goes_on: bool = True) -> None:
        self.directory = directory
        self.block = Block("a", "router", 1, host="host")
        self.file = JournalFile(directory, 1, self.block, goes_on=goes_on)
        self.count = 0

    def append(self, detail: str | None = None) -> None:
        self.count += 1
        self.block.append(
            Event.RECEIVED, time_us=self.count, hlc=1, keys=[KEY], tags=[b"t%d" % self.count], publisher=b"p", ns=[7],
            generation=b"12345678", detail=detail,
        )  # fmt: skip

    def read(self) -> list[int]:
        """The times of all entries that a reader finds now; every one is whole, and no block is there twice."""
        found: list[int] = []
        numbers: list[int] = []
        for path in sorted(self.directory.iterdir()):
            blocks, damage = read_blocks(path.read_bytes())
            assert damage is None
            for block in blocks:
                assert (block.source, block.role, block.incarnation, block.host) == ("a", "router", 1, "host")
                numbers.append(block.number)
                for entry in block.entries():
                    found.append(entry.time)
                    assert (entry.keys, entry.tags, entry.ns) == ((KEY,), (b"t%d" % entry.time,), (7,))
                    assert (entry.publisher, entry.generation) == ("p", b"12345678".hex())
        assert numbers == list(range(len(numbers)))
        return found


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


def test_what_is_saved_is_there_before_any_block_is_written(writer: Writer) -> None:
    writer.append()
    assert writer.read() == []
    writer.file.save()
    writer.append()
    assert writer.read() == [1]
    writer.file.save()
    assert writer.read() == [1, 2]


def test_what_is_in_a_block_is_no_longer_in_the_tail(writer: Writer) -> None:
    writer.append()
    writer.file.save()
    writer.file.flush()
    assert writer.read() == [1]
    writer.append()
    writer.file.save()
    assert writer.read() == [1, 2]
    writer.file.close()
    assert writer.read() == [1, 2]


def test_a_writer_that_ends_before_it_has_emptied_the_tail_tells_nothing_twice(writer: Writer, tmp_path: Path) -> None:
    writer.append()
    writer.file.save()
    [segment] = tmp_path.iterdir()
    region = segment.read_bytes()
    writer.file.flush()
    segment.write_bytes(region + segment.read_bytes()[tail.REGION :])
    assert writer.read() == [1]


def test_what_does_not_fit_the_tail_is_written_at_once(writer: Writer, tmp_path: Path) -> None:
    writer.append()
    writer.file.save()
    writer.append("x" * tail.REGION)
    writer.file.save()
    assert not len(writer.block) and writer.read() == [1, 2]
    for _ in range(5000):
        writer.append()
        writer.file.save()
    assert writer.read() == list(range(1, 5003)) and len(writer.block) < 5000


def test_a_segment_that_has_reached_its_limit_is_the_last_but_one(writer: Writer, tmp_path: Path) -> None:
    for _ in range(3):
        writer.append("x" * (SEGMENT_LIMIT // 2))
        writer.file.save()
    writer.append()
    writer.file.save()
    assert len(list(tmp_path.iterdir())) == 2
    assert writer.read() == [1, 2, 3, 4]


def test_the_last_entry_of_a_log_is_in_its_last_segment(writer: Writer, tmp_path: Path) -> None:
    writer.append("x" * SEGMENT_LIMIT)
    writer.file.close()
    assert len(list(tmp_path.iterdir())) == 1 and writer.read() == [1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(["append", "save", "flush", "large"]), max_size=30))
def test_a_reader_always_finds_all_that_was_saved(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    writer, saved = Writer(tmp_path_factory.mktemp("log")), 0
    for step in steps:
        if step == "append":
            writer.append()
        elif step == "large":
            writer.append("x" * (tail.REGION // 3))
        else:
            writer.file.save() if step == "save" else writer.file.flush()
            saved = writer.count
        assert writer.read() == list(range(1, saved + 1))


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.router.test_journal import Writer
writer = Writer(Path(sys.argv[1]))
for _ in range(3):
    writer.append()
    writer.file.save()
writer.file.flush()
for _ in range(4):
    writer.append()
    writer.file.save()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_is_saved_outlives_a_kill(writer: Writer, tmp_path: Path) -> None:
    root = Path(__file__).parent.parent.parent
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "killed")], cwd=root, timeout=HANGS_S)
    assert killed.returncode == -signal.SIGKILL
    writer.directory = tmp_path / "killed"
    assert writer.read() == [1, 2, 3, 4, 5, 6, 7]
