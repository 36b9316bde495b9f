"""Whatever a request says, a real router's agent answers it, and what it answers can be read."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.amqp.format.codec import Described, Symbol, encode
from router.amqp.format.errors import AmqpError
from router.amqp.format.message import sections_of
from router.management.agent import Agent
from router.management.looks import Looks
from router.management.recent_events import RecentEvents
from router.management.requests import read_request
from router.management.types import types_at
from router.neighbours import VERSION
from tests.router.observing import observed
from tests.router.test_node import DURABLE, CountingStore, P, S, boot
from topic.delivery.record import Record
from topic.identity import link_name
from topic.queues.operations import Answer, Operation, QueueId, Refused, RefusedFor
from topic.queues.operations import encode as encode_operation

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.binary(),
        st.text("abc", min_size=1).map(Symbol),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=5,
)
OPERATIONS = st.sampled_from(
    [
        "QUERY",
        "READ",
        "CREATE",
        "UPDATE",
        "DELETE",
        "PURGE",
        "PEEK",
        "RETRY",
        "GET-TYPES",
        "GET-ATTRIBUTES",
        "GET-OPERATIONS",
        "GET-MGMT-NODES",
        "GET-EVENTS",
        "GET-STATUS",
        "GET-LOOK",
        "x",
    ]
)
KINDS = st.sampled_from(
    [
        "io.oncemesh.delivery",
        "io.oncemesh.publisher",
        "io.oncemesh.planRouter",
        "io.oncemesh.queue",
        "org.apache.qpid.dispatch.router.node",
    ]
)
ASKED = st.fixed_dictionaries(
    {},
    optional={
        "operation": OPERATIONS | VALUES,
        "entityType": KINDS | VALUES,
        "type": KINDS | VALUES,
        "name": VALUES,
        "identity": VALUES,
        "offset": st.integers(-1, 2**63 - 1) | VALUES,
        "count": st.integers(-1, 2**63 - 1) | VALUES,
        "since": st.integers(-1, 2**63 - 1) | VALUES,
    },
)
NAMED = {"attributeNames": VALUES | st.lists(st.sampled_from(["name", "state", "x"]))}
JOINING = {
    "mesh": st.just("alone") | VALUES,
    "wire": st.just(VERSION) | VALUES,
    "routers": st.just(["a"]) | VALUES,
    "amqp": st.just("127.0.0.1:1") | VALUES,
    "inter": st.just("127.0.0.1:2") | VALUES,
    "links": st.just({"a": [1, ""]}) | st.fixed_dictionaries({"a": st.tuples(VALUES, VALUES).map(list)}) | VALUES,
}
SETTINGS = {"limitMessages": VALUES, "limitBytes": VALUES, "bind": VALUES}
BODIES = (
    VALUES
    | st.fixed_dictionaries({}, optional=SETTINGS)
    | st.fixed_dictionaries(NAMED)
    | st.fixed_dictionaries(JOINING)
)


async def at_once() -> None:
    await trio.lowlevel.checkpoint()


async def in_time(operation: Operation) -> Answer:
    """No replica set answers."""
    encode_operation(operation)
    return Refused(RefusedFor.NO_ANSWER, "no majority answered")


async def of_none(set_: str, queue: QueueId, positions: Sequence[int]) -> Mapping[int, bytes]:
    """No message is there any more."""
    return {}


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """Of a router with a publisher and a subscriber, and a delivery between them."""
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
    at, events = observed(node, tmp_path, started=0.0, epoch=0.0), RecentEvents("a", 1)
    kinds, report = tuple(types_at(at, in_time, of_none)), lambda: b"{}"
    return Agent(kinds, lambda: [socket.gethostname()], events, report, Looks(kinds, report, events), at_once)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=ASKED, body=BODIES, identifier=st.none() | st.uuids() | st.integers(0, 2**64 - 1) | VALUES)
def test_any_request_is_answered(agent: Agent, asked: dict[str, Any], body: Any, identifier: Any) -> None:
    named = b"\x98" + identifier.bytes if isinstance(identifier, UUID) else None
    if named is None:
        unsigned = isinstance(identifier, int) and not isinstance(identifier, bool) and identifier >= 2**63
        named = b"\x80" + identifier.to_bytes(8, "big") if unsigned else encode(identifier)
    fields = b"".join(encode(field) for field in (None, None, None, None, "reply")) + named
    properties = b"\x00\x53\x73\xd0" + (len(fields) + 4).to_bytes(4, "big") + (6).to_bytes(4, "big") + fields
    message = properties + encode(Described(0x74, asked)) + encode(Described(0x77, body))
    try:
        request = read_request(message)
    except AmqpError as error:
        assert error.condition == "amqp:invalid-field"
        return

    async def ask() -> bytes:
        return await agent.answer(request)

    told = dict(sections_of(trio.run(ask)))
    assert told[0x74]["statusCode"] in (200, 201, 204, 400, 404, 501, 504)
    if isinstance(identifier, str | bytes | UUID):
        assert told[0x73][5] == identifier


async def test_each_type_can_be_asked_for_all_that_it_has(agent: Agent) -> None:
    message = encode(Described(0x73, [None, None, None, None, "reply"])) + encode(
        Described(0x74, {"operation": "QUERY"})
    )
    told = dict(sections_of(await agent.answer(read_request(message))))[0x77]
    found = [dict(zip(told["attributeNames"], row, strict=True)) for row in told["results"]]
    [delivery] = [row for row in found if row["type"] == "io.oncemesh.delivery"]
    assert (delivery["name"], delivery["state"], delivery["subscribers"]) == ("tag", "in_doubt", {str(S): "queued"})
    kinds = {row["type"].rpartition(".")[2] for row in found}
    assert kinds >= {"router", "node", "listener", "address", "publisher", "subscriber", "delivery", "planRouter"}
