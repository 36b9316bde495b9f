"""What replicas tell of the messages of queues is judged: true logs of a simulated mesh, and logs with one lie."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest

from failover.audit import Report, Verdict
from failover.audit.judge.kinds import DISPUTED
from tests.failover.audit.in_process import judge_files
from tests.simulation.evidence import KINDS, LoggedRouter, Told
from topic.journal import Event

SEED = 3
Entry = tuple[Event, dict[str, Any]]
Lie = Callable[[Event, Mapping[str, Any]], Iterator[Entry]]
"""What a router writes in place of an entry."""


def truth(event: Event, columns: Mapping[str, Any]) -> Iterator[Entry]:
    yield event, {**columns}


def audit(lie: Lie = truth) -> Report:
    class Lying(Told):
        def append(self, event: Event, **columns: Any) -> None:
            for told, of in lie(event, columns):
                super().append(told, **of)

    with patch.object(LoggedRouter, "journal", Lying):
        return judge_files(KINDS["queues"].files(SEED), buckets=3)


@cache
def honest() -> Report:
    return audit()


class Chosen:
    """The third message that is enqueued, by whichever replica tells of it."""

    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}

    def place(self, columns: Mapping[str, Any]) -> int | None:
        """Where the entry has it."""
        for key in columns["keys"]:
            self._seen.setdefault(key, len(self._seen))
        return next((place for place, key in enumerate(columns["keys"]) if self._seen[key] == 2), None)


def without(columns: Mapping[str, Any], place: int) -> dict[str, Any]:
    ns = columns.get("ns") or [columns["n"] + offset for offset in range(len(columns["keys"]))]
    kept = [at for at in range(len(ns)) if at != place]
    return {**columns, "keys": [columns["keys"][at] for at in kept], "n": -1, "ns": [ns[at] for at in kept]}


def only(columns: Mapping[str, Any], place: int) -> dict[str, Any]:
    ns = columns.get("ns") or [columns["n"] + offset for offset in range(len(columns["keys"]))]
    return {**columns, "keys": [columns["keys"][place]], "n": ns[place], "ns": None}


def never_enqueued() -> Lie:
    chosen = Chosen()

    def lie(event: Event, columns: Mapping[str, Any]) -> Iterator[Entry]:
        place = chosen.place(columns) if event is Event.ENQUEUED else None
        left = without(columns, place) if place is not None else {**columns}
        if place is None or left["keys"]:
            yield event, left

    return lie


def enqueued_twice() -> Lie:
    chosen = Chosen()

    def lie(event: Event, columns: Mapping[str, Any]) -> Iterator[Entry]:
        yield event, {**columns}
        if event is Event.ENQUEUED and (place := chosen.place(columns)) is not None:
            again = only(columns, place)
            yield event, {**again, "n": again["n"] + 5}

    return lie


def too_early(event: Event, columns: Mapping[str, Any]) -> Iterator[Entry]:
    """Each replica tells of messages when they leave."""
    if event is not Event.ENQUEUED:
        yield event, {**columns}


def gone() -> Lie:
    chosen = Chosen()

    def lie(event: Event, columns: Mapping[str, Any]) -> Iterator[Entry]:
        yield event, {**columns}
        if event is Event.ENQUEUED and (place := chosen.place(columns)) is not None:
            key = b"x" * 32
            yield Event.LEFT, {**only(columns, place), "keys": [key], "detail": "dequeued"}

    return lie


def given_back() -> Lie:
    chosen = Chosen()

    def lie(event: Event, columns: Mapping[str, Any]) -> Iterator[Entry]:
        if event is Event.LEFT and columns["detail"] == "dequeued" and (place := chosen.place(columns)) is not None:
            yield Event.RETURNED, {**only(columns, place), "detail": None}
        yield event, {**columns}

    return lie


def lost_at_a_snapshot(event: Event, columns: Mapping[str, Any]) -> Iterator[Entry]:
    """All replicas say that they have one message less than they have told of, at one index."""
    told = columns.get("detail") or ""
    if event is Event.CONTENT and '"index": 20,' in told:
        columns = {**columns, "detail": told.replace('"positions": ', '"positions": 1')}
    yield event, {**columns}


def lost_at_one() -> Lie:
    """The second replica that tells of a content has another than the first, from the beginning on."""
    known: set[str] = set()

    def lie(event: Event, columns: Mapping[str, Any]) -> Iterator[Entry]:
        told = columns.get("detail") or ""
        if event is Event.CONTENT and told in known:
            columns = {**columns, "detail": told.replace('"positions": ', '"positions": 1').replace("false", "true")}
        known.add(told)
        yield event, {**columns}

    return lie


def test_a_true_log_shows_what_became_of_all_messages() -> None:
    report = honest()
    assert report.verdict is Verdict.HOLDS, report.sentence
    assert [row.queue for row in report.queues] == ["queue/c/0", "queue/c/1"]
    assert all(row.enqueued == row.dequeued + (row.waiting or 0) > 20 for row in report.queues)


@pytest.mark.parametrize(
    ("lie", "kinds"),
    [
        (never_enqueued(), {"never enqueued"}),
        (enqueued_twice(), {"enqueued twice"}),
        (too_early, {"never enqueued"}),
        (gone(), {"gone without a consumer"}),
        (given_back(), {"given back though processed"}),
        (lost_at_a_snapshot, {DISPUTED}),
        (lost_at_one(), {DISPUTED}),
    ],
)
def test_a_lie_is_found(lie: Lie, kinds: set[str]) -> None:
    """A lie about one message is also one about the content of its queue."""
    report = audit(lie)
    assert {*report.violations} - {DISPUTED} == kinds - {DISPUTED}, report.sentence
    assert kinds <= {*report.violations}, report.sentence
