"""MQTT with clients of others, at a triangle that all tests share: what docs/mqtt.md promises, and what the audit says.

      a - publishers
     / \\
    b---c - subscribers; they move when routers are killed
"""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from signal import SIGKILL
from subprocess import Popen

import pytest
import trio
from paho.mqtt.enums import MQTTProtocolVersion

from failover.audit import Verdict, run
from failover.chaos.proxy import LinkProxy
from router.amqp.format.sections import read_message, write_message
from router.mesh.quantities import Address
from tests.interop.mqtt_clients import V3, V5, VERSIONS, Paho, Printed, mosquitto_pub, mosquitto_sub, started
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, eventually

COUNT = 300
Make = Callable[..., Paho]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    folder = tmp_path_factory.mktemp("mqtt")
    mesh = RunningMesh("triangle", folder, {}, mqtt=True)
    try:
        trio.run(mesh.up)
        yield mesh
        assert mesh.crashes() == []
    finally:
        mesh.end()
        mesh.tell()


@pytest.fixture
async def paho() -> AsyncIterator[Make]:
    made: list[Paho] = []

    def make(name: str, version: MQTTProtocolVersion = V5, *, lasts: bool = False) -> Paho:
        made.append(Paho(name, version, lasts=lasts))
        return made[-1]

    yield make
    for client in made:
        await client.leave()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", VERSIONS)
async def test_paho_publishes_and_is_sent_all_of_it_once_and_in_order(
    mesh: RunningMesh, paho: Make, version: MQTTProtocolVersion, qos: int
) -> None:
    topic = f"topic/paho {version} {qos}"
    reader, writer = paho(f"reader {version} {qos}", version), paho(f"writer {version} {qos}", version)
    await reader.connect(mesh.mqtt("c"))
    await writer.connect(mesh.mqtt("a"))
    await reader.subscribe(topic, qos)
    for number in range(COUNT):
        writer.publish(topic, b"%d" % number, qos)
    await reader.until(lambda: len(reader.received) >= COUNT)
    assert reader.numbers == list(range(COUNT))
    assert {message.qos for message in reader.received} == {qos}
    await writer.until(lambda: len(writer.published) == COUNT)


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
async def test_mosquitto_publishes_and_is_sent_all_of_it_once_and_in_order(mesh: RunningMesh, version: str) -> None:
    topic = f"topic/mosquitto {version}"
    lines = b"".join(b"%d\n" % number for number in range(COUNT))
    options = ("-q", "2", "-V", version)
    with mosquitto_sub(mesh.mqtt("c"), topic, COUNT, *options) as reader:
        await has_subscribers(mesh, topic, 1)
        await mosquitto_pub(mesh.mqtt("a"), topic, lines, *options)
        heard, _ = await trio.to_thread.run_sync(reader.communicate)
    assert heard == lines


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
@pytest.mark.parametrize("first", [0, 2])
async def test_who_publishes_at_qos_0_and_goes_at_once_has_published(
    mesh: RunningMesh, version: str, first: int
) -> None:
    """Its session lasts: with a link that goes on, if its first message was of QoS 2."""
    topic = f"topic/gone {version} {first}"
    name = f"gone {version} {first}"
    options = ("-c", "-i", name, "-V", version, *(("-x", "60") if version == "mqttv5" else ()))
    with mosquitto_sub(mesh.mqtt("c"), topic, 5, "-q", "2") as reader:
        await has_subscribers(mesh, topic, 1)
        for number, (router, qos) in enumerate([("a", first), ("a", 0), ("a", 0), ("b", 0), ("b", 0)]):
            await mosquitto_pub(mesh.mqtt(router), topic, b"%d\n" % number, "-q", str(qos), *options)
        heard, _ = await trio.to_thread.run_sync(reader.communicate)
    assert sorted(heard.split()) == [b"0", b"1", b"2", b"3", b"4"]
    await Paho(name, V3).pass_by(mesh.mqtt("b"))


async def has_subscribers(mesh: RunningMesh, topic: str, count: int) -> None:
    async def there() -> bool:
        links = [link for router in mesh.routers for link in (await mesh.status(router))["subscribers"]]
        return [link["status"] for link in links if link["address"] == topic] == ["attached"] * count

    await eventually(there)


