"""What a router keeps for its next life, and what it refuses to start with."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from linkstate.clock import AHEAD, COUNTER_BITS
from linkstate.plan.plan import Plan
from router.mesh.errors import RunError
from router.store import MERGE, StateStore, StoreError
from tests.disk import full_disk
from tests.plans import file
from topic.directory.entry import Lifetime, LinkEntry, Role, Status
from topic.errors import UnkeptError
from topic.identity import Epoch, LinkIdentity, link_name

ROOT = Path(__file__).parents[2]


def entry(container: str, role: Role = Role.SUBSCRIBER, hlc: int = 7, **fields: Any) -> LinkEntry:
    identity = LinkIdentity(container, "link", "topic/x")
    generation = b"8 bytes!" if role is Role.PUBLISHER else b""
    lifetime = Lifetime(60, "connection-close", 2)
    durable = LinkEntry(role, link_name(identity), identity, Epoch(hlc, "a", 1), generation, lifetime=lifetime)
    return attrs.evolve(durable, **fields)


def store(path: Path) -> StateStore:
    return StateStore(path, "mesh", "a")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_no_file_at_all_begins_a_new_one(path: Path) -> None:
    with store(path) as new:
        assert (new.found, new.remembered, new.reserved) == (False, [], 0)
    with store(path) as second:
        assert second.found


@pytest.mark.parametrize("left", [b"", b"S"])
def test_a_file_that_was_emptied_is_refused_and_left_alone(path: Path, left: bytes) -> None:
    with store(path) as first:
        first.save([entry("s")], 1)
    path.write_bytes(left)
    refused(path, "damaged: it is empty")
    assert path.read_bytes() == left


def test_a_new_one_takes_nothing_from_the_log_of_the_one_that_was_moved_away(path: Path) -> None:
    """A router that was killed leaves most of its state in SQLite's log."""
    log = Path(f"{path}-wal")
    with store(path) as first:
        first.save([entry("s")], 1)
        left = log.read_bytes()
    assert left
    log.write_bytes(left)
    path.unlink()
    with store(path) as new:
        assert (new.found, new.remembered, new.reserved) == (False, [], 0)


def test_a_kill_while_it_is_made_leaves_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(fresh: Path, where: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "link", killed)
        store(path)
    assert not path.exists()
    with store(path) as new:
        assert not new.found


def test_entries_come_back_as_they_were_last(path: Path) -> None:
    publisher, subscriber = entry("p", Role.PUBLISHER), entry("s")
    bound = attrs.evolve(subscriber, status=Status.BOUND)
    with store(path) as first:
        first.save([publisher, subscriber], 1)
        first.save([bound], 2)
    with store(path) as second:
        assert second.remembered == [publisher, bound]


def test_an_attach_that_none_can_follow_is_not_told_to_others(path: Path) -> None:
    with store(path) as first:
        first.save([entry("made-up", hlc=(1 << 64) - 1), entry("s")], 1)
    with store(path) as second:
        assert second.remembered == [entry("s")]


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
from linkstate.plan.plan import Plan
from tests.plans import file
kept = store(pathlib.Path({str(path)!r}))
kept.save([entry("s")], 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == -signal.SIGKILL
    with store(path) as second:
        assert second.remembered == [entry("s")]


def test_a_store_is_held_by_one_process_at_a_time(path: Path) -> None:
    with store(path), pytest.raises(StoreError, match=r"state\.db: the router cannot use this state: .*locked"):
        store(path)
    store(path).close()


def test_changes_are_merged_into_the_file_while_others_are_saved(path: Path) -> None:
    with store(path) as kept:
        for number in range(MERGE):
            assert not kept.is_to_be_merged
            kept.save([entry(f"s{number}")], 1)
        assert kept.is_to_be_merged
        merging = threading.Thread(target=kept.merge)
        merging.start()
        kept.save([entry("meanwhile")], 1)
        merging.join()
        kept.merge()
        size = Path(f"{path}-wal").stat().st_size
        kept.save([entry("t")], 1)
        assert Path(f"{path}-wal").stat().st_size == size, "it is written from its beginning again"
        with full_disk():
            kept.merge()
    with store(path) as again:
        assert len(again.remembered) == MERGE + 2


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
    tamper(path, "PRAGMA user_version = 1")
    refused(path, "written in format 1 by another version of this program, expected format 3")


def test_a_file_that_was_cut_off_is_refused(path: Path) -> None:
    with store(path) as first:
        first.save([entry(f"s{n}") for n in range(200)], 1)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, "malformed")


