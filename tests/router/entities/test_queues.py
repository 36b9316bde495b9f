"""Queues as a router shows them: all to management, the deepest as a whole, and their sums; and their addresses."""

import json
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from router.entities import queues
from router.entities.dispatch import ADDRESS
from router.entities.queues import DECLARED_QUEUE, LED_QUEUE, MOST_SHOWN
from router.entities.replicas import SET
from router.entities.report import OF_USERS, only_of
from router.entities.table import Entity
from router.http import census
from router.http.census import Census, MeasuredSeries
from router.management.pace import WorkPace
from tests.router.agreeing import AgreeingMesh, agreeing_at, at_once
from tests.topic.bench import SETTINGS
from tests.topic.queues.bench import QUEUE, QueueBench
from tests.topic.queues.bench import SET as SET_NAME
from tests.topic.queues.test_egress import plain
from tests.topic.queues.test_ingress import publisher
from topic.identity import egress_address
from topic.queues.operations import Declare
from topic.queues.proposals import Enqueue

MANY = 1000


def filled(mesh: AgreeingMesh, numbers: range) -> None:
    """Set `eu` has so many queues; that of each number has so many messages."""
    for number in numbers:
        mesh.decide("a", Declare(f"queue/eu/{number}"))
        if number:
            mesh.propose("eu", Enqueue(f"queue/eu/{number}", (), (), [b"xy"] * number))


async def scraped(at: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, MeasuredSeries]:
    monkeypatch.setattr(census, "ENTITIES", (SET, LED_QUEUE))
    return {one.name: one for one in await Census(at, WorkPace(at_once)).take()}


def told(entity: Entity[Any], at: Any) -> list[dict[str, Any]]:
    return [entity.in_status(at, one) for one in entity.found(at)]


async def test_the_deepest_queues_are_shown_and_all_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "MOST_SHOWN", 3)
    mesh = AgreeingMesh()
    filled(mesh, range(6))
    mesh.consumers["queue/eu/4"] = 2
    at = agreeing_at(mesh, "a")
    assert [(row["name"], row["messages"], row["bytes"], row["consumers"]) for row in told(LED_QUEUE, at)] == [
        ("queue/eu/5", 5, 10, 0), ("queue/eu/4", 4, 8, 2), ("queue/eu/3", 3, 6, 0),
    ]  # fmt: skip
    series = await scraped(at, monkeypatch)
    assert series["oncemesh_queue_messages"].labels == ("queue",)
    assert series["oncemesh_queue_messages"].samples == [
        (("queue/eu/5",), 5.0), (("queue/eu/4",), 4.0), (("queue/eu/3",), 3.0),
    ]  # fmt: skip
    assert series["oncemesh_queue_enqueued_total"].counts and not series["oncemesh_queue_messages"].counts
    assert series["oncemesh_set_messages"].samples == [(("eu",), 15.0)], "of the sets that it leads"
    assert series["oncemesh_set_message_bytes"].samples == [(("eu",), 30.0)]
    assert series["oncemesh_set_enqueued_total"].samples == [(("eu",), 15.0)]
    assert series["oncemesh_set_leads"].samples == [(("eu",), 1.0), (("q0",), 0.0)]


async def test_who_does_not_lead_has_no_series_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = AgreeingMesh()
    filled(mesh, range(3))
    for router in "bd":
        series = await scraped(agreeing_at(mesh, router), monkeypatch)
        samples = {name: one.samples for name, one in series.items() if name.startswith("oncemesh_queue_")}
        assert len(samples) > 5 and not any(samples.values())
        assert not any(labels == ("eu",) for labels, _ in series["oncemesh_set_messages"].samples)


async def test_queues_without_messages_are_shown_where_there_is_room() -> None:
    mesh = AgreeingMesh()
    filled(mesh, range(2))
    assert [row["name"] for row in told(LED_QUEUE, agreeing_at(mesh, "a"))] == ["queue/eu/1", "queue/eu/0"]
    assert len(list(DECLARED_QUEUE.found(agreeing_at(mesh, "b")))) == 2


async def test_many_queues_make_no_long_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = AgreeingMesh()
    for number in range(MANY):
        mesh.decide("a", Declare(f"queue/eu/{number}"))
        mesh.propose("eu", Enqueue(f"queue/eu/{number}", (), (), [b"xy"]))
    series = await scraped(agreeing_at(mesh, "a"), monkeypatch)
    assert {len(one.samples) for name, one in series.items() if name.startswith("oncemesh_queue_")} == {MOST_SHOWN}
    assert sum(len(one.samples) for one in series.values()) < (len(queues.FIGURES) + 1) * MOST_SHOWN


def test_who_sees_only_his_own_links_sees_no_queue() -> None:
    said = {**{name: [] for name in OF_USERS}, "waits": [], "queues": [{"name": "queue/x"}]}
    assert json.loads(only_of("alice", json.dumps(said).encode()))["queues"] == []


def test_a_queue_is_an_address_to_the_tools_of_qpid_dispatch() -> None:
    """As its clients name it, once, with those of its links that are here."""
    bench = QueueBench(*"abcd", settings=attrs.evolve(SETTINGS, kinds=(("queue/", "queue"),)))
    pen = publisher(bench, "a")
    pen.send(b"1", b"2", b"3")
    readers = [plain(bench, "a", "r", credit=1), plain(bench, "d", "s", credit=1)]
    assert [reader.delivered for reader in readers] == [[b"1"], [b"2"]]
    rows = {}
    for router in "ad":
        at: Any = SimpleNamespace(node=bench.at(router).node)
        [address] = ADDRESS.found(at)
        rows[router] = {one.name: one.read(at, address) for one in ADDRESS.attributes}
    assert rows["a"]["name"] == rows["d"]["name"] == f"M0{QUEUE}"
    shown = "distribution", "subscriberCount", "remoteCount", "deliveriesIngress", "deliveriesEgress"
    assert [rows["a"][name] for name in shown] == ["balanced", 1, 1, 3, 1]
    assert [rows["d"][name] for name in shown] == ["balanced", 1, 1, 0, 1]
    assert list(rows["d"]["remoteHostRouters"]) == ["a"]
    at = SimpleNamespace(node=bench.at("b").node)
    [queue] = DECLARED_QUEUE.found(at)
    consumers = {one.name: one for one in DECLARED_QUEUE.attributes}["consumers"]
    assert consumers.read(at, queue) == 2, "wherever they are"
    assert egress_address(SET_NAME, QUEUE) not in ADDRESS.found(at)
