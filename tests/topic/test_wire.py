"""Batches between topic cores: order, ranges, and what is refused whole."""

import contextlib
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkstate.mesh_actions import ContactLost
from tests.topic.bench import Bench, reader_at
from tests.topic.clients import Pen
from topic.actions import Detach
from topic.delivery.kinds import EACH_TO_ALL
from topic.delivery.record import Record, Stream
from topic.errors import BreachError
from topic.identity import Epoch, LinkIdentity
from topic.node import Happening
from topic.wire.outgoing import FLUSH_BYTES, Outgoing
from topic.wire.segments import Segment, decode

NAME = b"publisher123"
EPOCH = Epoch(1, "a", 1)
STREAM = Stream(NAME, LinkIdentity("c", "l", "topic/x"), EPOCH, b"12345678", EACH_TO_ALL)


def spread(ranges: list[int]) -> list[int]:
    return [n for low, high in zip(ranges[::2], ranges[1::2], strict=True) for n in range(low, high + 1)]


@given(st.lists(st.integers(0, 30), min_size=1))
def test_outcomes_of_a_stream_are_one_segment_of_ranges_in_their_order(numbers: list[int]) -> None:
    outgoing = Outgoing()
    outgoing.outcome("a", STREAM, numbers)
    [(targets, payload)] = outgoing.take()
    [[kind, publisher, epoch, ranges]] = decode(payload)
    assert (targets, kind, publisher, tuple(epoch)) == (("a",), Segment.OUTCOME, NAME, EPOCH)
    assert spread(ranges) == numbers


def test_neighbouring_numbers_are_one_range() -> None:
    outgoing = Outgoing()
    for numbers in ((3, 4), (5, 9)):
        outgoing.settle(("a",), STREAM, numbers)
    [(_, payload)] = outgoing.take()
    assert decode(payload)[0][3] == [3, 5, 9, 9]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", "ab", "bc", "abc"]), st.integers(0, 9)), min_size=1))
def test_order_is_kept_for_every_target(said: list[tuple[str, int]]) -> None:
    outgoing = Outgoing()
    for targets, version in said:
        outgoing.delta(targets, version, 0, [], [])
    batches = [(targets, segment[1]) for targets, payload in outgoing.take() for segment in decode(payload)]
    for router in "abc":
        heard = [version for targets, version in batches if router in targets]
        assert heard == [version for targets, version in said if router in targets]
    assert not outgoing


def test_messages_of_a_burst_of_attaches_travel_together() -> None:
    outgoing = Outgoing()
    for version in range(50):
        outgoing.ack("a", version)
        outgoing.delta(("b", "c"), version, 0, [], [])
    assert [targets for targets, _ in outgoing.take()] == [("a",), ("b", "c")]
    outgoing.ack("a", 50)
    assert len(outgoing.take()) == 1


def kinds(batches: list[tuple[tuple[str, ...], bytes]]) -> list[tuple[str, Segment]]:
    return [(targets[0], Segment(kind)) for targets, payload in batches for kind, *_ in decode(payload)]


def test_settlements_wait_for_their_delay_from_the_first_on() -> None:
    outgoing = Outgoing(settle_delay=1.0)
    outgoing.settle(("a",), STREAM, [1])
    assert (outgoing.take(10.0), outgoing.due) == ([], 11.0)
    outgoing.settled("b", NAME, EPOCH, [1, 1])
    assert (outgoing.take(10.9), outgoing.due) == ([], 11.0)
    assert kinds(outgoing.take(11.0)) == [("a", Segment.SETTLE), ("b", Segment.SETTLED)]
    assert outgoing.due == float("inf")


def test_settlements_travel_with_what_else_is_said_in_order() -> None:
    outgoing = Outgoing(settle_delay=1.0)
    outgoing.settle(("a",), STREAM, [1])
    assert not outgoing.take(10.0)
    outgoing.outcome("b", STREAM, [2])
    outgoing.settle(("a",), STREAM, [3])
    assert kinds(outgoing.take(10.0)) == [("a", Segment.SETTLE), ("b", Segment.OUTCOME)]


def test_settlements_that_are_hurried_do_not_wait_and_the_next_ones_do() -> None:
    outgoing = Outgoing(settle_delay=1.0)
    outgoing.end_delays()
    outgoing.settle(("a",), STREAM, [1])
    assert not outgoing.take(10.0)
    outgoing.end_delays()
    assert kinds(outgoing.take(10.0)) == [("a", Segment.SETTLE)]
    outgoing.settle(("a",), STREAM, [2])
    assert not outgoing.take(10.0)


