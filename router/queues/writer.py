"""The thread that writes the store of a router's replica sets. The loop never waits for it.

Changes that come while the disk works go into the next transaction, for all sets together: the slower the disk, the
larger a transaction. A measured wait of 2 ms before each transaction saved at most a tenth of the processor time, and
delayed each change by several milliseconds.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from router.disk.thread import StoreThread
from router.queues.store import FullError, size_of
from topic.queues.storing import FoundBodies, FoundPiece, ReadBodies, ReadPiece, SetStore, StoreChange, StoreRead, Write

MOST: Final = 1 << 20
"""The bytes after which a transaction takes no further changes. An urgent change, such as a vote, then goes into the
next transaction, and does not wait for a very long one."""
SCRUB_S: Final = 60.0
"""The seconds from one scrub to the next."""
FULL_S: Final = 1.0
"""The seconds after which the writer looks again whether a full disk has room."""

Ask = StoreChange | StoreRead
Found = tuple[deque[FoundPiece | None], deque[FoundBodies]]
"""The results of reads, in the order of the requests."""


class KeptStore(SetStore, Protocol):
    """A store that needs maintenance now and then."""

    @property
    def is_to_be_merged(self) -> bool: ...

    def merge(self) -> None: ...

    def scrub(self) -> Mapping[str, str]:
        """Read some rows again. Returns the reason for each set with a damaged row."""


class Asker(Protocol):
    """The caller of the writer. The writer reports to it in the loop, in order, when its requests are done."""

    def stored(self, write: Write) -> None: ...

    def piece_read(self, piece: ReadPiece, found: FoundPiece | None) -> None: ...

    def bodies_read(self, read: ReadBodies, found: FoundBodies) -> None: ...

    def damaged(self, name: str, why: str) -> None:
        """Report that the part of a set differs from what was written."""

    def results_reported(self) -> None:
        """Report that the results of one transaction, or of one scrub, are complete."""

    def noted(self, text: str) -> None:
        """Write this line to the log."""


class QueueWriter:
    """One store, and its thread while `run` runs."""

    def __init__(self, store: KeptStore, asker: Asker) -> None:
        self._store = store
        self._asker = asker
        self._asks: deque[Ask] = deque()
        self._woken = trio.Event()
        self.why_full = ""
        """The reason for which the writer waits for room on the disk; empty if it does not wait."""

    def ask(self, asks: Iterable[Ask]) -> None:
        """Carry out these requests after all earlier ones. Changes that are requested later may still be done before a
        read."""
        self._asks.extend(asks)
        if self._asks:
            self._woken.set()

    async def run(self) -> None:
        """Write and read until cancelled. If the store fails, raises QueueStoreError, and the process has to end. The
        writer reports no result of a change that may not be on the disk."""
        scrub_at = trio.current_time() + SCRUB_S
        with StoreThread() as thread:
            while True:
                with trio.move_on_at(scrub_at):
                    await self._woken.wait()
                if trio.current_time() >= scrub_at:
                    await self._scrub(thread)
                    scrub_at = trio.current_time() + SCRUB_S
                if self._asks:
                    asks = self._take()
                    self._tell(asks, await self._do_when_there_is_room(thread, asks))
                    if self._store.is_to_be_merged:
                        await thread.run(self._store.merge)

    def _tell(self, asks: Sequence[Ask], found: Found) -> None:
        pieces, bodies = found
        for ask in asks:
            if isinstance(ask, Write):
                self._asker.stored(ask)
            elif isinstance(ask, ReadPiece):
                self._asker.piece_read(ask, pieces.popleft())
            elif isinstance(ask, ReadBodies):
                self._asker.bodies_read(ask, bodies.popleft())
        self._asker.results_reported()

    async def _scrub(self, thread: StoreThread) -> None:
        if damaged := await thread.run(self._store.scrub):
            for name, why in damaged.items():
                self._asker.damaged(name, why)
            self._asker.results_reported()

    def _take(self) -> list[Ask]:
        """The requests for the next transaction."""
        asks: list[Ask] = []
        size = 0
        while self._asks and size < MOST:
            ask = self._asks.popleft()
            size += 0 if isinstance(ask, StoreRead) else size_of(ask)
            asks.append(ask)
        if not self._asks:
            self._woken = trio.Event()
        return asks

    async def _do_when_there_is_room(self, thread: StoreThread, asks: Sequence[Ask]) -> Found:
        """Execute the requests; repeat this until the disk has room. To the other replicas, a full disk looks like a
        disk that hangs."""
        while True:
            try:
                found = await thread.run(partial(self._do, asks))
            except FullError as error:
                if not self.why_full:
                    self._asker.noted(f"{error}: the replicas of this router wait until there is room")
                self.why_full = str(error)
                await trio.sleep(FULL_S)
                continue
            if self.why_full:
                self.why_full = ""
                self._asker.noted("the disk has room again: the replicas of this router go on")
            return found

    def _do(self, asks: Sequence[Ask]) -> Found:
        """Write and read; the thread runs this."""
        if changes := [ask for ask in asks if not isinstance(ask, StoreRead)]:
            self._store.write(changes)
        pieces = (self._store.read(ask) for ask in asks if isinstance(ask, ReadPiece))
        bodies = (self._store.bodies(ask) for ask in asks if isinstance(ask, ReadBodies))
        return deque(pieces), deque(bodies)
