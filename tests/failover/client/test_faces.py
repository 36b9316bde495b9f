"""The clients for asyncio and for programs that block: what the client in the thread does reaches the program, and the
end of a block leaves nothing behind. The clients themselves are tested without these faces."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from failover.client import (
    ClientError,
    Connected,
    Event,
    Lost,
    Outcome,
    SqliteStore,
    StateError,
)
from router.amqp.format.values import ACCEPTED, MODIFIED, REJECTED, RELEASED
from router.amqp.proton.link import Link
from tests.failover.client.clients import KEYS, TAGS
from tests.failover.client.faces import FACES, Program, client_threads, publisher, subscriber
from tests.failover.client.scripted import Detached, Gone, Peer, Stated, Transferred, running_peers

both = pytest.mark.parametrize("kind", FACES)


@pytest.fixture(autouse=True)
async def no_thread_is_left() -> AsyncIterator[None]:
    yield
    assert not client_threads()


async def decide(peer: Peer, link: Any, state: int = ACCEPTED) -> bytes | None:
    """Take a publisher's transfer, and return its body. The publisher settles perhaps only after its next transfer."""
    transferred = await peer.until(Transferred)
    peer.outcome(link, transferred.handle, state)
    return transferred.body


@both
async def test_a_publisher_learns_each_outcome(kind: str) -> None:
    def program(face: Any) -> None:
        with face.inside(publisher(face, a)) as p:
            first = face.run(p.send(b"one"))
            assert face.run(first.outcome()) is first.result is Outcome.ACCEPTED
            second = face.run(p.send(b"two", {"n": 2}))
            assert face.run(second.outcome()) is Outcome.REJECTED
            assert (first.number, second.number, p.sent) == (0, 1, 2)

    async with running_peers("a") as [a], Program(kind, program):
        link = await a.answer()
        assert await decide(a, link) == b"one"
        assert await decide(a, link, REJECTED) == b"two"
        assert await a.until(Detached) == Detached(True)
        await a.next(Gone)


@both
async def test_send_waits_for_credit(kind: str) -> None:
    def program(face: Any) -> None:
        with face.inside(publisher(face, a)) as p:
            for number in range(2):
                face.run(p.send(b"%d" % number))

    async with running_peers("a") as [a], Program(kind, program):
        link = await a.answer(credit=1)
        for number in range(2):
            assert await decide(a, link) == b"%d" % number
            link.flow(1)
            link.connection.wake()


@both
async def test_a_publisher_resumes_with_its_map(kind: str) -> None:
    told: list[Event] = []

    def program(face: Any) -> None:
        with face.inside(publisher(face, a, events=told.append)) as p:
            assert face.run(face.run(p.send(b"one")).outcome()) is Outcome.ACCEPTED

    async with running_peers("a") as [a], Program(kind, program):
        await a.answer()
        await a.next(Transferred)
        a.cut()
        await a.next(Gone)
        link = await a.answer({})
        assert link.remote_unsettled is not None
        assert list(link.remote_unsettled) == [TAGS[0]]
        assert await decide(a, link) == b"one"
    assert [type(event) for event in told[:3]] == [Connected, Lost, Connected]


@both
async def test_a_subscriber_answers_in_each_way(kind: str) -> None:
    def program(face: Any) -> None:
        with face.inside(subscriber(face, a)) as s:
            first = face.next(s)
            assert (first.body, first.key, first.properties, first.address) == (b"0", KEYS[0], {}, None)
            face.run(first.accept())
            face.run(face.next(s).reject("amqp:decode-error", "no"))
            face.run(face.next(s).release())
            face.run(face.next(s).fail())

    async with running_peers("a") as [a], Program(kind, program):
        link = await a.answer()
        for number, state in enumerate((ACCEPTED, REJECTED, RELEASED, MODIFIED)):
            handle = await a.send(link, KEYS[number], b"%d" % number)
            assert await a.next(Stated) == Stated(handle, state, False)
            a.settle(link, handle)


@both
async def test_the_answers_are_one_transaction_with_the_changes_of_the_program(kind: str, tmp_path: Path) -> None:
    """The connection belongs to the thread of the program, as SQLite's connections do."""
    path = tmp_path / "db"

    def program(face: Any) -> None:
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE orders (body BLOB)")
            with face.inside(subscriber(face, a, store=SqliteStore(database))) as s:
                deliveries = [face.next(s)]
                while len(deliveries) < 3:
                    deliveries += face.run(s.here(2))
                database.executemany("INSERT INTO orders VALUES (?)", [(one.body,) for one in deliveries])
                assert kept() == (0, 0)
                face.run(s.accept_all(deliveries))
                assert kept() == (3, 3)

    def kept() -> tuple[int, int]:
        with closing(sqlite3.connect(path)) as other:
            count = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM oncemesh_unsettled)"
            orders, answers = other.execute(count).fetchone()
            return orders, answers

    async with running_peers("a") as [a], Program(kind, program):
        link = await a.answer()
        handles = [await a.send(link, KEYS[n], b"%d" % n) for n in range(3)]
        assert [await a.next(Stated) for _ in handles] == [Stated(handle, ACCEPTED, False) for handle in handles]