def test_messages_for_a_lost_router_are_dropped_and_others_stay() -> None:
    outgoing = Outgoing()
    record = Record(STREAM, b"k" * 32, b"t", b"message")
    record.n = 7
    outgoing.forward(("a", "b"), STREAM, [record], {"a": 1, "b": 2}, None)
    outgoing.ack("b", 3)
    outgoing.forget("b")
    [(targets, payload)] = outgoing.take()
    assert targets == ("a",)
    [[kind, _, _, seen, n, presettled, keys, messages, only]] = decode(payload)
    assert (kind, seen, n, presettled) == (Segment.FORWARD, {"a": 1, "b": 2}, 7, False)
    assert (keys, messages, only) == (b"k" * 32, [b"message"], None)


@given(st.lists(st.integers(0, 3 * FLUSH_BYTES), min_size=1, max_size=8))
def test_no_batch_has_more_than_its_bytes_of_messages_or_one_message(sizes: list[int]) -> None:
    outgoing = Outgoing()
    records = [Record(STREAM, b"k" * 32, b"t", bytes(size)) for size in sizes]
    for n, record in enumerate(records):
        record.n = n
    outgoing.forward(("a",), STREAM, records, {"a": 1}, None)
    batches = [decode(payload) for _, payload in outgoing.take()]
    forwarded = [(segment[4] + i, len(m)) for batch in batches for segment in batch for i, m in enumerate(segment[7])]
    assert forwarded == list(enumerate(sizes))
    for batch in batches:
        carried = [len(message) for segment in batch for message in segment[7]]
        assert sum(carried) < 2 * FLUSH_BYTES + max(carried)


