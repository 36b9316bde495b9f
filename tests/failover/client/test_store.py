"""What a client keeps for its next life: the same from either store, and enough after a crash at any step."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from failover.client import MemoryStore, Outcome, Publisher, SqliteStore, StateError, Store, Subscriber
from failover.client.state.store import Added, Attached, Change, Decided, Ended, Removed, Role, Saved, Unsettled, tag_of
from router.amqp.format.values import ACCEPTED, NO_STATE, REJECTED
from tests.failover.client.scripted import (
    Peer,
    Stated,
    Transferred,
    attached,
    running_peers,
    states,
)
from topic.identity import LinkIdentity

IDENTITY = LinkIdentity("c", "l", "topic/x")
KEYS = [b"key %028d" % n for n in range(3)]


@pytest.fixture(params=["memory", "file", "connection"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    match request.param:
        case "memory":
            yield MemoryStore()
        case "file":
            with SqliteStore(tmp_path / "state") as opened:
                yield opened
        case "connection":
            connection = sqlite3.connect(tmp_path / "app")
            yield SqliteStore(connection)
            connection.close()


def test_nothing_is_kept_of_a_link_never_seen(store: Store) -> None:
    assert store.load("publisher", IDENTITY) == Saved()


def test_a_publisher_s_deliveries(store: Store) -> None:
    store.write("publisher", IDENTITY, [Attached(b"8 bytes!", "1.a.1")])
    store.write("publisher", IDENTITY, [Added(n, b"message %d" % n) for n in range(3)])
    store.write("publisher", IDENTITY, [Decided(tag_of(0), ACCEPTED), Removed(tag_of(1)), Removed(tag_of(9))])
    unsettled = {tag_of(0): Unsettled(ACCEPTED, b"message 0"), tag_of(2): Unsettled(NO_STATE, b"message 2")}
    assert store.load("publisher", IDENTITY) == Saved(True, b"8 bytes!", "1.a.1", 3, unsettled)
    assert list(store.load("publisher", IDENTITY).unsettled) == [tag_of(0), tag_of(2)]


def test_a_subscriber_s_answers(store: Store) -> None:
    store.write("subscriber", IDENTITY, [Attached(None, "1.a.1"), Decided(b"k", ACCEPTED), Decided(b"l", REJECTED)])
    store.write("subscriber", IDENTITY, [Removed(b"k")])
    assert store.load("subscriber", IDENTITY) == Saved(True, None, "1.a.1", 0, {b"l": Unsettled(REJECTED, None)})


def test_an_ended_link_goes_on_counting(store: Store) -> None:
    store.write("publisher", IDENTITY, [Attached(b"8 bytes!", "1.a.1"), Added(0, b"message"), Ended()])
    assert store.load("publisher", IDENTITY) == Saved(next_number=1)
    store.write("publisher", IDENTITY, [Attached(b"another!", None), Added(1, b"next")])
    assert store.load("publisher", IDENTITY).unsettled == {tag_of(1): Unsettled(NO_STATE, b"next")}


def test_links_do_not_mix(store: Store) -> None:
    other = LinkIdentity("c", "l", "topic/x", "alice")
    store.write("publisher", IDENTITY, [Added(0, b"publisher")])
    store.write("publisher", other, [Added(7, b"other")])
    store.write("subscriber", IDENTITY, [Decided(b"k", ACCEPTED)])
    assert store.load("publisher", IDENTITY).unsettled == {tag_of(0): Unsettled(NO_STATE, b"publisher")}
    assert store.load("publisher", other).next_number == 8
    assert store.load("subscriber", IDENTITY).unsettled == {b"k": Unsettled(ACCEPTED, None)}


def test_a_file_outlives_its_process_and_is_one_process_s_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with SqliteStore(path) as store:
        store.write("publisher", IDENTITY, [Added(0, b"message")])
        with pytest.raises(StateError, match="another running client uses it"):
            SqliteStore(path)
    with SqliteStore(path) as store:
        assert store.load("publisher", IDENTITY).next_number == 1


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"not a database" * 100)
    with pytest.raises(StateError, match="state: cannot be used as a state file: file is not a database"):
        SqliteStore(tmp_path / "state")


def test_changes_are_kept_all_or_none(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "state") as store:
        store.write("publisher", IDENTITY, [Added(0, b"message")])
        with pytest.raises(StateError):
            store.write("publisher", IDENTITY, [Removed(tag_of(0)), Added(1, b"next"), Added(1, b"next")])
        store.write("publisher", IDENTITY, [Added(2, b"later")])
        assert list(store.load("publisher", IDENTITY).unsettled) == [tag_of(0), tag_of(2)]


class Crash:
    """A client with its state in a file, and what a crash at this instant would leave of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0

    def __call__(self) -> SqliteStore:
        copy = self.path.with_name(f"copy{self.number}")
        self.number += 1
        for file in self.path.parent.glob(f"{self.path.name}*"):
            shutil.copy(file, file.with_name(file.name.replace(self.path.name, copy.name)))
        return SqliteStore(copy)


