"""The loop of one router: what it says is written down before anybody can hear it."""

from pathlib import Path

import pytest
import trio

from linkstate.clock import COUNTER_BITS
from linkstate.events import Transmit
from router.node import Node
from router.store import StateStore
from topic.actions import AnswerSubscriber, LinkAction
from topic.core import Settings
from topic.directory import Entry, Lifetime
from topic.identity import LinkIdentity
from topic.journal import Block

S = LinkIdentity("s", "link", "topic/x")
DURABLE = Lifetime(60, "connection-close", 2)


class Ends:
    """Stands for the links to clients and to neighbours."""

    def __init__(self) -> None:
        self.actions: list[LinkAction] = []
        self.flushed: list[int] = []
        """How many writes of the store had been made."""
        self.store: CountingStore

    def perform(self, action: LinkAction) -> None:
        self.actions.append(action)

    def transmit(self, action: Transmit) -> None:
        raise AssertionError("there is no neighbour")

    def flush(self) -> None:
        self.flushed.append(len(self.store.saves))


class CountingStore(StateStore):
    def __init__(self, path: Path) -> None:
        super().__init__(path, "mesh", "a")
        self.saves: list[list[Entry]] = []

    def save(self, changed: list[Entry], clock: int) -> None:  # type: ignore[override]
        self.saves.append(list(changed))
        super().save(changed, clock)


def boot(store: CountingStore) -> tuple[Node, Ends]:
    ends = Ends()
    ends.store = store
    block = Block("a", "router", 1)
    node = Node("a", store.begin(1), ["a"], {}, block, Settings(), store, hello=0.2, dead=1.0)
    node.clients = node.neighbours = ends
    return node, ends


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def test_a_durable_link_is_in_the_store_before_anything_leaves(path: Path) -> None:
    with CountingStore(path) as store:
        node, ends = boot(store)
        node.pump()  # reserves the clock
        before = len(store.saves)
        node.topic.attach_subscriber(S, object(), node.now(), lifetime=DURABLE)
        node.pump()
        assert [entry.identity for entry in store.saves[before]] == [S]
        assert ends.flushed[-1] == before + 1
        assert isinstance(ends.actions[-1], AnswerSubscriber)


async def test_what_is_not_durable_costs_no_write(path: Path) -> None:
    with CountingStore(path) as store:
        node, _ = boot(store)
        node.pump()
        before = len(store.saves)
        node.topic.attach_subscriber(S, object(), node.now(), lifetime=Lifetime(60, "connection-close", 0))
        node.pump()
        assert len(store.saves) == before


async def test_a_later_life_remembers_the_link_and_is_younger_than_all_it_named(path: Path) -> None:
    with CountingStore(path) as store:
        node, _ = boot(store)
        subscriber = node.topic.attach_subscriber(S, object(), node.now(), lifetime=DURABLE)
        node.pump()
        last = node.clock.read()
    with CountingStore(path) as store:
        again, _ = boot(store)
        remembered = again.topic.directory.subscriber(subscriber.name)
        assert remembered is not None and remembered.epoch == subscriber.epoch
        assert not again.topic.directory.in_contact(remembered)
        assert again.incarnation > node.incarnation
        assert again.clock.read() > last


async def test_a_clock_that_was_set_back_does_not_bring_old_epochs_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CountingStore(path) as store:
        node, _ = boot(store)
        node.pump()
        last = node.clock.read()
    monkeypatch.setattr("router.node.time.time_ns", lambda: 1_000_000_000)
    with CountingStore(path) as store:
        again, _ = boot(store)
        again.pump()
        assert again.clock.stamp() > last
        assert store.reserved > last + (1 << COUNTER_BITS)


async def test_a_router_without_neighbours_is_told_the_time_too(path: Path) -> None:
    with CountingStore(path) as store:
        node, _ = boot(store)
        assert node.deadline() <= trio.current_time() + 1.0
        node.handle_timer()
        assert node.deadline() <= trio.current_time() + 1.0
