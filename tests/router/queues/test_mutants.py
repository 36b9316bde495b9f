"""Each rule of the store of replica sets broken on purpose, and the test that notices."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from router.disk import sqlite
from router.queues.store import QueueStore, Sync
from tests.router.queues import test_damage as damage
from tests.router.queues import test_store as store
from tests.topic.raft.mutants import Mutant

Scenario = Callable[[Path, damage.Example], None]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> damage.Example:
    return damage.written(tmp_path_factory.mktemp("example"))


def log(way: str) -> Scenario:
    """A way to damage the log."""
    return lambda folder, example: damage.test_a_damaged_log_gives_no_vote(example, way, folder)


def log_alone(way: str) -> Scenario:
    """The same; the mark is lost."""
    return lambda folder, example: damage.test_a_gap_in_the_log_is_noticed_without_the_mark(example, way, folder)


def file(way: str) -> Scenario:
    """A way to damage the file."""
    return lambda folder, example: damage.test_a_damaged_file_gives_no_vote(example, way, folder)


def of_store(test: Callable[..., None], *arguments: Any) -> Scenario:
    """A test of the store, with the path of its file."""
    return lambda folder, example: test(folder / "queues.db", *arguments)


def started_again(folder: Path, example: damage.Example) -> None:
    path, others = folder / "queues.db", folder / "others"
    store.test_a_file_that_was_not_synced_is_void_when_the_machine_has_started_again(path, others)


def of_another_time(folder: Path, example: damage.Example) -> None:
    damage.test_rows_of_another_time_are_noticed_though_each_is_whole(folder)


def state_of_another_time(folder: Path, example: damage.Example) -> None:
    damage.test_rows_of_a_state_of_another_time_are_noticed_though_each_is_whole(folder)


def put_back(folder: Path, example: damage.Example) -> None:
    damage.test_a_file_that_was_in_use_before_the_present_one_is_void(example, folder)


def written_anew(folder: Path, example: damage.Example) -> None:
    own = folder / "own"
    own.mkdir()
    damage.test_a_damaged_log_gives_no_vote(damage.written(own), "last, commit flipped", folder)


def failing(folder: Path, example: damage.Example) -> None:
    with pytest.MonkeyPatch.context() as patched:
        store.test_a_write_that_fails_is_never_tried_again(folder / "queues.db", patched)


def models(folder: Path, example: damage.Example) -> None:
    for seed in range(6):
        (folder / str(seed)).mkdir()
        store.test_a_store_has_what_a_model_has(folder / str(seed) / "queues.db", Sync.MEMORY, seed)


MODEL = of_store(store.test_a_store_has_what_a_model_has, Sync.DISK, 1)
MODELS = models
LATER = of_store(store.test_only_messages_of_an_earlier_snapshot_count)
FEW_RUNS = of_store(store.test_a_piece_has_runs_of_few_messages)
TWO_STATES = of_store(store.test_a_state_of_this_replica_stays_while_a_leader_sends_its_own)
DAMAGED_PIECE = of_store(store.test_a_damaged_piece_does_not_become_the_state)
DAMAGED_ROW = of_store(store.test_a_damaged_row_is_not_sent)
DAMAGED_BODY = of_store(store.test_a_damaged_body_is_not_read, store.bodies_in_rows)
DAMAGED_ENTRY = of_store(store.test_a_damaged_body_is_not_read, store.bodies_in_entry)
LOST_BODY = of_store(store.test_a_lost_body_is_noticed_at_the_start, store.bodies_in_rows)
LOST_ENTRY = of_store(store.test_a_lost_body_is_noticed_at_the_start, store.bodies_in_entry)
ROWS_WITH_BODIES = of_store(store.test_a_piece_has_each_body_behind_the_row_about_it, store.bodies_in_rows)
SCRUBBED = of_store(store.test_a_scrub_reads_few_bytes_at_once)
LAST_MESSAGE = of_store(store.test_an_entry_goes_with_the_last_of_its_messages)
VOID = of_store(store.test_a_part_that_is_void_is_kept_in_a_file_of_its_own)
DELETES = 'self._delete("entry", part.key(passed.start), part.key(snapshot.index))'
ENDS = 'before the ends of {ends} transactions" if ends > 1'
MUTANTS: list[tuple[Any, str, str, str, Scenario]] = [
    (sqlite, "gap", ENDS, ENDS.replace("1", "99"), log_alone("middle, payload flipped")),
    (sqlite, "gap", ENDS, ENDS.replace("1", "0"), log_alone("last, commit flipped")),
    (QueueStore, "_check_owner", "mark.file != found.file", "False", put_back),
    (QueueStore, "_check_owner", "found.boot != owner.boot", "False", started_again),
    (QueueStore, "_load", "part.number < marked.get(name, 0)", "False", log("cut behind one before the last")),
    (QueueStore, "_load", "part.file != self._owner.file", "False", log_alone("the log of another router")),
    (QueueStore, "_load", "if is_whole(row):", "if True:", file("part, row flipped")),
    (QueueStore, "_read", "(len(read), part.total) != (entries, total)", "False", of_another_time),
    (QueueStore, "_read", "not is_whole(row) or ", "", file("entry, row flipped")),
    (QueueStore, "_read_rows", "not is_whole(row)", "False", file("row, row flipped")),
    (QueueStore, "_read_rows", "found != part.rows", "False", state_of_another_time),
    (QueueStore, "_move_snapshot", "if following - before > 1:", "if False:", MODEL),
    (QueueStore, "_move_snapshot", "*sorted(kept), ", "", MODEL),
    (
        QueueStore,
        "_move_snapshot",
        'self._delete("entry", part.key(passed.start), part.key(snapshot.index))',
        "pass",
        MODELS,
    ),
    (QueueStore, "_move_snapshot", "part.kept += len(kept)", "pass", MODEL),
    (QueueStore, "_persist", 'self._delete("entry", part.key(persist.first), part.key(part.last))', "pass", MODEL),
    (QueueStore, "_delete_keys", "part.rows.remove(checksum)", "pass", MODEL),
    (QueueStore, "_change_row", "if value is not None", "if True", MODEL),
    (QueueStore, "_change_rows", "part.rows.add(row[-1])", "pass", MODEL),
    (QueueStore, "_change_rows", "if index not in passed:", "if False:", LAST_MESSAGE),
    (QueueStore, "_thin_out", "4 * sum", "10 * sum", LAST_MESSAGE),
    (
        QueueStore,
        "_thin_out",
        "self._add_row(part, body_key(position), messages[position - first])",
        "pass",
        LAST_MESSAGE,
    ),
    (QueueStore, "_thin_out", "part.kept -= 1", "pass", MODEL),
    (QueueStore, "_restore", "self._delete_keys(part, lowest, part.row_key(MESSAGE))", "pass", MODELS),
    (QueueStore, "_restore", "self._delete_gone(part, runs)", "pass", MODELS),
    (QueueStore, "_restore", "if has(key):", "if True:", MODELS),
    (QueueStore, "_delete_gone", "key >= first or ", "", MODELS),
    (QueueStore, "_tail", "part.staged[1] - 1", "-1", LATER),
    (QueueStore, "_run_rows", "if len(found) == IN_RUNS:", "if False:", FEW_RUNS),
    (QueueStore, "_rows_behind", "run_end(after) if section is Section.RUNS else -1", "-1", FEW_RUNS),
    (QueueStore, "_delete_bodies", "part.bodies -= ", "", MODEL),
    (QueueStore, "_read", "there != expected", "False", LOST_BODY),
    (QueueStore, "_read", "there != expected", "False", LOST_ENTRY),
    (QueueStore, "_body", "row is not None and is_whole(row)", "row is not None", DAMAGED_BODY),
    (QueueStore, "_messages_of", "row is not None and is_whole(row)", "row is not None", DAMAGED_ENTRY),
    (QueueStore, "_rows_behind", "if section is not Section.OTHERS:", "if True:", ROWS_WITH_BODIES),
    (QueueStore, "_piece", "not is_whole(found)", "False", DAMAGED_PIECE),
    (QueueStore, "read", "part.snapshot.index != piece.index", "False", TWO_STATES),
    (QueueStore, "_rows_between", "not is_whole(row)", "False", DAMAGED_ROW),
    (QueueStore, "write", "self._is_sound = False", "pass", failing),
    (QueueStore, "write", "self._write_mark()", "pass", written_anew),
    (QueueStore, "_renew", "self._delete_all(part.place)", "pass", VOID),
    (QueueStore, "_renew", 'self._keep(part.place, quote(part.name, safe=""))', '""', VOID),
    (QueueStore, "scrub", "if size >= SCRUBBED_BYTES:", "if False:", SCRUBBED),
    (QueueStore, "close", "is_closed=True", "is_closed=False", started_again),
]
"""Where, a text of it, another one in its place, and the test that fails by that."""


@pytest.mark.parametrize("number", range(len(MUTANTS)))
def test_a_broken_rule_is_noticed(number: int, tmp_path: Path, example: damage.Example) -> None:
    owner, method, old, new, notices = MUTANTS[number]
    for name in ("sound", "broken"):
        (tmp_path / name).mkdir()
    notices(tmp_path / "sound", example)
    with Mutant(owner, method, old, new, old, 0).applied(), pytest.raises(BaseException):  # noqa: B017
        notices(tmp_path / "broken", example)