def publisher(peer: Peer, store: SqliteStore) -> Publisher:
    return Publisher([peer.url], "topic/x", container="p", link="out", store=store)


def subscriber(peer: Peer, store: SqliteStore, **options: Any) -> Subscriber:
    return Subscriber([peer.url], "topic/x", container="s", link="in", store=store, **options)


async def map_of(client: Publisher | Subscriber, theirs: dict[bytes, int] | None = None) -> Any:
    """What a client says of its deliveries when it attaches."""
    async with running_peers("z") as [z]:
        client._routers = type(client._routers)([z.url])
        async with attached(client, z, theirs) as (_, link):
            if isinstance(client, Publisher):
                assert link.remote_properties["oncemesh:generation"] == b"8 bytes!"
            assert link.remote_source is not None and link.remote_source.durable == 2
            return link.remote_unsettled


async def test_a_publisher_crashes_at_every_step(tmp_path: Path) -> None:
    crash = Crash(tmp_path / "state")
    async with running_peers("a") as [a]:
        with SqliteStore(crash.path) as store:
            async with attached(publisher(a, store), a) as (p, link):
                handle = await p.send(b"body")
                transferred = await a.next(Transferred)
                with crash() as left:  # before the outcome: what is transferred is known
                    next_life = publisher(a, left)
                    assert await map_of(next_life, {}) == states({transferred.tag: NO_STATE})
                    assert next_life.sent == 1
                    [resumed] = next_life.resumed
                    assert resumed.number == 0
                a.outcome(link, transferred.handle)
                assert (await a.next(Stated)).settled
                with crash() as left:  # after the settlement: the outcome is known
                    next_life = publisher(a, left)
                    assert await map_of(next_life, {}) == states({transferred.tag: ACCEPTED})
                    [resumed] = next_life.resumed
                    assert await resumed.outcome() is Outcome.ACCEPTED
                assert await handle.outcome() is Outcome.ACCEPTED
                await p.send(b"next")  # this commit takes what was settled with it
                await a.next(Transferred)
                with crash() as left:
                    assert await map_of(publisher(a, left), {}) == states({tag_of(1): NO_STATE})


async def test_a_subscriber_crashes_at_every_step(tmp_path: Path) -> None:
    crash = Crash(tmp_path / "state")
    async with running_peers("a") as [a]:
        with SqliteStore(crash.path) as store:
            async with attached(subscriber(a, store), a) as (s, link):
                for n in range(2):
                    handle = await a.send(link, KEYS[n], b"body")
                    delivery = await anext(s)
                    await delivery.accept()
                    assert (await a.next(Stated)).state == ACCEPTED
                    with crash() as left:  # before the settlement: what was stated is known
                        assert await map_of(subscriber(a, left), {}) == states({KEYS[n]: ACCEPTED})
                    a.settle(link, handle)
                    await trio.testing.wait_all_tasks_blocked()


