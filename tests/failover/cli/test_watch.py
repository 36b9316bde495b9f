"""What `oncemesh top` makes of two looks, and how that reads."""

import io
import re
from typing import Any

from rich.console import Console

from failover.cli.watch.top import HEADINGS, render
from router.entities.rates import MeshRates, RouterLook, rates

LINK = {"link": "l", "address": "topic/x", "status": "attached", "unsettled": 2}


def report(
    router: str, uptime_s: float, incarnation: int = 1, totals: tuple[int, int, int] = (0, 0, 0),
    neighbours: Any = (), **links: Any,
) -> RouterLook:  # fmt: skip
    counts = {"records": {"in_doubt": 3, "settled": 1}, "rss_bytes": 40 << 20}
    nobody: dict[str, Any] = {"publishers": [], "subscribers": []}
    status = {"router": router, "uptime_s": uptime_s, "incarnation": incarnation} | counts | nobody | links
    names = "deliveriesIngress", "deliveriesEgress", "acceptedDeliveries"
    return RouterLook(0.0, status, dict(zip(names, totals, strict=True)), list(neighbours))


def publisher(name: str, received: int) -> dict[str, Any]:
    return LINK | {"container": name, "received": received, "connection_bytes": 1000 * received}


def subscriber(name: str, delivered: int, accepted: int) -> dict[str, Any]:
    counts = {"delivered": delivered, "accepted": accepted, "queued": 5, "connection_bytes": None}
    return LINK | {"container": name} | counts


def neighbour(name: str, *counts: int | None) -> dict[str, Any]:
    return dict(
        zip(("name", "messagesReceived", "messagesSent", "bytesReceived", "bytesSent"), (name, *counts), strict=True)
    )


def test_rates_are_of_the_time_that_each_router_says_has_passed() -> None:
    """What a router has received is of all its links, those that have gone, too."""
    before = {
        "a": report("a", 10.0, totals=(105, 0, 0), publishers=[publisher("p", 100), publisher("gone", 5)]),
        "b": report("b", 99.0, totals=(0, 50, 40), subscribers=[subscriber("s", 50, 40)]),
    }
    after = {
        "a": report("a", 12.0, totals=(345, 0, 0), publishers=[publisher("p", 300), publisher("new", 10)]),
        "b": report("b", 103.0, totals=(0, 450, 240), subscribers=[subscriber("s", 450, 240)]),
        "c": report("c", 1.0),
    }
    seen = rates(before, after)
    assert [(link.container, link.rate, link.accepted, link.bytes, link.waiting) for link in seen.links] == [
        ("p", 100.0, None, 100e3, 2), ("s", 100.0, 50.0, None, 7), ("new", 5.0, None, 5e3, 2),
    ]  # fmt: skip
    assert [(r.router, r.received, r.delivered, r.accepted) for r in seen.routers] == [
        ("a", 120.0, 0.0, 0.0), ("b", 0.0, 100.0, 50.0),
    ]  # fmt: skip
    assert seen.as_json()["routers"][0]["records"] == 4


def test_the_leader_of_a_queue_counts_what_comes_into_it_and_leaves_it() -> None:
    """A queue that was not there at the former look has no rates yet."""
    before = {"a": report("a", 10.0, queues=[queue("queue/x", 100, 20)])}
    after = {"a": report("a", 12.0, queues=[queue("queue/x", 140, 30), queue("queue/new", 9, 9)])}
    seen = rates(before, after)
    assert [(one.queue, one.router, one.came, one.left, one.messages) for one in seen.queues] == [
        ("queue/x", "a", 20.0, 5.0, 110), ("queue/new", "a", 0.0, 0.0, 0),
    ]  # fmt: skip
    text = shown(seen, 40)
    assert re.search(r"queue/x +20 +5\.0 +110 +3\.0s +2 +a", text) and re.search(r"queue/new +0 +0 +0 +2 +a", text)
    many = [queue(f"queue/{number:02}", 0, 0) for number in range(30)]
    lines = HEADINGS + 20
    text = shown(rates(before, {"a": report("a", 12.0, queues=many)}), lines)
    assert "more queues (--json has all)" in text and len(text.splitlines()) <= lines


def shown(seen: MeshRates, lines: int) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(render(seen, lines))
    return out.getvalue()


def queue(name: str, enqueued: int, dequeued: int) -> dict[str, Any]:
    counts = {"enqueued": enqueued, "dequeued": dequeued, "messages": enqueued - dequeued}
    return counts | {"name": name, "consumers": 2, "oldest_s": 3.0}


def test_what_counts_anew_counts_from_nothing() -> None:
    """A router that has begun again, and a link that was attached again."""
    before = {
        "a": report("a", 10.0, publishers=[publisher("p", 100)]),
        "b": report("b", 10.0, publishers=[publisher("q", 9)]),
    }
    after = {
        "a": report("a", 0.5, 2, publishers=[publisher("p", 110)]),
        "b": report("b", 11.0, publishers=[publisher("q", 4)]),
    }
    assert {link.container: link.rate for link in rates(before, after).links} == {"p": 220.0, "q": 4.0}
    same = {"a": before["a"]}
    assert [link.rate for link in rates(same, same).links] == [0.0]


def test_each_direction_between_routers_is_told_once_as_its_sender_counts() -> None:
    """c does not answer: what it sends is what comes. A link that is down carries nothing."""
    before = {
        "a": report("a", 10.0, neighbours=[neighbour("b", 10, 20, 1000, 2000), neighbour("d", 0, 0, 0, 0)]),
        "b": report("b", 10.0, neighbours=[neighbour("a", 19, 11, 1900, 1100), neighbour("c", 0, 0, None, None)]),
    }
    after = {
        "a": report("a", 12.0, neighbours=[neighbour("b", 30, 60, 3000, 6000), neighbour("d", None, None, None, None)]),
        "b": report("b", 12.0, neighbours=[neighbour("a", 59, 41, 5900, 4100), neighbour("c", 8, 4, None, None)]),
    }
    seen = rates(before, after).as_json()["neighbours"]
    assert [tuple(row.values()) for row in seen] == [
        ("a", "b", 20.0, 2000.0), ("b", "a", 15.0, 1500.0), ("c", "b", 4.0, None), ("b", "c", 2.0, None),
    ]  # fmt: skip
    text = shown(rates(before, after), HEADINGS + 2 + 4)
    assert "a → b" in text and "2.0 KiB" in text and "and 2 more between routers" in text and "c → b" not in text


def test_as_many_links_are_shown_as_there_are_lines() -> None:
    many = [publisher(f"p{number:02}\x1b[31m", 10 * number) for number in range(30)]
    before = {"a": report("a", 1.0, publishers=[publisher(link["container"], 0) for link in many])}
    text = shown(rates(before, {"a": report("a", 2.0, publishers=many)}), HEADINGS + 11)
    assert text.count("publisher,") == 0 and text.count("publisher ") == 10 and "and 20 more links" in text
    assert text.index("p29") < text.index("p28") and "\x1b[31m" not in text and "p19" not in text
    assert len(text.splitlines()) <= HEADINGS + 11
