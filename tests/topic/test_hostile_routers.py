"""Routers that have proven who they are and say what no router would: it costs them their contact, and nobody else."""

import tracemalloc
from typing import Any

import msgpack
import pytest

from tests.topic.bench import Bench, pen_at, reader_at
from tests.topic.clients import NEWS, Pen
from topic.actions import Detach
from topic.directory.entry import Status, unpack_entry
from topic.errors import BreachError
from topic.identity import Epoch
from topic.wire.segments import Segment, decode

NAME = b"publisher123"
EPOCH = Epoch(1, "a", 1)
NEGATIVE_AND_MORE_THAN_CAN_BE_SAID = (-5, 1 << 63, (1 << 64) - 1)


def forward(pen: Pen, first: int, *keys: bytes, only: Any = None, presettled: bool = False) -> list[Any]:
    stream, joined = pen.stream, b"".join(keys)
    messages = [b"m"] * len(keys)
    return [Segment.FORWARD, stream.publisher, stream.epoch, {"a": 0}, first, presettled, joined, messages, only]


def key_of(pen: Pen, number: int) -> bytes:
    return pen.stream.publisher + b"%020d" % number


def say(bench: Bench, *segments: list[Any]) -> None:
    """What b says to a."""
    bench.cores["a"].receive("b", msgpack.packb(segments))
    bench.collect("a")


@pytest.mark.parametrize("number", NEGATIVE_AND_MORE_THAN_CAN_BE_SAID)
def test_a_number_that_nobody_can_have_counted_breaks_the_protocol(number: int) -> None:
    for segment in (
        [Segment.SECTION, number, 0, [], []],
        [Segment.SECTION, 0, number, [], []],
        [Segment.DELTA, number, 0, [], []],
        [Segment.APPLIED, {"b": [1, number]}],
        [Segment.OUTCOME, NAME, EPOCH, [0, number]],
        [Segment.OUTCOME_IN_FULL, NAME, EPOCH, number, None, [], b""],
        [Segment.OUTCOME_IN_FULL, NAME, EPOCH, 0, [number, 0, 0, 0], [], b""],
        [Segment.JOINED, NAME, EPOCH, {NAME: number}],
        [Segment.BODY, NAME, b"k" * 32, number, b"m"],
    ):
        with pytest.raises(BreachError, match="malformed"):
            decode(msgpack.packb([segment]))


@pytest.mark.parametrize("first", [-5, (1 << 64) - 1, (1 << 63) - 1])
@pytest.mark.parametrize("presettled", [True, False])
def test_the_places_of_deliveries_are_numbers_that_can_be_said(first: int, presettled: bool) -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "a"), bench.publisher("b")
    for only in (None, [reader.end.name, reader.end.epoch]):
        with pytest.raises(BreachError, match="malformed"):
            say(bench, forward(pen, first, key_of(pen, 1), key_of(pen, 2), only=only, presettled=presettled))
    assert not reader.handed


def subscriber(hlc: int, status: Status = Status.ATTACHED, name: str = "s") -> list[Any]:
    """An entry in b's section, of the subscriber that `reader_at` would be."""
    return [1, [name, "link", NEWS], [hlc, "b", 1], b"", int(status), 60, "connection-close", 1, False, "", 0]


def test_who_comes_after_an_end_by_a_clock_that_nobody_believes_is_attached_all_the_same() -> None:
    """All have forgotten the end, and know its epoch: what is lower they take for what was under way."""
    bench, far = Bench("a", "b", "c"), 1 << 60
    for status in (Status.ATTACHED, Status.CLOSED):
        for other in "ac":
            bench.carry("b", other, msgpack.packb([[Segment.DELTA, 0, 0, [subscriber(far, status)], []]]))
    bench.flow()
    assert not list(bench.cores["a"].directory.entries())
    reader = reader_at(bench, "a")
    assert reader.end.epoch.hlc > far
    pen = bench.publisher("c")
    pen.send(b"1")
    assert reader.delivered == [b"1"]


@pytest.mark.parametrize("number", NEGATIVE_AND_MORE_THAN_CAN_BE_SAID)
def test_the_clocks_and_lifetimes_of_links_are_counts(number: int) -> None:
    good = subscriber(1)
    entries = [[*good[:2], epoch, *good[3:]] for epoch in ([number, "b", 1], [1, "b", number])]
    entries += [[*good[:place], number, *good[place + 1 :]] for place in (5, 7, 10)]
    for entry in entries:
        for segment in ([Segment.DELTA, 1, 0, [entry], []], [Segment.GOSSIP, [entry]], [Segment.PART, [], [entry]]):
            with pytest.raises(BreachError, match="malformed"):
                decode(msgpack.packb([segment]))


