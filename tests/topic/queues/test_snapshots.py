"""When replicas make a snapshot: when rows of 1 MiB have changed, and when no replica needs entries before it.

a, b, c   voters of the set; a leads
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from tests.topic.clients import Pen
from tests.topic.queues.bench import SET, QueueBench
from tests.topic.queues.test_egress import plain
from tests.topic.queues.test_ingress import publisher
from tests.topic.raft.mutants import Broken, must_notice
from topic.queues.copying.pieces import SnapshotRows
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


def copied(bench: QueueBench, run: Callable[[], None]) -> int:
    """How many messages of 1.6 MB leaders have sent in snapshots while this runs."""
    read, sent = Leadership.read, list[int]()

    def counted(leadership: Leadership, *arguments: Any) -> None:
        sent.append(len(arguments[1]) // len(LARGE))
        read(leadership, *arguments)

    with patch.object(Leadership, "read", counted):
        run()
    return sum(sent)


def joining(bench: QueueBench, pieces: int) -> None:
    """The disk of d, which becomes a replica, has put so many pieces aside."""
    bench.hanging.add("d")
    bench.sets(bench.leader).choose(SET, "abcd", bench.now)
    bench.at(bench.leader).node.pump()
    bench.flow()
    while len(bench.disks["d"].parts[SET].pieces) < pieces:
        assert bench.at("d").write()
        bench.flow()


def joined(bench: QueueBench) -> None:
    bench.hanging.clear()
    bench.flow()
    bench.wait(5)
    [view] = bench.sets(bench.leader).overview()
    assert "d" in view.voters
    assert [*map(hash, bench.messages("d"))] == [*map(hash, bench.messages(bench.leader))]


def full(count: int) -> tuple[QueueBench, Pen]:
    bench = QueueBench(*"abcd", compare_every=3)
    pen = publisher(bench, "a")
    for number in range(count):
        pen.send(b"%d" % number + LARGE)
    return bench, pen


def test_a_copy_goes_on_after_a_cut() -> None:
    bench, _ = full(24)

    def run() -> None:
        for pieces in (5, 9, 14):
            joining(bench, pieces)
            bench.part(bench.leader, "d")
            bench.meet(bench.leader, "d")
        joined(bench)

    assert copied(bench, run) <= 24 + 3


def test_a_copy_goes_on_at_the_next_leader() -> None:
    """Although this one has a later snapshot, and some messages are gone."""
    bench, pen = full(24)

    def run() -> None:
        joining(bench, 9)
        reader = plain(bench, "b", credit=4)
        reader.accept(*[one for one in reader.delivered if one])
        for number in range(12):
            pen.send(b"and %d" % number + LARGE)
        bench.stop("a")
        bench.wait(3, "b", "c", "d")
        joined(bench)

    assert copied(bench, run) <= 24 + 12 + 1


def test_a_copy_ends_although_its_leader_makes_further_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has `DELAYED` bytes again and again."""
    monkeypatch.setattr("topic.queues.replica.DELAYED", 8 << 20)
    bench, pen = full(12)

    def run() -> None:
        joining(bench, 3)
        snapshots = {bench.disks[bench.leader].parts[SET].snapshot.index}
        for number in range(30):
            pen.send(b"and %d" % number + LARGE)
            if number % 5 == 0:
                bench.at("d").write()
                bench.flow()
            snapshots.add(bench.disks[bench.leader].parts[SET].snapshot.index)
        assert len(snapshots) > 2
        joined(bench)

    assert copied(bench, run) <= 12 + 30 + 1


def test_a_replica_that_was_away_for_long_keeps_what_it_has() -> None:
    """It gets the messages behind its own snapshot, and learns which of the others are gone."""
    bench, pen = full(40)
    for other in "ab":
        bench.part(other, "c")
    reader = plain(bench, "b", credit=4)
    reader.accept(*[one for one in reader.delivered if one])
    for number in range(20):
        pen.send(b"and %d" % number + LARGE)

    def run() -> None:
        for other in "ab":
            bench.meet(other, "c")
        bench.wait(5)

    assert 0 < copied(bench, run) <= 30
    assert [*map(hash, bench.messages("c"))] == [*map(hash, bench.messages("a"))]


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
    (SetReplica, "_restore", "self._received.read(self.state.rows.messages)", "self._received.read()",
     test_a_replica_that_was_away_for_long_keeps_what_it_has),
    (SetReplica, "_do", "begins_behind(action.index, action.has, action.after)", "action.after",
     test_a_replica_that_was_away_for_long_keeps_what_it_has),
    (SnapshotRows, "read", "if has(row[0])", "if True", test_a_replica_that_was_away_for_long_keeps_what_it_has),
    (FollowerProgress, "is_in_contact", " or self.needs_snapshot", "",
     test_a_leader_keeps_no_entries_for_a_follower_that_is_away),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
