"""Changes and reads on their way into the store of replica sets, and back into the loop."""

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from router.queues.store import FullError, QueueStoreError
from router.queues.writer import MOST, QueueWriter
from tests.hangs import HANGS_S
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, Renew, StoreChange, Write
from topic.raft.log import Entry
from topic.raft.messages import Hard, Persist

PIECE = ReadPiece("q0", 3, b"")


def change(number: int, size: int = 1) -> Write:
    return Write("q0", Persist(number, Hard(), (), None, number, (Entry(1, bytes(size)),)))


class SlowStore:
    """A disk that works when the test says so."""

    def __init__(self) -> None:
        self.transactions: list[list[StoreChange]] = []
        self.on_merge: Callable[[], object] = list
        self.is_to_be_merged = False
        self.damage: dict[str, str] = {}
        self.failure: Exception | None = None
        self.may_go_on = threading.Semaphore(0)

    def write(self, changes: Sequence[StoreChange]) -> None:
        assert self.may_go_on.acquire(timeout=HANGS_S)
        if self.failure is not None:
            raise self.failure
        self.transactions.append([*changes])

    def read(self, piece: ReadPiece) -> FoundPiece | None:
        return str(sum(map(len, self.transactions))).encode(), True

    def bodies(self, read: ReadBodies) -> FoundBodies:
        return [str(sum(map(len, self.transactions))).encode()]

    def merge(self) -> None:
        self.on_merge()
        self.is_to_be_merged = False

    def scrub(self) -> dict[str, str]:
        return self.damage


class Heard:
    """What the asker has heard, in order."""

    def __init__(self) -> None:
        self.all: list[object] = []
        self.more = trio.Event()

    def _hear(self, what: object) -> None:
        self.all.append(what)
        self.more.set()
        self.more = trio.Event()

    def stored(self, write: Write) -> None:
        self._hear(write.persist.number)

    def piece_read(self, piece: ReadPiece, found: FoundPiece | None) -> None:
        self._hear(found)

    def bodies_read(self, read: ReadBodies, found: FoundBodies) -> None:
        self._hear([*found])

    def damaged(self, name: str, why: str) -> None:
        self._hear((name, why))

    def results_reported(self) -> None:
        """What was heard so far is one transaction's."""

    def noted(self, text: str) -> None:
        self._hear(text)

    async def until(self, count: int) -> None:
        with trio.fail_after(HANGS_S):
            while len(self.all) < count:
                await self.more.wait()


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@asynccontextmanager
async def running(writer: QueueWriter) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        yield
        nursery.cancel_scope.cancel()


async def test_what_comes_while_the_disk_works_goes_into_one_transaction(store: SlowStore, heard: Heard) -> None:
    writer = QueueWriter(store, heard)
    async with running(writer):
        writer.ask([change(1)])
        await wait_all_tasks_blocked()
        writer.ask([change(2), Renew("q2", b"", "")])
        writer.ask([Renew("q1", b"", ""), change(3)])
        assert not heard.all, "the loop does not wait, and nobody hears of what is not on the disk"
        store.may_go_on.release(2)
        await heard.until(3)
    assert [len(changes) for changes in store.transactions] == [1, 4]
    assert heard.all == [1, 2, 3]


async def test_a_read_comes_behind_what_was_asked_for_before(store: SlowStore, heard: Heard) -> None:
    writer = QueueWriter(store, heard)
    store.may_go_on.release(1)
    async with running(writer):
        writer.ask([change(1), PIECE, change(2)])
        await heard.until(3)
        writer.ask([PIECE])
        await heard.until(4)
    assert heard.all == [1, (b"2", True), 2, (b"2", True)]


async def test_a_transaction_is_not_larger_than_it_need_be(store: SlowStore, heard: Heard) -> None:
    writer = QueueWriter(store, heard)
    store.may_go_on.release(3)
    writer.ask([change(1, MOST // 2), change(2, MOST // 2), change(3, 2 * MOST), change(4)])
    async with running(writer):
        await heard.until(4)
    assert [len(changes) for changes in store.transactions] == [2, 1, 1]


async def test_the_log_is_merged_when_all_have_heard(store: SlowStore, heard: Heard) -> None:
    writer, heard_before = QueueWriter(store, heard), list[int]()
    store.on_merge = lambda: heard_before.append(len(heard.all))
    store.is_to_be_merged = True
    store.may_go_on.release(2)
    async with running(writer):
        writer.ask([change(1)])
        await heard.until(1)
        writer.ask([change(2)])
        await heard.until(2)
    assert heard_before == [1]


async def test_nobody_hears_of_what_fails(store: SlowStore, heard: Heard) -> None:
    writer = QueueWriter(store, heard)
    store.failure = QueueStoreError("the disk is broken")
    store.may_go_on.release(9)
    writer.ask([change(1)])
    with pytest.raises(QueueStoreError, match="the disk is broken"):
        await writer.run()
    assert not heard.all and not store.transactions


async def test_a_full_disk_is_waited_for(store: SlowStore, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once, and nothing is lost or doubled."""
    monkeypatch.setattr("router.queues.writer.FULL_S", 0.0)
    writer = QueueWriter(store, heard)
    store.failure = FullError("queues.db: no room")
    store.may_go_on.release(3)
    async with running(writer):
        writer.ask([change(1), PIECE])
        await heard.until(1)
        assert writer.why_full == "queues.db: no room"
        store.failure = None
        store.may_go_on.release(1)
        await heard.until(4)
        assert writer.why_full == ""
    assert heard.all == [
        "queues.db: no room: the replicas of this router wait until there is room",
        "the disk has room again: the replicas of this router go on",
        1,
        (b"1", True),
    ]
    assert len(store.transactions) == 1


async def test_damage_that_a_scrub_finds_is_told(
    store: SlowStore, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.queues.writer.SCRUB_S", 0.0)
    writer = QueueWriter(store, heard)
    store.damage = {"q0": "it rots"}
    async with running(writer):
        await heard.until(1)
        store.damage = {}
        store.may_go_on.release(1)
        writer.ask([change(1)])
        with trio.fail_after(HANGS_S):
            while 1 not in heard.all:
                await heard.more.wait()
    assert set(heard.all) == {("q0", "it rots"), 1}