def test_an_attach_that_none_can_follow_costs_its_client_alone() -> None:
    bench = Bench("a", "b", "c")
    of_pen = [0, ["p", "link", NEWS], [(1 << 63) - 1, "b", 1], b"8 bytes!", 0, 60, "connection-close", 1, False, "", 0]
    made_up = bench.tick("b")
    for fields in (subscriber((1 << 63) - 1), of_pen):
        made_up.outlet.write_entry(made_up.directory, unpack_entry(fields))
    bench.flow()
    reader, pen = reader_at(bench, "a"), pen_at(bench, "a")
    for end in (reader, pen):
        [detach] = end.mine(Detach)
        assert detach.condition == "amqp:resource-limit-exceeded"
    bench.tick("a").detach_subscriber(reader.end, reader, bench.now)
    pen.close()
    other, writer = reader_at(bench, "a", "other"), pen_at(bench, "c", name="another")
    writer.send(b"1")
    assert [message for _, message in other.handed] == [b"1"]


@pytest.mark.parametrize("end", [Status.CLOSED, Status.ATTACHED])
def test_a_link_is_told_of_once_at_a_time(end: Status) -> None:
    bench = Bench("a", "b")
    twice = [subscriber(5), subscriber(5, end)]
    for segments in (
        [[Segment.SECTION, 2, 5, twice, []]],
        [[Segment.SECTION, 2, 5, [], twice]],
        [[Segment.SECTION, 2, 5, twice[:1], twice[1:]]],
        [[Segment.PART, twice[:1], []], [Segment.SECTION, 2, 5, twice[1:], []]],
        [[Segment.DELTA, 2, 0, twice, []]],
        [[Segment.DELTA, 2, 0, [], twice]],
        [[Segment.GOSSIP, twice]],
    ):
        with pytest.raises(BreachError, match="twice"):
            say(bench, *segments)
    assert not list(bench.cores["a"].directory.entries())


def test_a_subscriber_that_lives_and_has_closed_at_once_ends_no_router() -> None:
    bench = Bench("a", "b")
    bench.hold("a", "b")
    pen = pen_at(bench, "a", lively=False)
    say(bench, [Segment.DELTA, 1, 0, [subscriber(5)], []], [Segment.ACK, bench.cores["a"].directory.version])
    with pytest.raises(BreachError, match="twice"):
        say(bench, [Segment.SECTION, 2, 5, [subscriber(5), subscriber(5, Status.CLOSED)], []])
    for _ in range(2):
        bench.cores["a"].alive(pen.stream)
        bench.collect("a")


def test_what_is_forwarded_by_name_when_it_is_settled_is_passed_over() -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "a"), bench.publisher("b")
    bench.hold("a", "b")
    say(bench, forward(pen, 1, key_of(pen, 1)))
    reader.accept(b"m")
    say(bench, [Segment.SETTLE, pen.stream.publisher, pen.stream.epoch, [1, 1]])
    assert [record.unread for record in reader.settled] == [1]
    say(bench, forward(pen, 1, key_of(pen, 1), only=[reader.end.name, reader.end.epoch]))
    reader.answer_echo()
    assert (reader.delivered, bench.records()) == ([b"m"], {})


MIB = 1 << 20


def array(length: int, content: bytes) -> bytes:
    return b"\xdd" + length.to_bytes(4, "big") + content