async def test_messages_of_amqp_and_of_mqtt_are_each_others(mesh: RunningMesh, paho: Make, clients: Clients) -> None:
    topic, other = "topic/both ways", "topic/and back"
    reader, writer = paho("reader both"), paho("writer both")
    await reader.connect(mesh.mqtt("b"))
    await writer.connect(mesh.mqtt("b"))
    await reader.subscribe(topic, 2)
    subscriber = await clients.subscriber(mesh.address("c"), other)
    publisher = await clients.publisher(mesh.address("a"), topic)
    said = {
        "header": {"ttl": 90_500},
        "properties": {"reply-to": "topic/answers", "correlation-id": b"\0\xff", "content-type": "text/plain"},
        "application-properties": {"colour": "blue", "count": 7, "is": True, "raw": b"left out"},
    }
    for number in range(50):
        publisher.send_message(write_message(said | {"data": b"%d" % number}))
    await reader.until(lambda: len(reader.received) == 50)
    assert reader.numbers == list(range(50))
    found = reader.received[0].properties
    assert found is not None
    assert (found.ResponseTopic, found.CorrelationData, found.ContentType) == ("topic/answers", b"\0\xff", "text/plain")
    assert found.UserProperty == [("colour", "blue"), ("count", "7"), ("is", "true")]
    assert found.MessageExpiryInterval == 91
    for number in range(50):
        writer.publish(
            other, b"%d" % number, 2, UserProperty=[("colour", "red")], ResponseTopic="topic/answers",
            CorrelationData=b"id", ContentType="text/plain", MessageExpiryInterval=90,
        )  # fmt: skip
    await clients.until(lambda: len(subscriber.received) == 50)
    assert subscriber.numbers == list(range(50))
    message = read_message(subscriber.received[0].message)
    assert message["properties"].pop("absolute-expiry-time") > 0
    assert message == {
        "header": {"ttl": 90_000},
        "properties": {"reply-to": "topic/answers", "correlation-id": b"id", "content-type": "text/plain"},
        "application-properties": {"colour": "red"},
        "data": b"0",
    }
    await writer.until(lambda: len(writer.published) == 50)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_subscription_with_wildcards_is_sent_what_is_published_to_each_topic(
    mesh: RunningMesh, paho: Make, clients: Clients, version: MQTTProtocolVersion
) -> None:
    above = f"topic/wide {version}"
    reader, writer = paho(f"wide reader {version}", version), paho(f"wide writer {version}", version)
    await reader.connect(mesh.mqtt("c"))
    await writer.connect(mesh.mqtt("a"))
    await reader.subscribe(f"{above}/+/news", 2)
    publisher = await clients.publisher(mesh.address("b"), f"{above}/amqp/news")
    for number in range(COUNT):
        writer.publish(f"{above}/{number % 3}/news", b"%d" % number, 2)
        writer.publish(f"{above}/{number % 3}/other", b"-1", 2)
        publisher.send(b"%d" % number)
    await reader.until(lambda: len(reader.received) >= 2 * COUNT)
    await writer.until(lambda: len(writer.published) == 2 * COUNT)
    heard: dict[str, list[int]] = {}
    for message in reader.received:
        heard.setdefault(message.topic, []).append(int(message.payload))
    of_mqtt = {f"{above}/{place}/news": list(range(place, COUNT, 3)) for place in range(3)}
    assert heard == of_mqtt | {f"{above}/amqp/news": list(range(COUNT))}


@pytest.mark.parametrize("version", VERSIONS)
async def test_who_is_cut_off_resumes_exactly_once_at_the_same_router(
    mesh: RunningMesh, paho: Make, version: MQTTProtocolVersion
) -> None:
    topic = f"topic/cut {version}"
    reader, writer = (
        paho(f"cut reader {version}", version, lasts=True),
        paho(f"cut writer {version}", version, lasts=True),
    )
    await reader.connect(mesh.mqtt("c"))
    await writer.connect(mesh.mqtt("a"))
    await reader.subscribe(topic, 2)
    for part in range(1, 5):
        for number in range((part - 1) * COUNT, part * COUNT):
            writer.publish(topic, b"%d" % number, 2)
        await reader.until(lambda: len(reader.received) > (part - 1) * COUNT)  # noqa: B023
        (writer if part % 2 else reader).cut()
    await reader.until(lambda: len(reader.received) >= 4 * COUNT)
    await writer.until(lambda: len(writer.published) == 4 * COUNT)
    await reader.until(lambda: len(reader.present) == len(writer.present) == 3)
    assert sorted(reader.numbers) == list(range(4 * COUNT))  # after a cut paho may send what is new before what waits
    assert all(reader.present[1:]) and all(writer.present[1:])
    assert "continues its session at this router; no message comes twice" in mesh.log("c")


