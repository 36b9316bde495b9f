"""Routers that have proven who they are and say what no router would: it costs them their contact, and nobody else."""

from typing import Any

import msgpack
import pytest

from tests.topic.bench import Bench, reader_at
from tests.topic.clients import Pen
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
        [Segment.DELTA, number, [], []],
        [Segment.APPLIED, {"b": [1, number]}],
        [Segment.OUTCOME, NAME, EPOCH, [0, number]],
        [Segment.OUTCOME_IN_FULL, NAME, EPOCH, number, None, []],
        [Segment.OUTCOME_IN_FULL, NAME, EPOCH, 0, [number, 0, 0], []],
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
