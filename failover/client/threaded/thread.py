"""Runs one client in a thread with a trio loop of its own, and makes calls of the client for callers in other threads.

A *caller* is another thread, or a task of asyncio. Each of its calls is a task of the trio loop. The task posts
functions to its caller: the reads and writes of the program's own store (`CallersStore`), and at last the result.

The thread lives as long as the block of the client. The thread is a daemon: if the process ends within the block, the
client ends as after a kill. A fork copies no thread, so only the process that has entered the block can use the client.
"""

import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

import trio
from outcome import Error, Value

from failover.client.endpoint import Endpoint
from failover.client.errors import ClientError, StateError
from failover.client.state.store import Change, MemoryStore, Role, Saved, Store
from topic.identity import LinkIdentity

Result = TypeVar("Result")
Ended: TypeAlias = Value[Result] | Error
"""The result of a call, or the exception that the call raises."""
Post: TypeAlias = Callable[[Callable[[], object]], object]
"""Hands a function to the thread of a caller, which runs it. Raises RuntimeError if the caller runs no more
functions."""

# Posts functions to the caller whose call runs in the current trio task; None outside of a call.
_caller: ContextVar[Post | None] = ContextVar("caller", default=None)


def left() -> ClientError:
    return ClientError(None, "the client has left")


class Call(Generic[Result]):
    """One call of the client. Its caller runs all functions that the call posts. The last of these is `done`, which
    takes the result."""

    def __init__(self, post: Post, done: Callable[[Ended[Result]], object]) -> None:
        self.post = post
        self._done = done
        self._is_finished = False
        self.scope = trio.CancelScope()

    def finish(self, ended: Ended[Result]) -> None:
        """Hand the caller the result. If the caller has a result already, do nothing."""
        if not self._is_finished:
            self._is_finished = True
            with suppress(RuntimeError):  # the caller no longer waits
                self.post(partial(self._done, ended))

    async def run(self, act: Callable[[], Awaitable[Result]]) -> None:
        """Run the call as a task of trio. If the end of the client cancels the task, the caller gets a ClientError."""
        ended: Ended[Result] = Error(left())
        try:
            with self.scope:
                _caller.set(self.post)
                ended = Value(await act())
        except Exception as error:
            ended = Error(error)
        finally:
            self.finish(ended)


class _FailedError(Exception):
    """Makes the client's block end with an exception, because the caller's block has ended with one."""


class CallersStore:
    """A store of the program. It may use the program's database connection, so only the thread of a caller uses the
    store.

    The trio loop waits until the caller has read or written. Only calls use this store, so the client never commits the
    program's transaction at another time.
    """

    threaded = False

    def __init__(self, store: Store) -> None:
        self.durable = store.durable
        self._store = store

    def load(self, role: Role, identity: LinkIdentity) -> Saved:
        return _in_caller(partial(self._store.load, role, identity))

    def write(self, role: Role, identity: LinkIdentity, changes: Sequence[Change]) -> None:
        _in_caller(partial(self._store.write, role, identity, changes))


def _in_caller(work: Callable[[], Result]) -> Result:
    """Let the caller of the current task do this work, and wait for the result. Raises StateError if the caller is
    gone, or is interrupted during the work."""
    post = _caller.get()
    answers: SimpleQueue[Ended[Result]] = SimpleQueue()
    assert post is not None
    gone, has_run = StateError("the store", "the call that needed it was interrupted"), False

    def do() -> None:
        nonlocal has_run
        if has_run:
            return
        ended: Ended[Result] = Error(gone)
        try:
            ended = Value(work())
        except Exception as error:
            ended = Error(error)
        finally:
            has_run = True
            answers.put(ended)

    try:
        post(do)
    except RuntimeError:
        raise gone from None
    return answers.get().unwrap()


def callers_store(store: Store | None) -> Store | None:
    """The store in the form in which a client in a thread has to use it. A store that blocks already has a thread of
    its own, so it stays as it is."""
    return store if store is None or store.threaded or isinstance(store, MemoryStore) else CallersStore(store)


