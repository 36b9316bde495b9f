"""Spark and this process say the same of the same logs, and Spark is used where it has to be."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import DataFrame, SparkSession

from failover import audit
from failover.audit import tables
from failover.audit.job import StoryError, tell_story
from failover.audit.read import logs, segments
from failover.audit.read import spark as on_spark
from failover.audit.read.faults import find_chaos
from failover.audit.read.files import ignore
from failover.audit.tables.schema import TABLES
from tests.failover.audit.asked import ANSWERS, Plain, seeded
from tests.failover.audit.runs import NEAR, ONE, TWO, Run
from tests.failover.audit.test_balanced import balanced_run
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


DOCS = (Path(__file__).parents[3] / "docs/tables.md").read_text()
QUESTIONS = dict(re.findall(r"^### ([^`\n]+)\n[^#]*?```sql\n(.*?)```", DOCS, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Plain, audit.Report, Path]:
    """A run whose tables are views, as they were written."""
    run, directory = seeded(), tmp_path_factory.mktemp("asked")
    report = audit.run([str(run.write(directory))], tables=str(directory / "tables"))
    for name in TABLES:
        spark.read.parquet(f"{directory}/tables/{name}").createOrReplaceTempView(name)
    return Plain(run), report, directory


@pytest.mark.parametrize("question", ANSWERS)
def test_sql_answers_what_plain_python_answers(
    spark: SparkSession, asked: tuple[Plain, audit.Report, Path], question: str
) -> None:
    plain, report, _ = asked
    answer = [tuple(row) for row in spark.sql(QUESTIONS[question]).collect()]
    assert answer == ANSWERS[question](plain, report) != []


def test_tables_have_as_many_rows_as_the_audit_counted(
    spark: SparkSession, asked: tuple[Plain, audit.Report, Path]
) -> None:
    plain, report, _ = asked
    one = spark.sql(
        "SELECT count(DISTINCT CASE WHEN published THEN key END), count_if(owed), count_if(processed), count(*), "
        "count(DISTINCT key, subscriber) FROM deliveries"
    ).collect()[0]
    owed, processed = (sum(getattr(row, name) for row in report.pairs) for name in ("owed", "processed"))
    assert one[:3] == (sum(row.published for row in report.publishers), owed, processed) and one[3] == one[4]
    found = "SELECT violation.kind, count(DISTINCT key, use, nvl(violation.router, subscriber)) "
    by_kind = spark.sql(found + "FROM (SELECT *, explode(violations) violation FROM deliveries) GROUP BY 1").collect()
    assert dict(map(tuple, by_kind)) == report.violations
    assert spark.table("events").count() == sum(max(len(row.get("keys", ())), 1) for row in plain.rows)
    assert spark.table("links").count() == 6


def test_the_documented_columns_are_those_of_the_tables(
    spark: SparkSession, asked: tuple[Plain, audit.Report, Path]
) -> None:
    for name, columns in TABLES.items():
        listed = "".join(
            f"| `{one.name}` | {one.type} | {'yes' if one.null else 'no'} | {one.says} |\n" for one in columns
        )
        assert f"### `{name}`\n\n| column | type | null | |\n| --- | --- | --- | --- |\n{listed}\n" in DOCS, name
        assert _types(spark.table(name)) == [(one.name, one.type) for one in columns]
        needed = " AND ".join(f"{one.name} IS NOT NULL" for one in columns if not one.null)
        assert spark.table(name).filter(f"NOT ({needed})").count() == 0


def _types(table: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in table.schema]


def test_data_frames_say_what_is_written(spark: SparkSession, asked: tuple[Plain, audit.Report, Path]) -> None:
    *_, directory = asked
    for name, columns in TABLES.items():
        made: DataFrame = getattr(tables, name)(spark, [str(directory)])
        assert _types(made) == [(one.name, one.type) for one in columns]
        assert _rows(made) == _rows(spark.table(name)) != Counter()


def _rows(table: DataFrame) -> Counter[str]:
    """Each, and how often. Compared here, a table is made once; Spark would make it anew for each direction."""
    return Counter(map(repr, table.collect()))


def test_what_one_of_many_had_holds(spark: SparkSession, tmp_path: Path) -> None:
    directory = balanced_run().write(tmp_path)
    rows = tables.deliveries(spark, [str(directory)]).collect()
    assert {(row["processed"], row["verdict"]) for row in rows} == {(True, "holds"), (False, "not owed")}


def test_a_folder_of_somebody_else_is_not_written_to(spark: SparkSession, tmp_path: Path) -> None:
    directory = Run(messages=1).write(tmp_path / "run")
    (tmp_path / "file").touch()
    taken = "not empty, and not the tables of an earlier audit; expected a new or empty folder"
    for folder, said in (
        (f"file://{directory}", taken),
        (f"file://{tmp_path / 'file'}", taken),
        ("nowhere://x/y", 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "nowhere"'),
    ):
        with pytest.raises(audit.AuditError) as caught:
            audit.run([str(directory)], tables=folder)
        assert str(caught.value) == f"{folder}: {said}"
    assert sorted(path.name for path in directory.iterdir()) == ["a", "b", "c", "clients", "mesh.json"]
