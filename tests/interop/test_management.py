"""`$management` as the tools of qpid-dispatch ask it, by python-qpid-proton, of every router by way of another."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from proton import Message, SSLDomain
from proton.reactor import AtMostOnce, LinkOption
from proton.utils import BlockingConnection, LinkDetached, SendException, SyncRequestResponse

from router.mesh.quantities import Address
from tests.processes.mesh import RunningMesh, eventually
from tests.processes.test_security import Secured, certified

__all__ = ["certified"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "management.md"
ENTITIES = DOCUMENT.parent / "entities.md"
DISPATCH, SKUPPER = "org.apache.qpid.dispatch.", "io.skupper.router."
READ_BY_SKSTAT = {
    "router": {
        "mode", "hostName", "helloIntervalSeconds", "helloMaxAgeSeconds", "raIntervalSeconds", "raIntervalFluxSeconds",
        "remoteLsMaxAgeSeconds", "debugDumpFile", "saslConfigDir", "saslConfigName", "timestampsInUTC",
        "timestampFormat", "defaultDistribution", "metadata", "dataConnectionCount", "area",
    },
    "routerMetrics": {
        "version", "id", "autoLinkCount", "linkCount", "nodeCount", "addrCount", "connectionCount", "uptimeSeconds",
    },
    "network": {"networkId", "tenantId"},
}  # fmt: skip
ASKED_BY_QDSTAT = {
    "router": [],
    "router.node": [],
    "connection": [],
    "router.link": [
        "linkType", "linkDir", "connectionId", "identity", "peer", "owningAddr", "capacity", "undeliveredCount",
        "unsettledCount", "deliveryCount", "presettledCount", "droppedPresettledCount", "acceptedCount",
        "rejectedCount", "releasedCount", "modifiedCount", "deliveriesDelayed1Sec", "deliveriesDelayed10Sec",
        "deliveriesStuck", "creditAvailable", "zeroCreditSeconds", "adminStatus", "operStatus", "linkName", "priority",
        "settleRate",
    ],
    "router.address": [
        "distribution", "inProcess", "subscriberCount", "remoteCount", "containerCount", "deliveriesIngress",
        "deliveriesEgress", "deliveriesRedirectedToFallback", "deliveriesTransit", "deliveriesToContainer",
        "deliveriesFromContainer", "name", "priority",
    ],
}  # fmt: skip
READ_BY_QDSTAT = {
    "router": {
        "version", "mode", "id", "area", "linkRouteCount", "autoLinkCount", "linkCount", "nodeCount", "addrCount",
        "connectionCount", "uptimeSeconds", "workerThreads", "memoryUsage",
    },
    "router.node": {
        "id", "nextHop", "routerLink", "lastTopoChange", "cost", "linkState", "validOrigins", "protocolVersion",
    },
    "connection": {
        "identity", "host", "container", "role", "protocol", "dir", "isEncrypted", "isAuthenticated", "sasl", "user",
        "sslProto", "sslCipher", "tenant", "uptimeSeconds",
    },
    "router.link": {
        "linkType", "linkDir", "connectionId", "identity", "peer", "owningAddr", "capacity", "undeliveredCount",
        "unsettledCount", "deliveryCount", "presettledCount", "acceptedCount", "rejectedCount", "releasedCount",
        "modifiedCount", "adminStatus", "operStatus", "linkName",
    },
    "router.address": {
        "name", "distribution", "inProcess", "containerCount", "subscriberCount", "remoteCount", "deliveriesIngress",
        "deliveriesEgress", "deliveriesTransit", "deliveriesToContainer", "deliveriesFromContainer",
    },
}  # fmt: skip
"""What it cannot do without."""


class Tool:
    """A tool's connection, as qpid-dispatch's client library has it: all of it in one thread."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.connection = connection
        self._nodes: dict[str, SyncRequestResponse] = {}

    def ask(self, router: str | None, body: Any = None, **properties: Any) -> tuple[int, str, Any]:
        """Status code, description and body. `router`: by way of the one that the tool is connected to."""
        address = "$management" if router is None else f"_topo/0/{router}/$management"
        if address not in self._nodes:
            self._nodes[address] = SyncRequestResponse(self.connection, address)
        answer = self._nodes[address].call(Message(properties=properties, body=body or {}))
        told: Any = answer.properties
        return told["statusCode"], told["statusDescription"], answer.body

    def query(self, router: str | None, kind: str, names: list[str] | None = None, **page: int) -> list[dict[str, Any]]:
        code, description, body = self.ask(
            router, {"attributeNames": names or []}, operation="QUERY", entityType=kind, **page
        )
        assert code == 200, description
        return [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]


@contextmanager
def connected(at: Address, domain: SSLDomain | None = None) -> Iterator[Tool]:
    url = f"{'amqp' if domain is None else 'amqps'}://{at}"
    connection = BlockingConnection(url, timeout=60, ssl_domain=domain)
    try:
        yield Tool(connection)
    finally:
        connection.close()


