"""A client's state that is somebody else's, damaged, or not to be written any more: one error that says what it is."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from failover.client import Publisher, SqliteStore, StateError, Subscriber
from failover.client.state.store import Added, Attached, Decided, Unsettled, tag_of
from router.amqp.format.message import data_message
from router.amqp.format.values import ACCEPTED, NO_STATE
from router.store import StateStore
from tests.failover.client.scripted import Gone, Stated, Transferred, attached, running_peers
from topic.identity import LinkIdentity

P = LinkIdentity("p", "out", "topic/x")
S = LinkIdentity("s", "in", "topic/x")
KEYS = [b"key %028d" % n for n in range(3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


def tamper(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_router_s_state_is_refused_and_stays_one(path: Path) -> None:
    StateStore(path, "mesh", "a").close()
    with pytest.raises(StateError, match="state: cannot be used as a state file: a database, but not a client's state"):
        SqliteStore(path)
    StateStore(path, "mesh", "a").close()
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    assert tables == [("entry",), ("plan",), ("router",)]


@pytest.mark.parametrize("table", ["something (else_)", "oncemesh_link (number)"])
def test_a_database_of_somebody_else_is_refused_and_left_alone(path: Path, table: str) -> None:
    tamper(path, f"CREATE TABLE {table}")
    before = path.read_bytes()
    with pytest.raises(StateError, match="not a client's state"):
        SqliteStore(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_later_format_is_refused(path: Path) -> None:
    SqliteStore(path).close()
    tamper(path, "PRAGMA user_version = 1")
    with pytest.raises(StateError, match="written in format 1 by another version of this program, expected format 2"):
        SqliteStore(path)


def test_foreign_tables_in_a_given_connection_are_told(path: Path) -> None:
    tamper(path, "CREATE TABLE oncemesh_link (number)")
    with closing(sqlite3.connect(path)) as connection:
        store = SqliteStore(connection)
        with pytest.raises(StateError, match="the connection: cannot be used as a state file: no such column: id"):
            store.load("publisher", P)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE oncemesh_link SET generation = 'text'",
        "UPDATE oncemesh_link SET generation = x'00'",
        "UPDATE oncemesh_link SET epoch = x'00'",
        "UPDATE oncemesh_link SET epoch = 'some text'",
        "UPDATE oncemesh_link SET next_number = 'many'",
        "UPDATE oncemesh_link SET next_number = 0",
        "UPDATE oncemesh_link SET next_number = -1",
        "UPDATE oncemesh_link SET next_number = 0x7fffffffffffffff",
        "UPDATE oncemesh_unsettled SET tag = 7",
        "UPDATE oncemesh_unsettled SET tag = x'00'",
        "UPDATE oncemesh_unsettled SET state = 'accepted'",
        "UPDATE oncemesh_unsettled SET state = 7",
        "UPDATE oncemesh_unsettled SET message = NULL WHERE message IS NOT NULL",
    ],
)
def test_what_makes_no_sense_is_refused(path: Path, damage: str) -> None:
    with SqliteStore(path) as store:
        store.write("publisher", P, [Attached(b"8 bytes!", "1.a.1"), Added(0, b"message")])
    tamper(path, damage)
    with SqliteStore(path) as store, pytest.raises(StateError, match="damaged: the data of p/out on topic/x"):
        store.load("publisher", P)


def test_damaged_pages_are_found_at_once(path: Path) -> None:
    with SqliteStore(path) as store:
        store.write("publisher", P, [Added(n, b"message" * 1000) for n in range(10)])
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xa5" * (len(whole) - 8192))
    with pytest.raises(StateError, match=r"state: cannot be used as a state file: (damaged|database disk image)"):
        SqliteStore(path)


@pytest.mark.parametrize("left", [b"", b"S"])
def test_a_file_that_was_emptied_is_refused_and_left_alone(path: Path, left: bytes) -> None:
    path.write_bytes(left)
    with pytest.raises(StateError, match="state: cannot be used as a state file: damaged: it is empty"):
        SqliteStore(path)
    assert path.read_bytes() == left


def test_a_kill_while_it_is_made_leaves_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(fresh: str, where: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "link", killed)
        SqliteStore(path)
    assert not path.exists()
    SqliteStore(path).close()


@pytest.mark.parametrize("unwritten", ["state", ""])
def test_what_may_not_be_written_is_named(path: Path, monkeypatch: pytest.MonkeyPatch, unwritten: str) -> None:
    path.mkdir()  # SQLite opens it as little as what it may not write
    named = path.parent / unwritten
    monkeypatch.setattr(os, "access", lambda one, _: Path(one) != named)
    with pytest.raises(StateError, match=rf"state: cannot be used as a state file: no permission to write {named}$"):
        SqliteStore(path)


@pytest.mark.parametrize("damage", ["state = 0", "state = 99", "tag = x''", "tag = zeroblob(40)"])
def test_a_subscriber_s_delivery_that_makes_no_sense_is_refused(path: Path, damage: str) -> None:
    with SqliteStore(path) as store:
        store.write("subscriber", S, [Attached(None, None), Decided(KEYS[0], ACCEPTED)])
    tamper(path, f"UPDATE oncemesh_unsettled SET {damage}")
    with SqliteStore(path) as store, pytest.raises(StateError, match="are inconsistent"):
        store.load("subscriber", S)


async def test_a_client_whose_state_cannot_be_read_leaves_a_whole_log(path: Path, tmp_path: Path) -> None:
    with SqliteStore(path) as store:
        store.write("subscriber", S, [Attached(None, "1.a.1")])
        tamper_with(store, "UPDATE oncemesh_link SET epoch = x'00'")
        client = Subscriber(["127.0.0.1:1"], S.address, container="s", link="in", store=store, log=tmp_path / "log")
        with pytest.raises(StateError, match="are inconsistent"):
            async with client:
                raise AssertionError
    assert client._log is not None and client._log._file._segment._file.closed


def tamper_with(store: SqliteStore, statement: str) -> None:
    """The file is locked for others."""
    store._connection.execute(statement)


@pytest.fixture(params=["file", "connection"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[SqliteStore]:
    if request.param == "file":
        with SqliteStore(path) as opened:
            yield opened
    else:
        with closing(sqlite3.connect(path)) as connection:
            yield SqliteStore(connection)


FAILURES = {
    "PRAGMA max_page_count = 1": "the state cannot be stored: database or disk is full",
    "PRAGMA query_only = 1": "the state cannot be stored: attempt to write a readonly database",
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_publisher_whose_state_cannot_be_kept_ends_and_sends_nothing(store: SqliteStore, failure: str) -> None:
    async with running_peers("a") as [a]:
        client = Publisher([a.url], P.address, container="p", link="out", store=store)
        async with attached(client, a) as (p, _):
            kept = await p.send(b"kept")
            await a.next(Transferred)
            tamper_with(store, failure)
            lost = await p.send(b"." * 100_000)
            for handle in (lost, kept):
                with pytest.raises(StateError, match=f"(state|the connection): {FAILURES[failure]}"):
                    await handle.outcome()
            with pytest.raises(StateError):
                await p.send(b"no more")
        await a.next(Gone)
    tamper_with(store, "PRAGMA query_only = 0")
    store._connection.rollback()
    saved = store.load("publisher", P)
    assert (saved.unsettled, saved.next_number) == ({tag_of(0): Unsettled(NO_STATE, data_message(b"kept"))}, 1)


async def test_a_publisher_that_cannot_keep_an_outcome_does_not_settle(store: SqliteStore) -> None:
    async with running_peers("a") as [a]:
        client = Publisher([a.url], P.address, container="p", link="out", store=store)
        async with attached(client, a) as (p, link):
            handle = await p.send(b"kept")
            transferred = await a.next(Transferred)
            tamper_with(store, "PRAGMA query_only = 1")
            a.outcome(link, transferred.handle)
            with pytest.raises(StateError):
                await handle.outcome()
        await a.next(Gone)
    tamper_with(store, "PRAGMA query_only = 0")
    store._connection.rollback()
    assert store.load("publisher", P).unsettled == {tag_of(0): Unsettled(NO_STATE, data_message(b"kept"))}


async def test_a_subscriber_whose_answer_cannot_be_kept_ends_and_states_nothing(store: SqliteStore) -> None:
    async with running_peers("a") as [a]:
        client = Subscriber([a.url], S.address, container="s", link="in", store=store)
        async with attached(client, a) as (s, link):
            await a.send(link, KEYS[0], b"1")
            await (await anext(s)).accept()
            await a.next(Stated)
            await a.send(link, KEYS[1], b"2")
            delivery = await anext(s)
            tamper_with(store, "PRAGMA query_only = 1")
            with pytest.raises(StateError, match="the state cannot be stored: attempt to write a readonly database"):
                await delivery.accept()
            with pytest.raises(StateError):
                await anext(s)
        await a.next(Gone)
    tamper_with(store, "PRAGMA query_only = 0")
    store._connection.rollback()
    assert store.load("subscriber", S).unsettled == {KEYS[0]: Unsettled(ACCEPTED, None)}
