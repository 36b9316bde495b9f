"""Snapshots, and digests of the state, as scenarios (protocol 13.6)."""

import math

import attrs
import pytest

from tests.topic.raft.cluster import Cluster, State
from tests.topic.raft.test_traps import led, raft
from topic.errors import BreachError
from topic.raft import messages as say
from topic.raft.configuration import Configuration, Replica
from topic.raft.log import OVERHEAD, Entry, RaftLog, Snapshot
from topic.raft.messages import PIECE, Piece
from topic.raft.progress import MOST_PIECE, FollowerProgress, SnapshotPart

SNAPSHOT = Snapshot(7, 2, Configuration((Replica("a", b"1"),)))


def behind(entries: int = 8, compacted: str = "a") -> Cluster:
    """A set in which c was away. It is in contact again with a, which leads. These routers have no entries before their
    snapshots."""
    cluster = led("a", "b", "c")
    cluster.cut("c")
    for number in range(entries):
        cluster.propose("a", b"%d" % number)
    cluster.settle()
    for router in compacted:
        cluster.compact(router)
    cluster.propose("a", b"last")
    cluster.settle()
    cluster.meet("a", "c")
    return cluster


def until(cluster: Cluster, kind: type, sender: str, receiver: str) -> None:
    """Go on until a message of this kind is the next one on the channel."""
    for _ in range(1000):
        channel = cluster.channels.get((sender, receiver))
        if channel and isinstance(channel[0][1].body, kind):
            return
        assert cluster.step_without_time(), "nothing is left to do"
    raise AssertionError(f"no {kind.__name__} in 1000 steps")


def arriving(cluster: Cluster, sender: str, receiver: str) -> list[Piece]:
    """Go on until nothing is left to do. Returns the pieces on the channel since."""
    seen: list[say.Envelope] = []
    for _ in range(1000):
        sent = [envelope for _, envelope in cluster.channels.get((sender, receiver), ())]
        seen += [one for one in sent if isinstance(one.body, Piece) and not any(one is other for other in seen)]
        if not cluster.step_without_time():
            break
    return [one.body for one in seen if isinstance(one.body, Piece)]


def staged(cluster: Cluster, count: int, leader: str = "a") -> None:
    """Go on until c has put so many pieces aside. The leader has not read the last acknowledgement."""
    for _ in range(count):
        until(cluster, say.Staged, "c", leader)
        if len(cluster.replicas["c"].disk.pieces) < count:
            cluster.deliver("c", leader)
    assert len(cluster.replicas["c"].disk.pieces) == count


def test_a_log_goes_on_behind_its_snapshot() -> None:
    log = RaftLog([Entry(1)] * 3 + [Entry(2, configuration=SNAPSHOT.configuration)] + [Entry(2)] * 3)
    log.commit = 5
    log.compact(4)
    assert (log.snapshot, log.last, log.commit) == (Snapshot(4, 2, SNAPSHOT.configuration), 7, 5)
    assert log.configuration == SNAPSHOT.configuration and log.configured_at == 4
    assert log.size(0, 7) == log.size(4, 7) == 3 * Entry(2).size
    assert [log.term(index) for index in (4, 5, 7)] == [2, 2, 2]
    assert log.latest_up_to(7, 1) is None, "where the logs may agree is in the snapshot"
    log.append([Entry(3)])
    assert log.write(1) == (log.snapshot, 8, (Entry(3),))
    log.written(1)
    assert log.stable == 8
    again = RaftLog([Entry(2)] * 3, log.snapshot)
    assert (again.last, again.commit, again.stable) == (7, 4, 7)


def test_a_snapshot_is_stable_when_its_own_write_ends() -> None:
    log = RaftLog([Entry(1)])
    log.commit = 1
    log.append([Entry(1)] * 9)
    log.write(1)
    log.install(SNAPSHOT)
    assert log.write(2) == (SNAPSHOT, 8, ())
    log.written(1)
    assert log.stable < SNAPSHOT.index <= log.last, "an earlier write had ten entries of another log"
    log.written(2)
    assert log.stable == SNAPSHOT.index


def test_a_follower_keeps_its_state_and_its_log_until_all_pieces_are_there() -> None:
    cluster = behind()
    c = raft(cluster, "c")
    before = c.log.entries(1, c.log.last), cluster.replicas["c"].state
    until(cluster, Piece, "a", "c")
    while not c.log.snapshot.index:
        assert (c.log.entries(1, c.log.last), cluster.replicas["c"].state) == before
        assert cluster.step_without_time()
    assert sum("Piece" in said for said in cluster.said) > 3
    cluster.settle()
    assert c.log.snapshot == raft(cluster, "a").log.snapshot
    assert cluster.replicas["c"].applied == cluster.replicas["a"].applied