@both
async def test_a_store_that_fails_ends_the_subscriber(kind: str) -> None:
    def program(face: Any) -> None:
        database = sqlite3.connect(":memory:")
        with face.inside(subscriber(face, a, store=SqliteStore(database))) as s:
            delivery = face.next(s)
            database.close()
            with pytest.raises(StateError, match="closed database"):
                face.run(delivery.accept())
            with pytest.raises(StateError):
                face.next(s)

    async with running_peers("a") as [a], Program(kind, program):
        await a.send(await a.answer(), KEYS[0], b"x")
        await a.next(Gone)


@both
async def test_a_publisher_needs_a_store_of_its_own(kind: str) -> None:
    """It writes outcomes when they come: no call of the program could write them to the connection of the program."""

    def program(face: Any) -> None:
        with pytest.raises(ValueError, match="its store needs a file"):
            face.publisher([], "topic/x", container="p", link="l", store=SqliteStore(sqlite3.connect(":memory:")))

    async with Program(kind, program):
        pass


@both
async def test_what_the_store_holds_is_sent_again(kind: str, tmp_path: Path) -> None:
    class Crash(Exception):
        pass

    def program(face: Any) -> None:
        with (
            pytest.raises(Crash),
            SqliteStore(tmp_path / "p") as store,
            face.inside(publisher(face, a, store=store)) as p,
        ):
            face.run(p.send(b"one"))
            sent.wait()
            raise Crash
        with SqliteStore(tmp_path / "p") as store, face.inside(publisher(face, a, store=store)) as p:
            [resumed] = p.resumed
            assert (resumed.number, p.sent) == (0, 1)
            assert face.run(resumed.outcome()) is Outcome.ACCEPTED

    sent = threading.Event()
    async with running_peers("a") as [a], Program(kind, program):
        await a.answer()
        await a.next(Transferred)
        sent.set()
        await a.next(Gone)  # without a detach: the link can be resumed
        assert await decide(a, await a.answer({})) == b"one"


@both
async def test_errors_are_those_of_the_client(kind: str) -> None:
    def program(face: Any) -> None:
        with pytest.raises(ClientError, match="not-allowed: no") as refused, face.inside(subscriber(face, a)):
            pass
        assert refused.value.condition == "amqp:not-allowed"
        assert not client_threads()

    async with running_peers("a") as [a], Program(kind, program):
        link = await a.next(Link)
        link.refuse("amqp:not-allowed", "no")
        link.connection.wake()
        await a.next(Gone)


@both
async def test_a_client_is_used_inside_its_block_only(kind: str) -> None:
    def program(face: Any) -> None:
        s = subscriber(face, a)
        with pytest.raises(RuntimeError, match="inside its block"):
            face.next(s)
        with pytest.raises(RuntimeError, match="after its block has begun"):
            face.leave(s)
        with face.inside(s):
            with pytest.raises(RuntimeError, match="one block"), face.inside(s):
                pass
            delivery = face.next(s)
        with pytest.raises(ClientError, match="the client has left"):
            face.next(s)
        with pytest.raises(ClientError, match="the client has left"):
            face.run(delivery.accept())
        with pytest.raises(RuntimeError, match="one block"), face.inside(s):
            pass
        face.leave(s)  # a second end does nothing

    async with running_peers("a") as [a], Program(kind, program):
        await a.send(await a.answer(), KEYS[0], b"x")
        await a.next(Detached)