async def test_a_message_only_handed_out_is_not_kept(tmp_path: Path) -> None:
    crash = Crash(tmp_path / "state")
    async with running_peers("a") as [a]:
        with SqliteStore(crash.path) as store:
            async with attached(subscriber(a, store), a) as (s, link):
                for n in range(2):
                    await a.send(link, KEYS[n], b"body")
                await (await anext(s)).accept()
                await anext(s)
                with crash() as left:
                    assert await map_of(subscriber(a, left), {}) == states({KEYS[0]: ACCEPTED})


async def test_an_acceptance_is_part_of_the_user_s_transaction(tmp_path: Path) -> None:
    """Nothing else commits: neither attaching nor settling."""
    path = tmp_path / "app"
    connection = sqlite3.connect(path)
    other = sqlite3.connect(path)
    connection.execute("CREATE TABLE done (body BLOB)")

    def seen() -> list[Any]:
        return other.execute("SELECT body FROM done").fetchall()

    async with running_peers("a") as [a], attached(subscriber(a, SqliteStore(connection)), a) as (s, link):
        first = await a.send(link, KEYS[0], b"1")
        delivery = await anext(s)
        connection.execute("INSERT INTO done VALUES (?)", (delivery.body,))
        assert seen() == []
        await delivery.accept()
        assert seen() == [(b"1",)]
        assert other.execute("SELECT tag, state FROM oncemesh_unsettled").fetchall() == [(KEYS[0], ACCEPTED)]

        await a.send(link, KEYS[1], b"2")
        delivery = await anext(s)
        connection.execute("INSERT INTO done VALUES (?)", (delivery.body,))
        a.settle(link, first)
        await trio.testing.wait_all_tasks_blocked()
        assert seen() == [(b"1",)]
        connection.rollback()  # the user failed, and tries again
        connection.execute("INSERT INTO done VALUES (?)", (b"again",))
        await delivery.accept()
        assert seen() == [(b"1",), (b"again",)]
        assert other.execute("SELECT tag FROM oncemesh_unsettled").fetchall() == [(KEYS[1],)]
    connection.close()
    other.close()


@pytest.mark.parametrize("row_factory", [sqlite3.Row, lambda cursor, row: {}])
async def test_what_rows_the_user_s_connection_makes_is_its_own_business(row_factory: Any) -> None:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = row_factory
    for _ in range(2):
        store = SqliteStore(connection)
        store.load("subscriber", IDENTITY)
        store.write("subscriber", IDENTITY, [Decided(KEYS[0], ACCEPTED)])
    assert store.load("subscriber", IDENTITY) == Saved(unsettled={KEYS[0]: Unsettled(ACCEPTED, None)})
    assert connection.row_factory is row_factory


class Autocommit(sqlite3.Connection):
    """As `sqlite3.connect(..., autocommit=True)` makes them from Python 3.12 on."""

    autocommit = True


def test_a_connection_without_transactions_is_refused() -> None:
    with pytest.raises(StateError, match=r"the connection: .* commits each statement at once"):
        SqliteStore(sqlite3.connect(":memory:", factory=Autocommit))


async def test_many_sends_share_a_commit(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "state") as store:
        commits = 0
        write = store.write

        def count(role: Role, identity: LinkIdentity, changes: Sequence[Change]) -> None:
            nonlocal commits
            commits += 1
            write(role, identity, changes)

        store.write = count  # type: ignore[method-assign]
        async with running_peers("a") as [a], attached(publisher(a, store), a) as (p, link):
            link.flow(1000)
            link.connection.wake()
            for n in range(500):
                await p.send(b"%d" % n)
            tags = [(await a.next(Transferred)).tag for _ in range(500)]
            assert tags == [tag_of(n) for n in range(500)]
            assert commits < 100
