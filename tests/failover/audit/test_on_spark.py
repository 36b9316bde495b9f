"""Spark and this process say the same of the same logs, and Spark is used where it has to be."""

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from failover import audit
from failover.audit.job import StoryError, tell_story
from failover.audit.read import logs, segments
from failover.audit.read import spark as on_spark
from failover.audit.read.faults import find_chaos
from failover.audit.read.files import ignore
from tests.failover.audit.runs import NEAR, ONE, TWO, Run
from tests.failover.audit.test_exceptions import is_apart
from tests.failover.audit.test_lost_homes import reborn
from tests.failover.audit.test_measures import CHAOS
from tests.failover.audit.test_open_homes import logged_ends
from tests.failover.audit.test_violations import (
    application_processed_twice,
    nobody_published_it,
    publisher_was_told_something_else,
    record_was_kept,
    router_sent_a_later_one_first,
    subscriber_log_lacks_it,
)


def good() -> Run:
    return Run(messages=40)


def violated() -> Run:
    run = Run(messages=40)
    for spoil in (
        application_processed_twice,
        nobody_published_it,
        publisher_was_told_something_else,
        record_was_kept,
        router_sent_a_later_one_first,
        subscriber_log_lacks_it,
    ):
        spoil(run)
    run.leave_out(NEAR, TWO, *range(10, 40))
    return run


def killed() -> Run:
    run = logged_ends()
    reborn(run, found=True)
    return run


def apart() -> Run:
    run = Run()
    is_apart(run, 1, 2)
    return run


@pytest.mark.parametrize("corpus", [good, violated, killed, apart])
def test_spark_says_what_this_process_says(spark: SparkSession, tmp_path: Path, corpus: Callable[[], Run]) -> None:
    directory = str(corpus().write(tmp_path))
    torn = next((tmp_path / "b/log").iterdir())
    torn.write_bytes(torn.read_bytes()[:-7])
    with patch.object(segments, "BUCKET_BYTES", 5_000):
        here = audit.run([directory])
    assert audit.run([directory], spark=True) == here
    assert here.torn and here.measures and bool(here.stories) == (corpus is violated)


@pytest.mark.parametrize("limit", [10, 1 << 20])
def test_spark_is_used_where_a_run_is_long(tmp_path: Path, limit: int) -> None:
    directory = str(Run(messages=1).write(tmp_path))
    with (
        patch.object(logs, "LOCAL_BYTES", limit),
        patch.object(on_spark, "spark_session", side_effect=RuntimeError("starts")),
    ):
        try:
            assert audit.run([directory]).verdict is audit.Verdict.HOLDS and limit > 10
        except RuntimeError:
            assert limit == 10


def test_progress_counts_all_bytes_once(spark: SparkSession, tmp_path: Path) -> None:
    directory = Run().write(tmp_path)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    for forced in (False, True):
        told: list[tuple[int, int]] = []
        audit.run([str(directory)], spark=forced, progress=lambda *both, to=told: to.append(both))
        assert told == sorted(told) and told[-1] == (size, size)


def test_a_far_directory_without_logs_is_no_run(spark: SparkSession, tmp_path: Path) -> None:
    for far in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(audit.AuditError):
            audit.run([f"file://{far}"])


def test_spark_finds_the_same_delivery_as_the_files(spark: SparkSession, tmp_path: Path) -> None:
    run = Run()
    directory, key = run.write(tmp_path), run.key(ONE, 1).decode()
    assert tell_story([f"file://{directory}"], key[:20]) == tell_story([str(directory)], key)
    with pytest.raises(StoryError, match="several"):
        tell_story([f"file://{directory}"], ONE.name)
    with pytest.raises(StoryError, match="no delivery"):
        tell_story([f"file://{directory}"], "x")


def test_chaos_is_read_through_spark_where_a_path_is_not_local(spark: SparkSession, tmp_path: Path) -> None:
    far = f"file://{Run().write(tmp_path)}"
    with on_spark.spark_logs([far], None, ignore) as there:
        assert find_chaos([far], there.text).chaos is None
        (tmp_path / "chaos.json").write_text(json.dumps(CHAOS))
        found = find_chaos([far], there.text)
    with logs.open_logs([str(tmp_path)]) as here:
        assert found.chaos is not None and found == find_chaos([str(tmp_path)], here.text)