class ClientThread:
    """The thread of one client. First a caller enters the block of the client, and at the end a caller leaves it."""

    def __init__(self, client: Endpoint) -> None:
        self._client = client
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._token: trio.lowlevel.TrioToken | None = None
        self._has_token = threading.Event()
        self._hurry = trio.CancelScope()
        self._calls: trio.Nursery | None = None  # runs the calls; None while the client takes none
        self._leaving: Call[None] | None = None  # the call that leaves the block
        self._failed = False  # whether the caller's block ends with an exception
        self._left = trio.Event()
        self._lock = threading.Lock()  # a lock for the next three attributes
        self._waiting: list[Call[None]] = []  # the calls that wait for the end of the block
        self._is_over = False
        self._failure: BaseException | None = None  # the exception with which the client's block has ended

    # The methods from here on are for callers.

    def enter(self, call: Call[None]) -> None:
        """Start the thread, which enters the client's block. Raises RuntimeError if the client has had a block
        before."""
        with self._lock:
            if self._thread is not None:
                raise RuntimeError("a client has one block: make another client for the next one")
            self._thread = threading.Thread(target=self._run, args=(call,), name="oncemesh client", daemon=True)
        self._process = os.getpid()
        self._thread.start()
        self._has_token.wait()

    def start(self, call: Call[Result], act: Callable[[], Awaitable[Result]]) -> None:
        """Start a call. Raises RuntimeError if no caller has entered the block, or after a fork. Raises ClientError if
        the block has ended."""
        if self._process != os.getpid():
            raise RuntimeError(f"this client belongs to process {self._process}: make a new client after a fork")
        if self._token is None:
            raise RuntimeError("a client can be used inside its block only: `with client: ...`")
        try:
            self._token.run_sync_soon(self._begin, call, act)
        except trio.RunFinishedError:
            raise left() from None

    def leave(self, call: Call[None], *, failed: bool) -> None:
        """Leave the client's block. The result of the call comes when the thread ends. `failed` says that the caller's
        block ends with an exception. After a fork this method does nothing, because the thread is in the other
        process. Raises RuntimeError if no caller has entered the block."""
        if self._process != os.getpid():
            call.finish(Value(None))
            return
        if self._thread is None:
            raise RuntimeError("a client can be left only after its block has begun: `with client: ...`")
        with self._lock:
            self._waiting.append(call)
            is_over = self._is_over
        if is_over:
            self._tell_end(call)
        else:
            self._soon(self._leave, call, failed)

    def cancel(self, call: Call[Any]) -> None:
        """Cancel a call. The caller still gets a result, the ordinary one if the call was faster than this method."""
        self._soon(call.scope.cancel)

    def hurry(self, call: Call[None]) -> None:
        """Cancel a call that enters or leaves the block, so that the client leaves without waiting for anything."""
        self._soon(self._hurry.cancel)

    def join(self) -> None:
        """If the client's block has ended, wait for the end of the thread, which comes at once."""
        if self._is_over and self._thread is not None:
            self._thread.join()

    def _soon(self, act: Callable[..., object], *arguments: object) -> None:
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(act, *arguments)

    # The methods from here on run in the thread.

    def _run(self, entering: Call[None]) -> None:
        try:
            trio.run(self._live, entering)
        except BaseException as error:
            self._failure = error
        with self._lock:
            self._is_over = True
            waiting = [entering, *self._waiting]
        for call in waiting:
            self._tell_end(call)

    def _tell_end(self, call: Call[None]) -> None:
        call.finish(Value(None) if self._failure is None else Error(self._failure))

    async def _live(self, entering: Call[None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._has_token.set()
        failure: Exception | None = None
        with self._hurry:
            async with trio.open_nursery() as calls:
                try:
                    await self._be_client(entering, calls)
                except _FailedError:
                    pass
                except Exception as error:
                    # Raise the exception outside of the nursery, which would wrap it in a group.
                    failure = error
                calls.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _be_client(self, entering: Call[None], calls: trio.Nursery) -> None:
        _caller.set(entering.post)
        try:
            async with self._client:
                self._calls = calls
                entering.finish(Value(None))
                await self._left.wait()
                assert self._leaving is not None
                _caller.set(self._leaving.post)
                if self._failed:
                    raise _FailedError
        finally:
            self._calls = None

    def _begin(self, call: Call[Result], act: Callable[[], Awaitable[Result]]) -> None:
        if self._calls is None:
            call.finish(Error(left()))
        else:
            self._calls.start_soon(call.run, act)

    def _leave(self, call: Call[None], failed: bool) -> None:
        self._leaving, self._failed = call, failed
        self._left.set()
