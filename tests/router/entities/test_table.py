"""The table of entities describes all that it has, and the documents have it; who shows a router shows nothing else."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from router.entities.catalogue import ENTITIES
from router.entities.links import PUBLISHER, SUBSCRIBER
from router.entities.observed import ObservedRouter
from router.entities.queues import DECLARED_QUEUE, LED_QUEUE
from router.entities.replicas import SET
from router.entities.report import status
from router.entities.routers import NEIGHBOUR, PLAN_ROUTER, ROUTER
from router.entities.table import Attribute, Entity, How, Metric, Type, Where
from router.http.picture import Painter
from router.management.types import types_at
from tests.router.agreeing import AgreeingMesh, agreeing_at
from tests.router.entities.page import MONITORING, PAGE, monitoring, page, shown
from tests.router.http.looks import answer, look, neighbour, publisher
from tests.router.observing import observed
from tests.router.test_node import DURABLE, CountingStore, P, S, boot
from topic.delivery.record import Record
from topic.identity import link_name
from topic.queues.operations import Answer, Declare, Operation, QueueId, QueueSettings

ROOT = Path(__file__).parents[3]
ALL = [(entity, one) for entity in ENTITIES for one in entity.attributes]
VALUES: dict[Type, Any] = {
    Type.TEXT: str,
    Type.TEXTS: list,
    Type.FLAG: bool,
    Type.NUMBER: int,
    Type.SECONDS: int | float,
    Type.BYTES: int,
    Type.COUNT: int,
    Type.CARRIED: int,
    Type.MAP: dict,
    Type.NUMBERS: dict,
    Type.COUNTS: dict,
}


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObservedRouter:
    """A router with a publisher and a subscriber that are away, and a delivery between them."""
    with CountingStore(tmp_path / "state.db") as store:
        node, ends = boot(store)
        monkeypatch.setattr(ends, "note", lambda happening: None)
        reader, writer = object(), object()
        subscriber = node.topic.attach_subscriber(S, reader, node.now(), lifetime=DURABLE)
        stream = node.topic.attach_publisher(P, writer, node.now(), lifetime=DURABLE)
        node.topic.suspend_subscriber(subscriber, reader, node.now())
        node.topic.suspend_publisher(stream, writer, node.now())
        record = Record(stream, link_name(P) + b"k" * 20, b"tag", b"message")
        record.name(subscriber, 0)
        node.topic.records.enter([record])
    return observed(node, tmp_path, started=0.0, epoch=0.0)


async def nobody(operation: Operation) -> Answer:
    raise AssertionError("nothing is asked")


async def unread(set_: str, queue: QueueId, positions: Sequence[int]) -> Mapping[int, bytes]:
    raise AssertionError("nothing is read")


def in_status(entity: Entity[Any]) -> set[str]:
    return {one.name for one in entity.shown(Where.STATUS)}


# the table itself


@pytest.mark.parametrize(("entity", "attribute"), ALL, ids=lambda one: getattr(one, "name", None))
def test_an_attribute_says_what_it_is_and_somebody_shows_it(entity: Entity[Any], attribute: Attribute[Any]) -> None:
    assert len(attribute.says) > 3 and len(entity.says) > 3
    assert shown(entity, attribute)
    if (series := attribute.series) is not None:
        assert not series.says or series.how not in (How.EACH, How.KEYS, How.FACTS), "the attribute says it"
        assert series.says or series.how in (How.EACH, How.KEYS, How.FACTS), "what is summed or counted?"


def test_no_name_stands_twice_where_it_is_shown() -> None:
    lists = Counter(entity.status for entity in ENTITIES if entity.status)
    types = Counter(entity.managed for entity in ENTITIES if entity.managed)
    series = Counter(one.series.name for _, one in ALL if one.series is not None)
    of_each = Counter(
        (entity.status, entity.managed, name) for entity, one in ALL for name in shown(entity, one).items()
    )
    assert [name for names in (lists, types, series, of_each) for name, count in names.items() if count > 1] == []


def test_columns_are_attributes() -> None:
    for entity in ENTITIES:
        assert {*entity.columns} <= in_status(entity) and {*entity.spared} <= {*entity.columns}


def test_a_name_is_written_as_amqp_does_in_management() -> None:
    names = {one.name: one.managed_name for one in (*NEIGHBOUR.attributes, *PLAN_ROUTER.attributes)}
    assert {name: names[name] for name in ("since_s", "round_trip_s", "messages_sent", "in_contact", "up")} == {
        "since_s": "sinceSeconds", "round_trip_s": "roundTripSeconds", "messages_sent": "messagesSent",
        "in_contact": "inContact", "up": "up",
    }  # fmt: skip


def test_a_series_counts_up_if_its_attribute_does_and_is_not_summed() -> None:
    one = Attribute[int]("x_s", Type.COUNT, "says", lambda at, one: one, series=Metric("x"))
    assert one.is_counter
    assert not Attribute[int]("x", Type.COUNT, "", lambda at, one: one, series=Metric("x", how=How.SUM)).is_counter


# the documents


def test_the_documents_are_as_the_table_has_them() -> None:
    hint = "python -m tests.router.entities.page"
    assert page() == PAGE.read_text(), hint
    assert monitoring() == MONITORING.read_text(), hint


# who shows it


async def test_values_are_of_the_types_that_are_said(at: ObservedRouter) -> None:
    at.survey.take(at.node)
    seen = {entity.name for entity in ENTITIES for one in entity.found(at) if is_as_said(entity, one, at)}
    assert seen >= {"router", "publisher", "subscriber", "delivery", "wait", "planRouter", "router.node", "listener"}


def is_as_said(entity: Entity[Any], one: Any, at: ObservedRouter) -> bool:
    """Whether an entity has attributes; each has a value of its type."""
    for attribute in entity.attributes:
        value = attribute.read(at, one)
        if isinstance(value, tuple | set):
            value = list(value)
        assert value is None or isinstance(value, VALUES[attribute.type]), (entity.name, attribute.name, value)
    return bool(entity.attributes)


@pytest.mark.parametrize("router", ["a", "d"])
async def test_values_of_sets_and_queues_are_of_the_types_that_are_said(router: str) -> None:
    """Router a leads a set, and router d is none of it."""
    mesh = AgreeingMesh()
    for name in ("queue/eu/x", "queue/x"):
        mesh.decide("a", Declare(name, QueueSettings(5, 6, 7, ("topic/x",))))
    at, entities = agreeing_at(mesh, router), (SET, DECLARED_QUEUE, LED_QUEUE)
    found = [entity.name for entity in entities for one in entity.found(at) if is_as_said(entity, one, at)]
    assert found == ["replica set", "replica set", "queue", *(["led queue"] if router == "a" else [])]


async def test_status_is_of_the_table(at: ObservedRouter) -> None:
    told = status(at)
    listed = {entity.status: entity for entity in ENTITIES if entity.status}
    own = {name.partition(".")[0] for name in in_status(ROUTER)}
    assert told.keys() == own | listed.keys()
    for key, entity in listed.items():
        may_lack = {one.name for one in entity.attributes if one.may_lack}
        for row in told[key]:
            assert row.keys() | may_lack == in_status(entity), key
    assert told["publishers"] and told["subscribers"] and told["waits"]


def test_management_is_of_the_table(at: ObservedRouter) -> None:
    known = {entity.managed: {one.managed_name for one in entity.shown(Where.MANAGEMENT)} for entity in ENTITIES}
    assert {kind.name: {*kind.attributes} for kind in types_at(at, nobody, unread)} == {
        name: names for name, names in known.items() if name
    }
    assert all({"identity", "name"} <= names for name, names in known.items() if name)


def test_the_console_is_of_the_table_and_of_rates() -> None:
    held = publisher("p")
    both = answer("a", [neighbour("b", 1, 1)], publishers=[held]), answer("b", [neighbour("a", 1, 1)])
    picture = Painter().picture(look(1.0, a=both[0], b=both[1]))
    [client] = picture["clients"]
    assert client.keys() - {"role", "router"} <= in_status(PUBLISHER)
    counted = {"publishers", "subscribers", "unsettled", "ingress", "egress"}
    planned = {one.name for one in PLAN_ROUTER.attributes}
    assert picture["routers"][0].keys() - counted <= in_status(ROUTER) | planned
    script = "\n".join(path.read_text() for path in (ROOT / "router" / "http" / "page").glob("*.js"))
    queues = set(re.findall(r"\bqueue\.(\w+)", script))
    assert queues - {"leader", "in", "out"} <= in_status(LED_QUEUE)
    asked = set(re.findall(r"\bclient\.(\w+)", script))
    assert asked - {"role", "router"} <= in_status(PUBLISHER) | in_status(SUBSCRIBER)
    assert set(re.findall(r"\brouter\.(\w+)", script)) <= picture["routers"][0].keys() | {"away_s"}


READERS = [
    path
    for folder in ("router/mesh", "router/http", "router/cli", "failover/cli", "failover/chaos")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def asked_of_status(tree: ast.AST) -> Iterator[str]:
    """Keys that are looked up in what is called a status."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=of, slice=ast.Constant(value=str(key))):
                pass
            case ast.Call(func=ast.Attribute(value=of, attr="get"), args=[ast.Constant(value=str(key)), *_]):
                pass
            case _:
                continue
        if ast.unparse(of).rpartition(".")[2] in ("status", "status)"):
            yield key


def test_who_reads_a_status_asks_for_what_it_has() -> None:
    has = {name.partition(".")[0] for name in in_status(ROUTER)} | {entity.status for entity in ENTITIES}
    asked = {path: {*asked_of_status(ast.parse(path.read_text()))} for path in READERS}
    assert len(set().union(*asked.values())) > 15
    assert {str(path): keys - has for path, keys in asked.items() if keys - has} == {}
