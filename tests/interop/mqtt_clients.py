"""MQTT clients of other makers: paho's, in a thread of its own, and mosquitto's commands."""

import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import trio
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from router.mesh.quantities import Address
from tests.processes.mesh import eventually

V3, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
VERSIONS: Final = (V3, V5)
EXPIRY_S: Final = 50


def made(name: str, version: MQTTProtocolVersion, clean: bool | None) -> Any:
    return mqtt.Client(CallbackAPIVersion.VERSION2, name, clean, protocol=version)


def properties(packet: int) -> Any:
    """Paho sets the attributes of its properties dynamically."""
    return Properties(packet)  # type: ignore[no-untyped-call]  # it has no types


class Paho:
    """A client of paho that keeps all events. `lasts`: whether its session outlives its connection."""

    def __init__(self, name: str, version: MQTTProtocolVersion = V5, *, lasts: bool = False) -> None:
        self.received: list[Any] = []
        self.published: list[int] = []
        """Identifiers of completed messages, in order."""
        self.refused: list[int] = []
        self.granted: list[int] = []
        self.present: list[bool] = []
        """For each CONNACK: whether the router had a session."""
        self.ended: list[int] = []
        """Reasons of disconnects."""
        self._name = name
        self._address: Address | None = None
        self._lasts = lasts
        self._version = version
        self.client = made(name, version, None if version is V5 else not lasts)
        self.client.reconnect_delay_set(0.05, 0.2)
        self.client.on_connect = self._on_connect
        self.client.on_message = lambda client, data, message: self.received.append(message)
        self.client.on_publish = self._on_publish
        self.client.on_subscribe = lambda client, data, number, reasons, found: self.granted.extend(
            reason.value for reason in reasons
        )
        self.client.on_disconnect = lambda client, data, flags, reason, found: self.ended.append(reason.value)

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, found: Any) -> None:
        assert reason.value == 0, reason
        self.present.append(flags.session_present)

    def _on_publish(self, client: Any, data: Any, number: int, reason: Any, found: Any) -> None:
        (self.refused if reason.value >= 0x80 else self.published).append(number)

    async def connect(self, address: Address, user: tuple[str, str] | None = None) -> None:
        """Connect to this router, from now on."""
        self._address = address
        await trio.to_thread.run_sync(self._connect, address, user)
        count = len(self.present)
        self.client.loop_start()
        await self.until(lambda: len(self.present) > count)

    def _connect(self, address: Address, user: tuple[str, str] | None) -> None:
        self.client.loop_stop()
        options: dict[str, Any] = {}
        if self._version is V5:
            found = properties(PacketTypes.CONNECT)
            found.SessionExpiryInterval = EXPIRY_S if self._lasts else 0
            options = {"clean_start": not self._lasts, "properties": found}
        if user is not None:
            self.client.username_pw_set(*user)
        self.client.connect(address.host, address.port, keepalive=30, **options)

    async def pass_by(self, address: Address) -> None:
        """Connect and leave, which ends its session."""
        await self.connect(address)
        await self.leave()

    async def subscribe(self, topic: str, qos: int) -> None:
        count = len(self.granted)
        self.client.subscribe(topic, qos)
        await self.until(lambda: len(self.granted) > count)
        assert self.granted[-1] == qos

    def publish(self, topic: str, payload: bytes, qos: int, **found: Any) -> int:
        said = None
        if found:
            said = properties(PacketTypes.PUBLISH)
            for name, value in found.items():
                setattr(said, name, value)
        return int(self.client.publish(topic, payload, qos, properties=said).mid)

    def cut(self) -> None:
        """Cut its connection. It makes another one by itself."""
        sock = self.client.socket()
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)

    @property
    def numbers(self) -> list[int]:
        return [int(message.payload) for message in self.received]

    async def until(self, condition: Callable[[], bool]) -> None:
        async def probe() -> bool:
            return condition()

        await eventually(probe)

    async def leave(self) -> None:
        """Leave for good, with its session. In 3.1.1 that takes a clean start."""
        found = None
        if self._lasts and self._version is V3 and self._address is not None:
            await trio.to_thread.run_sync(self.client.loop_stop)
            await Paho(self._name, V3).pass_by(self._address)
        if self._version is V5:
            found = properties(PacketTypes.DISCONNECT)
            found.SessionExpiryInterval = 0
        self.client.disconnect(properties=found)
        await trio.to_thread.run_sync(self.client.loop_stop)


def mosquitto(command: str) -> str:
    """The path of a mosquitto command. Skips the test if it is not installed."""
    found = shutil.which(command)
    if found is None:
        pytest.skip(f"{command} needs mosquitto-clients (make interop-tools)")
    return found


@contextmanager
def mosquitto_sub(address: Address, topic: str, count: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A subscriber that prints its messages, and ends when it has this many."""
    with started("mosquitto_sub", address, topic, "-C", str(count), "-W", "60", *options) as process:
        yield process


async def mosquitto_pub(address: Address, topic: str, lines: bytes, *options: str) -> None:
    """Publish each line as a message."""
    with started("mosquitto_pub", address, topic, "-l", *options) as process:
        await trio.to_thread.run_sync(process.communicate, lines)
    assert process.returncode == 0


@contextmanager
def started(command: str, address: Address, topic: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    words = [mosquitto(command), "-h", address.host, "-p", str(address.port), "-t", topic, *options]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Printed:
    """What a process prints, line by line. A thread of its own reads it until it ends."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.lines: list[int] = []
        self._stream = process.stdout
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._stream is not None
        for line in self._stream:
            self.lines.append(int(line))
