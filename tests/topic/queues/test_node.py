"""The node carries what the sets of a router say, and gives their changes to the store (`topic.node`)."""

from collections import deque
from collections.abc import Sequence

import pytest

from linkstate.clock import HybridClock
from linkstate.mesh_actions import ContactLost, Loss, Transmit
from tests.contacts import Contacts
from tests.deaf import Deaf
from tests.failures import TextMarking
from tests.set_store import MemorySets, StoreNames
from tests.store import MemoryStore
from topic.actions import LinkAction, Note
from topic.core import Topic
from topic.journal import Block
from topic.node import Happening, Node, SetPort
from topic.queues.actions import Answered, BodiesFound
from topic.queues.operations import Answer, Declare, Done, Refused, RefusedFor
from topic.queues.set_map import SetMap, SetPlan
from topic.queues.sets import ReplicaSets
from topic.queues.storing import StoreChange, StoreRead, Write
from topic.queues.wire import SETS
from topic.raft.limits import RaftLimits
from topic.settings import Settings

MAP = SetMap([SetPlan("q0", ("a",))])
STORES = StoreNames()


class Station(TextMarking, Deaf):
    """A router with its shell, which has the disk write when a test says so."""

    def __init__(self, name: str, *, sets: bool = True) -> None:
        self.name = name
        self.time = 0.0
        self.said: deque[bytes] = deque()
        self.given: list[list[StoreChange | StoreRead]] = []
        self.answers: dict[int, Answer] = {}
        self.notes: list[Happening] = []
        self.disk = MemorySets(STORES.parts(MAP.plans))
        self.contacts = Contacts(lambda _, payload: self.said.append(payload))
        clock = HybridClock(1)
        topic = Topic(name, 1, ("a", "b"), clock, Block(name, "router", 1), Settings(), 0.0, ())
        replicas = ReplicaSets(
            name, MAP, ("a", "b"), self.disk.contents, RaftLimits(), lambda: 0.5, clock.stamp, STORES, 0.0
        )
        self.node = Node(self.contacts, topic, MemoryStore(), self, SetPort(replicas, self) if sets else None)
        self.node.pump()

    def wall_us(self) -> int:
        return 1_700_000_000_000_000

    def now(self) -> float:
        return self.time

    def perform(self, action: LinkAction) -> None:
        raise AssertionError("there are no clients")

    def transmit(self, action: Transmit) -> None:
        raise AssertionError("there are no neighbours, only contacts")

    def flush(self) -> None:
        """Payloads wait in `said`."""

    def note(self, happening: Happening) -> None:
        self.notes.append(happening)

    def keep(self, changes: Sequence[StoreChange | StoreRead]) -> None:
        self.given.append(list(changes))

    def answered(self, answered: Answered) -> None:
        self.answers[answered.number] = answered.answer

    def found(self, found: BodiesFound) -> None:
        raise AssertionError("nothing is read")

    def write(self) -> None:
        """The disk does all that it was given."""
        while self.given:
            for change in self.given.pop(0):
                assert isinstance(change, Write)
                self.disk.write([change])
                self.node.stored(change)
            self.node.pump()

    def wait(self) -> None:
        """Time goes on to the deadline."""
        self.time = max(self.time, self.node.deadline())
        self.node.handle_timer()
        self.node.pump()


def carry(one: Station, two: Station) -> None:
    """All that the routers have said arrives."""
    while one.said or two.said or one.given or two.given:
        for here, there in ((one, two), (two, one)):
            while here.said:
                there.contacts.received(here.name, here.said.popleft())
            there.node.pump()
        one.write()
        two.write()


def meet() -> tuple[Station, Station]:
    """a has the only voter, b no replica."""
    a, b = Station("a"), Station("b")
    for here, there in ((a, "b"), (b, "a")):
        here.contacts.made(there, 1)
        here.node.pump()
    carry(a, b)
    while a.time < 5:
        a.wait()
        carry(a, b)
    b.time = a.time
    return a, b


def test_a_request_goes_to_the_leader_and_its_answer_comes_back() -> None:
    a, b = meet()
    number = b.node.ask(Declare("queue/x"))
    b.node.pump()
    assert number not in b.answers
    carry(a, b)
    assert isinstance(b.answers[number], Done)
    sets = a.node.sets
    assert sets is not None and [queue.name for queue in sets.queues()] == ["queue/x"]


def test_the_changes_of_a_pump_are_given_to_the_store_at_once() -> None:
    a, _ = meet()
    for number in range(10):
        a.node.ask(Declare(f"queue/{number}"))
    a.node.pump()
    assert [len(changes) for changes in a.given] == [1]


def test_a_request_is_answered_when_its_time_is_over() -> None:
    b = Station("b")
    number = b.node.ask(Declare("queue/x"))
    b.node.pump()
    while number not in b.answers:
        b.wait()
        assert b.time <= 10.0
    answer = b.answers[number]
    assert isinstance(answer, Refused) and answer.reason is RefusedFor.NO_ANSWER


def test_a_router_that_breaks_the_protocol_of_sets_loses_its_contact() -> None:
    a, _ = meet()
    a.contacts.received("b", SETS + b"\xff")
    a.node.pump()
    (lost,) = [one for one in a.notes if isinstance(one, ContactLost)]
    assert lost.cause is Loss.BROKEN and "a message about sets begins with" in lost.reason
    sets = a.node.sets
    assert sets is not None and not sets._contacts


def test_a_mesh_without_queues_ignores_what_is_said_of_sets() -> None:
    """A router whose topology has queues, and another that was not restarted with it."""
    a = Station("a", sets=False)
    a.contacts.made("b", 1)
    a.contacts.received("b", SETS + b"\xff")
    a.node.pump()
    assert "b" in a.node.topic.directory.contacts and a.node.sets is None
    assert not any(isinstance(one, Note) for one in a.notes)
    with pytest.raises(ValueError, match="has no queues"):
        a.node.ask(Declare("queue/x"))
