"""What a router keeps of its events: from its log and from what happens to links, numbered, bounded, with names."""

import logging
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from router.amqp.format.codec import Raw
from router.amqp.format.message import sections_of
from router.edge.guard import Guard
from router.events.kind import EventKind, event
from router.management.agent import MOST_ROWS, Agent
from router.management.bounds import LONGEST
from router.management.recent_events import MOST_EVENTS, PER_MS, RecentEvents
from router.management.requests import Request
from router.mesh.config import Limits
from router.security.rules import Rules
from tests.router.test_node import DURABLE, CountingStore, P, S, boot
from topic.directory.entry import LinkEntry, Role, Status
from topic.identity import Epoch, link_name
from topic.restatement import restate

DOCUMENT = Path(__file__).parents[3] / "docs" / "management.md"
LOG = logging.getLogger("oncemesh.neighbours")


def told(events: RecentEvents) -> list[dict[str, Any]]:
    """All of them, without what each has."""
    common = ("sequence", "time", "router")
    return [{name: event[name] for name in event if name not in common} for event in events.since(0, 10**6)]


def test_lines_of_the_log_are_events_if_they_say_so_or_warn(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oncemesh")
    events = RecentEvents("a", 1)
    with CountingStore(path) as store, events.listening(boot(store)[0].topic.outlet):
        LOG.info("cannot reach router %s", "b")
        LOG.info("link to router %s is up", "b", extra=event(EventKind.NEIGHBOUR_UP, neighbour="b"))
        LOG.error("the disk\nis full")
    LOG.error("nobody listens")
    text = {"level": "error", "text": "the disk\\nis full"}
    assert told(events) == [{"kind": "neighbour-up", "neighbour": "b"}, {"kind": "warning", **text}]


def test_what_happens_to_links_is_told_with_their_names(path: Path) -> None:
    events = RecentEvents("a", 1)
    with CountingStore(path) as store:
        node, _ = boot(store)
        with events.listening(node.topic.outlet):
            link, later = object(), object()
            node.topic.attach_subscriber(S, link, node.now(), lifetime=DURABLE)
            stream = node.topic.attach_publisher(P, link, node.now())
            again = node.topic.attach_subscriber(S, later, node.now(), lifetime=DURABLE)
            node.topic.suspend_subscriber(again, later, node.now())
            restate(node.topic, None)  # the delivery log says it all again, and nothing has happened
            node.topic.detach_publisher(stream, node.now())
            node.topic.peers._unfenced("b", stream.publisher, Epoch(1, "b", 1))
    subscriber = {"role": "subscriber", **S.parts()}
    publisher = {"role": "publisher", **P.parts()}
    assert told(events) == [
        {"kind": "attached", **subscriber, "timeoutSeconds": 60},
        {"kind": "attached", **publisher, "timeoutSeconds": 0},
        {"kind": "attached", **subscriber, "timeoutSeconds": 60},
        {"kind": "suspended", **subscriber},
        {"kind": "detached", **publisher},
    ]


def test_a_link_that_comes_from_another_router_says_from_which(path: Path) -> None:
    events = RecentEvents("a", 1)
    with CountingStore(path) as store:
        node, _ = boot(store, "ab")
        node.topic.contact("b", 1, node.now())
        entry = LinkEntry(Role.SUBSCRIBER, link_name(S), S, Epoch(1, "b", 1), lifetime=DURABLE)
        node.topic.changes.follow(node.topic.directory.apply_section("b", 1, 1, [entry], []))
        with events.listening(node.topic.outlet):
            subscriber = node.topic.attach_subscriber(S, object(), node.now(), lifetime=DURABLE)
            node.topic.attach_subscriber(S, object(), node.now(), lifetime=DURABLE)
            node.topic.suspend_subscriber(subscriber, subscriber.link, node.now())
    link = {"role": "subscriber", **S.parts()}
    assert told(events) == [{"kind": "moved", **link, "former": "b"}, {"kind": "suspended", **link}]


def test_a_link_that_is_stolen_or_expires_elsewhere_is_told_of(path: Path) -> None:
    events = RecentEvents("a", 1)
    with CountingStore(path) as store:
        node, _ = boot(store, "ab")
        topic, directory = node.topic, node.topic.directory
        topic.contact("b", 1, node.now())
        topic.attach_subscriber(S, object(), node.now(), lifetime=DURABLE)
        known = directory.subscriber(link_name(S))
        assert known is not None
        later = LinkEntry(Role.SUBSCRIBER, link_name(S), S, Epoch(known.epoch.hlc + 1, "b", 1), lifetime=DURABLE)
        with events.listening(topic.outlet):
            topic.changes.follow(directory.apply_delta("b", 1, later.epoch.hlc, [later]))
            ended = attrs.evolve(later, status=Status.EXPIRED, ending="accepted without it")
            topic.changes.follow(directory.apply_delta("b", 2, ended.epoch.hlc, [ended]))
    link = {"role": "subscriber", **S.parts()}
    assert told(events) == [
        {"kind": "stolen", **link, "peer": "b"},
        {"kind": "expired", **link, "why": "accepted without it"},
    ]


def test_a_limit_that_somebody_exceeds_is_told_of(path: Path) -> None:
    events = RecentEvents("a", 1)
    with CountingStore(path) as store, events.listening(boot(store)[0].topic.outlet):
        Guard(Rules({}, Limits(), ()), Limits()).exceed("links", "a peer", "more than 1000")
    assert told(events) == [{"kind": "limit", "limit": "links", "origin": "a peer", "why": "more than 1000"}]


def test_batches_of_one_zombie_that_are_dropped_are_one_event(path: Path) -> None:
    events = RecentEvents("a", 1)
    with CountingStore(path) as store:
        node, _ = boot(store, "ab")
        node.topic.contact("b", 1, node.now())
        stream = node.topic.attach_publisher(P, object(), node.now())
        with events.listening(node.topic.outlet):
            for former in (1, 1, 2, 2):
                node.topic.peers._unfenced("b", stream.publisher, Epoch(former, "b", 1))
    assert told(events) == 2 * [{"kind": "fenced", "role": "publisher", **P.parts(), "peer": "b"}]


def test_numbers_have_no_gap_and_go_on_in_the_next_life() -> None:
    first, next_life = RecentEvents("a", 1_700_000_000_000), RecentEvents("a", 1_700_000_000_100)
    for _ in range(MOST_EVENTS + 5):
        first.tell(EventKind.PLAN, {"why": "x" * 1000})
    kept = first.since(0, MOST_EVENTS + 5)
    assert len(kept) == MOST_EVENTS and len(kept[0]["why"]) == LONGEST
    assert [event["sequence"] - 1_700_000_000_000 * PER_MS for event in kept] == [*range(6, MOST_EVENTS + 6)]
    assert first.since(kept[-3]["sequence"], 10) == kept[-2:] and first.since(kept[3]["sequence"], 2) == kept[4:6]
    assert first.since(kept[-1]["sequence"], 10) == first.since(2**53, 10) == []
    next_life.tell(EventKind.BOOT, {"incarnation": 2, "why": None})
    [event] = next_life.since(kept[-1]["sequence"], 10)
    assert event == {
        "sequence": event["sequence"],
        "time": event["time"],
        "router": "a",
        "kind": "boot",
        "incarnation": 2,
    }
    assert event["sequence"] < 2**53


async def test_events_are_asked_for_in_pages(autojump_clock: MockClock) -> None:
    events = RecentEvents("a", 1)
    for number in range(MOST_ROWS + 20):
        events.tell(EventKind.NEIGHBOUR_UP, {"neighbour": str(number)})
    agent = Agent([], list, events, lambda: b"{}", lambda _: Raw(b""), _at_once)
    seen: list[str] = []
    since = 0
    for expected in (MOST_ROWS, 20, 0):
        asked = {"operation": "GET-EVENTS", "since": since, "limit": 10_000}
        answer = dict(sections_of(await agent.answer(Request("reply", None, asked, None))))
        assert answer[0x74]["statusCode"] == 200 and len(answer[0x77]) == expected
        seen += [happened["neighbour"] for happened in answer[0x77]]
        since = answer[0x77][-1]["sequence"] if answer[0x77] else since
    assert seen == [str(number) for number in range(MOST_ROWS + 20)]


async def _at_once() -> None:
    pass


def test_the_document_has_every_kind() -> None:
    events = DOCUMENT.read_text().partition("## Events")[2]
    named = {kind for row in re.findall(r"^\| (`.*?) \|", events, re.MULTILINE) for kind in re.findall(r"[\w-]+", row)}
    assert named == {kind.value for kind in EventKind}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"
