"""What a router keeps for its next life, and what it refuses to start with."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from linkstate.clock import COUNTER_BITS
from router.rundir import RunError
from router.store import AHEAD, StateStore, StoreError
from topic.directory import Entry, Lifetime, Role, Status
from topic.identity import Epoch, LinkIdentity, link_name

ROOT = Path(__file__).parents[2]


def entry(container: str, role: Role = Role.SUBSCRIBER, hlc: int = 7, **fields: Any) -> Entry:
    identity = LinkIdentity(container, "link", "topic/x")
    generation = b"8 bytes!" if role is Role.PUBLISHER else b""
    lifetime = Lifetime(60, "connection-close", 2)
    durable = Entry(role, link_name(identity), identity, Epoch(hlc, "a", 1), generation, lifetime=lifetime)
    return attrs.evolve(durable, **fields)


def store(path: Path) -> StateStore:
    return StateStore(path, "mesh", "a")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.mark.parametrize("begin", [None, b""])
def test_an_absent_or_empty_file_is_a_new_one(path: Path, begin: bytes | None) -> None:
    if begin is not None:
        path.write_bytes(begin)
    with store(path) as new:
        assert (new.remembered, new.reserved) == ([], 0)


def test_entries_come_back_as_they_were_last(path: Path) -> None:
    publisher, subscriber = entry("p", Role.PUBLISHER), entry("s")
    bound = attrs.evolve(subscriber, status=Status.BOUND)
    with store(path) as first:
        first.save([publisher, subscriber], 1)
        first.save([bound], 2)
    with store(path) as second:
        assert second.remembered == [publisher, bound]


@pytest.mark.parametrize("end", [Status.CLOSED, Status.EXPIRED])
def test_what_has_ended_is_forgotten(path: Path, end: Status) -> None:
    with store(path) as first:
        first.save([entry("s"), entry("t")], 1)
        first.save([entry("s", status=end), entry("u", status=end)], 2)
    with store(path) as second:
        assert second.remembered == [entry("t")]


@pytest.mark.parametrize("lifetime", [Lifetime(60, "never", 0), Lifetime(0, "never", 2)])
def test_what_its_client_no_longer_wants_kept_is_forgotten(path: Path, lifetime: Lifetime) -> None:
    with store(path) as first:
        first.save([entry("s")], 1)
        first.save([entry("s", hlc=8, lifetime=lifetime)], 2)
    with store(path) as second:
        assert second.remembered == []


def test_a_publisher_and_a_subscriber_of_one_identity_are_two(path: Path) -> None:
    with store(path) as first:
        first.save([entry("x"), entry("x", Role.PUBLISHER)], 1)
        first.save([entry("x", status=Status.CLOSED)], 2)
    with store(path) as second:
        assert second.remembered == [entry("x", Role.PUBLISHER)]


def test_the_clock_is_reserved_ahead_so_that_it_is_seldom_written(path: Path) -> None:
    with store(path) as first:
        first.save((), 5 << COUNTER_BITS)
        reserved = first.reserved
        assert reserved == (5 << COUNTER_BITS) + AHEAD
        first.save((), reserved - 1)
        assert first.reserved == reserved
    with store(path) as second:
        assert second.reserved == reserved


def test_a_later_life_is_a_later_incarnation_even_if_the_clock_was_set_back(path: Path) -> None:
    with store(path) as first:
        assert first.begin(1000) == 1000
    with store(path) as second:
        assert second.begin(900) == 1001
    with store(path) as third:
        assert third.begin(2000) == 2000


def test_what_was_saved_survives_the_kill_of_its_process(path: Path) -> None:
    program = f"""\
import pathlib, signal, os
from tests.router.test_store import entry, store
kept = store(pathlib.Path({str(path)!r}))
kept.save([entry("s")], 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == -signal.SIGKILL
    with store(path) as second:
        assert second.remembered == [entry("s")]


def test_a_store_is_held_by_one_process_at_a_time(path: Path) -> None:
    with store(path), pytest.raises(StoreError, match=r"state\.db: not to be used as a router's state: .*locked"):
        store(path)
    store(path).close()


def tamper(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement, values)


def refused(path: Path, reason: str) -> None:
    with pytest.raises(RunError) as caught:
        store(path)
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    refused(path, "file is not a database")
    assert path.read_bytes() == b"no database" * 1000


def test_a_database_of_somebody_else_is_refused(path: Path) -> None:
    tamper(path, "CREATE TABLE something (else_ INTEGER)")
    refused(path, "not a router's")


@pytest.mark.parametrize(("mesh", "name"), [("mesh", "b"), ("other", "a")])
def test_another_routers_state_is_refused(path: Path, mesh: str, name: str) -> None:
    StateStore(path, mesh, name).close()
    refused(path, f"belongs to router {name} of mesh {mesh}, expected a of mesh")


def test_a_later_format_is_refused(path: Path) -> None:
    store(path).close()
    tamper(path, "PRAGMA user_version = 2")
    refused(path, "of another version of this program, expected format 1")


def test_a_file_that_was_cut_off_is_refused(path: Path) -> None:
    with store(path) as first:
        first.save([entry(f"s{n}") for n in range(200)], 1)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, "malformed")


@pytest.mark.parametrize("packed", [7, b"\x81\x90\x00", b"\xc1", b"\x91\x00", b"\x90", b"\x80", b"\x01", b"", b"\x91"])
def test_an_entry_that_makes_no_sense_is_refused(path: Path, packed: object) -> None:
    with store(path) as first:
        first.save([entry("s")], 1)
    tamper(path, "UPDATE entry SET packed = ?", packed)
    refused(path, "damaged: an entry cannot be read")


def test_an_entry_in_anothers_place_is_refused(path: Path) -> None:
    with store(path) as first:
        first.save([entry("s")], 1)
    tamper(path, "UPDATE entry SET name = ?", entry("t").name)
    refused(path, "damaged: an entry is not the one that it is kept as")


def test_a_file_without_an_owner_is_refused(path: Path) -> None:
    store(path).close()
    tamper(path, "DELETE FROM router")
    refused(path, "damaged: it does not say whose it is")


@pytest.mark.parametrize("column", ["incarnation", "clock"])
@pytest.mark.parametrize("value", [None, "abc", -1, 1.5, b"1", (1 << 63) - 1])
def test_a_time_that_makes_no_sense_is_refused(path: Path, column: str, value: object) -> None:
    store(path).close()
    tamper(path, f"UPDATE router SET {column} = ?", value)
    refused(path, f"damaged: its {column} is {value!r}")


def test_a_folder_in_its_place_is_refused(path: Path) -> None:
    path.mkdir()
    refused(path, "unable to open database file")


@pytest.mark.parametrize("write", [lambda kept: kept.save([entry("s")], 1), lambda kept: kept.begin(1000)])
def test_what_cannot_be_written_is_told(path: Path, write: Callable[[StateStore], object]) -> None:
    with store(path) as kept:
        kept._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(StoreError) as caught:
            write(kept)
    reason = "the router's state cannot be kept, so it ends: attempt to write a readonly database"
    assert str(caught.value) == f"{path}: {reason}"
