"""What the node of a router and the store of its replica sets have to do with each other."""

import logging
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from linkstate.clock import HybridClock
from router.edge.ttl import left_ms
from router.management.queues import SetRequests
from router.mesh.config import Topology
from router.mesh.errors import RunError
from router.mesh.topology import load
from router.queues.replicas import RouterReplicas, open_store
from router.queues.store import STORE
from tests.hangs import HANGS_S
from topic.core import Topic
from topic.journal import Block
from topic.queues.actions import Tell
from topic.queues.storing import Write
from topic.raft.life import SetLife
from topic.raft.log import Entry
from topic.raft.messages import Hard, Persist
from topic.settings import Settings

MESH = """\
mesh: one
routers: {a: {amqp: 127.0.0.1:0}}
addresses: [{prefix: queue/, kind: queue}]
queues: {sets: 1}
"""
WRITE = Write("q0", Persist(1, Hard(SetLife(7, "a"), b"map"), (), None, 1, (Entry(0, b"1"),)))


def topology(folder: Path, text: str = MESH) -> Topology:
    path = folder / "mesh.yaml"
    path.write_text(text)
    return load(path)


def topic() -> Topic:
    return Topic("a", 1, {"a"}, HybridClock(), Block("a", "router", 1), Settings(), trio.current_time(), ())


class HearingNode:
    """A node, as far as the writer tells it what is done."""

    def __init__(self) -> None:
        self.stored_writes: list[Write] = []

    def stored(self, write: Write) -> None:
        self.stored_writes.append(write)


class Owner:
    """A process, as far as the sets look at it."""

    def __init__(self) -> None:
        self.node: Any = HearingNode()
        self.steps: list[int] = []
        """How many writes had been heard of at each."""
        self.stepped = trio.Event()

    def step(self) -> None:
        self.steps.append(len(self.node.stored_writes))
        self.stepped.set()


async def test_what_the_node_asks_is_stored_and_the_node_hears_of_a_transaction_at_once(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    owner = Owner()
    with open_store(topology(tmp_path), "a", tmp_path) as store:
        replicas = RouterReplicas(owner, store, SetRequests())
        replicas.keep([WRITE])
        nursery.start_soon(replicas.run)
        with trio.fail_after(HANGS_S):
            await owner.stepped.wait()
        nursery.cancel_scope.cancel()
    assert (owner.node.stored_writes, owner.steps) == ([WRITE], [1])
    with open_store(topology(tmp_path), "a", tmp_path) as store:
        assert store.contents["q0"].content.hard == Hard(SetLife(7, "a"), b"map")


async def test_what_was_set_aside_is_warned_of(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / STORE).write_bytes(b"no database" * 1000)
    with open_store(topology(tmp_path), "a", tmp_path) as store:
        replicas = RouterReplicas(Owner(), store, SetRequests())
        nursery.start_soon(replicas.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "all replica sets begin anew here, and the former file is set aside" in record.getMessage()


async def test_a_store_whose_sets_have_other_queues_is_refused(tmp_path: Path) -> None:
    with open_store(topology(tmp_path), "a", tmp_path) as store:
        store.write([WRITE])  # the set has begun under another map of names
    with open_store(topology(tmp_path), "a", tmp_path) as store:
        replicas = RouterReplicas(Owner(), store, SetRequests())
        with pytest.raises(RunError, match=r"cannot start its replica sets: set q0: .* otherwise than when"):
            replicas.port(topology(tmp_path), topic(), {"a"}, left_ms)


async def test_the_sets_start_with_what_the_store_has(tmp_path: Path) -> None:
    with open_store(topology(tmp_path), "a", tmp_path) as store:
        port = RouterReplicas(Owner(), store, SetRequests()).port(topology(tmp_path), topic(), {"a"}, left_ms)
    port.sets.flush(trio.current_time())
    assert [view.name for view in port.sets.overview()] == ["q0"]
    assert not any(isinstance(action, Tell) for action in port.sets.out), "nobody is in contact"
