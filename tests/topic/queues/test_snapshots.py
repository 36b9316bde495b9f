"""When replicas make a snapshot: when rows of 1 MiB have changed, and when no replica needs entries before it.

a, b, c   voters of the set; a leads
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from tests.topic.clients import Pen
from tests.topic.queues.bench import SET, STEP_S, QueueBench, with_patches
from tests.topic.queues.test_egress import plain
from tests.topic.queues.test_ingress import publisher
from tests.topic.raft.mutants import Broken, must_notice
from topic.actions import Note
from topic.queues.copying.pieces import Section, SnapshotRows, section_of
from topic.queues.replica import KEPT, SetReplica
from topic.raft.leadership import Leadership
from topic.raft.messages import PIECE
from topic.raft.progress import FollowerProgress

LARGE, SMALL = bytes(1_600_000), bytes(80_000)


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
    for other in "ab":
        bench.meet(other, "c")
    bench.wait(2)
    assert len(bench.messages("c")) == 8


def test_a_leader_keeps_no_entries_for_a_replica_that_it_sends_messages_of_a_snapshot() -> None:
    """So a long copy keeps neither a long log in memory nor many changes for one large write."""
    bench, pen = full(24)
    joining(bench, 3)
    former = bench.disks["a"].parts[SET].snapshot.index
    for number in range(24):
        pen.send(b"and %d" % number + LARGE)
    assert bench.disks["a"].parts[SET].snapshot.index > former
    joined(bench)


def copy_of_d(bench: QueueBench) -> FollowerProgress:
    leadership = bench.sets(bench.leader)._replicas[SET].raft.leadership
    assert leadership is not None
    return next(progress for member, progress in leadership.progress.items() if member.router == "d")


def test_a_leader_keeps_the_entries_behind_a_snapshot_whose_messages_are_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the copy ends, although it takes time to tell of all messages and to put the snapshot in place."""
    monkeypatch.setattr("topic.raft.progress.PIECE", 10)
    monkeypatch.setattr("topic.raft.progress.MOST_PIECE", 10)
    bench, pen = full(24)
    joining(bench, 1)
    while section_of(copy_of_d(bench).end or b"") is Section.MESSAGES:
        bench.at("d").write()
        bench.flow()
    assert copy_of_d(bench).needs_snapshot
    former = bench.disks["a"].parts[SET].snapshot.index
    for number in range(24):
        pen.send(b"and %d" % number + LARGE)
    assert bench.disks["a"].parts[SET].snapshot.index == former
    joined(bench)


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