async def by_tool(at: Address, steps: Callable[[Tool], Any]) -> Any:
    def run() -> Any:
        with connected(at) as tool:
            return steps(tool)

    return await trio.to_thread.run_sync(run)


@pytest.mark.parametrize("router", [None, "a", "b", "c"])
async def test_every_router_answers_what_qdstat_asks_by_way_of_another(router: str | None, line: RunningMesh) -> None:
    def look(tool: Tool) -> None:
        nodes = [f"amqp:/_topo/0/{name}/$management" for name in (router or "a", *"abc")]
        assert tool.ask(router, operation="GET-MGMT-NODES")[2] == list(dict.fromkeys(nodes))
        assert [row["id"] for row in tool.query(router, f"{DISPATCH}router")] == [router or "a"]
        tool.connection.create_receiver("topic/looked-at", credit=1)
        tool.connection.create_sender("topic/looked-at")
        log = tool.ask(router, operation="GET-LOG", limit=100)[2]
        assert any("contact with router" in text for _, _, text, _, _, _ in log)
        for kind, asked in ASKED_BY_QDSTAT.items():
            rows = tool.query(router, DISPATCH + kind, asked, offset=0, count=500)
            assert rows or (kind == "router.link" and router not in (None, "a")), kind
            assert all(row.keys() >= READ_BY_QDSTAT[kind] for row in rows), kind

    await by_tool(line.address("a"), look)


async def test_a_delivery_in_doubt_is_found_by_its_publishers_tag(line: RunningMesh) -> None:
    def publish_and_look(tool: Tool) -> None:
        receiver = tool.connection.create_receiver("topic/found", credit=10, name="reader")
        sender = tool.connection.create_sender("topic/found", name="writer", options=Tagged())
        delivery: Any = sender.link.send(Message(body="x"), tag="invoice 7")
        receiver.receive()
        found = tool.ask("a", operation="READ", type="io.oncemesh.delivery", name="invoice 7")[2]
        assert (found["state"], found["address"], found["home"]) == ("in_doubt", "topic/found", "a")
        assert [state for name, state in found["subscribers"].items() if "reader" in name] == ["sent"]
        assert tool.query("c", "io.oncemesh.delivery", count=1) == []
        receiver.accept()
        tool.connection.wait(lambda: bool(delivery.remote_state))
        assert tool.ask("a", operation="READ", type="io.oncemesh.delivery", name="invoice 7")[0] in (200, 404)

    await by_tool(line.address("a"), publish_and_look)


class Tagged(LinkOption):
    """Deliveries that the test names itself."""

    def apply(self, link: Any) -> None:
        link.snd_settle_mode = link.SND_UNSETTLED


@pytest.mark.parametrize(
    ("asked", "code", "told"),
    [
        ({}, 400, "the application properties have no operation"),
        ({"operation": "DANCE"}, 501, "unknown operation DANCE"),
        ({"operation": 3}, 400, "operation is 3, expected a text"),
        ({"operation": "QUERY", "entityType": "nothing"}, 400, "entityType is 'nothing', expected one of"),
        ({"operation": "QUERY", "offset": -1}, 400, "offset is -1, expected a number"),
        ({"operation": "QUERY", "count": "many"}, 400, "count is 'many', expected a number"),
        ({"operation": "READ"}, 400, "neither identity nor name"),
        ({"operation": "READ", "name": "nobody"}, 404, "no entity has the name 'nobody'"),
        ({"operation": "DELETE", "name": "router/a"}, 501, "nothing of type org.apache.qpid.dispatch.router"),
    ],
)
@pytest.mark.parametrize("router", ["a", "c"])
async def test_a_wrong_request_is_told_what_is_wrong(
    router: str, asked: dict[str, Any], code: int, told: str, line: RunningMesh
) -> None:
    asked = {key: value.replace("/a", f"/{router}") if key == "name" else value for key, value in asked.items()}
    found, description, _ = await by_tool(line.address("a"), lambda tool: tool.ask(router, **asked))
    assert (found, told in description) == (code, True), description


async def test_a_connection_that_is_deleted_is_closed(line: RunningMesh) -> None:
    def delete(tool: Tool) -> None:
        with connected(line.address("b")) as other:
            receiver = other.connection.create_receiver("topic/deleted", credit=1)
            container = other.connection.container.container_id
            named = [row for row in tool.query("b", f"{DISPATCH}connection") if row["container"] == container]
            code, _, _ = tool.ask("b", operation="DELETE", type=f"{DISPATCH}connection", identity=named[0]["identity"])
            assert code == 204
            with pytest.raises(Exception, match="closed by management"):
                receiver.receive(timeout=60)

    await by_tool(line.address("a"), delete)


