"""A client's changes on their way into its store: in order, and many in one commit where a commit takes its time.

What waits for a change to be durable is given as a function, called when it is. What may be written at any time
(`lazily`) rides along with the next change that cannot wait; at a crash it is lost, which does no harm.

When the store fails the client ends: nothing is written any more, and what waits is not called, as nobody may act on
what was not kept.
"""

from collections.abc import Callable, Iterable

import trio

from failover.client.errors import StateError
from failover.client.state.store import Change, Role, Saved, Store
from topic.identity import LinkIdentity


class Commits:
    """Of one link. `run` must be running for a store with threads, as long as anybody waits."""

    def __init__(self, store: Store, role: Role, identity: LinkIdentity, failed: Callable[[StateError], None]) -> None:
        self._store = store
        self._role: Role = role
        self._identity = identity
        self._changes: list[Change] = []
        self._waiting: list[Callable[[], None]] = []
        self._woken = trio.Event()
        self._written = trio.lowlevel.ParkingLot()
        self._failed = failed
        self._error: StateError | None = None

    def load(self) -> Saved:
        return self._store.load(self._role, self._identity)

    def add(self, changes: Iterable[Change], then: Callable[[], None]) -> None:
        """Make changes durable, then go on; at once if the store does not take its time."""
        self._changes += changes
        if self._store.threaded:
            self._waiting.append(then)
            self._woken.set()
        elif self._error is None:
            try:
                self._write(self._take())
            except StateError as error:
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
        """The same, and wait for it; raises StateError if it is not kept. To be cancelled while waiting does not undo
        it."""
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

    def _fail(self, error: StateError) -> None:
        self._error = error
        self._failed(error)

    async def run(self) -> None:
        """Commit what has gathered, again and again, until cancelled: what comes meanwhile is the next batch."""
        while self._error is None:
            await self._woken.wait()
            self._woken = trio.Event()
            changes, waiting = self._take(), self._waiting
            self._waiting = []
            try:
                await trio.to_thread.run_sync(self._write, changes)
            except StateError as error:
                self._fail(error)
            else:
                for then in waiting:
                    then()
            self._written.unpark_all()

    def _take(self) -> list[Change]:
        changes, self._changes = self._changes, []
        return changes

    def _write(self, changes: list[Change]) -> None:
        self._store.write(self._role, self._identity, changes)