@both
async def test_several_threads_use_one_client(kind: str) -> None:
    """Each thread of asyncio has an event loop of its own."""
    count = 4

    def program(face: Any) -> None:
        def publish() -> None:
            other = type(face)()
            outcomes.append(other.run(other.run(p.send(b"x")).outcome()))

        outcomes: list[Outcome] = []
        with face.inside(publisher(face, a)) as p:
            threads = [threading.Thread(target=publish) for _ in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert outcomes == [Outcome.ACCEPTED] * count

    async with running_peers("a") as [a], Program(kind, program):
        link = await a.answer()
        for _ in range(count):
            await decide(a, link)


@both
async def test_a_forked_process_cannot_use_the_client(kind: str) -> None:
    def program(face: Any) -> None:
        with face.inside(publisher(face, a)) as p:
            if not (child := os.fork()):
                try:
                    type(face)().run(p.send(b"x"))
                except RuntimeError as error:
                    os._exit(0 if "make a new client after a fork" in str(error) else 1)
                os._exit(2)
            assert os.waitpid(child, 0)[1] == 0

    async with running_peers("a") as [a], Program(kind, program):
        await a.answer()
        assert await a.next(Detached) == Detached(True)


@both
async def test_an_exception_of_the_program_is_passed_on(kind: str) -> None:
    """The publisher does not wait for the outcome."""

    def program(face: Any) -> None:
        with pytest.raises(ZeroDivisionError), face.inside(publisher(face, a)) as p:
            face.run(p.send(b"x"))
            assert 1 // 0

    async with running_peers("a") as [a], Program(kind, program):
        await a.answer()
        await a.next(Transferred)
        await a.next(Detached)


async def test_a_wait_of_a_blocking_method_has_an_end() -> None:
    def program(face: Any) -> None:
        with subscriber(face, a) as s, pytest.raises(TimeoutError, match="within 0 s"):
            s.receive(timeout=0.0)
        with publisher(face, a) as p:
            with pytest.raises(TimeoutError):
                p.send(b"no credit", timeout=0.0)
            assert p.sent == 0

    async with running_peers("a") as [a], Program("blocking", program):
        await a.answer()
        await a.next(Detached)
        await a.next(Gone)
        await a.answer(credit=0)
        await a.next(Detached)


async def test_a_message_that_comes_with_a_cancellation_is_the_next_one() -> None:
    def program(face: Any) -> None:
        async def main() -> list[bytes]:
            async with subscriber(face, a) as s:
                for _ in range(50):
                    waiting = asyncio.create_task(anext(s))
                    await asyncio.sleep(0)
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                return [(await anext(s)).body for _ in range(10)]

        assert asyncio.run(main()) == [b"%d" % number for number in range(10)]

    async with running_peers("a") as [a], Program("asyncio", program):
        link = await a.answer()
        for number in range(10):
            await a.send(link, KEYS[number], b"%d" % number)
        await a.next(Detached)


async def test_asyncio_cancels_a_client_that_searches_or_waits() -> None:
    """A router that answers nothing, and a publisher that waits for an outcome at the end of its block."""

    def program(face: Any) -> None:
        async def main() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), subscriber(face, a):
                    pass
            assert not client_threads()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(None) as patience, publisher(face, a) as p:
                    await p.send(b"x")
                    patience.reschedule(0.0)

        asyncio.run(main())

    async with running_peers("a") as [a], Program("asyncio", program):
        await a.next(Link)
        await a.next(Gone)
        await a.answer()
        await a.next(Transferred)
        await a.next(Detached)


async def test_events_come_in_the_event_loop() -> None:
    def program(face: Any) -> None:
        async def main() -> None:
            async with subscriber(face, a, events=lambda event: told.append((event, threading.get_ident()))):
                pass

        told: list[tuple[Event, int]] = []
        asyncio.run(main())
        [(event, thread)] = told
        assert isinstance(event, Connected)
        assert thread == threading.get_ident()

    async with running_peers("a") as [a], Program("asyncio", program):
        await a.answer()
        await a.next(Detached)


INTERRUPTED = {
    "blocking": """
import sys
from failover.client import BlockingPublisher, BlockingSubscriber
with BlockingSubscriber(sys.argv[1:], "topic/x", container="s", link="in") as s:
    try:
        print(flush=True)
        next(s)
    except KeyboardInterrupt:
        pass
with BlockingPublisher(sys.argv[1:], "topic/x", container="p", link="out") as p:
    p.send(b"x")
""",
    "asyncio": """
import asyncio, sys
from failover.client import AsyncioPublisher, AsyncioSubscriber
async def subscribe():
    async with AsyncioSubscriber(sys.argv[1:], "topic/x", container="s", link="in") as s:
        print(flush=True)
        await anext(s)
async def publish():
    async with AsyncioPublisher(sys.argv[1:], "topic/x", container="p", link="out") as p:
        await p.send(b"x")
try:
    asyncio.run(subscribe())
except KeyboardInterrupt:
    pass
asyncio.run(publish())
""",
}
"""They are interrupted twice: as they wait for a message, and at the end of a block, where they wait for an outcome."""


@both
@pytest.mark.real_start
async def test_ctrl_c_ends_a_program_that_waits(kind: str, nursery: trio.Nursery) -> None:
    async with running_peers("a") as [a]:
        command = [sys.executable, "-c", INTERRUPTED[kind], a.url]
        run = partial(trio.run_process, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        process: trio.Process = await nursery.start(run)
        await a.answer()
        assert process.stdout is not None
        await process.stdout.receive_some()  # it is in its block
        process.send_signal(signal.SIGINT)
        assert await a.next(Detached) == Detached(True)
        await a.next(Gone)
        await a.answer()
        await a.next(Transferred)
        process.send_signal(signal.SIGINT)
        await a.next(Detached)
        await a.next(Gone)
        assert await process.wait() == -signal.SIGINT
