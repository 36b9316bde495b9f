"""The faces of the client for programs without trio, and programs that run in a thread of their own beside a test.

A program is written once for both faces: `face.run` returns the result of a method that blocks, and awaits a method of
asyncio in the event loop of the program.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import trio

from failover.client import AsyncioPublisher, AsyncioSubscriber, BlockingPublisher, BlockingSubscriber
from tests.failover.client.scripted import Peer


class BlockingFace:
    publisher: Callable[..., Any] = BlockingPublisher
    subscriber: Callable[..., Any] = BlockingSubscriber

    def run(self, result: Any) -> Any:
        return result

    def next(self, subscriber: Any) -> Any:
        return next(subscriber)

    def leave(self, client: Any) -> None:
        client.__exit__(None, None, None)

    @contextmanager
    def inside(self, client: Any) -> Iterator[Any]:
        with client:
            yield client


class AsyncioFace:
    publisher: Callable[..., Any] = AsyncioPublisher
    subscriber: Callable[..., Any] = AsyncioSubscriber

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, result: Any) -> Any:
        async def awaited() -> Any:
            return await result

        return self._runner.run(awaited())

    def next(self, subscriber: Any) -> Any:
        return self.run(anext(subscriber))

    def leave(self, client: Any) -> None:
        self.run(client.__aexit__(None, None, None))

    @contextmanager
    def inside(self, client: Any) -> Iterator[Any]:
        self.run(client.__aenter__())
        try:
            yield client
        except BaseException as error:
            self.run(client.__aexit__(type(error), error, None))
            raise
        self.leave(client)


FACES = {"blocking": BlockingFace, "asyncio": AsyncioFace}


def publisher(face: Any, *peers: Peer, **options: Any) -> Any:
    return face.publisher([peer.url for peer in peers], "topic/x", container="p", link="out", **options)


def subscriber(face: Any, *peers: Peer, **options: Any) -> Any:
    return face.subscriber([peer.url for peer in peers], "topic/x", container="s", link="in", **options)


class Program:
    """A program in a thread. The test waits for its end when it leaves the block."""

    def __init__(self, kind: str, main: Callable[[Any], object]) -> None:
        self._kind = kind
        self._main = main

    def run(self) -> None:
        self._main(FACES[self._kind]())

    async def __aenter__(self) -> None:
        self._manager = trio.open_nursery()
        nursery = await self._manager.__aenter__()
        nursery.start_soon(partial(trio.to_thread.run_sync, self.run, abandon_on_cancel=True))

    async def __aexit__(self, *error: Any) -> None:
        await self._manager.__aexit__(*error)


def client_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "oncemesh client"]
