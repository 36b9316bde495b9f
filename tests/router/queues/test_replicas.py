"""A set whose follower has its store on a disk that a test damages: it repairs or refuses, and does not vote by less.

Traps of others: data that cannot be read is taken for data that is not there (nats-server 7549), and a flipped bit in
a write-ahead log makes a term go back (SQLite). The judge is the cluster's: nobody votes twice, what is decided stays
decided, and a leader has all of it.
"""

import pickle
from collections.abc import Sequence
from pathlib import Path
from random import Random

import attrs
import pytest

from router.queues.store import QueueStore, QueueStoreError, Sync
from tests.router.queues.test_store import copied, identities
from tests.topic.raft.cluster import Cluster, Disk, State
from topic.queues.copying.pieces import piece_of
from topic.queues.storing import Write
from topic.raft.messages import Persist, Read

SET = "q0"


class StoredDisk(Disk):
    """A disk that has all that it has in a `QueueStore`, too."""

    def __init__(self, path: Path) -> None:
        super().__init__(b"")
        self.path = path
        path.parent.mkdir()
        self.open()

    def open(self) -> None:
        """A process finds what the last one has left. Raises QueueStoreError."""
        draw = identities(str(self.path)).__next__
        self.file = QueueStore(self.path, "mesh", "c", [SET], Sync.DISK, "first", draw)
        content = self.file.contents[SET]
        self.store = content.store
        self.state = next((pickle.loads(value) for _, value in content.rows), State())
        self.hard, self.snapshot, self.entries = content.content.hard, content.content.snapshot, []
        self.entries.extend(content.content.entries)
        self.aside, self.pieces = {}, []
        self.writes.clear()
        self._staged = 0

    def kill(self) -> None:
        """The process ends. Its files are what they are at that moment."""
        path = self.path
        self.path = copied(path, path.parent / "killed")
        self.file.close()

    def finish(self) -> Persist | Read:
        done = super().finish()
        if isinstance(done, Persist):
            self.file.write([self._as_row(done)])
        return done

    def _as_row(self, done: Persist) -> Write:
        """The state is one row. The last piece of a leader's snapshot has it."""
        for piece in done.pieces:
            self._staged = piece.index
        row = b"state", pickle.dumps(self.state)
        pieces = tuple(attrs.evolve(one, data=piece_of([row] if done.snapshot else [])[0]) for one in done.pieces)
        is_made_here = done.snapshot is not None and done.snapshot.index != self._staged
        return Write(SET, attrs.evolve(done, pieces=pieces), dict([row]) if is_made_here else None)


def led(path: Path, seed: int) -> Cluster:
    """Routers a, b and c have decided something, some of it in a snapshot. c has its store in files."""
    cluster = Cluster("abc", digests=5)
    disk = StoredDisk(path)
    cluster.replace_disk("c")
    cluster.replicas["c"].disk = disk
    cluster.start("c")
    cluster.meet_all()
    cluster.settle()
    assert cluster.leaders() == ["a"]
    for number in range(Random(seed).randint(6, 12)):
        cluster.propose("a", *[f"{number}".encode()] * (number % 3 + 1))
        cluster.settle()
        if number == 4:
            disk.file.merge()
    assert disk.snapshot.index
    return cluster


def restart(cluster: Cluster) -> StoredDisk | None:
    """c finds the files as they are. None: it refuses them."""
    disk = cluster.replicas["c"].disk
    assert isinstance(disk, StoredDisk)
    try:
        disk.open()
    except QueueStoreError:
        return None
    cluster.start("c")
    return disk


def stop(cluster: Cluster) -> StoredDisk:
    disk = cluster.replicas["c"].disk
    assert isinstance(disk, StoredDisk)
    disk.kill()
    cluster.crash("c")
    cluster.cut("c")
    return disk


def damage(file: Path, random: Random) -> None:
    data = bytearray(file.read_bytes())
    page = 4096
    start, other = (random.randrange(len(data)) for _ in range(2))
    match random.choice(("flip", "zero", "cut", "swap", "empty")):
        case "flip":
            data[start] ^= 1 << random.randrange(8)
        case "zero":
            data[start : start + page] = bytes(len(data[start : start + page]))
        case "cut":
            del data[start:]
        case "swap":
            one, two = start // page * page, other // page * page
            data[one : one + page], data[two : two + page] = data[two : two + page], data[one : one + page]
        case "empty":
            data.clear()
    file.write_bytes(data)


def settled(cluster: Cluster, routers: Sequence[str]) -> None:
    """All of these have applied the same, and all that was decided."""
    applied = [cluster.replicas[router].applied for router in routers]
    assert all(one == applied[0] for one in applied)
    assert len(applied[0]) == max(index for _, index in cluster.decided)


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_follower_repairs_or_refuses_and_does_not_vote(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    cluster = led(tmp_path / "c" / "queues.db", seed)
    disk = stop(cluster)
    had = len(cluster.replicas["a"].applied), disk.store
    damage(Path(f"{disk.path}{random.choice(('', '-wal', '-mark'))}"), random)
    is_there = restart(cluster) is not None
    if random.random() < 0.5:  # its vote would count: the leader is lost, and comes back
        cluster.crash("a")
        cluster.cut("a")
        cluster.meet("b", "c") if is_there else None
        cluster.settle()
        assert disk.store == had[1] or not cluster.leaders(), "it had a vote with another store"
        cluster.start("a")
    if is_there:
        cluster.meet_all()
    else:
        cluster.meet("a", "b")
    cluster.settle()
    [leader] = cluster.leaders()
    cluster.propose(leader, b"goes on")
    cluster.settle()
    settled(cluster, "abc" if is_there else "ab")
    assert len(cluster.replicas["a"].applied) > had[0]


def test_a_log_that_was_cut_with_the_mark_is_noticed_by_the_leader(tmp_path: Path) -> None:
    """A power failure took the last transactions, and the mark: no reader of the file can see that."""
    cluster = led(tmp_path / "c" / "queues.db", 1)
    disk = stop(cluster)
    former = disk.store
    Path(f"{disk.path}-mark").unlink()
    log = Path(f"{disk.path}-wal")
    log.write_bytes(log.read_bytes()[:32])
    assert restart(cluster) is not None
    assert disk.store == former and not disk.file.notes, "the file looks as it did once"
    cluster.meet_all()
    cluster.settle()
    assert any("c: set aside, this store has lost entries" in line for line in cluster.said)
    settled(cluster, "abc")
