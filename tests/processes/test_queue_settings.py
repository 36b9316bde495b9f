"""What clients of proton read of a queue with settings: exclusive, lock, pauses; and of times in messages (protocol
14.15, 14.17 to 14.19)."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from proton import Delivery, Message, symbol, timestamp
from proton.utils import BlockingConnection, LinkDetached

from tests.forks import COMMAND_LINE
from tests.hangs import HANGS_S
from tests.processes.mesh import RunningMesh, running
from tests.processes.test_queues import ONE_SET


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("queues", tmp_path_factory.mktemp("queues"), queues=ONE_SET) as found:
        yield found


def declare(mesh: RunningMesh, name: str, *settings: str) -> None:
    where = ["--run-dir", str(mesh.directory.path)]
    subprocess.run([*COMMAND_LINE, "queue", "declare", name, *settings, *where], check=True, capture_output=True)


@pytest.fixture
def connection(mesh: RunningMesh) -> Iterator[Any]:
    with closing(BlockingConnection(f"amqp://{mesh.address('b')}", timeout=HANGS_S)) as found:
        yield found


def send(connection: Any, queue: str, *messages: Message) -> None:
    sender = connection.create_sender(queue)
    for message in messages:
        sender.send(message)


def test_a_second_consumer_of_an_exclusive_queue_reads_that_it_is_locked(mesh: RunningMesh, connection: Any) -> None:
    declare(mesh, "queue/exclusive", "--exclusive")
    first = connection.create_receiver("queue/exclusive", credit=1)
    with closing(BlockingConnection(f"amqp://{mesh.address('c')}", timeout=HANGS_S)) as other:
        with pytest.raises(LinkDetached) as caught:
            other.create_receiver("queue/exclusive", credit=1).receive()
        assert caught.value.condition == "amqp:resource-locked"
    send(connection, "queue/exclusive", Message("1"))
    assert first.receive().body == "1"


def test_a_message_that_is_held_too_long_is_released_and_goes_to_another(mesh: RunningMesh, connection: Any) -> None:
    declare(mesh, "queue/locked", "--lock", "500ms")
    send(connection, "queue/locked", Message("1"))
    first = connection.create_receiver("queue/locked", credit=1)
    first.receive()
    [held] = first.fetcher.unsettled
    connection.wait(lambda: held.settled)
    assert held.remote_state == Delivery.RELEASED
    second = connection.create_receiver("queue/locked", credit=1, name="second")
    message = second.receive()
    second.accept()
    assert (message.body, message.delivery_count, message.first_acquirer) == ("1", 0, False)


def test_each_pause_after_a_failure_is_longer(mesh: RunningMesh, connection: Any) -> None:
    declare(mesh, "queue/pauses", "--retry-after", "200ms", "--retry-factor", "2")
    send(connection, "queue/pauses", Message("1"))
    consumer = connection.create_receiver("queue/pauses", credit=1)
    for failures, pause_s in enumerate((0.0, 0.2, 0.4)):
        began = time.monotonic()
        assert consumer.receive().delivery_count == failures
        assert time.monotonic() - began >= pause_s
        [delivery] = consumer.fetcher.unsettled
        delivery.local.failed = True
        consumer.settle(Delivery.MODIFIED)
        consumer.flow(1)


@pytest.mark.parametrize("outcome", [None, Delivery.RELEASED])
def test_what_is_settled_without_an_outcome_is_released(outcome: Any, mesh: RunningMesh, connection: Any) -> None:
    queue = f"queue/settled-{outcome}"
    send(connection, queue, Message("1"))
    consumer = connection.create_receiver(queue, credit=2)
    for _ in range(2):
        assert consumer.receive().delivery_count == 0
        consumer.settle(outcome)
        consumer.flow(1)


def due(value: Any) -> Message:
    return Message(str(value), annotations={symbol("x-opt-delivery-time"): value})


def test_only_a_time_in_the_future_holds_a_message_back(connection: Any) -> None:
    now_ms = int(1000 * time.time())
    soon, odd = timestamp(now_ms + 700), ["soon", None, 1.5, True, -1, 0, timestamp(-5), timestamp(now_ms - 1000)]
    send(connection, "queue/due", due(soon), *map(due, odd))
    consumer = connection.create_receiver("queue/due", credit=len(odd) + 1)
    came = {consumer.receive().body: 1000 * time.time() for _ in [*odd, soon]}
    assert came.pop(str(soon)) >= soon, "perhaps among the others, where sending takes long"
    assert [*came] == [str(value) for value in odd]


def test_the_answer_to_a_drain_tells_how_many_are_left(connection: Any) -> None:
    send(connection, "queue/left", *(Message(f"{number}") for number in range(5)))
    connection.create_receiver("queue/left", credit=2)
    drained = connection.create_receiver("queue/left", credit=0, name="drained")
    drained.link.drain(1)
    connection.wait(lambda: not drained.link.credit)
    drained.receive()
    drained.link.drain(1)
    connection.wait(lambda: not drained.link.credit)
    assert drained.link.available <= 2
