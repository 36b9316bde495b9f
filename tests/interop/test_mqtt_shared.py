"""Shared subscriptions with MQTT clients of others, at three routers with a replica set (docs/mqtt.md, Shared
subscriptions)."""

from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest
import trio

from tests.interop.mqtt_clients import Paho, Printed, started
from tests.processes.mesh import RunningMesh, eventually, running

COUNT = 300


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("queues", tmp_path, mqtt=True, queues={"sets": 1, "replicas": 3}) as found:
        yield found


async def has_group(mesh: RunningMesh, name: str, *, there: bool) -> None:
    """Wait until the set has the queue of this group, or has it no more."""

    async def probe() -> bool:
        queues = [queue for router in mesh.routers for queue in (await mesh.status(router))["queues"]]
        return any(queue["name"] == f"queue/_temporary/share/{name}" for queue in queues) is there

    await eventually(probe)


async def test_each_message_goes_to_one_member(mesh: RunningMesh) -> None:
    topic = "topic/work/+"
    members = [Paho(f"m{router}") for router in "abc"]
    for member, router in zip(members, "abc", strict=True):
        await member.connect(mesh.mqtt(router))
        await member.subscribe(f"$share/g/{topic}", 2)
    writer = Paho("writer")
    await writer.connect(mesh.mqtt("b"))
    for number in range(COUNT):
        writer.publish(f"topic/work/{number % 3}", b"%d" % number, 1 + number % 2)
    await writer.until(lambda: len(writer.published) == COUNT)
    await writer.until(lambda: sum(len(member.received) for member in members) >= COUNT)
    assert sorted(number for member in members for number in member.numbers) == list(range(COUNT))
    topics = {(message.topic, int(message.payload) % 3) for member in members for message in member.received}
    assert topics == {(f"topic/work/{number}", number) for number in range(3)}
    for client in (writer, *members):
        await client.leave()
    await has_group(mesh, "g/topic/work/%2B", there=False)


async def test_members_and_a_router_are_killed(mesh: RunningMesh) -> None:
    """The survivors get each message that the lost members have not had, and none of them gets a message twice."""
    name, topic = "$share/g/topic/killed", "topic/killed"
    writer, stays, lost = Paho("writer"), Paho("stays", lasts=True), Paho("lost")
    await writer.connect(mesh.mqtt("a"))
    await stays.connect(mesh.mqtt("b"))
    await stays.subscribe(name, 2)
    await lost.connect(mesh.mqtt("c"))
    await lost.subscribe(name, 2)
    with started("mosquitto_sub", mesh.mqtt("b"), name, "-q", "2", "-i", "killed") as process:
        killed = Printed(process)
        for number in range(COUNT):
            writer.publish(topic, b"%d" % number, 2)
            if number == COUNT // 3:
                await writer.until(lambda: len(killed.lines) > 0)
                process.kill()
            if number == COUNT // 2:
                mesh.signal("c", SIGKILL)
            await trio.sleep(0.002)
        await writer.until(lambda: len(writer.published) == COUNT)
        had = {*lost.numbers, *killed.lines}
        await writer.until(lambda: had | {*stays.numbers} >= {*range(COUNT)})
    assert len(set(stays.numbers)) == len(stays.numbers)
    lost.client.loop_stop()
    await mesh.start("c")
    for client in (writer, stays):
        await client.leave()
    await has_group(mesh, "g/topic/killed", there=False)