@pytest.mark.parametrize("killed", ["a", "c", "ac"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_routers_are_killed_and_their_clients_go_on_at_another(
    mesh: RunningMesh, paho: Make, clients: Clients, version: MQTTProtocolVersion, killed: str
) -> None:
    """Home a, custodian c, or both. What is published at QoS 2 is published exactly once; a subscriber of MQTT is sent
    all of it at least once, and nothing again that it had not just been sent."""
    topic = f"topic/killed {killed} {version}"
    reader, writer = paho(f"reader of {topic}", version, lasts=True), paho(f"writer of {topic}", version, lasts=True)
    await reader.connect(mesh.mqtt("c"))
    await writer.connect(mesh.mqtt("a"))
    await reader.subscribe(topic, 2)
    witness = await clients.subscriber(mesh.address("b"), topic)
    for number in range(COUNT):
        writer.publish(topic, b"%d" % number, 2)
    await reader.until(lambda: len(reader.received) > COUNT // 3)
    for router in killed:
        mesh.signal(router, SIGKILL)
    for router in killed:
        await mesh.ending(router)
    if "a" in killed:
        await writer.connect(mesh.mqtt("b"))
    if "c" in killed:
        await reader.connect(mesh.mqtt("b"))
    for number in range(COUNT, 2 * COUNT):
        writer.publish(topic, b"%d" % number, 2)
    await writer.until(lambda: len(writer.published) == 2 * COUNT)
    await clients.until(lambda: len(witness.received) >= 2 * COUNT)
    assert witness.numbers == list(range(2 * COUNT)), "a subscriber of AMQP has each once"
    await reader.until(lambda: set(reader.numbers) == set(range(2 * COUNT)))
    again = len(reader.numbers) - 2 * COUNT
    assert again == 0 if killed == "a" else again <= 256
    if "c" in killed:
        assert "this router sends it all unsettled messages again" in mesh.log("b")
    for router in killed:
        await mesh.start(router)


@pytest.mark.parametrize("killed", ["a", "c", "ac"])
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
async def test_routers_are_killed_and_mosquitto_is_led_to_another(
    mesh: RunningMesh, clients: Clients, nursery: trio.Nursery, version: str, killed: str
) -> None:
    """As above, with clients that know one address only: that of a load balancer, which leads them to a router that
    lives."""
    topic = f"topic/killed {killed} mosquitto {version}"
    led = {"writer": "a", "reader": "c"}

    def target(client: str) -> Address:
        return mesh.mqtt(led[client])

    balancers = {client: LinkProxy(partial(target, client)) for client in led}
    for balancer in balancers.values():
        await nursery.start(balancer.run)
    lasts = ("-q", "2", "-c", "-V", version)
    witness = await clients.subscriber(mesh.address("b"), topic)
    with started("mosquitto_sub", balancers["reader"].address, topic, *lasts, "-i", f"reader of {topic}") as reader:
        await has_subscribers(mesh, topic, 2)
        heard = Printed(reader)
        with started("mosquitto_pub", balancers["writer"].address, topic, *lasts, "-l", "-i", topic) as writer:
            await write(writer, range(COUNT))
            await clients.until(lambda: len(witness.received) > COUNT // 3)
            for router in killed:
                mesh.signal(router, SIGKILL)
            for router in killed:
                await mesh.ending(router)
            led = {name: "b" if router in killed else router for name, router in led.items()}
            await write(writer, range(COUNT, 2 * COUNT))
            await trio.to_thread.run_sync(writer.communicate)
            assert writer.returncode == 0
        await clients.until(lambda: len(witness.received) >= 2 * COUNT and set(heard.lines) == set(range(2 * COUNT)))
    assert witness.numbers == list(range(2 * COUNT)), "a subscriber of AMQP has each once"
    assert heard.lines == witness.numbers if killed == "a" else len(heard.lines) <= 2 * COUNT + 256
    for client in (topic, f"reader of {topic}"):
        await Paho(client, V3).pass_by(mesh.mqtt("b"))
    for router in killed:
        await mesh.start(router)


async def write(process: Popen[bytes], numbers: range) -> None:
    assert process.stdin is not None
    await trio.to_thread.run_sync(process.stdin.write, b"".join(b"%d\n" % number for number in numbers))
    await trio.to_thread.run_sync(process.stdin.flush)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_will_is_published_once_also_if_its_router_is_killed(
    mesh: RunningMesh, paho: Make, version: MQTTProtocolVersion
) -> None:
    topic = f"topic/will {version}"
    reader, mortal = paho(f"reader of {topic}", version), paho(f"mortal {version}", version)
    await reader.connect(mesh.mqtt("c"))
    await reader.subscribe(topic, 2)
    mortal.client.will_set(topic, b"0", 2)
    await mortal.connect(mesh.mqtt("a"))
    mortal.cut()
    await reader.until(lambda: len(reader.received) == 1)
    await mortal.until(lambda: len(mortal.present) == 2)
    mesh.signal("a", SIGKILL)
    await mesh.ending("a")
    await reader.until(lambda: len(reader.received) == 2)
    await mesh.start("a")
    await mortal.until(lambda: len(mortal.present) == 3)
    await mortal.leave()
    assert reader.numbers == [0, 0]


async def test_the_audit_holds_over_all_of_this(mesh: RunningMesh) -> None:
    """Last: the mesh is stopped for it. What a subscriber of MQTT was sent again after its router was killed it names:
    that was at least once."""
    await mesh.forgets()
    for router in mesh.routers:
        await mesh.stop(router)
    report = await trio.to_thread.run_sync(run, [str(mesh.directory.path)])
    told = report.sentence, report.doubts, report.problems, report.findings
    again = [found for found in report.findings if found.kind == "duplicated"]
    names = {name for found in again for name in found.subscribers}
    assert list(report.findings) == again and not report.problems, told
    assert all(name.startswith(("reader of topic/killed c ", "reader of topic/killed ac ")) for name in names), told
    assert report.verdict is (Verdict.VIOLATED if again else Verdict.HOLDS), told
    assert sum(row.accepted for row in report.publishers) >= 4 * COUNT
