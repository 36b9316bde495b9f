"""Changes on their way into a store, whatever it keeps."""

import threading
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from router.disk.commits import GroupCommit
from tests.hangs import HANGS_S


class FullError(Exception):
    pass


class Memory:
    """Takes its time, if it is `threaded`, until it is let."""

    def __init__(self, *, threaded: bool) -> None:
        self.threaded = threaded
        self.written: list[list[int]] = []
        self.is_full = False
        self.may_write = threading.Semaphore(0)

    def write(self, changes: Sequence[int]) -> None:
        if self.threaded:
            assert self.may_write.acquire(timeout=HANGS_S)
        if self.is_full:
            raise FullError
        self.written.append([*changes])


def commits_of(store: Memory) -> tuple[GroupCommit[int, FullError], list[FullError]]:
    failures: list[FullError] = []
    return GroupCommit(store, FullError, failures.append), failures


async def test_what_comes_during_a_commit_is_the_next_one() -> None:
    store, done = Memory(threaded=True), list[str]()
    commits, _ = commits_of(store)
    commits.add([1], lambda: done.append("1"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commits.run)
        await trio.testing.wait_all_tasks_blocked()
        commits.lazily(2)
        for number in (3, 4):
            commits.add([number], lambda number=number: done.append(f"{number}"))  # type: ignore[misc]
        assert done == []
        store.may_write.release(2)
        await commits.commit([], lambda: done.append("all"))
        store.may_write.release(9)
        nursery.cancel_scope.cancel()
    assert store.written[:2] == [[1], [2, 3, 4]]
    assert done == ["1", "3", "4", "all"]


async def test_a_store_that_takes_no_time_is_written_at_once() -> None:
    store, done = Memory(threaded=False), list[str]()
    commits, _ = commits_of(store)
    commits.lazily(1)
    commits.write_later(2)
    assert store.written == []
    commits.add([3], lambda: done.append("3"))
    assert (store.written, done) == ([[1, 2, 3]], ["3"])


@pytest.mark.parametrize("threaded", [True, False])
async def test_nobody_acts_on_what_was_not_kept(threaded: bool) -> None:
    store, done = Memory(threaded=threaded), list[str]()
    commits, failures = commits_of(store)
    store.is_full = True
    store.may_write.release(9)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commits.run)
        with pytest.raises(FullError):
            await commits.commit([1], lambda: done.append("1"))
        store.is_full = False
        with pytest.raises(FullError):
            await commits.commit([2], lambda: done.append("2"))
        nursery.cancel_scope.cancel()
    assert (store.written, done, len(failures)) == ([], [], 1)
