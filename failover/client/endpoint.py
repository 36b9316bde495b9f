"""The common part of publisher and subscriber. An `Endpoint` has one link of a mesh, while its user is in the `async
with` block.

The link's identity (container-id, link name, address) is the same at every router (`attachment`; protocol 2, 6 and 7).
The first attach carries a null map. All later attaches carry a map, and echo the generation and epoch of the last
answer. Tasks that wait for a message or an outcome keep waiting across attaches.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self, TypedDict

import trio

from failover.client.attachment.attachment import Attachment
from failover.client.errors import ClientError, StateError
from failover.client.link_events import Listener
from failover.client.log import ClientLog
from failover.client.state.store import Attached, Change, LinkStore, MemoryStore, Role, Store
from router.amqp.format.values import EXPIRE_CONNECTION, AttachOptions
from router.amqp.sasl.credentials import NOBODY, Credentials
from router.amqp.transport import GOODBYE_S
from router.disk.commits import GroupCommit
from topic.identity import LinkIdentity
from topic.properties import EPOCH, GENERATION, TOLD

TIMEOUT_S: Final = 60
LONGEST_S: Final = 2**32 - 1  # AMQP 1.0 3.5.3
IDLE_S: Final = 1.5
TURN_S: Final = 0.01
"""If the user's calls have not waited for this many seconds, the next call lets other tasks run. Otherwise the tasks
that commit to the store, and the tasks that send to the router, might never run. A router closes the connection of a
client that sends nothing."""


class Options(TypedDict, total=False):
    """The options that publishers and subscribers have."""

    log: Path | None  # the directory for the client's delivery log
    store: Store | None  # without a store, the link ends with the block; with a store, it may be resumed
    # The seconds for which the mesh waits for a client that is gone, and for which the client looks for a router.
    # With 0, the mesh does not wait, and the link ends when the client loses its router.
    timeout: int
    # The seconds of silence after which a router counts as gone, unless its mesh states a shorter time.
    idle: float
    events: Listener | None
    credentials: Credentials  # without credentials, the client is anonymous
    # Whether the client moves when its router asks for it. A router asks for it if another router has fewer links.
    moves: bool


class Endpoint(Attachment):
    """A client with one link, used as an async context manager."""

    role: ClassVar[Role]

    def __init__(
        self,
        urls: Sequence[str],
        address: str,
        *,
        container: str,
        link: str,
        log: Path | None = None,
        store: Store | None = None,
        timeout: int = TIMEOUT_S,
        idle: float = IDLE_S,
        events: Listener | None = None,
        credentials: Credentials = NOBODY,
        moves: bool = True,
    ) -> None:
        if not isinstance(timeout, int) or not 0 <= timeout <= LONGEST_S:
            raise ValueError(f"timeout: expected whole seconds from 0 to {LONGEST_S}, found {timeout!r}")
        if not idle > 0:
            raise ValueError(f"idle: expected seconds above 0, found {idle!r}")
        identity = LinkIdentity(container, link, address, credentials.name)
        logged = ClientLog(log, self.role, identity) if log is not None else None
        super().__init__(urls, identity, timeout, idle, events, logged, credentials, moves=moves)
        self._keeps = store is not None
        self._durable = 0 if not timeout else store.durable if store is not None else MemoryStore.durable
        self._kept = LinkStore(store if store is not None else MemoryStore(), self.role, self.identity)
        self._commits = GroupCommit[Change, StateError](self._kept, StateError, self._give_up)
        self._ours: Mapping[bytes, int] | None = None  # the unsettled map that the last attach carried
        self._turn_ends = 0.0
        self._scope = trio.CancelScope(shield=True)  # the scope of all background tasks
        self._work = trio.CancelScope()  # the scope of all background tasks except the connections

    # The methods from here on are for subclasses.

    async def _finish(self) -> None:
        """Wait until the client can leave the link in order, for example until all outcomes are known."""

    def _map(self) -> Mapping[bytes, int] | None:
        """The unsettled deliveries with their states. An attach that resumes the link carries them. None stands for a
        null map."""
        return {}

    def _options(self) -> AttachOptions:
        self._ours = self._map() if self._resumes else None
        said = ((GENERATION, self.generation), (EPOCH, self.epoch), (TOLD, self._told))
        properties = {name: value for name, value in said if value}
        return {
            "durable": self._durable,
            "expiry_policy": EXPIRE_CONNECTION,
            "timeout": self._timeout,
            "properties": properties,
            "unsettled": self._ours,
        }

    def _settled_on(self) -> None:
        self._commits.write_later(Attached(self.generation, self.epoch))

    async def _give_way(self) -> None:
        if trio.current_time() >= self._turn_ends:
            await trio.lowlevel.checkpoint()
            self._turn_ends = trio.current_time() + TURN_S

    # The methods from here on are the life of the client, from its first attach to its end.

    async def __aenter__(self) -> Self:
        self._since = trio.current_time()
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        try:
            self._load()
            self._nursery.start_soon(self._run)
            await self._attached.wait()
            self._check()
        except BaseException:
            await self._stop()
            raise
        return self

    def _load(self) -> None:
        saved = self._kept.load()
        self._resumes, self.generation, self.epoch = saved.attached, saved.generation, saved.epoch

    async def _run(self) -> None:
        """Run all background tasks. Their scope is shielded, so that the client closes its connection even if its user
        is cancelled."""
        with self._scope:
            async with trio.open_nursery() as self._connections:
                with self._work:
                    async with trio.open_nursery() as work:
                        if self._log is not None:
                            work.start_soon(self._log.run)
                        work.start_soon(self._commits.run)
                        work.start_soon(self._stay_attached)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self._finish()
        except BaseException as failure:
            error = failure
            raise
        finally:
            self._part(error)
            await self._stop()

    def _part(self, error: BaseException | None) -> None:
        """Leave the connection, and end the link if `_ends` says so.

        Without a store no client could resume the link. So the link ends even after an exception, and no router waits
        for it.
        """
        link, connection = self._link, self._connection
        self._connection = self._attaching = self._link = None
        self._give_up(ClientError(None, "the client has left"))
        if connection is None:
            return
        if link is not None and self._ends(error):
            if self._log is not None and self.role == "subscriber":
                self._log.closed()
            link.detach()
        connection.close()
        connection.wake()

    def _ends(self, error: BaseException | None) -> bool:
        """Whether the link ends with the block. Otherwise it stays suspended, so that a client can resume it."""
        return not self._keeps

    async def _stop(self) -> None:
        """Stop the background tasks. The nursery does not get the exception of the caller, because the nursery would
        wrap the exception in a group."""
        self._connection = None
        self._work.cancel()
        self._scope.deadline = trio.current_time() + GOODBYE_S
        self._nursery.cancel_scope.shield = True
        try:
            await self._manager.__aexit__(None, None, None)
        finally:
            if self._log is not None:
                self._log.close()
