"""One Spark session for all audit tests: it takes seconds to start and every audit uses the one that runs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from failover import audit
from failover.audit.session import spark_session
from tests.failover.audit.in_process import judge_run
from tests.failover.audit.runs import Run


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session()
    # Compiling each plan to Java would take most of the time over logs this small.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture
def judged() -> Callable[[Run], audit.Report]:
    """Judges a run's logs as Spark's workers do, without Spark: a hundred times as fast."""
    return judge_run


@pytest.fixture
def audited(spark: SparkSession, tmp_path: Path) -> Callable[[Run], audit.Report]:
    """Writes a run's logs and audits them."""

    def audit_run(run: Run) -> audit.Report:
        return audit.run([str(run.write(tmp_path / "run"))])

    return audit_run