def test_a_piece_is_on_the_disk_before_it_is_acknowledged() -> None:
    """So the memory of a follower need not hold the state."""
    cluster = behind()
    until(cluster, Piece, "a", "c")
    cluster.deliver("a", "c")
    assert not cluster.channels["c", "a"]
    cluster.finish("c")
    assert [type(envelope.body) for _, envelope in cluster.channels["c", "a"]] == [say.Staged]
    assert len(cluster.replicas["c"].disk.pieces) == 1


@pytest.mark.parametrize("steps", range(0, 60, 3))
@pytest.mark.parametrize("kept", [0, 1])
def test_a_snapshot_arrives_whenever_the_follower_dies(steps: int, kept: int) -> None:
    cluster = behind()
    for _ in range(steps):
        cluster.step_without_time()
    cluster.crash("c", kept)
    cluster.cut("c")
    cluster.start("c")
    cluster.meet_all()
    cluster.settle()
    cluster.check_matching()
    assert cluster.replicas["c"].applied == cluster.replicas["a"].applied


def test_a_snapshot_goes_on_after_a_cut() -> None:
    """Behind the pieces that the follower has put aside, although the acknowledgement of the last one is lost."""
    for count in (1, 2, 3):
        cluster = behind()
        staged(cluster, count)
        cluster.cut("c")
        cluster.meet("a", "c")
        assert [piece.place for piece in arriving(cluster, "a", "c")] == [*range(count, 5)]
        assert cluster.replicas["c"].applied == cluster.replicas["a"].applied


@pytest.mark.parametrize("is_later", [False, True], ids=["the same snapshot", "a later snapshot"])
def test_the_next_leader_goes_on_with_what_the_follower_has(is_later: bool) -> None:
    cluster = behind(compacted="a" if is_later else "ab")
    staged(cluster, 2)
    cluster.crash("a")
    cluster.cut("a")
    if is_later:
        cluster.compact("b")
    cluster.meet("b", "c")
    cluster.settle()
    assert cluster.leaders() == ["b"]
    places = [line for line in cluster.said if line.startswith("b → c") and "Piece" in line]
    assert " place=2 " in places[0]
    assert cluster.replicas["c"].applied == cluster.replicas["b"].applied


def test_a_leader_with_an_earlier_snapshot_sends_it_from_the_beginning() -> None:
    """The follower's pieces lack what is gone at a later index, and is there at this one."""
    cluster = behind(compacted="b")
    cluster.cut("c")
    cluster.propose("a", b"more")
    cluster.settle()
    cluster.compact("a")
    cluster.meet("a", "c")
    staged(cluster, 2)
    cluster.crash("a")
    cluster.cut("a")
    cluster.meet("b", "c")
    cluster.settle()
    places = [line for line in cluster.said if line.startswith("b → c") and "Piece" in line]
    assert " place=0 " in places[0]
    assert cluster.replicas["c"].applied == cluster.replicas["b"].applied


def test_a_later_snapshot_goes_on_where_the_former_one_was() -> None:
    """So a copy ends, however often its leader makes another snapshot meanwhile."""
    cluster = behind()
    staged(cluster, 3)
    cluster.compact("a")
    assert [piece.place for piece in arriving(cluster, "a", "c")] == [3, 4, 5]
    assert raft(cluster, "c").log.snapshot == raft(cluster, "a").log.snapshot
    assert cluster.replicas["c"].applied == cluster.replicas["a"].applied


def test_a_follower_that_was_away_keeps_what_its_own_snapshot_has() -> None:
    cluster = led("a", "b", "c")
    cluster.propose("a", *[b"%d" % number for number in range(7)])
    cluster.settle()
    cluster.compact("c")
    cluster.cut("c")
    cluster.propose("a", b"x", b"y")
    cluster.settle()
    cluster.compact("a")
    cluster.meet("a", "c")
    assert len(arriving(cluster, "a", "c")) == 1
    assert cluster.replicas["c"].applied == cluster.replicas["a"].applied
    cluster.crash("c")
    cluster.start("c")
    assert cluster.replicas["c"].applied == cluster.replicas["a"].applied[:11]


