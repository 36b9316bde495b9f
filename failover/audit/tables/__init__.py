"""The contents of all logs, with corrected clocks and with verdicts, as Spark DataFrames and Parquet: docs/tables.md.

    from failover.audit import tables

    tables.deliveries(spark, ["run/triangle"]).createOrReplaceTempView("deliveries")
    spark.sql("SELECT verdict, count(*) FROM deliveries GROUP BY verdict").show()

`deliveries` has a row for each delivery and subscriber, `events` one for each entry and delivery, `links` one for each
attach. `write_tables` writes all three as Parquet, as `oncemesh audit --tables` does. `schema` has the columns. The
verdicts come from `judge`: this folder has no rules.
"""

from failover.audit.tables.folder import TablesFolder
from failover.audit.tables.frames import deliveries, events, links, write_tables

__all__ = ["TablesFolder", "deliveries", "events", "links", "write_tables"]
