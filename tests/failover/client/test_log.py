"""What a client's log says of when it published: latencies are measured from there."""

from pathlib import Path

import pytest

from failover.client import log
from failover.client.log import ClientLog
from topic.blocks import LogEntry, read_blocks
from topic.identity import LinkIdentity
from topic.journal import Event

KEYS = [b"k%031d" % number for number in range(4)]


class Clock:
    now_us = 1_000_000

    def __call__(self) -> int:
        return self.now_us


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(log, "_now_us", clock)
    return clock


def entries(directory: Path) -> list[LogEntry]:
    [segment] = directory.iterdir()
    blocks, damage = read_blocks(segment.read_bytes())
    assert damage is None
    return [entry for block in blocks for entry in block.entries()]


def publisher_log(directory: Path) -> ClientLog:
    return ClientLog(directory, "publisher", LinkIdentity("one", "link", "topic/news"))


def test_publications_close_to_each_other_make_one_entry(tmp_path: Path, clock: Clock) -> None:
    written = publisher_log(tmp_path)
    for key, now_us in zip(KEYS, (2_000_000, 2_000_900, 2_001_100, 2_002_000), strict=True):
        clock.now_us = now_us
        written.published(key, b"t")
    clock.now_us = 2_050_000
    written.close()
    told = [(entry.event, entry.time, entry.keys) for entry in entries(tmp_path)]
    assert told == [
        (Event.BOOT, 1_000_000, ()),
        (Event.PUBLISHED, 2_000_000, tuple(KEYS[:2])),
        (Event.PUBLISHED, 2_001_100, tuple(KEYS[2:])),
        (Event.STOPPED, 2_050_000, ()),
    ]


def test_no_entry_is_older_than_the_one_before(tmp_path: Path, clock: Clock) -> None:
    written = publisher_log(tmp_path)
    written.published(KEYS[0], b"0")
    clock.now_us += 300
    written.deliveries(Event.SETTLED, KEYS[:1])
    clock.now_us += 300
    written.published(KEYS[1], b"1")
    written.close()
    told = [(entry.event.name, entry.time) for entry in entries(tmp_path)[1:]]
    assert told == [
        ("PUBLISHED", 1_000_000),
        ("SETTLED", 1_000_300),
        ("PUBLISHED", 1_000_600),
        ("STOPPED", 1_000_600),
    ]
