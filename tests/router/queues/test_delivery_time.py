"""The time from which consumers may have a message, as its annotations say."""

from typing import Any

import pytest

from router.amqp.format.codec import Described, Symbol, Timestamp, encode
from router.amqp.format.message import MESSAGE_ANNOTATIONS, data_message, in_envelope
from router.queues.delivery_time import delivery_ms
from topic.properties import DELIVERY_TIME

TEXT = data_message(b"1")


def annotated(value: Any) -> bytes:
    return encode(Described(MESSAGE_ANNOTATIONS, {Symbol("x-opt-mine"): 7, Symbol(DELIVERY_TIME): value})) + TEXT


@pytest.mark.parametrize(
    ("value", "time_ms"),
    [(5, 5), (Timestamp(2**60), 2**60), (0, 0), (-5, 0), (True, 0), ("5", 0), (None, 0), (1.5, 0)],
)
def test_the_time_is_a_number(value: Any, time_ms: int) -> None:
    assert delivery_ms(annotated(value)) == time_ms


def test_what_is_no_annotation_is_no_time() -> None:
    for message in (b"", TEXT, data_message(DELIVERY_TIME.encode()), DELIVERY_TIME.encode(), annotated(5)[:-7]):
        assert delivery_ms(message) in (0, 5)
    assert delivery_ms(data_message(DELIVERY_TIME.encode())) == 0
    assert delivery_ms(in_envelope(TEXT, 7)) == 0
