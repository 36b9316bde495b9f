"""Queues of real routers: a message stays until a consumer has accepted it, whoever is killed (protocol 14).

a ── b ── c, and a ── c; each has a replica of the one set
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile, copytree
from signal import SIGKILL
from typing import Any

import pytest
import trio
from proton import Event, Message, Terminus
from proton.handlers import MessagingHandler
from proton.reactor import Copy, ReceiverOption, Selector
from proton.utils import BlockingConnection

from failover.client.endpoint import Options
from failover.client.management import Management, RefusedError
from failover.client.outcome import Outcome
from failover.client.publisher import Publisher as LastingPublisher
from failover.client.state.store import SqliteStore
from failover.client.subscriber import Subscriber as LastingSubscriber
from router.amqp.format.errors import INVALID_FIELD, NOT_IMPLEMENTED, RESOURCE_LIMIT
from router.amqp.format.message import body_of
from router.amqp.format.sections import write_message
from router.amqp.format.values import ACCEPTED, REJECTED, RELEASED
from router.entities.dispatch import ADDRESS
from router.entities.queues import DECLARED_QUEUE
from router.mesh.quantities import Address
from router.mqtt.format.values import PacketKind, Reason
from router.queues.store import STORE
from tests.forks import COMMAND_LINE
from tests.hangs import HANGS_S
from tests.interop.temporary import OwnQueue, make_and_drop
from tests.processes.clients import Clients, Delivery, Publisher, client_of, hold
from tests.processes.mesh import RunningMesh, eventually, running
from tests.processes.test_mqtt_boot import answer, client
from tests.processes.test_outcomes import seen
from tests.router.http.web import ask
from tests.router.mqtt import by_hand
from topic.properties import DEAD_AT, DEAD_FIRST, DEAD_FROM, DEAD_WHY, DEATHS
from topic.queues.operations import MOST_NAME

COUNT = 500
KILLED = "queue/killed"
ONE_SET = {"sets": 1, "replicas": 3}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("queues", tmp_path_factory.mktemp("queues"), mqtt=True, http=True, queues=ONE_SET) as found:
        yield found


@pytest.fixture
def own_mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("queues", tmp_path, queues=ONE_SET) as found:
        yield found


async def fill(clients: Clients, publisher: Publisher, count: int = COUNT) -> None:
    for number in range(count):
        publisher.send(b"%d" % number)
    await clients.until(lambda: len(publisher.accepted) == count)


async def roles(mesh: RunningMesh) -> tuple[str, str]:
    """The router that leads the set, and one that follows."""
    found = ""

    async def is_led() -> bool:
        nonlocal found
        found = (await mesh.status("a"))["sets"][0]["leader"]
        return bool(found)

    await eventually(is_led)
    return found, next(name for name in "abc" if name != found)


async def check_exactly_once(mesh: RunningMesh) -> None:
    """By the audit. Routers are stopped for that."""
    for name in mesh.routers:
        await mesh.stop(name)
    command = [*COMMAND_LINE, "audit", str(mesh.directory.path)]
    audited = await trio.run_process(command, capture_stdout=True, check=False)
    assert "exactly-once holds" in audited.stdout.decode(), audited.stdout.decode()
    for name in mesh.routers:
        await mesh.start(name)


async def test_messages_that_two_stores_have_lost_are_lost_at_rest(own_mesh: RunningMesh, clients: Clients) -> None:
    """Two routers come to have their stores of a former time, with their marks."""
    publisher = await clients.publisher(own_mesh.address("a"), KILLED)
    await fill(clients, publisher, 3)
    for name in "bc":
        await own_mesh.stop(name)
        copytree(own_mesh.directory.path / name, own_mesh.directory.path.parent / name)
        await own_mesh.start(name)
    for number in range(4):
        publisher.send(b"%d" % number)
    await clients.until(lambda: len(publisher.accepted) == 7)
    client_of(publisher).close()
    await own_mesh.forgets()  # a publisher that is cut off is kept for a minute
    for name in "abc":
        await own_mesh.stop(name)
    command = [*COMMAND_LINE, "audit", str(own_mesh.directory.path)]
    before = await trio.run_process(command, capture_stdout=True, check=False)
    assert b"lost at rest" not in before.stdout and b"7 still in queues" in before.stdout, before.stdout.decode()
    for name in "bc":
        for file in (own_mesh.directory.path.parent / name).glob(f"{STORE}*"):
            copyfile(file, own_mesh.directory.path / name / file.name)
    after = await trio.run_process(command, capture_stdout=True, check=False)
    assert after.returncode == 1 and b"4 messages" in after.stdout, after.stdout.decode()
    for name in "abc":
        await own_mesh.start(name)


async def test_messages_wait_for_consumers_at_any_router(mesh: RunningMesh, clients: Clients) -> None:
    first = await clients.subscriber(
        mesh.address("b"), "queue/waits", "first", credit=100, respond=hold, makes_up=False
    )
    await fill(clients, await clients.publisher(mesh.address("a"), "queue/waits"))
    await clients.until(lambda: len(first.received) == 100)
    second = await clients.subscriber(mesh.address("c"), "queue/waits", "second")
    await clients.until(lambda: len(second.received) == COUNT - 100)
    assert sorted(first.numbers + second.numbers) == list(range(COUNT))
    assert second.numbers == sorted(second.numbers)
    for delivery in first.received:
        delivery.accept()
    await clients.until(lambda: len(first.settled) == 100)


@pytest.mark.parametrize("router", ["leader", "follower"])
async def test_a_consumer_that_drains_gets_what_there_is(mesh: RunningMesh, clients: Clients, router: str) -> None:
    queue = f"queue/drained-{router}"
    await fill(clients, await clients.publisher(mesh.address("a"), queue), 3)
    leader, follower = await roles(mesh)
    at = mesh.address(leader if router == "leader" else follower)
    consumer = await clients.subscriber(at, queue, credit=0, makes_up=False)
    for credit, numbers in ((2, [0, 1]), (10, [0, 1, 2]), (10, [0, 1, 2])):
        consumer.link.drain(credit)
        consumer.link.connection.wake()
        await clients.until(lambda: consumer.link.credit == 0)
        assert consumer.numbers == numbers


async def test_the_figures_of_a_queue_are_shown(mesh: RunningMesh, clients: Clients) -> None:
    """By `$management`, `$status` and `/metrics` of the leader."""
    await fill(clients, await clients.publisher(mesh.address("a"), "queue/figures"), 4)
    consumer = await clients.subscriber(mesh.address("b"), "queue/figures", credit=2, respond=hold, makes_up=False)
    await clients.until(lambda: len(consumer.received) == 2)
    consumer.received[0].give(RELEASED)
    consumer.received[1].accept()
    consumer.link.flow(2)
    await clients.until(lambda: len(consumer.received) == 4)
    leader, follower = await roles(mesh)
    async with Management([f"amqp://{mesh.address(follower)}"]) as management:

        async def read(router: str) -> dict[str, Any]:
            row = await management.ask("READ", router, type=DECLARED_QUEUE.managed, name="queue/figures")
            return {key: row[key] for key in ("messages", "reserved", "consumers", "enqueued", "dequeued", "givenBack")}

        expected = {"messages": 3, "reserved": 2, "consumers": 1, "enqueued": 4, "dequeued": 1, "givenBack": 1}

        async def is_told() -> bool:
            return await read(leader) == expected

        await eventually(is_told)
        assert (await read(follower))["enqueued"] is None
    [queue] = [one for one in (await mesh.status(leader))["queues"] if one["name"] == "queue/figures"]
    assert (queue["messages"], queue["set"]) == (3, "q0") and 0 < queue["oldest_s"] < 600
    told = (await ask(mesh.http(leader), "/metrics")).text
    counts = {"messages": 3, "reserved": 2, "consumers": 1, "enqueued_total": 4, "given_back_total": 1}
    for name, count in counts.items():
        assert f'oncemesh_queue_{name}{{queue="queue/figures"}} {count}.0\n' in told
    assert 'oncemesh_set_oldest_message_seconds{set="q0"}' in told
    assert "oncemesh_queue_messages{" not in (await ask(mesh.http(follower), "/metrics")).text
    consumer.link.flow(2)
    await clients.until(lambda: len(consumer.received) == 5)
    for delivery in consumer.received[2:]:
        delivery.accept()
    await clients.until(lambda: len(consumer.settled) == 5)


async def test_messages_are_looked_at_purged_and_expire(own_mesh: RunningMesh, clients: Clients) -> None:
    """A consumer has one of them, gives it back, and is not offered it again. The audit misses nothing."""

    async def queue(*words: str) -> str:
        command = [*COMMAND_LINE, "queue", *words, "--url", f"amqp://{own_mesh.address('c')}"]
        return (await trio.run_process(command, capture_stdout=True)).stdout.decode()

    publisher = await clients.publisher(own_mesh.address("a"), "queue/purged")
    await fill(clients, publisher, 5)
    consumer = await clients.subscriber(own_mesh.address("b"), "queue/purged", credit=1, respond=hold, makes_up=False)
    await clients.until(lambda: consumer.numbers == [0])
    rows = json.loads(await queue("peek", "queue/purged", "--count", "2", "--json"))
    assert [(row["message"]["body"], row["consumer"] is None) for row in rows] == [("0", False), ("1", True)]
    assert await queue("purge", "queue/purged") == "queue queue/purged: 4 messages purged\n"
    publisher.send_message(write_message({"header": {"ttl": 500}, "data": b"9"}))

    async def has_expired() -> bool:
        row = json.loads(await queue("show", "queue/purged", "--json"))
        return (row["expired"], row["messages"]) == (1, 1)

    await clients.until(lambda: len(publisher.accepted) == 6)
    await eventually(has_expired)
    publisher.send(b"5")
    consumer.received[0].give(RELEASED)
    consumer.link.flow(5)
    await clients.until(lambda: consumer.numbers == [0, 5])
    consumer.received[1].accept()
    await clients.until(lambda: len(consumer.settled) == 2)
    assert await queue("peek", "queue/purged") == "no messages\n"
    await check_exactly_once(own_mesh)


async def test_a_released_message_goes_to_a_consumer_again(mesh: RunningMesh, clients: Clients) -> None:
    await fill(clients, await clients.publisher(mesh.address("a"), "queue/back"), 1)
    states = [RELEASED, RELEASED, ACCEPTED]

    def respond(delivery: Delivery) -> None:
        delivery.give(states.pop(0))

    consumer = await clients.subscriber(mesh.address("c"), "queue/back", credit=10, respond=respond)
    await clients.until(lambda: not states)
    assert consumer.numbers == [0, 0, 0]


async def test_the_next_consumer_reads_what_became_of_a_message_before(mesh: RunningMesh, clients: Clients) -> None:
    """How often consumers have failed, and what they have added. One says that it has failed, one wants the message no
    more, and one goes with it."""
    publisher = await clients.publisher(mesh.address("a"), "queue/failed")
    publisher.send_message(bytes(Message(body=b"0", inferred=True, first_acquirer=True).encode()))
    await clients.until(lambda: publisher.accepted == [0])

    def fail(delivery: Delivery) -> None:
        failed = len(delivery.subscriber.received) == 1
        added = {"x-opt-failed" if failed else "x-opt-refused": 1}
        link = delivery.subscriber.link
        link.modify(delivery.handle, failed=failed, undeliverable=not failed, settle=True, annotations=added)
        delivery.subscriber.link.connection.wake()

    first = await clients.subscriber(mesh.address("b"), "queue/failed", "first", respond=fail)
    await clients.until(lambda: len(first.received) == 2)
    second = await clients.subscriber(mesh.address("c"), "queue/failed", "second", respond=hold)
    await clients.until(lambda: len(second.received) == 1)
    client_of(second).vanish()
    third = await clients.subscriber(mesh.address("a"), "queue/failed", "third")
    await clients.until(lambda: len(third.settled) == 1)
    found = [seen(delivery) for consumer in (first, second, third) for delivery in consumer.received]
    assert [message.delivery_count for message in found] == [0, 1, 1, 2]
    assert [message.first_acquirer for message in found] == [True, False, False, False]
    both = {"x-opt-failed": 1, "x-opt-refused": 1}
    assert [message.annotations or {} for message in found] == [{}, {"x-opt-failed": 1}, both, both]
    assert len(first.received) == 2 and third.numbers == [0]


async def test_a_rejected_message_is_gone(mesh: RunningMesh, clients: Clients) -> None:
    await fill(clients, await clients.publisher(mesh.address("a"), "queue/rejected"), 2)
    states = [REJECTED, ACCEPTED]
    consumer = await clients.subscriber(
        mesh.address("b"), "queue/rejected", respond=lambda delivery: delivery.give(states.pop(0))
    )
    await clients.until(lambda: len(consumer.settled) == 2)
    assert consumer.numbers == [0, 1]


async def test_dead_letters_come_once_though_the_leader_is_killed_and_go_back(
    own_mesh: RunningMesh, clients: Clients
) -> None:
    """They say where they are from, why, and how often. The audit misses nothing."""
    leader, follower = await roles(own_mesh)

    async def queue(*words: str) -> str:
        command = [*COMMAND_LINE, "queue", *words, "--url", f"amqp://{own_mesh.address(follower)}"]
        return (await trio.run_process(command, capture_stdout=True)).stdout.decode()

    await queue("declare", "queue/work", "--dead-letter", "queue/dead", "--redeliveries", "0")
    with pytest.raises(subprocess.CalledProcessError):
        await queue("configure", "queue/work", "--dead-letter", "queue/work")
    publisher = await clients.publisher(own_mesh.address(follower), "queue/work")
    publisher.send_message(write_message({"header": {"ttl": 500}, "data": b"99"}))

    async def has_died() -> bool:
        return bool(json.loads(await queue("show", "queue/work", "--json"))["dead"] == 1)

    await eventually(has_died)
    states = [REJECTED] * 100
    consumer = await clients.subscriber(
        own_mesh.address(follower),
        "queue/work",
        respond=lambda delivery: delivery.give(states.pop() if states else ACCEPTED),
    )
    for number in range(50):
        publisher.send(b"%d" % number)
    await clients.until(lambda: len(consumer.settled) > 5)
    own_mesh.signal(leader, SIGKILL)
    await own_mesh.ending(leader)
    await own_mesh.start(leader)

    async def are_there() -> bool:
        return bool(json.loads(await queue("show", "queue/dead", "--json"))["messages"] == 51)

    await eventually(are_there)
    rows = json.loads(await queue("peek", "queue/dead", "--count", "100", "--json"))
    assert Counter(int(row["message"]["body"]) for row in rows) == Counter([99, *range(50)])
    said = {row["message"]["body"]: row["message"]["message-annotations"] for row in rows}
    assert all(one.pop(DEAD_AT) for one in said.values())
    about = {DEAD_FROM: "queue/work", DEAD_FIRST: "queue/work", DEATHS: 1}
    assert said["0"] == {**about, DEAD_WHY: "rejected"} and said["99"] == {**about, DEAD_WHY: "expired"}
    states.clear()
    told = await queue("retry", "queue/dead")
    assert told == "queue queue/dead: 51 messages went back, 0 stayed\n"
    await clients.until(lambda: {99, *range(50)} <= {*consumer.numbers[-51:]})
    await check_exactly_once(own_mesh)


async def test_a_publisher_reads_that_a_queue_is_full(mesh: RunningMesh, clients: Clients) -> None:
    async with Management([f"amqp://{mesh.address('b')}"]) as management:
        await management.ask("CREATE", None, {"limitMessages": 1}, type=DECLARED_QUEUE.managed, name="queue/full")
    publisher = await clients.publisher(mesh.address("c"), "queue/full")
    publisher.send(b"0")
    publisher.send(b"1")
    await clients.until(lambda: len(publisher.outcomes) == 2)
    assert publisher.accepted == [0] and publisher.outcomes[1].condition == RESOURCE_LIMIT, publisher.outcomes
    consumer = await clients.subscriber(mesh.address("a"), "queue/full")
    await clients.until(lambda: len(consumer.settled) == 1)


async def test_messages_come_to_a_queue_by_the_anonymous_terminus(mesh: RunningMesh, clients: Clients) -> None:
    publisher = await clients.publisher(mesh.address("b"), "")
    publisher.send_message(write_message({"properties": {"to": "queue/anonymous"}, "data": b"7"}))
    await clients.until(lambda: publisher.accepted == [0])
    consumer = await clients.subscriber(mesh.address("a"), "queue/anonymous")
    await clients.until(lambda: consumer.numbers == [7])


async def test_clients_of_mqtt_publish_to_queues(mesh: RunningMesh, clients: Clients) -> None:
    async with await client(mesh, "b") as stream:
        assert await answer(stream, by_hand.connect("writes")) == (PacketKind.CONNACK, 0)
        await stream.send_all(by_hand.subscribe(1, [("queue/mqtt", 1)]))
        assert (await stream.receive_some())[-1] == Reason.IMPLEMENTATION
        assert (await answer(stream, by_hand.publish("queue/mqtt", b"5", 1, 2)))[0] is PacketKind.PUBACK
        assert (await answer(stream, by_hand.publish("queue/mqtt", b"6", 2, 3)))[0] is PacketKind.PUBREC
        await stream.send_all(by_hand.publish("queue/mqtt", b"4", 0))
        consumer = await clients.subscriber(mesh.address("c"), "queue/mqtt")
        await clients.until(lambda: sorted(consumer.numbers) == [4, 5, 6])


@pytest.mark.parametrize(
    ("address", "condition"),
    [("queue/#", NOT_IMPLEMENTED), ("queue/*/x", NOT_IMPLEMENTED), (f"queue/{'x' * MOST_NAME}", INVALID_FIELD)],
)
async def test_an_address_that_no_queue_has_is_refused(
    mesh: RunningMesh, clients: Clients, address: str, condition: str
) -> None:
    connection = await clients.connect(mesh.address("a"), "odd")
    consumer, publisher = connection.subscriber(address, "in"), connection.publisher(address, "out")
    await clients.until(lambda: consumer.detached is not None and publisher.detached is not None)
    assert consumer.detached is not None and consumer.detached.name == condition
    assert publisher.detached is not None


@pytest.mark.parametrize("address", ["_sets/q0/in/queue/x", "_sets/q0/out/queue/x", "_sets/q0/in/#"])
async def test_no_client_attaches_to_an_address_inside_a_set(mesh: RunningMesh, clients: Clients, address: str) -> None:
    ours = "only replica sets have the container-id"
    for container, why in (("odd", "no node"), ("_sets", ours), ("_sets/q0", ours)):
        connection = await clients.connect(mesh.address("a"), container)
        consumer = connection.subscriber(address, "q0")
        await clients.until(lambda: consumer.detached is not None)  # noqa: B023
        assert consumer.detached is not None and why in consumer.detached.description


async def publish_all(urls: list[str], run: Path, address: str = KILLED) -> None:
    with SqliteStore(run / "p.db") as store:
        options: Options = {"store": store, "log": run / "clients" / "p" / "log"}
        async with LastingPublisher(urls, address, container="p", link="out", **options) as publisher:
            handles = [await publisher.send(b"%d" % number) for number in range(COUNT)]
            assert {await handle.outcome() for handle in handles} == {Outcome.ACCEPTED}


@pytest.mark.parametrize("victims", ["leader", "follower", "both", "all"])
async def test_nothing_is_lost_or_doubled_though_routers_are_killed(own_mesh: RunningMesh, victims: str) -> None:
    """Clients that resume publish and consume meanwhile."""
    leader, follower = await roles(own_mesh)
    killed = {"leader": [leader], "follower": [follower], "both": [leader, follower], "all": ["a", "b", "c"]}[victims]
    urls = [f"amqp://{own_mesh.address(name)}" for name in own_mesh.routers]
    had: Counter[bytes] = Counter()
    begun, run = trio.Event(), own_mesh.directory.path

    async def consume() -> None:
        with SqliteStore(run / "c.db") as store:
            options: Options = {"store": store, "log": run / "clients" / "c" / "log"}
            async with LastingSubscriber(urls, KILLED, container="c", link="in", **options) as consumer:
                async for delivery in consumer:
                    had[body_of(delivery.message)] += 1
                    await delivery.accept()
                    if len(had) == COUNT // 10:
                        begun.set()
                    if len(had) == COUNT:
                        consumer.end()
                        break

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish_all, urls, run)
        nursery.start_soon(consume)
        await begun.wait()
        for name in killed:
            own_mesh.signal(name, SIGKILL)
        for name in killed:
            await own_mesh.ending(name)
        for name in killed:
            await own_mesh.start(name)
    assert had == Counter(b"%d" % number for number in range(COUNT))
    await check_exactly_once(own_mesh)


async def test_a_bound_queue_has_what_the_topic_had_though_its_leader_is_killed(own_mesh: RunningMesh) -> None:
    """A publisher of the topic that resumes, a subscriber of it, and a consumer of the queue."""
    leader, follower = await roles(own_mesh)
    urls = [f"amqp://{own_mesh.address(name)}" for name in (follower, *own_mesh.routers)]
    queue, topic, run = {"type": DECLARED_QUEUE.managed, "name": "queue/bound"}, "topic/bound", own_mesh.directory.path
    async with Management(urls) as management:
        with pytest.raises(RefusedError, match="which is of kind queue, expected a topic"):
            await management.ask("CREATE", None, {"bind": ["queue/x"]}, **queue)
        await management.ask("CREATE", None, {"bind": ["topic/bo*/#", topic]}, **queue)
    had: dict[str, Counter[bytes]] = {topic: Counter(), "queue/bound": Counter()}
    begun = trio.Event()

    async def is_bound() -> bool:
        """All routers know that the leader has a subscriber of the topic, and the client's is elsewhere."""
        named = {"type": ADDRESS.managed, "name": f"M0{topic}"}
        rows = {name: await management.ask("READ", name, **named) for name in own_mesh.routers}
        there = rows.pop(leader)["subscriberCount"] == 1
        return there and all(leader in row["remoteHostRouters"] for row in rows.values())

    async def take(address: str, *, task_status: trio.TaskStatus[None]) -> None:
        with SqliteStore(run / f"{address[:5]}.db") as store:
            options: Options = {"store": store, "log": run / "clients" / address[:5] / "log"}
            async with LastingSubscriber(urls, address, container=address[:5], link="in", **options) as consumer:
                task_status.started()
                async for delivery in consumer:
                    had[address][body_of(delivery.message)] += 1
                    await delivery.accept()
                    if len(had[address]) == COUNT // 10:
                        begun.set()
                    if len(had[address]) == COUNT:
                        consumer.end()
                        break

    async with trio.open_nursery() as nursery:
        for address in had:
            await nursery.start(take, address)
        async with Management(urls) as management:
            await eventually(is_bound)
        nursery.start_soon(publish_all, urls[1:], run, topic)
        await begun.wait()
        own_mesh.signal(leader, SIGKILL)
        await own_mesh.ending(leader)
        await own_mesh.start(leader)
    expected = Counter(b"%d" % number for number in range(COUNT))
    assert [*had.values()] == [expected, expected]
    await check_exactly_once(own_mesh)


