"""The loop of one router: what it says is written down before anybody can hear it."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import msgpack
import pytest

from linkstate.clock import COUNTER_BITS, HybridClock
from linkstate.mesh_actions import ContactLost, ContactMade, Transmit
from linkstate.plan.plan import Plan
from router.store import StateStore
from tests.contacts import Contacts
from tests.deaf import Deaf
from tests.plans import file
from tests.store import MemoryStore
from topic.actions import AnswerDeliveries, AnswerSubscriber, Credit, LinkAction, Note, SettleSubscriber
from topic.core import Topic
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Lifetime, LinkEntry
from topic.edge.subscriber import LocalSubscriber
from topic.errors import UnkeptError
from topic.identity import LinkIdentity
from topic.journal import Block
from topic.node import BESIDE, Happening, Node
from topic.node import boot as boot_cores
from topic.settings import Settings
from topic.wire.segments import Segment

S = LinkIdentity("s", "link", "topic/x")
P = LinkIdentity("p", "link", "topic/x")
DURABLE = Lifetime(60, "connection-close", 2)


class Ends(Deaf):
    """A shell: stands for the links to clients and to neighbours."""

    def __init__(self, wall_s: int) -> None:
        self.wall_s = wall_s
        self.actions: list[LinkAction] = []
        self.flushed: list[int] = []
        """How many writes of the store had been made."""
        self.store: CountingStore

    def wall_us(self) -> int:
        return self.wall_s * 1_000_000

    def now(self) -> float:
        return 0.0

    def perform(self, action: LinkAction) -> None:
        self.actions.append(action)

    def transmit(self, action: Transmit) -> None:
        raise AssertionError("there is no neighbour")

    def flush(self) -> None:
        self.flushed.append(len(self.store.saves))

    def note(self, happening: Happening) -> None:
        """But that an attach waits."""
        is_told = isinstance(happening, Note) and " waits: " in happening.text
        assert is_told, f"there is nothing to tell: {happening}"


class CountingStore(StateStore):
    def __init__(self, path: Path) -> None:
        super().__init__(path, "mesh", "a")
        self.saves: list[list[LinkEntry]] = []

    def save(self, changed: Iterable[LinkEntry], clock: int, plan: Plan | None = None, *, whole: bool = False) -> None:
        self.saves.append(entries := list(changed))
        super().save(entries, clock, plan, whole=whole)


def boot(store: CountingStore, routers: str = "a", wall_s: int = 1_700_000_000) -> tuple[Node, Ends]:
    ends = Ends(wall_s)
    ends.store = store
    plan = file(routers, *(f"a{router}" for router in routers if router != "a"))
    block = Block("a", "router", 1)
    cores = boot_cores("a", store.begin(1), plan, block, Settings(), store, ends, hello=0.2, max_payload=1 << 20)
    return Node(*cores, store, ends), ends


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_a_durable_link_is_in_the_store_before_anything_leaves(path: Path) -> None:
    with CountingStore(path) as store:
        node, ends = boot(store)
        node.pump()  # reserves the clock
        before = len(store.saves)
        node.topic.attach_subscriber(S, object(), node.now(), lifetime=DURABLE)
        node.pump()
        assert [entry.identity for entry in store.saves[before]] == [S]
        assert ends.flushed[-1] == before + 1
        assert isinstance(ends.actions[-1], AnswerSubscriber)


def test_what_is_not_durable_costs_no_write(path: Path) -> None:
    with CountingStore(path) as store:
        node, _ = boot(store)
        node.pump()
        before = len(store.saves)
        node.topic.attach_subscriber(S, object(), node.now(), lifetime=Lifetime(60, "connection-close", 0))
        node.pump()
        assert len(store.saves) == before


class FullStore(CountingStore):
    full = False

    def save(self, changed: Iterable[LinkEntry], clock: int, plan: Plan | None = None, *, whole: bool = False) -> None:
        if self.full:
            raise UnkeptError("state.db: full")
        super().save(changed, clock, plan, whole=whole)


def test_a_store_that_is_behind_is_written_anew_when_it_can_be(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FullStore(path) as store:
        node, ends = boot(store)
        told: list[Happening] = []
        monkeypatch.setattr(ends, "note", told.append)
        node.topic.attach_subscriber(S, object(), node.now(), lifetime=DURABLE)
        assert (node.save(), node.unkept) == (True, "")
        store.full = True
        link = SimpleNamespace(signs=SimpleNamespace(answers=True))
        node.topic.attach_publisher(P, link, node.now(), lifetime=DURABLE)
        node.pump()
        assert (node.save(), node.unkept) == (False, "state.db: full")
        node.handle_timer()
        assert (node.save(), node.unkept) == (False, "state.db: full")
        store.full = False
        node.handle_timer()
        assert (node.save(), node.unkept) == (True, "")
        assert told == [
            Note("state.db: full; the router refuses new durable links until it can store them"),
            Note("the router's state can be stored again"),
        ]
    with CountingStore(path) as later:
        assert {entry.identity for entry in later.remembered} == {S, P}


def test_a_later_life_remembers_the_link_and_is_younger_than_all_it_named(path: Path) -> None:
    with CountingStore(path) as store:
        node, _ = boot(store)
        subscriber = node.topic.attach_subscriber(S, object(), node.now(), lifetime=DURABLE)
        node.pump()
        last = node.topic.outlet.clock.read()
    with CountingStore(path) as store:
        again, _ = boot(store)
        remembered = again.topic.directory.subscriber(subscriber.name)
        assert remembered is not None and remembered.epoch == subscriber.epoch
        assert not again.topic.directory.in_contact(remembered)
        assert again.incarnation > node.incarnation
        assert again.topic.outlet.clock.read() > last


def test_a_clock_that_was_set_back_does_not_bring_old_epochs_back(path: Path) -> None:
    with CountingStore(path) as store:
        node, _ = boot(store)
        node.pump()
        last = node.topic.outlet.clock.read()
    with CountingStore(path) as store:
        again, _ = boot(store, wall_s=1)
        again.pump()
        assert again.topic.outlet.clock.stamp() > last
        assert store.reserved > last + (1 << COUNTER_BITS)


def test_a_router_without_neighbours_is_told_the_time_too(path: Path) -> None:
    with CountingStore(path) as store:
        node, _ = boot(store)
        assert node.deadline() <= 1.0
        node.handle_timer()
        assert node.deadline() <= 1.0


def test_a_router_that_says_nothing_to_others_keeps_no_message_that_is_settled(path: Path) -> None:
    with CountingStore(path) as store:
        node, ends = boot(store)
        subscriber = node.topic.attach_subscriber(S, object(), node.now())
        stream = node.topic.attach_publisher(P, object(), node.now())
        node.pump()
        node.topic.credit(subscriber, 1)
        [record] = node.topic.publish(stream, [b"tag"], [b"message"], presettled=False)
        node.pump()
        node.topic.outcomes(subscriber, [record], DeliveryOutcome.ACCEPTED)
        node.topic.settle(stream, [record])
        node.pump()
        assert [type(action) for action in ends.actions[-3:]] == [AnswerDeliveries, SettleSubscriber, Credit]
        assert record.message is None and not node.topic.records.settled


class Eager(Deaf):
    """A shell whose clients have given credit before their attach is answered."""

    def __init__(self) -> None:
        self.contacts = Contacts(lambda router, payload: None)
        self.store = MemoryStore()
        topic = Topic("a", 1, ["a", "b"], HybridClock(), Block("a", "router", 1), Settings(), 0.0)
        self.node = Node(self.contacts, topic, self.store, self)
        self.answered = 0
        self.noted: list[type[Happening]] = []

    def wall_us(self) -> int:
        return 1_700_000_000_000_000

    def now(self) -> float:
        return 0.0

    def perform(self, action: LinkAction) -> None:
        assert isinstance(action, AnswerSubscriber)
        self.answered += 1
        self.node.topic.credit(action.link[0], 1)
        self.node.perform()

    def transmit(self, action: Transmit) -> None:
        raise AssertionError("there is no neighbour")

    def flush(self) -> None:
        """Nobody listens."""

    def note(self, happening: Happening) -> None:
        self.noted.append(type(happening))


def test_many_attaches_are_answered_at_once() -> None:
    shell = Eager()
    shell.contacts.made("b", 1)
    shell.node.pump()
    for number in range(2000):
        link: list[LocalSubscriber] = []
        identity = LinkIdentity(f"s{number}", "link", "topic/x")
        link.append(shell.node.topic.attach_subscriber(identity, link, shell.node.now()))
        shell.node.perform()
    assert shell.answered == 0
    shell.contacts.lost("b")
    shell.node.pump()
    assert shell.answered == 2000


def test_of_a_router_that_broke_the_protocol_nothing_more_is_taken() -> None:
    shell = Eager()
    shell.contacts.made("b", 1)
    for payload in (b"", msgpack.packb([[Segment.SECTION, 1, 0, [], []]])):
        shell.contacts.received("b", payload)
    shell.node.pump()
    assert shell.noted == [ContactMade, ContactLost]
    assert not shell.node.topic.directory.contacts and shell.node.topic.boot.waiting_for == ["b"]
    shell.contacts.made("b", 1)
    shell.contacts.received("b", msgpack.packb([[Segment.SECTION, 1, 0, [], []]]))
    shell.node.pump()
    assert shell.node.topic.booted


def test_what_another_routers_shell_says_is_not_for_the_topics() -> None:
    shell = Eager()
    told: list[tuple[str, bytes]] = []
    shell.receive_from_shell = lambda router, payload: told.append((router, payload))  # type: ignore[method-assign]
    shell.contacts.made("b", 1)
    shell.contacts.received("b", BESIDE + b"hello")
    shell.node.pump()
    assert (told, shell.noted) == ([("b", b"hello")], [ContactMade])


def test_a_shell_that_takes_nothing_beside_the_topics_is_told_nothing() -> None:
    shell = Eager()
    shell.contacts.made("b", 1)
    shell.contacts.received("b", BESIDE + b"hello")
    shell.node.pump()
    assert shell.noted == [ContactMade, ContactLost]