def test_pieces_go_when_the_log_has_passed_them() -> None:
    """The next leader has all entries that the follower lacks."""
    cluster = behind()
    staged(cluster, 2)
    cluster.crash("a")
    cluster.cut("a")
    cluster.meet("b", "c")
    cluster.settle()
    assert not cluster.replicas["c"].disk.pieces and not raft(cluster, "c").log.snapshot.index
    assert cluster.replicas["c"].applied == cluster.replicas["b"].applied


def test_pieces_go_when_a_store_is_recovered() -> None:
    """They have entries that this store has lost."""
    cluster = behind()
    staged(cluster, 2)
    for router in "ab":
        cluster.crash(router)
    cluster.cut("c")
    cluster.do("c", lambda one: one.recover(cluster.now))
    cluster.settle()
    assert cluster.leaders() == ["c"] and not cluster.replicas["c"].disk.pieces


def test_a_piece_that_is_read_twice_is_sent_once() -> None:
    """The disk of the leader reads it for an earlier contact, and again."""
    cluster = behind()
    until(cluster, say.Staged, "c", "a")
    cluster.deliver("c", "a")
    assert isinstance(cluster.replicas["a"].disk.writes[-1], say.Read)
    cluster.cut("c")
    cluster.meet("a", "c")
    while len(cluster.replicas["a"].disk.writes) < 2:
        assert cluster.step_without_time(hanging="a")
    assert [piece.place for piece in arriving(cluster, "a", "c")] == [1, 2, 3, 4]
    assert cluster.replicas["c"].applied == cluster.replicas["a"].applied


def test_a_read_comes_after_the_write_of_the_snapshot() -> None:
    cluster = behind()
    until(cluster, say.Staged, "c", "a")
    cluster.deliver("c", "a")
    cluster.compact("a")
    kinds = [type(one) for one in cluster.replicas["a"].disk.writes]
    assert kinds[-2:] == [say.Persist, say.Read]


def reading() -> Cluster:
    """The disk of a, which leads, reads the first piece for c."""
    cluster = behind()
    while not cluster.replicas["a"].disk.writes:
        assert cluster.step_without_time()
    return cluster


def test_a_piece_that_was_read_for_an_earlier_contact_is_not_sent() -> None:
    cluster = reading()
    cluster.meet("a", "c")
    cluster.finish("a")
    assert not any(isinstance(envelope.body, Piece) for _, envelope in cluster.channels["a", "c"])
    cluster.settle()
    assert cluster.replicas["c"].applied == cluster.replicas["a"].applied


def test_a_piece_that_was_stored_in_an_earlier_contact_is_not_acknowledged() -> None:
    cluster = behind()
    until(cluster, Piece, "a", "c")
    cluster.deliver("a", "c")
    cluster.meet("a", "c")
    cluster.settle(hanging="c")
    cluster.finish("c")
    assert not any(isinstance(envelope.body, say.Staged) for _, envelope in cluster.channels["c", "a"])
    cluster.settle()
    assert cluster.replicas["c"].applied == cluster.replicas["a"].applied


def test_a_piece_of_a_former_snapshot_is_not_sent() -> None:
    cluster = reading()
    cluster.compact("a")
    cluster.finish("a")
    assert not any(isinstance(envelope.body, Piece) for _, envelope in cluster.channels["a", "c"])
    cluster.settle()
    assert cluster.replicas["c"].applied == cluster.replicas["a"].applied


def stored(progress: FollowerProgress, place: int, size: int = PIECE) -> None:
    """The shell has read this piece, and the member's disk has it."""
    has = SnapshotPart(0 if not place else 9, place, b"%d" % place if place else b"")
    snapshot, end = attrs.evolve(SNAPSHOT, index=9), b"%d" % (place + 1)
    assert progress.take_piece(has, Piece(1, snapshot, place, bytes(size), end, False))
    progress.staged(place)


def copying() -> tuple[FollowerProgress, RaftLog]:
    """The leader asks the shell for the first piece at second 5, and the log has nine entries."""
    progress, log = FollowerProgress(9, 0.0), RaftLog([Entry(1)] * 9)
    progress.send_snapshot(SnapshotPart(0, 0, b""))
    assert progress.next_piece(log, 5.0) == (SnapshotPart(0, 0, b""), PIECE) and progress.reads_at == math.inf
    return progress, log


