"""The columns of the tables: their names, types and meaning, and whether they may be null. docs/tables.md has the same
list.

This is their only definition in the code. The types for Spark and for Arrow are derived from it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

NULL = True
VIOLATIONS = "array<struct<kind:string,router:string>>"
_VIOLATION = StructType([StructField("kind", StringType()), StructField("router", StringType())])
TYPES: dict[str, tuple[DataType, Any]] = {
    "string": (StringType(), pa.string()),
    "binary": (BinaryType(), pa.binary()),
    "boolean": (BooleanType(), pa.bool_()),
    "int": (IntegerType(), pa.int32()),
    "bigint": (LongType(), pa.int64()),
    "double": (DoubleType(), pa.float64()),
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "array<string>": (ArrayType(StringType()), pa.list_(pa.string())),
    VIOLATIONS: (ArrayType(_VIOLATION), pa.list_(pa.struct([("kind", pa.string()), ("router", pa.string())]))),
}
"""Maps each type in SQL to the type in Spark and the type in Arrow."""


class Column(NamedTuple):
    name: str
    type: str
    null: bool
    says: str


DELIVERIES = (
    Column("key", "string", False, "the delivery's key, 32 characters"),
    Column(
        "use", "int", False, "the number of the tag's use, from 1 on; 0 if the tag was used once, or if this is unknown"
    ),
    Column("tag", "binary", NULL, "its publisher's delivery-tag"),
    Column("publisher", "string", False, "the name of its publisher's link, 12 characters"),
    Column("publisher_identity", "string", False, "container/link on address; its 12 characters if no log has these"),
    Column(
        "subscriber",
        "string",
        NULL,
        "the name of the subscriber's link; null in the only row of a delivery without a subscriber",
    ),
    Column("subscriber_identity", "string", NULL, "container/link on address"),
    Column("address", "string", NULL, "the topic"),
    Column(
        "home",
        "string",
        NULL,
        "the router.incarnation that accepted it; if none accepted it, the last one that received it",
    ),
    Column(
        "homes",
        "array<string>",
        False,
        "each router.incarnation that received it from its publisher, in the order of epochs",
    ),
    Column("custodians", "array<string>", False, "each router.incarnation that sent it to the subscriber, in order"),
    Column("sent", "int", False, "how often it was transferred to the subscriber"),
    Column("published_at", "timestamp", NULL, "its publisher sent it for the first time"),
    Column("received_at", "timestamp", NULL, "the first home received it"),
    Column("sent_at", "timestamp", NULL, "a custodian transferred it to the subscriber for the first time"),
    Column("handed_at", "timestamp", NULL, "the subscriber handed it to its application for the first time"),
    Column("processed_at", "timestamp", NULL, "the application had processed it, by the subscriber's own log"),
    Column("reported_at", "timestamp", NULL, "a custodian read the acceptance of the subscriber"),
    Column("answered_at", "timestamp", NULL, "its home answered the publisher: accepted, or else the first answer"),
    Column("told_at", "timestamp", NULL, "the publisher read that answer"),
    Column("settled_at", "timestamp", NULL, "its home learned that the publisher had settled it"),
    Column("forgotten_at", "timestamp", NULL, "the last router that still had it deleted it"),
    Column("processed_us", "bigint", NULL, "µs from published_at to processed_at, if one clock measured both"),
    Column("told_us", "bigint", NULL, "µs from published_at to told_at"),
    Column("outcome", "string", NULL, "the answer to the publisher: accepted, rejected, released, modified"),
    Column("published", "boolean", False, "whether a log shows that it was published"),
    Column("owed", "boolean", False, "whether it is owed to the subscriber"),
    Column("processed", "boolean", False, "whether the subscriber accepted it, by its own log or its routers' logs"),
    Column("refused", "boolean", False, "whether the subscriber gave another answer"),
    Column("unowed", "string", NULL, "why it was processed although not owed: a key of `unowed` in audit.json"),
    Column("unprocessed", "string", NULL, "why it was not processed although owed: lost, refused, unknown"),
    Column(
        "left_out",
        "string",
        NULL,
        "accepted without the subscriber, which was `there`, or `away` for longer than its timeout",
    ),
    Column("unknown", "boolean", False, "whether its fate is in a missing part of a log"),
    Column(
        "violations",
        VIOLATIONS,
        False,
        "the kind of each violation, and the router.incarnation if a record of that router shows it",
    ),
    Column(
        "verdict",
        "string",
        False,
        "violated, unknown, left out, holds, or not owed (nothing was promised)",
    ),
)
EVENTS = (
    Column("source", "string", False, "the writer: a router, or clients/NAME"),
    Column("role", "string", False, "router, publisher, subscriber"),
    Column("incarnation", "bigint", False, "ms of wall clock at the writer's start"),
    Column("host", "string", False, "writers with the same host share a wall clock; empty where unknown"),
    Column("place", "bigint", False, "its place in the log, rising"),
    Column("at", "timestamp", False, "when it was written, by the writer's uncorrected clock"),
    Column("hlc", "bigint", False, "a router's hybrid clock: ms × 65,536 + counter; 0 in clients"),
    Column("event", "string", False, "the event as topic/journal.py names it: RECEIVED, ATTACHED …"),
    Column("outcome", "string", NULL, "accepted, rejected, released, modified"),
    Column("key", "string", NULL, "the delivery's key; null for events of links and routers"),
    Column("tag", "binary", NULL, "its delivery-tag, if the event has it"),
    Column("n", "bigint", NULL, "its place in the publisher's order, within the epoch"),
    Column("address", "string", NULL, "the topic"),
    Column("publisher", "string", NULL, "the name of the publisher's link, 12 characters"),
    Column("subscriber", "string", NULL, "the name of the subscriber's link, 12 characters"),
    Column("peer", "string", NULL, "the other router; for a delivery its home, or null at the home itself"),
    Column("generation", "string", NULL, "the generation of the publisher's life, hexadecimal"),
    Column("epoch", "string", NULL, "hlc.router.incarnation"),
    Column("detail", "string", NULL, "JSON or text"),
)
LINKS = (
    Column("link", "string", False, "the name of the link, 12 characters, as in deliveries and events"),
    Column("identity", "string", False, "container/link on address"),
    Column("role", "string", False, "publisher or subscriber"),
    Column("address", "string", NULL, "the topic"),
    Column("mode", "string", NULL, "receiver settle mode: first or second"),
    Column("timeout_s", "double", NULL, "seconds for which homes wait for it"),
    Column("logged", "boolean", False, "whether it has a log of its own"),
    Column("router", "string", False, "the router where it was attached"),
    Column("incarnation", "bigint", False, "the incarnation of that router"),
    Column("epoch", "string", NULL, "the epoch of this attach, hlc.router.incarnation"),
    Column(
        "attached_at",
        "timestamp",
        NULL,
        "when the router answered the attach; null if that part of the log was deleted",
    ),
    Column("ended_at", "timestamp", NULL, "when the attach ended; null if it was attached at the end of the log"),
    Column(
        "ending",
        "string",
        NULL,
        "the event that ended it: suspended, stolen, closed, expired; null if ended_at is null",
    ),
)
TABLES: Mapping[str, tuple[Column, ...]] = {"deliveries": DELIVERIES, "events": EVENTS, "links": LINKS}


def spark_schema(columns: tuple[Column, ...]) -> StructType:
    return StructType([StructField(one.name, TYPES[one.type][0], one.null) for one in columns])


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([(one.name, TYPES[one.type][1]) for one in columns])