@pytest.mark.parametrize("packed", [None, 7, b"", b"\x90", b"\xc1"])
def test_an_entry_that_is_not_as_it_was_written_is_refused(path: Path, packed: object) -> None:
    with store(path) as first:
        first.save([entry("s")], 1)
    tamper(path, "UPDATE entry SET packed = ?", packed)
    refused(path, "damaged: a stored link does not match its checksum")


@pytest.mark.parametrize("column", ["role", "name", "sum"])
def test_an_entry_in_anothers_place_is_refused(path: Path, column: str) -> None:
    with store(path) as first:
        first.save([entry("s")], 1)
    tamper(path, f"UPDATE entry SET {column} = 7")
    refused(path, "damaged: a stored link does not match its checksum")


@pytest.mark.parametrize("how", ["DELETE FROM router", "INSERT INTO router SELECT * FROM router"])
def test_a_file_without_one_owner_is_refused(path: Path, how: str) -> None:
    store(path).close()
    tamper(path, how)
    refused(path, "damaged: the stored owner, incarnation or clock does not match its checksum")


@pytest.mark.parametrize("column", ["mesh", "name", "incarnation", "clock", "sum"])
@pytest.mark.parametrize("value", [None, "abc", -1, 1.5, b"1", (1 << 63) - 1])
def test_a_count_that_is_not_as_it_was_written_is_refused(path: Path, column: str, value: object) -> None:
    store(path).close()
    tamper(path, f"UPDATE router SET {column} = ?", value)
    refused(path, "damaged: the stored owner, incarnation or clock does not match its checksum")


def changed_plan() -> Plan:
    return file("abc", "ab", "bc").revised(file("ab", "ab5"), (7 << COUNTER_BITS, "a"))


PAGE = 4096
HEADS = (128, 16, 16, 16)  # of each page: header and cell pointers, of which many are zeros that matter


def bits_in_use(whole: bytes, page: int) -> Iterator[int]:
    """Free space is all zeros."""
    for at in range(page * PAGE, (page + 1) * PAGE):
        if whole[at] or at % PAGE < HEADS[page]:
            yield from range(8 * at, 8 * at + 8)


@pytest.mark.parametrize("page", [0, 1, 2, 3])
def test_no_single_bit_can_change_what_is_remembered(path: Path, page: int) -> None:
    with store(path) as first:
        first.begin(1000)
        first.save([entry("s"), entry("p", Role.PUBLISHER)], 5 << COUNTER_BITS, plan := changed_plan())
        kept = first.reserved
    whole = path.read_bytes()
    assert len(whole) == 4 * PAGE, "the schema, the counters, the entries, the plan"
    refusals = 0
    for bit in bits_in_use(whole, page):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            with store(path) as again:
                assert (again.remembered, again.reserved) == ([entry("p", Role.PUBLISHER), entry("s")], kept)
                assert again.plan.digest == plan.digest
        except StoreError:
            refusals += 1
    assert refusals > 200


def test_a_folder_in_its_place_is_refused(path: Path) -> None:
    path.mkdir()
    refused(path, "Is a directory")


@pytest.mark.parametrize(
    ("write", "error"),
    [(lambda kept: kept.save([entry("s")], 1), UnkeptError), (lambda kept: kept.begin(1000), StoreError)],
)
def test_what_cannot_be_written_is_told(
    path: Path, write: Callable[[StateStore], object], error: type[Exception]
) -> None:
    with store(path) as kept:
        kept._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(error) as caught:
            write(kept)
    reason = "the router's state cannot be stored: attempt to write a readonly database"
    assert str(caught.value) == f"{path}: {reason}"


def test_a_store_whose_disk_was_full_is_as_it_was_and_goes_on(path: Path) -> None:
    with store(path) as kept:
        kept.save([entry("s")], 1)
        reserved = kept.reserved
        for _ in range(3):
            with full_disk(), pytest.raises(UnkeptError, match=r"state\.db: the router's state cannot be stored: disk"):
                kept.save([entry("t")], 5 << COUNTER_BITS)
        assert kept.reserved == reserved
        kept.save([entry("u")], 1)
    with store(path) as again:
        assert again.remembered == [entry("u"), entry("s")] and again.reserved == reserved


def test_what_is_written_whole_takes_the_place_of_all(path: Path) -> None:
    with store(path) as kept:
        kept.save([entry("s"), entry("t")], 1)
        kept.save([entry("t", hlc=9), entry("u"), entry("v", status=Status.CLOSED)], 1, whole=True)
    with store(path) as again:
        assert again.remembered == [entry("u"), entry("t", hlc=9)]