GOOD_ACK = [Segment.ACK, 0]
ENTRY = [1, ["c", "l", "topic/x"], [1, "b", 1], b"", 0, 0, "session-end", 0, False, "", 0]
ONLY: list[Any] = [[NAME], [NAME, EPOCH, 2], [NAME, EPOCH, 1, 1], [b"short", EPOCH], [NAME, 5]]
GOOD: dict[Segment, list[Any]] = {
    Segment.SECTION: [1, 1, [ENTRY], [ENTRY]],
    Segment.PART: [[ENTRY], []],
    Segment.DELTA: [1, 1, [ENTRY], [ENTRY]],
    Segment.ACK: [0],
    Segment.JOINED: [NAME, EPOCH, {NAME: 1}],
    Segment.ADMIT: [NAME, NAME],
    Segment.FORWARD: [NAME, EPOCH, {"a": 1}, 0, False, b"k" * 32, [b"m"], [NAME, EPOCH, 1]],
    Segment.ROOM: [NAME, EPOCH, 1, 1],
    Segment.DRAIN: [NAME, EPOCH, 1],
    Segment.GIVEN: [NAME, EPOCH, 1, 1, 2],
    Segment.GONE: ["c", 1],
    Segment.BODY: [NAME, b"k" * 32, 0, b"m"],
    Segment.OUTCOME: [NAME, EPOCH, [1, 1]],
    Segment.OUTCOME_IN_FULL: [NAME, EPOCH, 1, [1, 2, 3, 1], [NAME], b"added"],
    Segment.SETTLE: [NAME, EPOCH, [1, 1]],
    Segment.SETTLED: [NAME, EPOCH, [1, 1]],
    Segment.FENCED: [NAME, EPOCH],
    Segment.RESOLVE: [NAME, EPOCH, b"k" * 32],
    Segment.RESOLVED: [NAME, EPOCH, b"k" * 32],
    Segment.EXPIRE: [1, NAME, EPOCH, 1],
    Segment.VOTE: [1, NAME, EPOCH, 1, True],
    Segment.EXPIRED: [1, NAME, EPOCH, 1],
    Segment.GOSSIP: [[ENTRY]],
    Segment.APPLIED: [{"a": [1, 2]}],
}
MALFORMED: list[Any] = [
    [99],
    [[]],
    [],
    "text",
    [Segment.ACK],
    [Segment.ACK, "1"],
    [Segment.ACK, 1, 2],
    [Segment.SECTION, 1, 0, [[1]], []],
    [Segment.DELTA, 1, 1, [[2, *ENTRY[1:]]], []],
    [Segment.DELTA, 1, 1, [[*ENTRY[:4], 9, *ENTRY[5:]]], []],
    [Segment.DELTA, 1, 1, [[0, *ENTRY[1:]]], []],
    [Segment.DELTA, 1, 1, [[1, ["c", b"l", "x"], *ENTRY[2:]]], []],
    [Segment.DELTA, 1, 1, [[1, ["c", "l", "x"], ["1", "b", 1], *ENTRY[3:]]], []],
    [Segment.APPLIED, {"a": [1]}],
    [Segment.APPLIED, {"a": 5}],
    [Segment.APPLIED, {1: [1, 2]}],
    [Segment.APPLIED, {"a": [1, "2"]}],
    [Segment.ADMIT, b"short", NAME],
    [Segment.ADMIT, b"\xff" * 12, NAME],
    [Segment.FORWARD, NAME, EPOCH, {"a": 1}, 0, False, b"k" * 31, [b"m"], None],
    [Segment.FORWARD, NAME, EPOCH, {"a": 1}, 0, False, b"k" * 32, ["m"], None],
    [Segment.OUTCOME, NAME, EPOCH, [1]],
    [Segment.OUTCOME, NAME, EPOCH, [1, None]],
    [Segment.OUTCOME_IN_FULL, NAME, EPOCH, 1, [1, 2, 3], [], b""],
    [Segment.FENCED, NAME, 5],
    [Segment.FORWARD, NAME, EPOCH, {"a": "1"}, 0, False, b"k" * 32, [b"m"], None],
    *([Segment.FORWARD, NAME, EPOCH, {"a": 1}, 0, False, b"k" * 32, [b"m"], only] for only in ONLY),
    [Segment.JOINED, NAME, EPOCH, {b"short": 1}],
    [Segment.JOINED, NAME, EPOCH, {NAME: "1"}],
    [Segment.JOINED, NAME, EPOCH, {NAME: -2}],
    [Segment.OUTCOME_IN_FULL, NAME, EPOCH, 1, None, [b"short"], b""],
    [Segment.OUTCOME_IN_FULL, NAME, EPOCH, 1, None, [], bytes(4097)],
    [Segment.RESOLVE, NAME, EPOCH, b"k" * 31],
    [Segment.GOSSIP, [1.5]],
    [Segment.GIVEN, NAME, EPOCH, 1, 1, 3],
    [Segment.EXPIRE, 2, NAME, EPOCH, 2],
    [Segment.EXPIRE, True, NAME, EPOCH, 1],
    [Segment.EXPIRE, 1, NAME, EPOCH, 1.5],
    [Segment.EXPIRE, 1, NAME, EPOCH, 3],
    [Segment.EXPIRE, 0, NAME, EPOCH, 1],
    *([kind, *good[:place], 1.5, *good[place + 1 :]] for kind, good in GOOD.items() for place in range(len(good))),
    *([Segment.DELTA, 1, 1, [[*ENTRY[:place], 1.5, *ENTRY[place + 1 :]]], []] for place in range(len(ENTRY))),
]


@pytest.mark.parametrize("segment", MALFORMED, ids=repr)
def test_a_malformed_batch_is_the_peers_fault_and_nothing_of_it_is_applied(segment: Any) -> None:
    bench = Bench("a", "b")
    directory = bench.cores["a"].directory
    good = [Segment.DELTA, 1, 1, [ENTRY], []]
    with pytest.raises(BreachError):
        bench.cores["a"].receive("b", msgpack.packb([GOOD_ACK, good, segment]))
    assert (list(directory.entries()), directory.applied["b"]) == ([], 0)


def test_every_kind_of_segment_is_read_as_it_is_written() -> None:
    assert GOOD.keys() == set(Segment)
    said = [[kind, *columns] for kind, columns in GOOD.items()]
    assert decode(msgpack.packb(said)) == msgpack.unpackb(msgpack.packb(said), strict_map_key=False)


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x91", b"\x81\x90\x00", msgpack.packb(5), b"\x90trailing"])
def test_bytes_that_are_no_batch_are_the_peers_fault(payload: bytes) -> None:
    with pytest.raises(BreachError):
        decode(payload)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_batch_or_the_peers_fault(payload: bytes) -> None:
    with contextlib.suppress(BreachError):
        decode(payload)


def test_a_router_writes_in_its_own_section_only() -> None:
    bench = Bench("a", "b")
    foreign = [*ENTRY[:2], [1, "c", 1], *ENTRY[3:]]
    for segment in ([Segment.DELTA, 1, 1, [foreign], []], [Segment.SECTION, 1, 1, [foreign], []]):
        with pytest.raises(BreachError, match="of another router"):
            bench.cores["a"].receive("b", msgpack.packb([segment]))


