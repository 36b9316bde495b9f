"""What a router says of links and deliveries that wait for somebody."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from linkstate.clock import COUNTER_BITS
from router.amqp.format.values import StreamFigures
from router.edge.ends import ClientPublishingEnd
from router.entities.observed import ObservedRouter
from router.entities.report import status as status_of
from tests.router.observing import observed
from tests.router.test_node import DURABLE, CountingStore, P, S
from tests.router.test_node import boot as boot_node
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import State
from topic.directory.entry import Status
from topic.identity import LinkIdentity
from topic.node import Node

KEY = b"0123456789AB" + b"k" * 20


def boot(store: CountingStore, routers: str = "a") -> Node:
    node, _ = boot_node(store, routers)
    return node


class SeenEnd(ClientPublishingEnd[Any]):
    """Of a link whose connection has carried so much."""

    def __init__(self, carried: StreamFigures | None = None) -> None:
        self._connection = SimpleNamespace(measure=lambda: carried)

    @property
    def link(self) -> Any:
        return SimpleNamespace(connection=self._connection)

    @property
    def answers(self) -> bool:
        return True


def looked_at(node: Node, path: Path) -> ObservedRouter:
    node.pump()
    return observed(node, path.parent)


def status(node: Node, path: Path) -> dict[str, Any]:
    return status_of(looked_at(node, path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def test_links_that_only_the_store_remembers_are_orphans(path: Path) -> None:
    with CountingStore(path) as store:
        node = boot(store)
        node.topic.attach_subscriber(S, SeenEnd(), node.now(), lifetime=DURABLE)
        assert status(node, path)["orphans"] == []
    with CountingStore(path) as store:
        orphan = {"container": "s", "link": "link", "address": "topic/x", "router": "a", "timeout_s": 60}
        assert status(boot(store), path)["orphans"] == [{"role": "subscriber", **orphan}]


async def test_a_suspended_link_is_shown(path: Path) -> None:
    with CountingStore(path) as store:
        node, link = boot(store), SeenEnd()
        subscriber = node.topic.attach_subscriber(S, link, node.now(), lifetime=DURABLE)
        assert [one["status"] for one in status(node, path)["subscribers"]] == ["attached"]
        node.topic.suspend_subscriber(subscriber, link, node.now())
        seen = [(one["status"], one["timeout_s"]) for one in status(node, path)["subscribers"]]
        assert seen == [("suspended", DURABLE.timeout)]


async def test_a_link_tells_what_its_connection_has_carried_as_long_as_that_is_there(path: Path) -> None:
    with CountingStore(path) as store:
        node, link = boot(store), SeenEnd(StreamFigures(sent=2000, received=30, rtt_s=0.1))
        subscriber = node.topic.attach_subscriber(S, link, node.now(), lifetime=DURABLE)
        node.topic.attach_publisher(P, link, node.now())
        seen = status(node, path)
        assert [one["connection_bytes"] for one in seen["publishers"] + seen["subscribers"]] == [30, 2000]
        node.topic.suspend_subscriber(subscriber, link, node.now())
        assert [one["connection_bytes"] for one in status(node, path)["subscribers"]] == [None]


async def test_a_clock_that_is_set_and_one_that_is_ahead_are_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CountingStore(path) as store:
        node = boot(store)
        at, before = looked_at(node, path), time.time()
        monkeypatch.setattr(time, "time", lambda: before - 30.0)
        clock = node.topic.outlet.clock
        clock.advance(int(before * 1000))
        for ahead_s in (70.0, 9_000.0):
            clock.merge(int((before + ahead_s) * 1000) << COUNTER_BITS)
        told = status_of(at)["clock"]
    assert told["time"] == pytest.approx(before - 30.0, abs=0.001) and told["refused"] == 1
    assert told["moved_s"] == pytest.approx(-30.0, abs=5) and told["behind_s"] == pytest.approx(100.0, abs=0.01)


async def test_links_whose_names_read_alike_are_two(path: Path) -> None:
    with CountingStore(path) as store:
        node = boot(store)
        for container, link in (("p/q", "r"), ("p", "q/r")):
            node.topic.attach_publisher(LinkIdentity(container, link, "topic/x"), SeenEnd(), node.now())
        assert [(one["container"], one["link"]) for one in status(node, path)["publishers"]] == [
            ("p/q", "r"),
            ("p", "q/r"),
        ]


async def test_a_delivery_that_only_a_map_names_waits_for_its_publisher(path: Path) -> None:
    with CountingStore(path) as store:
        node = boot(store)
        node.topic.attach_subscriber(S, SeenEnd(), node.now(), lifetime=DURABLE, unsettled={KEY: 0})
        found = status(node, path)
        assert found["records"] == {"placeholder": 1, "unconfirmed": 0, "in_doubt": 0, "accepted": 0, "settled": 0}
        assert [wait["for"] for wait in found["waits"]] == ["publisher that no router knows"]
        assert [wait["publishers"] for wait in found["waits"]] == [["a publisher that no router knows"]]


async def test_a_subscriber_that_has_lapsed_is_shown_with_how_long_it_is_out_of_reach(path: Path) -> None:
    with CountingStore(path) as store:
        node = boot(store)
        node.topic.attach_subscriber(S, SeenEnd(), node.now(), lifetime=DURABLE)
        status(node, path)
    with CountingStore(path) as store:
        node = boot(store)
        node.topic.handle_timer(0.0)
        assert status(node, path)["lapsed"] == []
        (entry,) = node.topic.directory.entries()
        node.topic.directory.lapse(entry, node.topic.outlet.time_us - 61_000_000)
        lapsed = {"container": "s", "link": "link", "address": "topic/x", "router": "a", "since_s": 61.0}
        assert status(node, path)["lapsed"] == [lapsed]


async def test_a_subscriber_that_has_ended_and_does_not_know_is_shown_with_what_it_will_be_told(path: Path) -> None:
    with CountingStore(path) as store:
        node = boot(store)
        node.topic.attach_subscriber(S, SeenEnd(), node.now(), lifetime=DURABLE)
        status(node, path)
    with CountingStore(path) as store:
        node = boot(store)
        assert status(node, path)["untold"] == []
        (entry,) = node.topic.directory.entries()
        ended = node.topic.directory.mark(entry, Status.EXPIRED, "a accepted messages without it").entry
        untold = {"container": "s", "link": "link", "address": "topic/x", "ending": "a accepted messages without it"}
        assert status(node, path)["untold"] == [untold]
        node.topic.directory.mark(ended, Status.EXPIRED)
        assert status(node, path)["untold"] == []


async def test_what_waits_names_who_is_awaited_and_whose_deliveries_wait(path: Path) -> None:
    with CountingStore(path) as store:
        node = boot(store)
        node.topic.attach_subscriber(S, SeenEnd(), node.now(), lifetime=DURABLE)
        stream = node.topic.attach_publisher(P, SeenEnd(), node.now(), lifetime=DURABLE)
        node.topic.publish(stream, [b"1", b"2"], [b"one", b"two"], presettled=False)
        (wait,) = status(node, path)["waits"]
        held = {"for": f"subscriber {S}", "publishers": [str(P)], "records": 2}
        assert {name: wait[name] for name in held} == held


async def test_a_publisher_without_credit_is_shown_with_whom_it_is_held_for(path: Path, autojump_clock: object) -> None:
    with CountingStore(path) as store:
        node = boot(store)
        subscriber = node.topic.attach_subscriber(S, SeenEnd(), node.now(), lifetime=DURABLE)
        stream = node.topic.attach_publisher(P, SeenEnd(), node.now(), lifetime=DURABLE)
        at = looked_at(node, path)
        held = ("unsettled", "bytes", "credit", "held_for", "held_s")
        tags, messages = [b"%d" % number for number in range(512)], [bytes(16 << 10)] * 512  # the window, in bytes
        node.topic.publish(stream, tags, messages, presettled=False)
        node.pump()
        (publisher,) = status_of(at)["publishers"]
        assert [publisher[name] for name in held] == [512, 8 << 20, 0, [f"subscriber {S}"], 0.0]
        assert status_of(at)["message_bytes"] == 8 << 20
        await trio.sleep(2)
        node.topic.credit(subscriber, 512)
        node.topic.room(subscriber, 8 << 20)
        node.topic.outcomes(subscriber, list(stream.records.values()), DeliveryOutcome.ACCEPTED)
        (publisher,) = status_of(at)["publishers"]
        assert [publisher[name] for name in held] == [512, 8 << 20, 0, [f"publisher {P}, to settle"], 2.0]
        node.topic.settle(stream, list(stream.records.values()))
        (publisher,) = status_of(at)["publishers"]
        assert [publisher[name] for name in held] == [0, 0, 512, [], 0.0]


async def test_waits_under_load_are_young_and_one_that_lasts_grows_old(path: Path, autojump_clock: object) -> None:
    with CountingStore(path) as store:
        node = boot(store)
        subscriber = node.topic.attach_subscriber(S, SeenEnd(), node.now(), lifetime=DURABLE)
        stream = node.topic.attach_publisher(P, SeenEnd(), node.now(), lifetime=DURABLE)
        node.topic.credit(subscriber, 10)
        at = looked_at(node, path)
        for number in range(3):
            node.topic.publish(stream, [b"%d" % number], [b"message"], presettled=False)
            (wait,) = status_of(at)["waits"]
            assert (wait["records"], wait["since_s"]) == (1, 0.0)
            await trio.sleep(2)
            if number < 2:
                records = [one for one in stream.records.values() if one.state is State.IN_DOUBT]
                node.topic.outcomes(subscriber, records, DeliveryOutcome.ACCEPTED)
        (wait,) = status_of(at)["waits"]
        assert wait["since_s"] == 2.0


async def test_an_attach_that_waits_for_other_routers_says_for_whom(path: Path, autojump_clock: object) -> None:
    with CountingStore(path) as store:
        node = boot(store, "abc")
        node.topic.attach_publisher(S, object(), node.now(), lifetime=DURABLE, unsettled={b"tag": 0})
        at = looked_at(node, path)
        assert status_of(at)["attaches"] == {"waiting": 1, "for": ["b", "c"], "since_s": 0.0}
        await trio.sleep(2)
        assert status_of(at)["attaches"]["since_s"] == 2.0


@pytest.mark.parametrize("count", [0, 1])
async def test_a_sign_of_life_is_waited_for_by_who_has_something_to_be_given(path: Path, count: int) -> None:
    with CountingStore(path) as store:
        node = boot(store)
        stream = node.topic.attach_publisher(P, SeenEnd(), node.now(), lifetime=DURABLE)
        for _ in range(count):
            node.topic.publish(stream, [b"1"], [b"one"], presettled=False)
        link = SeenEnd()  # it has been elsewhere
        node.topic.attach_subscriber(S, link, node.now(), lifetime=DURABLE, unsettled={})
        awaited = [wait["for"] for wait in status(node, path)["waits"] if "alive" in wait["for"]]
        assert awaited == [f"publisher {P}, to show that it is alive, for subscriber {S}"] * count
