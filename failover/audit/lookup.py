"""Finds what all logs say of one delivery: straight from the files where they are local, through Spark where not.

Spark takes longer to start than a laptop needs to search the logs of a run. Blocks that tell of other deliveries only
are searched for the key, and no more.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from failover.audit.decoding import CONTROL_COLUMNS, file_rows
from failover.audit.faults import Chaos, find_chaos
from failover.audit.inventory import ControlRow, take_inventory
from failover.audit.parties import find_parties
from failover.audit.reading import read_rows
from failover.audit.session import spark_session
from failover.audit.story import ENTRY_COLUMNS, Entry, Setting, Story, tell
from topic.identity import KEY_LENGTH
from topic.journal import BlockView

KEYS_LISTED = 10


class StoryError(Exception):
    """There is no one delivery to tell of."""


@attrs.define(slots=True)
class Found:
    """`keys` are those that begin as asked for; the search ends when there are too many."""

    keys: set[str] = attrs.field(factory=set)
    entries: list[Entry] = attrs.field(factory=list)
    control: list[ControlRow] = attrs.field(factory=list)


def story(run_dirs: Sequence[str], key: str, master: str | None = None) -> Story:
    """The life of the delivery with this key, or with the only one that begins so."""
    if len(key) > KEY_LENGTH:
        raise StoryError(f"{key} is no delivery key: these have {KEY_LENGTH} characters")
    local = [Path(run_dir) for run_dir in run_dirs if "://" not in run_dir]
    for path in local:
        if not path.is_dir():
            raise StoryError(f"{path}: no such directory")
    if len(local) == len(run_dirs):
        found, chaos = _search(local, key), find_chaos(run_dirs).chaos
    else:
        found, chaos = _ask(run_dirs, key, master)
    return _only(found, key, chaos)


def _only(found: Found, key: str, chaos: Chaos | None) -> Story:
    if not found.keys:
        raise StoryError(f"no delivery with a key that begins with {key} in these logs")
    if len(found.keys) > 1:
        listed = sorted(found.keys)[:KEYS_LISTED]
        more = "" if len(found.keys) <= KEYS_LISTED else ["and more"]
        raise StoryError("\n  ".join([f"{key} is the start of several deliveries' keys:", *listed, *more]))
    logs = take_inventory(found.control).logs
    events = [row for row in found.control if row.event >= 0]
    setting = Setting(events, logs, find_parties(events, logs), chaos.faults if chaos else ())
    return tell(found.keys.pop(), found.entries, setting)


def _search(run_dirs: Iterable[Path], key: str) -> Found:
    found, files = Found(), 0
    for path in (path for run_dir in run_dirs for path in sorted(run_dir.rglob("*.oml"))):
        files += 1
        for batch in file_rows(str(path.absolute()), path.read_bytes(), partial(_tells, key.encode())):
            _take(found, batch, key)
        if len(found.keys) > KEYS_LISTED:
            return found
    if not files:
        raise StoryError("no delivery logs there")
    return found


def _tells(key: bytes, block: BlockView) -> bool:
    return key in block.keys or 0 in block.columns["count"]


def _take(found: Found, batch: pa.RecordBatch, key: str) -> None:
    keys = batch.column("key")
    about = batch.filter(pc.starts_with(keys, key))
    found.keys.update(pc.unique(about.column("key")).to_pylist())
    if len(found.keys) == 1:
        found.entries += [Entry(**row) for row in about.select(ENTRY_COLUMNS).to_pylist()]
    control = batch.filter(pc.is_null(keys)).select(CONTROL_COLUMNS)
    found.control += [ControlRow(**row) for row in control.to_pylist()]


def _ask(run_dirs: Sequence[str], key: str, master: str | None) -> tuple[Found, Chaos | None]:
    spark = spark_session(master)
    try:
        rows = read_rows(spark, run_dirs)
    except AnalysisException as error:
        raise StoryError(str(error).splitlines()[0]) from None
    about = rows.filter(F.col("key").isNull() | F.col("key").startswith(key))
    about.persist()
    try:
        return _found(about), find_chaos(run_dirs, spark).chaos
    finally:
        about.unpersist()


def _found(about: DataFrame) -> Found:
    keyed = about.filter(F.col("key").isNotNull())
    keys = {row["key"] for row in keyed.select("key").distinct().limit(KEYS_LISTED + 1).collect()}
    if len(keys) != 1:
        return Found(keys)
    control = about.filter(F.col("key").isNull()).select(*CONTROL_COLUMNS)
    return Found(keys, list(entries_of(keyed)), [ControlRow(*row) for row in control.collect()])


def entries_of(rows: DataFrame) -> Iterator[Entry]:
    """Few rows, about few deliveries."""
    found: list[Any] = rows.select(*ENTRY_COLUMNS).collect()
    return (Entry(*row) for row in found)
