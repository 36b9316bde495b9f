"""Messages between replicas as bytes: what is written is read, and nothing else is."""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topic.errors import BreachError
from topic.raft import messages as say
from topic.raft.configuration import Configuration, Replica
from topic.raft.life import SetLife
from topic.raft.log import Entry, Snapshot
from topic.raft.messages import Body, Envelope
from topic.raft.wire import KINDS, decode, encode

A, B = Replica("a", b"store a"), Replica("b", b"")
MEMBERS = Configuration((A, B), (Replica("c", b"\xff"),), ("a", "b", "d"), ("e",))
BODIES: list[Body] = [
    say.Greeting(True, ("a", "b"), b"map", True),
    say.Propose(MEMBERS, False),
    say.PreVote(2, 5, 1),
    say.PreVoted(2),
    say.Vote(2, 5, 1),
    say.Voted(2),
    say.Lead(3, 7, 2, 6),
    say.Append(3, 7, 2, (Entry(3, b"x"), Entry(3, b"", MEMBERS)), 6),
    say.Stored(3, 9, 8),
    say.Lacking(3, 4, 1, 2),
    say.Lacking(3, 4, 1, 2, 9, 5, b"end"),
    say.Piece(3, Snapshot(4, 2, MEMBERS), 1, b"piece", b"end", True),
    say.Staged(3, 4, 1),
    say.Digest(3, 1000, b"digest"),
    say.Outdated(2**63 - 1),
    say.Resigned(1),
    say.StandNow(1),
    say.Distrust(1),
]

LIFE = SetLife(100, "a")
WRONG_LIVES = (100, [100], [100, "a", 1], [-1, "a"], [1.5, "a"], [2**63, "a"], [100, ""], [0, "a"], [100, "x" * 256])


def test_each_kind_is_read_as_it_was_written() -> None:
    assert {type(body) for body in BODIES} == set(KINDS)
    for body in BODIES:
        envelope = Envelope(LIFE, A, B, body)
        assert decode(encode("queues-1", envelope)) == ("queues-1", envelope)


def broken() -> list[tuple[str, Any]]:
    """Messages that no replica writes, each with a word of the reason."""
    vote = msgpack.unpackb(encode("set", Envelope(LIFE, A, B, say.Vote(2, 5, 1))))
    append = msgpack.unpackb(encode("set", Envelope(LIFE, A, B, BODIES[7])))
    return [
        ("array", {}),
        ("array", vote[:4]),
        ("kind", [*vote[:4], 99, *vote[5:]]),
        ("kind", [*vote[:4], True, *vote[5:]]),
        ("fields, expected 3", vote[:-1]),
        ("fields, expected 3", [*vote, 1]),
        ("last_term", [*vote[:-1], -1]),
        ("last_term", [*vote[:-1], 2**63]),
        ("last_term", [*vote[:-1], "1"]),
        ("set", ["", *vote[1:]]),
        ("set", ["x" * 256, *vote[1:]]),
        *(("life", ["set", life, *vote[2:]]) for life in WRONG_LIVES),
        ("sender", ["set", [1, "a"], ["a"], *vote[3:]]),
        ("receiver", ["set", [1, "a"], vote[2], ["b", "text"], *vote[4:]]),
        ("entries", [*append[:8], [[1]], append[9]]),
        ("entries", [*append[:8], [[1, b"", [], 5]], append[9]]),
        ("twice", [*append[:8], [[1, b"", [["a", b""], ["a", b"1"]], [], [], []]], append[9]]),
        ("twice", [*append[:8], [[1, b"", [["a", b""]], [], ["a", "a"], []]], append[9]]),
        ("twice", [*append[:8], [[1, b"", [["a", b""]], [], ["a"], ["b", "b"]]], append[9]]),
    ]


@pytest.mark.parametrize(("reason", "message"), broken(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_message_that_no_replica_writes_is_refused_by_name(reason: str, message: Any) -> None:
    with pytest.raises(BreachError, match=reason):
        decode(msgpack.packb(message))


@given(
    st.binary(max_size=60) | st.sampled_from(BODIES).map(lambda body: encode("s", Envelope(LIFE, A, B, body))),
    st.data(),
)
def test_any_bytes_are_read_or_refused(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, max(len(data) - 1, 0)))
    changed = data[:at] + draw.draw(st.binary(max_size=2)) + data[at + draw.draw(st.integers(0, 2)) :]
    try:
        name, envelope = decode(changed)
    except BreachError:
        return
    assert decode(encode(name, envelope)) == (name, envelope)
