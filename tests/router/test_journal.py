"""When a router's delivery log is written."""

from pathlib import Path

from router.journal import JournalFile
from topic.identity import KEY_LENGTH
from topic.journal import Block, Event


def written(directory: Path) -> int:
    """Bytes."""
    return sum(path.stat().st_size for path in directory.iterdir())


def test_without_whom_something_was_accepted_is_written_before_anybody_hears_of_that(tmp_path: Path) -> None:
    block = Block("a", "router", 1)
    journal = JournalFile(tmp_path, 1, block)
    block.append(Event.AUDIENCE, time_us=1, hlc=1, keys=[bytes(KEY_LENGTH)], detail="[]")
    journal.pumped()
    assert not written(tmp_path)
    block.append(Event.APART, time_us=1, hlc=1, keys=[bytes(KEY_LENGTH)], subscriber=b"s")
    journal.pumped()
    assert not len(block) and written(tmp_path)
    block.append(Event.ACCEPTED, time_us=2, hlc=2, keys=[bytes(KEY_LENGTH)])
    journal.pumped()
    assert len(block) == 1
    journal.close()