def browsed(address: Address, queue: str, count: int, *options: ReceiverOption) -> tuple[list[bytes], list[bool]]:
    """What a client of proton sees that browses a queue and drains, with credit for this many messages; and whether it
    was sent settled."""
    bodies, settled = list[bytes](), list[bool]()
    connection = BlockingConnection(f"amqp://{address}", timeout=HANGS_S)
    try:
        fetcher = Fetched(bodies, settled)
        receiver = connection.create_receiver(queue, credit=0, handler=fetcher, options=[Copy(), *options])
        assert receiver.link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY
        receiver.link.drain(count)
        connection.wait(lambda: receiver.link.credit == 0, msg="drained")
    finally:
        connection.close()
    return bodies, settled


class Fetched(MessagingHandler):
    def __init__(self, bodies: list[bytes], settled: list[bool]) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._bodies, self._settled = bodies, settled

    def on_message(self, event: Event) -> None:
        self._bodies.append(bytes(event.message.body))
        assert event.delivery is not None
        self._settled.append(event.delivery.settled)


@pytest.mark.parametrize("router", [*"abc"])
async def test_a_client_browses_a_queue(mesh: RunningMesh, clients: Clients, router: str) -> None:
    queue = f"queue/browsed-{router}"
    await fill(clients, await clients.publisher(mesh.address("a"), queue), 20)
    holder = await clients.subscriber(mesh.address("b"), queue, credit=5, respond=hold, makes_up=False)
    await clients.until(lambda: len(holder.received) == 5)
    expected = [b"%d" % number for number in range(20)]
    bodies, settled = await trio.to_thread.run_sync(browsed, mesh.address(router), queue, 100)
    assert bodies == expected and all(settled)
    bodies, _ = await trio.to_thread.run_sync(browsed, mesh.address(router), queue, 7)
    assert bodies == expected[:7]
    bodies, _ = await trio.to_thread.run_sync(browsed, mesh.address(router), queue, 7, Selector("amqp.durable"))
    assert bodies == [], "no message is durable"
    holder.link.flow(100)
    await clients.until(lambda: len(holder.received) == 20)
    assert holder.numbers == [*range(20)], "as if nobody had browsed"


