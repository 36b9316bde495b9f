"""What a log says anew where a segment begins: all that a reader without the earlier segments has to know."""

import json
from collections.abc import Iterable
from typing import Any

import attrs

from tests.topic.bench import SETTINGS, Bench, pen_at, reader_at
from topic.blocks import LogEntry, read_blocks
from topic.journal import Event
from topic.restatement import restate

GRACE_S = 5.0


@attrs.define
class Known:
    """What entries say that holds behind them."""

    contacts: dict[str | None, int] = attrs.field(factory=dict)
    joined: dict[str | None, tuple[str | None, ...]] = attrs.field(factory=dict)
    gates: set[tuple[str | None, str | None]] = attrs.field(factory=set)
    attached: dict[str | None, tuple[Any, ...]] = attrs.field(factory=dict)
    suspended: set[str | None] = attrs.field(factory=set)

    def take(self, entry: LogEntry) -> None:
        name, detail = entry.subscriber or entry.publisher, json.loads(entry.detail or "{}")
        match entry.event:
            case Event.CONTACT:
                self.contacts[entry.peer] = detail["incarnation"]
            case Event.LOST:
                del self.contacts[entry.peer]
            case Event.JOINED:
                self.joined[name] = entry.address, entry.epoch, entry.peer
                self.gates = {gate for gate in self.gates if gate[0] != name}
            case Event.GATED:
                self.gates.add((entry.subscriber, entry.publisher))
            case Event.ATTACHED:
                for once in ("again", "afresh"):  # what came before is not judged by what is left
                    detail.pop(once, None)
                self.attached[name] = entry.address, entry.epoch, entry.generation, detail
                self.suspended.discard(name)
            case Event.SUSPENDED:
                self.suspended.add(name)
            case Event.CLOSED:
                del self.joined[name], self.attached[name]


def known(entries: Iterable[LogEntry]) -> Known:
    found = Known()
    for entry in entries:
        found.take(entry)
    return found


def test_what_is_told_anew_is_what_the_log_said_before() -> None:
    bench = Bench("a", "b", "c")
    pen, away = pen_at(bench, "a"), pen_at(bench, "a", name="away")
    near, far, gone = reader_at(bench, "a", "near"), reader_at(bench, "b", "far"), reader_at(bench, "a", "gone")
    pen.send(b"1")
    bench.flow()
    near.accept(b"1")
    reader_at(bench, "c", "gated")
    bench.flow()
    gone.close()
    bench.tick("a").suspend_publisher(away.stream, away, bench.now)
    bench.tick("a").suspend_subscriber(near.end, near, bench.now)
    bench.kill("c")
    bench.flow()
    told = _log(bench)
    restate(bench.tick("a"), (1, 2))
    first, *again = _log(bench)
    assert (first.event, first.detail) == (Event.CONTINUED, '{"first": [1, 2], "dead": 1.0}')
    assert known(again) == known(told)
    found = known(again)
    assert len(found.contacts) == 1 and len(found.joined) == 3 and len(found.attached) == 3
    assert len(found.gates) == 1 and len(found.suspended) == 2 and far.end.name.decode() in found.joined
    marked = [entry for entry in again if entry.event in (Event.CONTACT, Event.ATTACHED)]
    assert all(json.loads(entry.detail or "")["again"] for entry in marked)


def test_a_plain_subscriber_that_is_waited_for_no_more_is_not_told_anew() -> None:
    bench = Bench("a", "b", settings=attrs.evolve(SETTINGS, grace=GRACE_S))
    bench.subscriber("b")
    bench.part("a", "b")
    for is_waited_for in (True, False):
        _log(bench)
        restate(bench.tick("a"), None)
        assert bool(known(_log(bench)).joined) is is_waited_for
        bench.time(GRACE_S)


def test_the_log_says_which_client_resumes_without_an_echo_of_its_epoch() -> None:
    bench = Bench("a")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "a")
    pen_at(bench, "a", pen, unsettled={}, seen=pen.stream.epoch)
    reader_at(bench, "a", reader.name, unsettled={}, seen=reader.end.epoch)
    pen_at(bench, "a", pen, unsettled={})
    reader_at(bench, "a", reader.name, unsettled={})
    attached = [entry for entry in _log(bench) if entry.event is Event.ATTACHED]
    marked = [json.loads(entry.detail or "").get("unordered") for entry in attached]
    assert marked == [None] * 4 + [True] * 2


def test_the_log_says_which_publisher_begins_afresh_without_an_echo_of_its_epoch() -> None:
    bench = Bench("a")
    pen = pen_at(bench, "a")
    pen_at(bench, "a", pen, seen=pen.stream.epoch)
    pen_at(bench, "a", pen, unsettled={})
    pen_at(bench, "a", pen)
    attached = [entry for entry in _log(bench) if entry.event is Event.ATTACHED]
    marked = [json.loads(entry.detail or "").get("afresh") for entry in attached]
    assert marked == [True, None, None, True]


def _log(bench: Bench) -> list[LogEntry]:
    blocks, _ = read_blocks(bench.take_log("a"))
    return [entry for block in blocks for entry in block.entries()]
