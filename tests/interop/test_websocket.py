"""AMQP and MQTT over WebSocket, with clients of others: rhea and mqtt.js, by node and in a browser.

publisher - a --- b --- c - subscriber
"""

import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trio

from router.mesh.topology import load
from router.security.certs import issue_all
from tests.interop.foreign import HERE, NODE, PATIENCE_S, foreign, prepare
from tests.processes.clients import Clients
from tests.processes.mesh import TOPOLOGIES, RunningMesh, running
from tests.router.http.browser import Seen, browser

COUNT = 1000
MODULES = HERE / "node_modules"
FILES = {
    "/page.html": HERE / "browser_page.html",
    "/rhea.js": MODULES / "rhea" / "dist" / "rhea.js",
    "/mqtt.js": MODULES / "mqtt" / "dist" / "mqtt.min.js",
}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("line", tmp_path_factory.mktemp("line"), websocket=True) as found:
        yield found


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningMesh, Path]]:
    """A pair with certificates, which anybody may use."""
    folder = tmp_path_factory.mktemp("secured")
    issue_all(load(TOPOLOGIES / "pair.yaml"), folder / "certs", [])
    files: dict[str, Any] = {"certificate": "certs/{router}.pem", "key": "certs/{router}.key", "ca": "certs/ca.pem"}
    security = files | {"open": ["amqp-ws", "mqtt-ws"]}
    with running("pair", folder, security=security, websocket=True, host="127.0.0.1") as found:
        yield found, folder / "certs" / "ca.pem"


async def mqttjs(url: str, topic: str, count: int, **environment: str) -> list[int]:
    """The numbers that mqtt.js was sent, of those that it published."""
    if NODE is None or not (MODULES / "mqtt").exists():
        pytest.skip("mqtt.js needs node and tests/interop/node_modules (make setup)")
    command = [NODE, str(HERE / "mqtt_websocket.js"), url, topic, str(count)]
    with trio.fail_after(PATIENCE_S):
        done = await trio.run_process(command, capture_stdout=True, env=environment)
    return list(json.loads(done.stdout))


@pytest.mark.parametrize(("count", "size"), [(5000, 100), (20, 1 << 20)])
@pytest.mark.parametrize("mode", ["first", "second"])
async def test_rhea_over_websocket_has_all_once_and_in_order(
    mesh: RunningMesh, mode: str, count: int, size: int
) -> None:
    topic = f"topic/websocket/{mode}/{size}"
    a, c = mesh.listener("a", "amqp-ws"), mesh.listener("c", "amqp-ws")
    async with (
        foreign("rhea", "subscribe", c, topic, count, size, mode=mode, websocket=f"ws://{c}") as receiving,
        foreign("rhea", "publish", a, topic, count, size, mode=mode, websocket=f"ws://{a}") as sending,
    ):
        await receiving.event("received")
        await receiving.event("complete")
        await sending.event("complete")
        published, received = await sending.finish(), await receiving.finish()
    assert received["numbers"] == list(range(count))
    assert (received["damaged"], published["refused"]) == (0, 0)


async def test_mqttjs_over_websocket_has_all_once_and_in_order(mesh: RunningMesh, clients: Clients) -> None:
    topic = "topic/mqttjs"
    witness = await clients.subscriber(mesh.address("c"), topic)
    assert await mqttjs(f"ws://{mesh.listener('a', 'mqtt-ws')}", topic, COUNT) == list(range(COUNT))
    await clients.until(lambda: len(witness.received) == COUNT)
    assert witness.numbers == list(range(COUNT))


async def test_both_over_tls(secured: tuple[RunningMesh, Path]) -> None:
    mesh, ca = secured
    at, topic = mesh.listener("a", "amqp-ws"), "topic/tls"
    url = f"wss://localhost:{at.port}"
    async with (
        foreign("rhea", "subscribe", at, topic, COUNT, 100, websocket=url, ca=str(ca)) as receiving,
        foreign("rhea", "publish", at, topic, COUNT, 100, websocket=url, ca=str(ca)) as sending,
    ):
        await receiving.event("received")
        await receiving.event("complete")
        await sending.event("complete")
        await sending.finish()
        assert (await receiving.finish())["numbers"] == list(range(COUNT))
    url = f"wss://localhost:{mesh.listener('a', 'mqtt-ws').port}"
    assert await mqttjs(url, topic, COUNT, NODE_EXTRA_CA_CERTS=str(ca)) == list(range(COUNT))


class _Handler(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        return str(FILES.get(path, HERE / "nothing"))

    def log_message(self, format: str, *arguments: Any) -> None: ...


@pytest.fixture(scope="module")
def driver(mesh: RunningMesh) -> Iterator[Any]:
    prepare("rhea")
    with browser() as found:
        yield found


@pytest.fixture
def page(driver: Any) -> Seen:
    return Seen(driver)


@pytest.fixture(scope="module")
def site(mesh: RunningMesh) -> Iterator[ThreadingHTTPServer]:
    """A web server of the mesh's host."""
    server = ThreadingHTTPServer((mesh.host, 0), partial(_Handler))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def until(page: Seen, script: str, expected: Any) -> None:
    found = None
    with trio.move_on_after(PATIENCE_S):
        while (found := await page.run(f"return {script}")) != expected:
            assert await page.run("return seen.errors") == []
            await trio.sleep(0.1)
    assert found == expected


async def test_rhea_and_mqttjs_in_a_browser(
    mesh: RunningMesh, site: ThreadingHTTPServer, page: Seen, clients: Clients
) -> None:
    numbers = list(range(COUNT))
    witness = await clients.subscriber(mesh.address("c"), "topic/browser/mqtt")
    await page.open(f"http://{mesh.host}:{site.server_port}/page.html")
    await page.run("amqp(...arguments)", f"ws://{mesh.listener('a', 'amqp-ws')}", "topic/browser/amqp", COUNT)
    await page.run("mqtt5(...arguments)", f"ws://{mesh.listener('b', 'mqtt-ws')}", "topic/browser/mqtt", COUNT)
    await until(page, "seen.amqp", numbers)
    await until(page, "seen.accepted", COUNT)
    await until(page, "seen.mqtt", numbers)
    await clients.until(lambda: witness.numbers == numbers)
    assert [said for said in await page.complaints() if "favicon" not in said] == []


async def test_a_browser_reads_why_its_websocket_is_closed(
    mesh: RunningMesh, site: ThreadingHTTPServer, page: Seen
) -> None:
    await page.open(f"http://{mesh.host}:{site.server_port}/page.html")
    await page.run("leave(arguments[0])", f"ws://{mesh.listener('a', 'amqp-ws')}")
    await until(page, "seen.closed", [1003, "a text message came, expected binary messages", True])
