"""One Spark session for all audit tests: it takes seconds to start, and every audit uses the running session."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from failover.audit.read.session import spark_session
from tests.failover.audit.in_process import Judged, judge_run


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
def judged() -> Judged:
    """A function that audits a run's logs in this process."""
    return judge_run
