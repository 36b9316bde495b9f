"""Changes on their way into a store: in order, and many in one commit where a commit takes its time.

A caller that waits for a change to be durable gives a function, which is called when it is. A change that may be
written at any time (`lazily`) rides along with the next one that cannot wait; a crash loses it, which does no harm.

When the store fails nothing is written any more, and no function is called: nobody may act on a change that was not
kept.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

import trio

from router.disk.thread import StoreThread

Change = TypeVar("Change")
Given = TypeVar("Given", contravariant=True)
Failure = TypeVar("Failure", bound=Exception)


class Kept(Protocol[Given]):
    """A store, or the part of one that these commits are for."""

    threaded: bool
    """Whether `write` takes its time, and is to be called from a worker thread."""

    def write(self, changes: Sequence[Given]) -> None:
        """Keep these changes, all or none. Raises what `GroupCommit` is told of."""


class GroupCommit(Generic[Change, Failure]):
    """`run` must be running for a store with threads, as long as anybody waits."""

    def __init__(self, store: Kept[Change], failure: type[Failure], failed: Callable[[Failure], None]) -> None:
        """`failure` is what the store raises if it cannot keep changes; `failed` is told of the first one."""
        self._store = store
        self._changes: list[Change] = []
        self._waiting: list[Callable[[], None]] = []
        self._woken = trio.Event()
        self._written = trio.lowlevel.ParkingLot()
        self._failure = failure
        self._failed = failed
        self._error: Failure | None = None

    def add(self, changes: Iterable[Change], then: Callable[[], None]) -> None:
        """Make changes durable, then go on; at once if the store does not take its time."""
        self._changes += changes
        if self._store.threaded:
            self._waiting.append(then)
            self._woken.set()
        elif self._error is None:
            try:
                self._store.write(self._take())
            except self._failure as error:
                self._fail(error)
            else:
                then()

    def lazily(self, change: Change) -> None:
        self._changes.append(change)

    def soon(self, change: Change) -> None:
        """The same, but it is written as soon as may be, unless that is for the store's user to do."""
        self._changes.append(change)
        if self._store.threaded:
            self._woken.set()

    async def commit(self, changes: Iterable[Change], then: Callable[[], None]) -> None:
        """As `add`, and wait for it; raises the store's failure if it is not kept. Who is cancelled meanwhile undoes
        nothing."""
        if not self._store.threaded:
            self.add(changes, then)
            self._check()
            return  # without giving way to others: every message comes here
        done = False

        def finish() -> None:
            nonlocal done
            then()
            done = True

        self.add(changes, finish)
        while not done:
            self._check()
            await self._written.park()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _fail(self, error: Failure) -> None:
        self._error = error
        self._failed(error)

    async def run(self) -> None:
        """Commit what has gathered, again and again, until cancelled: what comes meanwhile is the next batch."""
        with StoreThread() as thread:
            while self._error is None:
                await self._woken.wait()
                self._woken = trio.Event()
                changes, waiting = self._take(), self._waiting
                self._waiting = []
                try:
                    await thread.run(partial(self._store.write, changes))
                except self._failure as error:
                    self._fail(error)
                else:
                    for then in waiting:
                        then()
                self._written.unpark_all()

    def _take(self) -> list[Change]:
        changes, self._changes = self._changes, []
        return changes