def copied(run: Callable[[], None], size: int = len(LARGE)) -> int:
    """How many messages of this size leaders have read for pieces of snapshots while this runs."""
    read, sent = Leadership.read, list[int]()

    def counted(leadership: Leadership, *arguments: Any) -> None:
        sent.append(len(arguments[1]) // size)
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

    assert copied(run) <= 24 + 3


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

    assert copied(run) <= 24 + 12 + 1


def test_pieces_that_are_dropped_are_told() -> None:
    """The next leader has an earlier snapshot, so the copy begins anew."""
    bench, pen = full(24)
    for router in "bc":
        bench.sets(router)._replicas[SET]._compact = lambda: False  # type: ignore[method-assign]
    joining(bench, 9)
    for number in range(12):
        pen.send(b"and %d" % number + LARGE)
    bench.at("d").write()
    bench.flow()
    bench.stop("a")
    bench.wait(3, "b", "c", "d")
    joined(bench)
    told = [action.text for action in bench.actions["d"] if isinstance(action, Note)]
    dropped, came = [one for one in told if "a copy of" in one]
    assert "dropped: 11 messages" in dropped and "has come: 18 messages" in came


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

    assert copied(run) <= 12 + 30 + 1


@pytest.mark.parametrize("cuts", [0, 20])
def test_a_copy_ends_although_the_log_grows_by_a_piece_during_each_piece(cuts: int) -> None:
    """The log has grown by at most as many bytes as there were at the start. Each cut costs a piece at most."""
    bench = QueueBench(*"abcd", compare_every=3)
    pen, count = publisher(bench, "a"), 80
    for number in range(count):
        pen.send(b"%d" % number + SMALL)
    came = 0

    def run() -> None:
        nonlocal came
        joining(bench, 1)
        for step in itertools.count(1):
            for number in range(PIECE // len(SMALL)):
                pen.send(b"and %d %d" % (step, number) + SMALL)
            came += PIECE // len(SMALL)
            bench.now += STEP_S
            for name in bench.names:
                bench._time(name)
            bench.at("d").write()
            bench.flow()
            if step <= cuts:
                bench.part(bench.leader, "d")
                bench.meet(bench.leader, "d")
            if "d" in bench.sets(bench.leader).overview()[0].voters:
                return
            assert came <= count + (cuts + 9) * PIECE // len(SMALL)

    assert copied(run, len(SMALL)) <= count + came
    joined(bench)


def test_a_large_snapshot_is_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contacts of the router would end during a long turn. Entries that are decided meanwhile are applied later."""
    monkeypatch.setattr("topic.queues.replica.RESTORED", 1)
    bench, pen = full(24)
    joining(bench, 1)
    replica = bench.sets("d")._replicas[SET]
    while not replica.raft.log.snapshot.index:
        bench.at("d").write()
        bench.flow()
    bench.at("d").write()
    pen.send(b"later" + LARGE)
    bench.at("d").write()
    bench.flow()
    assert replica.raft.log.commit > replica.raft.log.snapshot.index
    turns = 0
    while replica.applied < replica.raft.log.snapshot.index:
        bench.now += STEP_S
        assert bench.sets("d").deadline() <= bench.now
        bench._time("d")
        turns += 1
        assert turns < 100
    assert turns > 2
    pen.send(b"latest" + LARGE)
    joined(bench)


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

    assert 0 < copied(run) <= 30
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
    (SetReplica, "_is_needed", "if progress.lacks(index)", "if False",
     partial(test_a_leader_keeps_entries_that_a_follower_in_contact_needs, "c")),
    (FollowerProgress, "lacks", "self.is_in_contact and ", "",
     test_a_leader_keeps_no_entries_for_a_follower_that_is_away),
    (SetReplica, "_is_needed", "section_of(one.end) is not Section.MESSAGES", "True",
     test_a_leader_keeps_no_entries_for_a_replica_that_it_sends_messages_of_a_snapshot),
    (SetReplica, "_is_needed", "section_of(one.end) is not Section.MESSAGES", "False",
     partial(with_patches, test_a_leader_keeps_the_entries_behind_a_snapshot_whose_messages_are_through)),
    (SetReplica, "_is_far_behind", "self.state.messages.size // 4", "0",
     test_a_follower_that_was_away_for_a_moment_gets_entries_and_no_snapshot),
    (SetReplica, "_compact", "len(self._changes) == KEPT", "False", test_a_log_ends_though_its_entries_are_small),
    (SetReplica, "_go_on_restoring", "islice(restoring.left, RESTORED)", "restoring.left",
     partial(with_patches, test_a_large_snapshot_is_read_in_turns)),
    (SetReplica, "flush", "now if self._restoring is not None else", "math.inf if self._restoring is not None else",
     partial(with_patches, test_a_large_snapshot_is_read_in_turns)),
    (SetReplica, "_take_decided", "if self._restoring is not None", "if False",
     partial(with_patches, test_a_large_snapshot_is_read_in_turns)),
    (SetReplica, "_restore", "self._received.read(self.state.rows.messages)", "self._received.read()",
     test_a_replica_that_was_away_for_long_keeps_what_it_has),
    (SetReplica, "_do", "begins_behind(action.index, action.has, action.after)", "action.after",
     test_a_replica_that_was_away_for_long_keeps_what_it_has),
    (SnapshotRows, "read", "if has(row[0])", "if True", test_a_replica_that_was_away_for_long_keeps_what_it_has),
    (FollowerProgress, "is_in_contact", " or self.needs_snapshot", "",
     partial(with_patches, test_a_leader_keeps_the_entries_behind_a_snapshot_whose_messages_are_through)),
    (FollowerProgress, "next_piece", "min(needed, MOST_PIECE)", "0",
     partial(test_a_copy_ends_although_the_log_grows_by_a_piece_during_each_piece, 0)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