@pytest.mark.parametrize(
    "payload",
    [
        array(4 * MIB, b"\x90" * 4 * MIB),
        array(4 * MIB, b"\x80" * 4 * MIB),
        array(1, array(4 * MIB, b"\x90" * 4 * MIB)),
        array(1, array(8, array(MIB // 2, b"\x90" * (MIB // 2)) * 8)),
        msgpack.packb([[Segment.BODY, NAME, b"k" * 32, 0, bytes(2 * MIB)]]) + b"\x90",
        array(2, msgpack.packb([Segment.RESOLVE, NAME, EPOCH, bytes(64 * MIB // 32)])),
        array(1, array(MIB, b"") * 100 + bytes(2 * MIB)),
        b"\xc4" + bytes(2 * MIB),
    ],
    ids=["lists", "maps", "a long segment", "a deep one", "with more", "cut off", "deeper than it goes", "no list"],
)
def test_what_is_large_and_no_batch_takes_no_more_memory_than_its_bytes(payload: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BreachError):
            decode(payload)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(payload)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "segments",
    [
        [[Segment.ACK, 1]] * 350_000,
        [[Segment.DELTA, 1, 0, [], []]] * 220_000,
        [[Segment.GOSSIP, [[1, ["c", "l", "t"], EPOCH, b"", 0, 0, "", 0, False, "", 0]]]] * 50_000,
        [[Segment.FENCED, NAME, EPOCH]] * 50_000,
        [[Segment.OUTCOME, NAME, EPOCH, [number, number]] for number in range(50_000)],
        [[Segment.FORWARD, NAME, EPOCH, {"a": 1}, 0, False, b"k" * 32, [bytes(2 * MIB)], [NAME, EPOCH]]] * 2,
    ],
    ids=["acks", "deltas", "gossip", "fences", "outcomes", "messages"],
)
def test_a_large_batch_is_read_as_a_small_one(segments: list[list[Any]]) -> None:
    payload = msgpack.packb(segments)
    assert len(payload) > MIB
    assert decode(payload) == msgpack.unpackb(payload, strict_map_key=False)


def test_of_a_publisher_that_is_not_there_nothing_goes_ahead() -> None:
    bench = Bench("a", "b", "c")
    pen, elsewhere = bench.publisher("b"), bench.publisher("c", "elsewhere")
    for name in (NAME, elsewhere.stream.publisher):
        for at in (0, 4):
            say(bench, [Segment.BODY, name, name + b"k" * 20, at, b"1234"])
    come = bench.cores["a"].peers.bodies.come
    assert not come
    say(bench, [Segment.BODY, pen.stream.publisher, key_of(pen, 1), 0, b"1234"])
    assert list(come) == [pen.stream.publisher]
    pen.close()
    assert not come


def test_only_where_a_publisher_is_attached_it_has_its_home() -> None:
    bench = Bench("a", "b", "c")
    reader, pen = bench.subscriber("a"), bench.publisher("c")
    name, epoch, key = pen.stream.publisher, pen.stream.epoch, key_of(pen, 1)
    for segment in (forward(pen, 0, key), [Segment.SETTLE, name, epoch, [0, 0]], [Segment.RESOLVED, name, epoch, key]):
        with pytest.raises(BreachError, match="attached at router c"):
            say(bench, segment)
    pen.send(b"1")
    assert reader.delivered == [b"1"]


@pytest.mark.parametrize("is_known_older", [False, True])
def test_who_has_not_heard_of_an_ending_by_a_clock_far_ahead_is_told_how_far(is_known_older: bool) -> None:
    """Router c has started again since: what it attaches first is ended at once, and what comes next is later."""
    bench, far = Bench("a", "b", "c"), 1 << 60
    for status in (Status.ATTACHED, Status.CLOSED):
        for other in ("a", "c"):
            bench.carry("b", other, msgpack.packb([[Segment.DELTA, 0, 0, [subscriber(far, status)], []]]))
    bench.flow()
    bench.kill("c")
    bench.boot("c", 2)
    for other in ("a", "b"):
        bench.meet("c", other)
    bench.flow()
    if is_known_older:
        older = subscriber(5, Status.EXPIRED)
        older[9] = "something was missed"
        bench.carry("b", "a", msgpack.packb([[Segment.GOSSIP, [older]]]))
        bench.flow()
    assert reader_at(bench, "c").mine(Detach)
    reader = reader_at(bench, "c")
    assert reader.answered and not reader.mine(Detach)
    pen = pen_at(bench, "a")
    pen.send(b"1")
    assert reader.delivered == [b"1"]


def test_an_attach_above_one_by_a_clock_far_ahead_says_nothing_of_those_that_others_have_not_heard_of() -> None:
    """The publisher's attach at a is on its way to b, which it goes on to: its life goes on when that has come."""
    bench, far = Bench("a", "b", "c"), 1 << 60
    for status in (Status.ATTACHED, Status.CLOSED):
        for other in ("a", "c"):
            bench.carry("b", other, msgpack.packb([[Segment.DELTA, 0, 0, [subscriber(far, status)], []]]))
    bench.flow()
    far_reader, reader = reader_at(bench, "a"), reader_at(bench, "c", "other")
    assert far_reader.end.epoch.hlc > far
    far_reader.close()
    bench.hold("a", "b")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    pen.vanish()
    again = pen_at(bench, "b", pen, unsettled={b"1": 0}, seen=pen.stream.epoch)
    bench.let_go()
    assert again.stream.generation == pen.stream.generation
    assert reader.delivered == [b"1"]
