"""When replicas make a snapshot: when rows of 1 MiB have changed, and when no replica needs entries before it.

a, b, c   voters of the set; a leads
"""

from functools import partial
from unittest.mock import patch

import pytest

from tests.topic.queues.bench import SET, QueueBench
from tests.topic.queues.test_ingress import publisher
from tests.topic.raft.mutants import Broken, must_notice
from topic.queues.replica import KEPT, SetReplica
from topic.raft.leadership import Leadership
from topic.raft.progress import FollowerProgress

LARGE = bytes(1_600_000)


def snapshots(bench: QueueBench) -> list[int]:
    """The log index of the snapshot that each disk has."""
    return [bench.disks[name].parts[SET].snapshot.index for name in "abc"]


def test_large_messages_make_a_snapshot_soon() -> None:
    bench = QueueBench(*"abc")
    pen = publisher(bench, "a")
    for number in range(8):
        pen.send(b"%d" % number + LARGE)
    assert len({*snapshots(bench)}) == 1 and snapshots(bench)[0] > 0
    parts = [bench.disks[name].parts[SET] for name in "abc"]
    assert all(sum(entry.size for entry in part.content.content.entries) < 3 * len(LARGE) for part in parts)


@pytest.mark.parametrize("follower", ["b", "c"])
def test_a_leader_keeps_entries_that_a_follower_in_contact_needs(follower: str) -> None:
    bench = QueueBench(*"abc")
    pen = publisher(bench, "a")
    bench.hanging.add(follower)
    for number in range(8):
        pen.send(b"%d" % number + LARGE)
    assert bench.disks["a"].parts[SET].snapshot.index == 0
    bench.hanging.clear()
    bench.flow()
    assert bench.disks["a"].parts[SET].snapshot.index > 0
    assert len(bench.messages(follower)) == 8


def test_a_leader_keeps_no_entries_for_a_follower_that_is_away() -> None:
    bench = QueueBench(*"abc")
    pen = publisher(bench, "a")
    for other in "ab":
        bench.part(other, "c")
    for number in range(8):
        pen.send(b"%d" % number + LARGE)
    assert bench.disks["a"].parts[SET].snapshot.index > 0
    former = bench.disks["a"].parts[SET].snapshot
    bench.hanging.add("c")
    for other in "ab":
        bench.meet(other, "c")
    bench.flow()
    for number in range(8):
        pen.send(b"and %d" % number + LARGE)
    assert bench.disks["a"].parts[SET].snapshot == former, "the follower has its first piece only"
    bench.hanging.clear()
    bench.wait(2)
    assert len(bench.messages("c")) == 16


def test_a_leader_tells_how_much_a_new_replica_has() -> None:
    """In per cent, until the replica is a voter: first of the snapshot, then of the entries behind it."""
    bench = QueueBench(*"abcd")
    pen = publisher(bench, "a")
    for number in range(24):
        pen.send(b"%d" % number + LARGE)
    leader, shown = bench.sets(bench.leader), list[int]()
    bench.hanging.add("d")
    leader.choose(SET, "abcd", bench.now)
    bench.at(bench.leader).node.pump()
    bench.flow()
    while copied := leader.overview()[0].copied:
        shown.append(copied["d"])
        bench.at("d").write()
        bench.flow()
    assert shown == sorted(shown) and len({*shown}) > 10
    [view] = leader.overview()
    assert "d" in view.voters


def test_a_follower_that_was_away_for_a_moment_gets_entries_and_no_snapshot() -> None:
    """Also from a leader that was a follower before: a snapshot has all messages."""
    bench = QueueBench(*"abc")
    pen = publisher(bench, "b")
    for number in range(40):
        pen.send(b"%d" % number + LARGE)
    with patch.object(FollowerProgress, "send_snapshot", autospec=True) as sent:
        for other in "ab":
            bench.part(other, "c")
        for number in range(7):
            pen.send(b"and %d" % number + LARGE)
        bench.stop("a")
        for other in "b":
            bench.meet(other, "c")
        bench.wait(5)
        assert len(bench.messages("c")) == 47 and bench.leader == "b" and not sent.called
    log = bench.sets("b")._replicas[SET].raft.log
    assert len(LARGE) * 8 < log.size(log.snapshot.index, log.last) < len(LARGE) * 16


def test_a_log_ends_though_its_entries_are_small() -> None:
    """Behind a long queue, when nothing but small entries comes."""
    bench = QueueBench(*"abc", compare_every=3)
    pen = publisher(bench, "a")
    for number in range(8):
        pen.send(b"%d" % number + LARGE)
    for number in range(4 * KEPT):
        pen.send(b"%d" % number)
    log = bench.sets("a")._replicas[SET].raft.log
    assert log.last - log.snapshot.index < 4 * KEPT


BROKEN: list[Broken] = [
    (SetReplica, "_apply", "self.state.rows.changed >= CHANGED", "False", test_large_messages_make_a_snapshot_soon),
    (SetReplica, "_is_needed", "leadership.lacks(index)", "False",
     partial(test_a_leader_keeps_entries_that_a_follower_in_contact_needs, "c")),
    (Leadership, "lacks", "progress.is_in_contact and ", "",
     test_a_leader_keeps_no_entries_for_a_follower_that_is_away),
    (SetReplica, "_is_far_behind", "self.state.messages.size // 4", "0",
     test_a_follower_that_was_away_for_a_moment_gets_entries_and_no_snapshot),
    (SetReplica, "_compact", "len(self._changes) == KEPT", "False", test_a_log_ends_though_its_entries_are_small),
    (FollowerProgress, "is_in_contact", " or self.needs_snapshot", "",
     test_a_leader_keeps_no_entries_for_a_follower_that_is_away),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
