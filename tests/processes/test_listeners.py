"""Several listeners of a kind, and those for WebSocket: clients use each, and the mesh shows each by its name."""

from collections.abc import Iterator

import pytest
import trio
import yaml
from click.testing import CliRunner
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, Event, Request

from failover.client.management import Management
from router.cli.main import main
from router.mesh.quantities import Address
from tests.hangs import HANGS_S
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh
from tests.router.mqtt import by_hand


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """A pair with two listeners of a kind. The CONNECT of MQTT has half a second."""
    mesh = RunningMesh("pair", tmp_path_factory.mktemp("pair"), {}, limits={"opening": "500ms"})
    plan = yaml.safe_load(mesh.plan.read_text())
    for router in plan["routers"].values():
        for kind in ("amqp", "inter", "mqtt", "amqp-ws", "mqtt-ws"):
            router[kind] = [f"{mesh.host}:0", "127.0.0.1:0"]
    mesh.plan.write_text(yaml.safe_dump(plan))
    try:
        trio.run(mesh.up)
        yield mesh
        trio.run(mesh.forgets)
        assert mesh.crashes() == []
    finally:
        mesh.end()
        mesh.tell()


class WebSocketGuest:
    """A client by hand, at a listener for WebSocket."""

    def __init__(self, protocol: str) -> None:
        self._socket = WSConnection(ConnectionType.CLIENT)
        self._protocol = protocol
        self._stream: trio.SocketStream
        self.heard = b""

    async def connect(self, address: Address) -> None:
        self._stream = await trio.open_tcp_stream(address.host, address.port)
        ask = Request(host=str(address), target="/", subprotocols=[self._protocol])
        await self._stream.send_all(self._socket.send(ask))
        assert [type(event) for event in await self.read()] == [AcceptConnection]

    async def read(self) -> list[Event]:
        """The events of one read; none at the end."""
        with trio.fail_after(HANGS_S):
            came = await self._stream.receive_some()
        self._socket.receive_data(bytes(came) or None)
        events = list(self._socket.events()) if came else []
        self.heard += b"".join(bytes(event.data) for event in events if isinstance(event, BytesMessage))
        return events

    async def say(self, data: bytes) -> None:
        await self._stream.send_all(self._socket.send(BytesMessage(data=data)))

    async def leave(self) -> None:
        await trio.aclose_forcefully(self._stream)


async def test_messages_go_from_one_listener_to_the_other(mesh: RunningMesh, clients: Clients) -> None:
    subscriber = await clients.subscriber(mesh.listener("a", "amqp[1]"), "topic/listeners")
    publisher = await clients.publisher(mesh.listener("a", "amqp"), "topic/listeners")
    publisher.send(b"0")
    await clients.until(lambda: subscriber.numbers == [0])


@pytest.mark.parametrize("listener", ["mqtt-ws", "mqtt-ws[1]"])
async def test_a_client_by_hand_speaks_mqtt_over_websocket(mesh: RunningMesh, listener: str) -> None:
    guest = WebSocketGuest("mqtt")
    await guest.connect(mesh.listener("b", listener))
    said = by_hand.connect("guest")
    await guest.say(said[:5])
    await guest.say(said[5:])
    while not guest.heard:
        assert await guest.read()
    assert guest.heard[0] == 0x20
    await guest.leave()


@pytest.mark.parametrize("protocol", ["amqp", "mqtt"])
async def test_silence_after_the_handshake_is_bounded_as_elsewhere(mesh: RunningMesh, protocol: str) -> None:
    guest = WebSocketGuest(protocol)
    await guest.connect(mesh.listener("a", f"{protocol}-ws"))
    while await guest.read():
        pass
    await guest.leave()
    status = await mesh.status("a")
    assert status["exceeded"]["opening"] >= 1


def test_status_shows_each_listener(mesh: RunningMesh) -> None:
    shown = CliRunner().invoke(main, ["status", "--run-dir", str(mesh.directory.path)]).output
    for name in ("amqp[1]", "mqtt-ws", "mqtt-ws[1]"):
        assert f"{name}: a {mesh.listener('a', name)}, b {mesh.listener('b', name)}" in shown


async def test_management_shows_each_listener(mesh: RunningMesh) -> None:
    async with Management([f"amqp://{mesh.address('a')}"]) as management:
        rows = await management.query("org.apache.qpid.dispatch.listener")
    assert {row["name"] for row in rows if row["http"]} == {
        f"listener/{name}" for name in ("amqp-ws", "amqp-ws[1]", "mqtt-ws", "mqtt-ws[1]")
    }
    assert [row["name"] for row in rows if row["role"] == "inter-router"] == ["listener/inter", "listener/inter[1]"]