async def test_temporary_queues_leave_nothing(mesh: RunningMesh) -> None:
    names = await trio.to_thread.run_sync(make_and_drop, str(mesh.address("b")), 20)
    assert len({*names}) == 20 and all(name.startswith("queue/_temporary/b/") for name in names)
    async with Management([f"amqp://{mesh.address('c')}"]) as management:

        async def are_gone() -> bool:
            rows = await management.query(DECLARED_QUEUE.managed, ("name",))
            return not [row for row in rows if row["name"] in names]

        await eventually(are_gone)


def kept_without_its_link(mesh: RunningMesh) -> list[str | None]:
    """A queue with the policy delete-on-no-messages. Its message stays when its link has gone; then another client
    takes it, and the queue goes."""
    here: Any = BlockingConnection(f"amqp://{mesh.address('a')}")
    there: Any = BlockingConnection(f"amqp://{mesh.address('b')}")
    try:
        sender = here.create_sender(None, options=OwnQueue(0x2D))
        name = sender.link.remote_target.address
        policy = sender.link.remote_target.properties
        policy.rewind()
        policy.next()
        granted = policy.get_dict()
        sender.send(Message("1"))
        sender.close()
        receiver = there.create_receiver(name)
        body = receiver.receive(HANGS_S).body
        receiver.accept()
        return [name, body, str(granted)]
    finally:
        here.close()
        there.close()


async def test_a_temporary_queue_may_outlive_its_link(mesh: RunningMesh) -> None:
    name, body, granted = await trio.to_thread.run_sync(kept_without_its_link, mesh)
    assert body == "1" and granted is not None and str(0x2D) in granted
    async with Management([f"amqp://{mesh.address('c')}"]) as management:

        async def is_gone() -> bool:
            rows = await management.query(DECLARED_QUEUE.managed, ("name",))
            return not [row for row in rows if row["name"] == name]

        await eventually(is_gone)
