"""What routers say to each other about sets, as bytes: what is written is read, and nothing else is."""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topic.errors import BreachError
from topic.queues.operations import Browse, Declare, Done, MessagePage, QueueId, Refused, RefusedFor
from topic.queues.operations import encode as encode_operation
from topic.queues.wire import SETS, Answers, Leads, Message, Requested, decode, encode, read_operation
from topic.raft.configuration import Replica
from topic.raft.life import SetLife
from topic.raft.messages import Envelope, Vote

LIFE = SetLife(100, "a")
MESSAGES: list[Message] = [
    Envelope(LIFE, Replica("a", b"store"), Replica("b", b""), Vote(2, 5, 1)),
    Leads(LIFE, 3, True),
    Requested(((0, encode_operation(Declare("queue/x"))), (1, encode_operation(Browse("queue/x", 5))), (7, b""))),
    Answers(
        (
            (0, Done(QueueId(LIFE, 5), QueueId(SetLife(101, "a"), 9))),
            (7, Refused(RefusedFor.BUSY, "try again later")),
        )
    ),
    Answers(((0, MessagePage(((5, b"message"), (9, b"")), 10)), (1, MessagePage((), 5)))),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_each_kind_is_read_as_it_was_written(message: Message) -> None:
    assert decode(encode("q0", message)) == ("q0", message)


@given(st.integers(0, 4), st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_breach(kind: int, body: bytes) -> None:
    try:
        name, message = decode(SETS + bytes([kind]) + body)
    except BreachError:
        return
    assert decode(encode(name, message)) == (name, message)


@pytest.mark.parametrize(
    ("kind", "parts", "why"),
    [
        (1, [], "Leads is"),
        (1, ["", [1, "a"], 1, True], "names the set ''"),
        (1, ["s", [-1, "a"], 1, True], "expected a clock and a router"),
        (1, ["s", [1, "a"], -1, True], "expected a term"),
        (1, ["s", [1, "a"], 1, 1], "true or false"),
        (2, ["s", {}], "Requested has"),
        (2, ["s", [[1, "text"]]], "expected a number and bytes"),
        (2, ["s", [[True, b""]]], "expected a number and bytes"),
        (3, ["s", [[1, b"\xc1"]]], "no msgpack"),
        (3, ["s", [[1, msgpack.packb([[[5, "text"]], 6])]]], "expected a position and a message"),
        (3, ["s", [[1, msgpack.packb([[], -1])]]], "expected a number"),
        (3, ["s", [[1, msgpack.packb(["else", "why"])]]], "not a valid"),
    ],
)
def test_what_no_router_writes_is_a_breach(kind: int, parts: list[Any], why: str) -> None:
    with pytest.raises(BreachError, match=why):
        decode(SETS + bytes([kind]) + msgpack.packb(parts))


def test_an_operation_that_no_router_writes_is_a_breach() -> None:
    with pytest.raises(BreachError, match="no msgpack"):
        read_operation(b"")
    with pytest.raises(BreachError, match="begins with b''"):
        decode(b"")
