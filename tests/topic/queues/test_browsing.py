"""Clients that browse a queue see its messages, and change nothing (protocol 14.16).

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

from typing import Any
from unittest.mock import create_autospec, patch

import pytest

from tests.failures import TextMarking, marked
from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, QueueBench
from tests.topic.queues.test_bodies import ALL, answer, hold_reads, without_bodies
from tests.topic.queues.test_bodies import filled as filled_disk
from tests.topic.queues.test_egress import filled, plain
from topic.actions import Browsed, LinkAction
from topic.delivery.outcomes import DeliveryOutcome
from topic.outlet import Outlet
from topic.queues.browsing import browsing
from topic.queues.leader import pages
from topic.queues.leader.log import MessageView, Proposer
from topic.queues.leader.pages import Pages
from topic.queues.operations import Browse, MessagePage, Refused, encode
from topic.queues.proposals import Enqueue, encode_proposal
from topic.queues.state import SetState, entry
from topic.raft.life import SetLife


class Browser:
    """The end of a client that takes all messages."""

    def __init__(self, bench: QueueBench, router: str, queue: str = QUEUE) -> None:
        self.bench, self.router, self.queue = bench, router, queue
        self.seen: list[bytes] = []
        self.answers: list[Browsed] = []
        self.place = 0

    def hear(self, action: LinkAction) -> None:
        assert isinstance(action, Browsed)
        self.answers.append(action)
        self.seen += [message for _, message in action.messages or ()]
        self.place = action.next

    def ask(self, *, rests: bool = False) -> Browsed | None:
        """Ask for a page. Returns it, if it comes at once."""
        known = len(self.answers)
        self.bench.at(self.router).node.browse(self, Browse(self.queue, self.place), rests=rests)
        self.bench.collect(self.router)
        self.bench.flow()
        return self.answers[-1] if len(self.answers) > known else None

    def ask_all(self) -> list[bytes]:
        """Ask until there is nothing more."""
        while (page := self.ask()) is not None and page.messages:
            pass
        assert page is not None and page.messages == ()
        return self.seen


def figures(bench: QueueBench) -> list[Any]:
    """All that the replicas know of the queue."""
    states = [bench.sets(name).state(SET) for name in "abc"]
    return [
        (state.rows.digest, state.messages.passed_of(bench.queue), bench.sets(name).applied(SET))
        for name, state in zip([*"abc"], states, strict=True)
    ]


@pytest.mark.parametrize("router", [*"abd"])
def test_a_browser_sees_all_messages_and_changes_nothing(router: str) -> None:
    bench, _ = filled(b"1", b"2", b"3")
    before = figures(bench)
    assert Browser(bench, router).ask_all() == [b"1", b"2", b"3"]
    assert figures(bench) == before
    reader = plain(bench, "e")
    assert reader.delivered == [b"1", b"2", b"3"], "as if nobody had browsed"


@pytest.mark.parametrize("router", ["a", "d"])
def test_a_browser_sees_what_consumers_have_and_what_came_back(router: str) -> None:
    bench, _ = filled(b"1", b"2")
    reader = plain(bench, "e")
    assert Browser(bench, router).ask_all() == [b"1", b"2"]
    reader.answer(DeliveryOutcome.MODIFIED, b"1", failed=True)
    reader.accept(b"2")
    assert reader.delivered[-1] == marked(b"1", 1)
    assert Browser(bench, router).ask_all() == [marked(b"1", 1)]


@pytest.mark.parametrize("router", ["a", "d"])
def test_pages_are_bounded_and_have_each_message_once(router: str) -> None:
    messages = [b"%d" % number for number in range(50)]
    bench, _ = filled(*messages)
    with patch.object(pages, "PAGE_MESSAGES", 7), patch.object(pages, "PAGE_BYTES", 10):
        browser = Browser(bench, router)
        assert browser.ask_all() == messages
    assert max(len(page.messages or ()) for page in browser.answers) == 7
    assert max(sum(len(one) for _, one in page.messages or ()) for page in browser.answers) <= 10


def test_a_message_that_is_larger_than_a_page_has_one_of_its_own() -> None:
    bench, _ = filled(b"1", bytes(100), b"2")
    with patch.object(pages, "PAGE_BYTES", 10):
        browser = Browser(bench, "d")
        assert browser.ask_all() == [b"1", bytes(100), b"2"]
    assert [len(page.messages or ()) for page in browser.answers] == [1, 1, 1, 0]


def test_a_browser_goes_on_where_it_was_with_the_next_leader() -> None:
    bench, _ = filled(b"1", b"2", b"3")
    with patch.object(pages, "PAGE_MESSAGES", 1):
        browser = Browser(bench, "d")
        browser.ask()
        bench.stop("a")
        bench.wait(ELECTED_S)
        assert browser.ask_all() == [b"1", b"2", b"3"]


def test_a_browser_is_told_at_once_that_nobody_leads() -> None:
    bench, _ = filled(b"1")
    for name in "ab":
        bench.stop(name)
    bench.wait(ELECTED_S)
    now, browser = bench.now, Browser(bench, "d")
    page = browser.ask()
    assert page is not None and page.messages is None and bench.now == now


def test_a_browser_is_told_when_the_leader_dies_that_it_has_asked() -> None:
    bench, _ = filled(b"1")
    browser = Browser(bench, "d")
    bench.hold("a", "d")
    assert browser.ask() is None
    now = bench.now
    bench.stop("a")
    [page] = browser.answers
    assert page.messages is None and bench.now == now


def test_a_browser_that_rests_sees_what_comes_later() -> None:
    bench, pen = filled(b"1")
    browser = Browser(bench, "d")
    browser.ask_all()
    assert browser.ask(rests=True) is None
    pen.send(b"2")
    bench.wait(2)
    assert browser.seen == [b"1", b"2"]


def test_a_queue_that_is_not_declared_is_not_declared_by_browsing() -> None:
    bench = QueueBench(*"abcde", declares=False)
    assert Browser(bench, "d").ask_all() == []
    assert len(bench.sets("a").state(SET)) == 0


@without_bodies
def test_bodies_on_the_disk_are_read_for_a_page() -> None:
    bench, _ = filled_disk(*ALL)
    assert Browser(bench, "d").ask_all() == ALL
    assert Browser(bench, "a").ask_all() == ALL


@without_bodies
def test_only_one_page_is_read_at_a_time() -> None:
    bench, _ = filled_disk(*ALL)
    held = hold_reads(bench, "a")
    browsers = [Browser(bench, router) for router in "ade"]
    for browser in browsers:
        assert browser.ask() is None
    for _ in browsers:
        [read] = held
        held.clear()
        answer(bench, "a", read)
    assert all(browser.seen == ALL for browser in browsers)


def test_a_router_asks_for_few_pages_at_a_time() -> None:
    bench, _ = filled(b"1")
    browsers = [Browser(bench, "d") for _ in range(3 * browsing.AT_ONCE)]
    bench.hold("a", "d")
    for browser in browsers:
        browser.ask()
    assert len(bench.sets("d")._requests[SET]) == browsing.AT_ONCE
    bench.let_go()
    assert all(browser.seen == [b"1"] for browser in browsers)


def test_a_request_to_browse_does_nothing_in_a_log() -> None:
    state = SetState()
    before = state.rows.digest
    assert isinstance(state.apply(1, entry(SetLife(1, "a"), encode(Browse(QUEUE, 0)))), Refused)
    assert state.rows.digest == before


def test_a_hundred_thousand_messages_are_seen_and_stay() -> None:
    state, answers = SetState(), list[MessagePage | Refused]()
    for index in range(1, 101):
        messages = [b"%d" % number for number in range(1000 * (index - 1), 1000 * index)]
        state.apply(index, entry(SetLife(1, "a"), encode_proposal(Enqueue(QUEUE, [], [], messages))))
    before, log = state.rows.digest, create_autospec(Proposer)
    shown = Pages(
        state,
        log,
        MessageView(state.messages, TextMarking(), create_autospec(Outlet)),
        lambda router, number, answer: answers.append(answer),
    )
    seen, place = list[bytes](), 0
    while not answers or (isinstance(answers[-1], MessagePage) and answers[-1].messages):
        shown.ask("d", 0, Browse(QUEUE, place))
        page = answers[-1]
        assert isinstance(page, MessagePage)
        seen += [message for _, message in page.messages]
        place = page.next
    assert seen == [b"%d" % number for number in range(100_000)] and len(answers) == 101
    assert state.rows.digest == before and state.messages.count == 100_000