def test_a_leader_rests_between_pieces_while_the_log_grows() -> None:
    """As long as the piece before took: a second at most."""
    progress, log = copying()
    stored(progress, 0)
    log.append([Entry(1)])
    assert progress.next_piece(log, 5.25) is None and progress.reads_at == 5.5
    assert progress.next_piece(log, 5.5) is not None
    stored(progress, 1)
    assert progress.next_piece(log, 6.0) is not None, "nothing else has come"
    stored(progress, 2)
    log.append([Entry(1)])
    assert progress.next_piece(log, 9.0) is None and progress.reads_at == 10.0


def test_a_leader_rests_only_while_the_copy_keeps_ahead_of_the_log() -> None:
    """So it goes on when the log has grown by half of the piece."""
    progress, log = copying()
    stored(progress, 0)
    log.append([Entry(1, bytes(PIECE // 4))])
    assert progress.next_piece(log, 6.0) is None
    log.append([Entry(1, bytes(PIECE // 4))])
    assert progress.next_piece(log, 6.0) is not None


def test_pieces_are_as_large_as_a_log_needs_that_grows_fast() -> None:
    progress, log = copying()
    for place, (grown, size) in enumerate([(PIECE, 2 * PIECE), (9 << 20, MOST_PIECE), (0, PIECE)]):
        stored(progress, place)
        log.append([Entry(1, bytes(grown - OVERHEAD))] if grown else [])
        found = progress.next_piece(log, 6.0)
        assert found is not None and found[1] == size


def test_a_leader_that_rests_goes_on_by_itself() -> None:
    cluster = behind()
    until(cluster, say.Staged, "c", "a")
    cluster.now += 0.25
    cluster.propose("a", b"more")
    while cluster.step_without_time():
        pass
    a = raft(cluster, "a")
    assert a.deadline == cluster.now + 0.25 and not raft(cluster, "c").log.snapshot.index
    cluster.tick("a")
    cluster.settle()
    assert cluster.replicas["c"].applied == cluster.replicas["a"].applied


def test_one_piece_is_on_its_way_at_a_time() -> None:
    cluster = behind()
    for _ in range(1000):
        pieces = [envelope for _, envelope in cluster.channels["a", "c"] if isinstance(envelope.body, Piece)]
        reads = [one for one in cluster.replicas["a"].disk.writes if isinstance(one, say.Read)]
        assert len(pieces) + len(reads) <= 1
        if not cluster.step_without_time():
            break


def test_a_follower_is_sent_a_snapshot_if_its_entries_go_in_the_meantime() -> None:
    log, progress = RaftLog([Entry(1)] * 9), FollowerProgress(9, 0.0)
    log.commit = 9
    progress.ask(log, 2, 1)
    progress.learn(agreed=2, stored=2)
    assert not progress.lacks_entries(log)
    log.compact(5)
    assert progress.lacks_entries(log)


def test_a_window_stays_closed_while_its_entries_are_in_the_snapshot() -> None:
    """What is on its way to a disk that hangs stays bounded, though the leader's log begins behind it."""
    log, progress = RaftLog([Entry(1)] * 9), FollowerProgress(9, 0.0)
    log.commit = 9
    progress.ask(log, 2, 1)
    progress.learn(agreed=2, stored=2)
    assert progress.next_append(log, 1, 1 << 20, is_due=True) is not None
    log.compact(9)
    log.append([Entry(1)])
    assert progress.next_append(log, 1, 1 << 20, is_due=True) is None
    progress.learn(agreed=9, stored=9)
    append = progress.next_append(log, 1, 1 << 20, is_due=True)
    assert append is not None and append.previous == 9


def test_only_an_applied_state_becomes_a_snapshot() -> None:
    cluster = led("a", "b", "c")
    cluster.propose("a", b"x")
    with pytest.raises(ValueError, match="index 3"):
        raft(cluster, "a").compact(3)


@pytest.mark.parametrize(
    "piece",
    [
        Piece(9, attrs.evolve(SNAPSHOT, index=99), 1, b"", b"2", False),
        Piece(9, attrs.evolve(SNAPSHOT, index=2), 0, b"", b"2", True),
    ],
    ids=["without the pieces before it", "over entries that are decided"],
)
def test_a_leader_that_sends_a_wrong_piece_loses_its_contact(piece: Piece) -> None:
    cluster = led("a", "b", "c")
    b, c = raft(cluster, "b"), raft(cluster, "c")
    with pytest.raises(BreachError, match="router c"):
        b.receive(say.Envelope(b.hard.life, c.me, b.me, piece), cluster.now)


def test_a_piece_of_an_earlier_snapshot_breaks_the_protocol() -> None:
    cluster = behind()
    staged(cluster, 1)
    a, c = raft(cluster, "a"), raft(cluster, "c")
    piece = Piece(a.hard.term, attrs.evolve(a.log.snapshot, index=9), 1, b"", b"2", False)
    with pytest.raises(BreachError, match="out of order"):
        c.receive(say.Envelope(a.hard.life, a.me, c.me, piece), cluster.now)


# digests


def compared(*routers: str, compacts: bool = True) -> Cluster:
    """A set that compares the states of its replicas at each fourth entry."""
    cluster = Cluster(routers, digests=4, compacts=lambda: compacts)
    cluster.meet_all()
    cluster.settle()
    return cluster


def rot(cluster: Cluster, router: str) -> None:
    replica = cluster.replicas[router]
    replica.state = State(replica.state.applied, rot=1)


@pytest.mark.parametrize("router", ["a", "b"], ids=["the leader", "a follower"])
def test_a_replica_with_another_state_takes_part_no_more(router: str) -> None:
    cluster = compared("a", "b", "c")
    former = cluster.replicas[router].disk.store
    rot(cluster, router)
    cluster.propose("a", b"x", b"y", b"z")
    cluster.settle()
    assert any(f"{router}: set aside, the state at index 4" in said for said in cluster.said)
    assert cluster.replicas[router].disk.store != former
    assert len({replica.state for replica in cluster.replicas.values()}) == 1
    assert not any(replica.state.rot for replica in cluster.replicas.values())


def test_an_operator_is_told_if_no_majority_has_the_same_state() -> None:
    cluster = compared("a", "b")
    rot(cluster, "b")
    cluster.propose("a", b"x", b"y", b"z")
    cluster.settle()
    assert "a: alarm, no majority has the same state at index 4" in cluster.said
    assert cluster.leaders() == ["a"] and raft(cluster, "a").log.snapshot.index == 0


def test_a_state_becomes_the_snapshot_when_a_majority_has_it() -> None:
    """A leader whose state is wrong would send it to others."""
    cluster = compared("a", "b", "c")
    cluster.propose("a", b"x", b"y", b"z")
    while len(cluster.replicas["a"].applied) < 5:
        assert cluster.step_without_time(hanging="c")
    while cluster.channels["b", "a"]:
        assert raft(cluster, "a").log.snapshot.index == 0
        cluster.deliver("b", "a")
        while cluster.channels["a", "b"]:
            cluster.deliver("a", "b")
    cluster.settle()
    assert [raft(cluster, router).log.snapshot.index for router in "abc"] == [4, 4, 4]


def test_a_replica_that_is_late_is_told_what_the_majority_has() -> None:
    cluster = compared("a", "b", "c", compacts=False)
    cluster.cut("c")
    cluster.settle()
    rot(cluster, "c")
    cluster.propose("a", b"x", b"y", b"z")
    cluster.settle()
    cluster.meet("a", "c")
    cluster.settle()
    assert any("c: set aside, the state at index 4" in said for said in cluster.said)


def test_a_recovered_store_forgets_the_digests_of_its_former_life() -> None:
    """The former leader has sent it digests of states with entries that only lost stores had."""
    cluster = compared("a", "b", "c", compacts=False)
    a, c = raft(cluster, "a"), raft(cluster, "c")
    for index in range(8, 40, 4):
        c.receive(say.Envelope(a.hard.life, a.me, c.me, say.Digest(a.hard.term, index, b"lost")), cluster.now)
    for router in "ab":
        cluster.replace_disk(router)
        cluster.start(router)
    cluster.meet_all()
    cluster.settle()
    cluster.do("c", lambda one: one.recover(cluster.now))
    cluster.settle()
    assert len(raft(cluster, "c").log.configuration.voters) == 3
    for number in range(16):
        cluster.propose("c", b"%d" % number)
        cluster.settle()
    assert cluster.leaders() == ["c"] and not any("set aside, the state" in said for said in cluster.said)


def test_a_digest_of_another_term_counts_nothing() -> None:
    cluster = compared("a", "b", "c")
    a, b = raft(cluster, "a"), raft(cluster, "b")
    a.receive(say.Envelope(a.hard.life, b.me, a.me, say.Digest(a.hard.term - 1, 4, b"")), cluster.now)
    a.receive(say.Envelope(a.hard.life, raft(cluster, "c").me, a.me, say.Digest(a.hard.term, 4, b"")), cluster.now)
    assert a._digests.right(4) is None