def test_a_version_that_was_never_written_cannot_be_acknowledged() -> None:
    with pytest.raises(BreachError, match="acknowledged version"):
        Bench("a", "b").cores["a"].receive("b", msgpack.packb([[Segment.ACK, 1]]))


def test_outcomes_of_what_home_never_sent_are_harmless() -> None:
    bench = Bench("a", "b")
    pen = bench.publisher("a")
    ranges = [0, 1 << 62, 5, 2, 0, 0]
    for kind in (Segment.OUTCOME, Segment.SETTLED):
        say(bench, kind, pen, ranges)
    say(bench, Segment.OUTCOME_IN_FULL, pen, 7, None, [], b"")
    assert bench.records() == {}


def say(bench: Bench, kind: Segment, pen: Pen, *columns: Any) -> None:
    """What b says to a of the publisher's deliveries."""
    bench.cores["a"].receive("b", msgpack.packb([[kind, pen.stream.publisher, pen.stream.epoch, *columns]]))
    bench.collect("a")


def test_a_forward_of_nothing_is_harmless() -> None:
    bench = Bench("a", "b")
    say(bench, Segment.FORWARD, bench.publisher("b"), {"a": 0}, 0, False, b"", [], None)
    assert bench.records() == {}


def test_delivery_in_doubt_is_awaited_though_a_router_says_settled() -> None:
    bench = Bench("a", "b")
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    pen.send(b"1")
    say(bench, Segment.SETTLED, pen, [0, 0])
    assert bench.records() == {"a": 1, "b": 1} and not pen.outcomes
    reader.accept(b"1")
    pen.settle(b"1")
    assert bench.records() == {} and len(reader.settled) == 1


def test_second_settlement_of_a_delivery_has_no_effect() -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "a"), bench.publisher("b")
    pen.send(b"1")
    for _ in range(2):
        say(bench, Segment.SETTLE, pen, [0, 0])
    assert len(reader.settled) == 1


@pytest.mark.parametrize("later", [True, False])
def test_settlement_under_another_attach_has_no_effect(later: bool) -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "a"), bench.publisher("b")
    pen.send(b"1")
    epoch = pen.stream.epoch._replace(hlc=pen.stream.epoch.hlc + (1 if later else -1))
    bench.cores["a"].receive("b", msgpack.packb([[Segment.SETTLE, pen.stream.publisher, epoch, [0, 0]]]))
    bench.collect("a")
    assert not reader.settled


def test_resolved_under_one_attach_resolves_under_no_other() -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "a"), bench.publisher("b")
    pen.send(b"1")
    stream = pen.stream
    another = Stream(stream.publisher, stream.identity, stream.epoch, stream.generation, stream.kind)
    bench.cores["a"].edge.settlement.resolved(another, [pen.sent[b"1"].key])
    bench.collect("a")
    assert not reader.settled


def test_router_that_breaks_the_protocol_is_lost_once_for_this_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench("a", "b")
    noted: list[Happening] = []
    monkeypatch.setattr(bench.stations["a"], "note", noted.append)
    for _ in range(2):
        bench.stations["a"].contacts.received("b", b"garbage")
    bench.collect("a")
    assert [type(happening) for happening in noted] == [ContactLost]
    assert not bench.cores["a"].directory.contacts


def test_a_publisher_that_is_fenced_twice_is_detached_once() -> None:
    bench = Bench("a", "b")
    pen = bench.publisher("a")
    for _ in range(2):
        say(bench, Segment.FENCED, pen)
    bench.flow()
    assert [action.link for action in bench.actions["a"] if isinstance(action, Detach)] == [pen]


@pytest.mark.parametrize("is_known", [True, False])
def test_forwards_of_a_gone_or_unknown_publisher_are_fenced(is_known: bool) -> None:
    bench = Bench("a", "b", "c")
    bench.kill("c")  # who has closed is remembered
    pen = bench.publisher("b")
    pen.close()
    name, epoch = (pen.stream.publisher, pen.stream.epoch) if is_known else (NAME, Epoch(1, "b", 1))
    forward = [Segment.FORWARD, name, epoch, {"a": 0}, 0, False, b"k" * 32, [b"m"], None]
    bench.cores["a"].receive("b", msgpack.packb([forward]))
    bench.collect("a")
    assert bench.said[-1] == ("a", "b", Segment.FENCED) and bench.records() == {}
