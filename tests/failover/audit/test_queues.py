"""What replicas tell of the messages of queues is judged: true logs of a simulated mesh, logs with one lie, and logs of
meshes that break a rule."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
import numpy as np
import pytest

from failover.audit import Report, Verdict, tell_story
from failover.audit.judge.kinds import DISPUTED
from failover.audit.judge.queues.messages import _queue_of
from failover.audit.mesh.clients import find_clients
from failover.audit.read.columns import unpack
from failover.audit.read.entries import OF_MESSAGES, has_position
from failover.audit.read.logs import LocalLogs, open_logs
from tests.failover.audit.in_process import judge_files
from tests.failover.audit.test_inventory import row
from tests.simulation import evidence
from tests.simulation.evidence import KINDS, LoggedRouter, LoggedWorld, Segment
from tests.simulation.judge import Judge
from tests.simulation.parties import Violation
from tests.topic.raft.mutants import Mutant
from topic.identity import LinkIdentity, dead_letter_ingress_of, egress_address, ingress_address, link_name
from topic.journal import Block, Event
from topic.queues.bodies.message_rows import MessageRows
from topic.queues.bound.bindings import Binding
from topic.queues.leader.egress import Egress
from topic.queues.leader.ingress import Ingress
from topic.queues.messages import QueuedMessages
from topic.queues.operations import QueueId
from topic.raft.life import SetLife

SEED = 3
Entry = tuple[Event, dict[str, Any]]
Lie = Callable[[Event, Mapping[str, Any]], Iterator[Entry]]
"""What a router writes in place of an entry."""


def truth(event: Event, columns: Mapping[str, Any]) -> Iterator[Entry]:
    yield event, {**columns}


@attrs.frozen
class Told:
    """A run that keeps the rules, which is simulated once for all lies."""

    files: dict[str, bytes]
    entries: list[tuple[Block, Event, dict[str, Any]]]
    """All that routers wrote, in the order of time, with the block of the life that wrote it."""


@cache
def told() -> Told:
    entries: list[tuple[Block, Event, dict[str, Any]]] = []

    class Noted(evidence.Told):
        def append(self, event: Event, **columns: Any) -> None:
            entries.append((self, event, {**columns, "keys": list(columns.get("keys", ()))}))
            super().append(event, **columns)

    with patch.object(LoggedRouter, "journal", Noted):
        return Told(KINDS["queues"].files(SEED), entries)


def with_lies(lie: Lie) -> dict[str, bytes]:
    """All logs of the run, as routers would have written them that tell the lie."""
    blocks: dict[Block, Block] = {}
    for block, event, columns in told().entries:
        source, role, incarnation, host = block.head
        lying = blocks.setdefault(block, Block(source, role, incarnation, host=host))
        for said, of in lie(event, columns):
            lying.append(said, **of)
    segments = [Segment(block.head[0], block) for block in blocks.values()]
    return told().files | {one.path: one.content() for one in segments if one.path in told().files}


def audit(lie: Lie = truth) -> Report:
    return judge_files(with_lies(lie), buckets=3)


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


def test_who_tells_no_lie_writes_the_same() -> None:
    assert with_lies(truth) == told().files


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


@pytest.mark.parametrize("queue", ["queue/1", "queue/a on b"])
def test_the_queue_that_a_delivery_comes_into_is_known_by_the_link_of_the_ingress(queue: str) -> None:
    binding = Binding(QueueId(SetLife(1, "a"), 2), QueueId(SetLife(1, "a"), 3), "topic/x").link("q0", queue)
    for link, address in ((binding, "topic/x"), (dead_letter_ingress_of("q0"), ingress_address("q0", queue))):
        assert _queue_of_link(link, address) == egress_address("q0", queue)


def _queue_of_link(link: LinkIdentity, address: str) -> str:
    name = link_name(link).decode()
    told = row(Event.ATTACHED, subscriber=name, detail=json.dumps(link.parts()))
    client = find_clients([told], []).subscribers[name]
    assert client.is_ingress and client.anew().bound == client.bound
    return _queue_of(client, address)


class Unjudged(LoggedWorld):
    """It goes on, whatever is violated, and does not wait until all has come to rest."""

    def run(self) -> None:
        with patch.object(Judge, "check", lambda *_: None), suppress(Violation):
            super().run()


BROKEN: list[tuple[type, str, str, str, str, int, str]] = [
    (Ingress, "deliver", "self.go_on()",
     "self.go_on(); self.node.topic.outcomes(self.subscriber, records, DeliveryOutcome.ACCEPTED)",
     "queues", 1, "never enqueued"),
    (QueuedMessages, "enqueue", "if known is not None and known.is_for(attach, n):\n            is_taken",
     "if False:\n            is_taken",
     "consumers", 9, "enqueued twice"),
    (QueuedMessages, "dequeue", "self._there(queue, runs)",
     "self._there(queue, [(first, last + 1) for first, last in runs])",
     "queues", 1, "gone without a consumer"),
    (Egress, "send_outcomes", "if action.outcome in GIVEN_BACK:", "if True:", "queues", 2,
     "given back though processed"),
    (MessageRows, "read", "position, id_, size, digest, ends = _read(key, value)",
     "position, id_, size, digest, ends = _read(key, value)\n    if position % 3 == 1:\n        return",
     "consumers", 2, DISPUTED),
]  # fmt: skip
"""Class, method, text, other text; the kind of run and its seed; the violation."""


@pytest.mark.parametrize(("owner", "method", "old", "new", "kind", "seed", "violation"), BROKEN)
def test_it_sees_what_becomes_of_messages_if_a_rule_is_broken(
    owner: type, method: str, old: str, new: str, kind: str, seed: int, violation: str
) -> None:
    with Mutant(owner, method, old, new, old, "").applied():
        report = judge_files(attrs.evolve(KINDS[kind], world=Unjudged).files(seed), buckets=1)
    assert violation in report.violations, report.sentence


def test_the_story_of_a_delivery_names_the_others_of_its_message(tmp_path: Path) -> None:
    files = told().files
    for path, content in files.items():
        file = tmp_path / path.removeprefix("file:/run/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    brought, taken = _deliveries_of_a_message(tmp_path)
    story = tell_story([str(tmp_path)], brought)
    assert story.notes[-1] == f"it went to a consumer as delivery {taken}"
    assert any(step.text.startswith("its replica has it in the queue, at position ") for step in story.steps)
    assert tell_story([str(tmp_path)], taken).notes[-1] == f"it came into the queue as delivery {brought}"


def test_only_blocks_with_a_position_are_kept_for_it() -> None:
    files = told().files
    whole = unpack(LocalLogs(files.items(), 0).some())
    position = int(whole.n[whole.event == Event.LEFT][0])
    kept = unpack(LocalLogs(files.items(), 0, has_position([position])).some())
    at = [np.isin(rows.event, OF_MESSAGES) & (rows.n == position) for rows in (whole, kept)]
    assert sorted(kept.key[at[1]]) == sorted(whole.key[at[0]])
    assert 0 < len(kept.key) < len(whole.key)


def _deliveries_of_a_message(directory: Path) -> tuple[str, str]:
    """The keys of the delivery that brought a message, and of the one that took it."""
    with open_logs([str(directory)]) as logs:
        rows = unpack(part for part in logs.some())
    enqueued = int(np.flatnonzero(rows.event == Event.ENQUEUED)[0])
    left = int(np.flatnonzero((rows.event == Event.LEFT) & (rows.n == rows.n[enqueued]))[0])
    return rows.key[enqueued].decode(), rows.key[left].decode()