async def test_who_has_no_place_for_answers_is_refused(line: RunningMesh) -> None:
    def ask(tool: Tool) -> None:
        sender = tool.connection.create_sender("$management")
        for reply_to in (None, "topic/of-others", "_topo/0/a/temp.guessed"):
            with pytest.raises(SendException):
                sender.send(Message(reply_to=reply_to, properties={"operation": "GET-TYPES"}))
        with pytest.raises(LinkDetached, match="only accepts requests"):
            tool.connection.create_receiver("$management")
        with pytest.raises(LinkDetached, match="no node"):
            tool.connection.create_sender("_topo/0/nowhere/$management")
        presettled = tool.connection.create_sender("$management", name="presettled", options=AtMostOnce())
        presettled.send(Message(reply_to="guessed"))

    await by_tool(line.address("a"), ask)


async def test_a_router_that_is_not_there_is_told_by_the_one_that_was_asked(own_triangle: RunningMesh) -> None:
    async def happened(*expected: str) -> bool:
        asking = partial(Tool.ask, router=None, operation="GET-EVENTS")
        _, _, events = await by_tool(own_triangle.address("a"), asking)
        assert [event["sequence"] - events[0]["sequence"] for event in events] == [*range(len(events))]
        of_c = {event["kind"] for event in events if "c" in (event.get("peer"), event.get("neighbour"))}
        return events[0]["kind"] == "boot" and of_c >= {*expected}

    async def answers(expected: int) -> bool:
        asking = partial(Tool.ask, router="c", operation="GET-TYPES")
        code, description, _ = await by_tool(own_triangle.address("a"), asking)
        assert code != 503 or description == "router a is not in contact with router c"
        return bool(code == expected)

    await own_triangle.stop("c")
    await eventually(partial(answers, 503))
    await eventually(partial(happened, "neighbour-up", "neighbour-down", "contact", "contact-lost"))
    await own_triangle.start("c")
    await eventually(partial(answers, 200))


async def test_the_program_of_the_document_runs(line: RunningMesh, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    with connected(line.address("c")) as tool:
        tool.connection.create_receiver("topic/documented", name="reader")
        program = program.replace("127.0.0.1:5672", str(line.address("a")))
        names: dict[str, Any] = {}
        await trio.to_thread.run_sync(exec, program, names)
        names["connection"].close()  # as the end of its process would
    assert "reader on topic/documented 0" in capsys.readouterr().out


async def test_the_document_has_all_types(line: RunningMesh) -> None:
    """tests/router/entities has their attributes."""
    _, _, types = await by_tool(line.address("a"), lambda tool: tool.ask(None, operation="GET-TYPES"))
    told = ENTITIES.read_text()
    ours = re.findall(r"type `(io\.oncemesh\.\w+)`", told)
    theirs = re.findall(r"^\| `([\w.]+)` \|", told.partition("## Types of qpid-dispatch")[2], re.MULTILINE)
    of_router = {f"{SKUPPER}{name}" for name in ("routerMetrics", "network")}
    both = {f"{prefix}{name}" for prefix in (DISPATCH, SKUPPER) for name in theirs}
    assert set(types) == {*ours, *both, *of_router}


async def test_what_skstat_asks_is_answered(line: RunningMesh) -> None:
    """It reads these attributes without a look whether they are there."""

    def look(tool: Tool) -> None:
        for kind, names in READ_BY_SKSTAT.items():
            [row] = tool.query(None, f"{SKUPPER}{kind}")
            assert row.keys() >= names and row["type"] == f"{SKUPPER}{kind}"
        tool.connection.create_receiver("topic/skupper", credit=1)
        assert "Mtopic/skupper" in {row["name"] for row in tool.query(None, f"{SKUPPER}router.address")}
        assert "Mtopic/skupper" in {row["owningAddr"] for row in tool.query(None, f"{SKUPPER}router.link")}
        assert "M0topic/skupper" in {row["name"] for row in tool.query(None, "router.address")}
        assert len(tool.ask(None, operation="get-log", limit="1")[2]) == 1
        assert tool.ask(None, operation="GET-SCHEMA")[2]["entityTypes"]["router"]["attributes"]["id"] == {
            "type": "string",
            "description": "its name",
        }

    await by_tool(line.address("a"), look)


@pytest.mark.parametrize(("who", "code"), [("alice", 403), ("b", 204)])
async def test_where_clients_prove_who_they_are_only_who_runs_the_mesh_closes_connections(
    certified: Secured, who: str, code: int
) -> None:
    def delete() -> None:
        folder = certified.folder / "certs"
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(folder / "ca.pem"))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
        domain.set_credentials(str(folder / f"{who}.pem"), str(folder / f"{who}.key"), None)
        kind = f"{DISPATCH}connection"
        with (
            connected(certified.mesh.address("a"), domain) as tool,
            connected(certified.mesh.address("b"), domain) as it,
        ):
            container = it.connection.container.container_id
            [row] = [row for row in tool.query("b", kind) if row["container"] == container]
            assert (row["user"], row["sasl"], row["isEncrypted"]) == (who, "EXTERNAL", True)
            assert row["sslProto"].startswith("TLSv1.") and row["host"].startswith("127.0.0.1:")
            assert tool.ask("b", operation="DELETE", type=kind, identity=row["identity"])[0] == code

    await trio.to_thread.run_sync(delete)
