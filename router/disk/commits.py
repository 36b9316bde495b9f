"""Group commit: writes changes to a store in their order, and many in one commit if a commit takes time.

A caller that needs a durable change passes a function, which is called once the change is durable. A change that can
wait (`lazily`) is written together with the next change that cannot. A crash loses a change that still waits, which
does no harm.

When the store fails, nothing more is written and no function is called, because no caller may act on a change that the
store has not kept.
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
    """The store to which these commits write, or a part of it."""

    threaded: bool
    """Whether `write` may block for long, so that a worker thread has to call it."""

    def write(self, changes: Sequence[Given]) -> None:
        """Store all of these changes, or none. Raises the `failure` of its `GroupCommit`."""


class GroupCommit(Generic[Change, Failure]):
    """Commits changes to one store, in groups. If the store is threaded, `run` must be running as long as any caller
    waits."""

    def __init__(self, store: Kept[Change], failure: type[Failure], failed: Callable[[Failure], None]) -> None:
        """`failure`: the type of the exception that the store raises if it cannot store changes. `failed`: called with
        the first such exception."""
        self._store = store
        self._changes: list[Change] = []
        self._waiting: list[Callable[[], None]] = []
        self._woken = trio.Event()
        self._written = trio.lowlevel.ParkingLot()
        self._failure = failure
        self._failed = failed
        self._error: Failure | None = None

    def add(self, changes: Iterable[Change], then: Callable[[], None]) -> None:
        """Store the changes durably, then call `then`. If the store is not threaded, `then` is called before this
        returns."""
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

    def write_later(self, change: Change) -> None:
        """Write the change, for which no caller waits. A threaded store writes it in the next commit. Another store
        writes it together with the next change that cannot wait."""
        self._changes.append(change)
        if self._store.threaded:
            self._woken.set()

    async def commit(self, changes: Iterable[Change], then: Callable[[], None]) -> None:
        """Make the changes durable, call `then`, and return afterwards. Raises the store's failure if it does not keep
        them. The changes are written also if the calling task is cancelled."""
        if not self._store.threaded:
            self.add(changes, then)
            self._check()
            # Return without a checkpoint of trio, because this runs for every message.
            return
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
        """Commit all changes that have gathered, in a loop, until cancelled. Changes that are added during a commit are
        the next batch."""
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
