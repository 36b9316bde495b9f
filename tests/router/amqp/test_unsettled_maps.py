"""Unsettled maps in attaches: what one end says, the other reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.amqp.connection import Connection
from router.amqp.format.errors import DECODE_ERROR, INVALID_FIELD, AmqpError
from router.amqp.format.unsettled import decode_map, encode_entries
from router.amqp.format.values import (
    ACCEPTED,
    MODIFIED,
    NO_STATE,
    RECEIVED,
    REJECTED,
    RELEASED,
    TRANSACTIONAL,
    DeliveryState,
)
from tests.router.amqp.frames import ATTACH, SOURCE, TARGET, Described, Raw, Symbol, encode, frame, opening
from tests.router.amqp.pair import Pair
from tests.router.amqp.server import condition_of, server

STATES = (NO_STATE, RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED)
maps = st.dictionaries(st.binary(max_size=32), st.sampled_from(STATES), max_size=20)


def states(unsettled: dict[bytes, int]) -> dict[bytes, DeliveryState]:
    return {tag: DeliveryState(state) for tag, state in unsettled.items()}


@given(maps)
def test_a_map_is_read_as_it_was_written(unsettled: dict[bytes, int]) -> None:
    content = b"".join(entry for _, entry in encode_entries(unsettled))
    head = b"\xd1" + (len(content) + 4).to_bytes(4, "big") + (2 * len(unsettled)).to_bytes(4, "big")
    assert decode_map(head + content) == states(unsettled)


@pytest.mark.parametrize("ours", [None, {}, {b"": NO_STATE, b"x" * 32: ACCEPTED, b"1": RECEIVED, b"2": MODIFIED}])
@pytest.mark.parametrize("theirs", [None, {}, {b"a": REJECTED, b"b": RELEASED}])
def test_both_ends_learn_the_map_of_the_other(ours: dict[bytes, int] | None, theirs: dict[bytes, int] | None) -> None:
    pair = Pair()
    sender = pair.client.sender("link", "topic/x", unsettled=ours, properties={"a": 1})
    pair.pump()
    receiver = pair.there.attached[0]
    receiver.answer(unsettled=theirs)
    pair.pump()
    assert receiver.remote_unsettled == (None if ours is None else states(ours))
    assert sender.remote_unsettled == (None if theirs is None else states(theirs))
    assert not receiver.remote_incomplete_unsettled and not sender.remote_incomplete_unsettled
    assert receiver.remote_properties == {"a": 1} and sender.remote_properties == {}


def test_maps_of_links_that_are_answered_together_and_refused_or_ended_before() -> None:
    pair = Pair()
    links = [pair.client.receiver("same name", "topic/x")]
    links += [pair.client.sender("same name", "topic/x", unsettled={b"s": ACCEPTED})]
    links += [pair.client.sender(f"link {n}", "topic/x", unsettled={b"%d" % n: NO_STATE}) for n in range(4)]
    pair.pump()
    answers = pair.there.attached
    answers[2].refuse("amqp:not-found")
    answers[5].flow(1)  # before its answer: proton has it at the head of its work then
    for n in (5, 1, 0, 4, 3):
        answers[n].answer(unsettled={b"%d" % n: ACCEPTED})
    answers[4].detach(closed=False)
    pair.pump()
    for n in (0, 1, 3, 4, 5):
        assert links[n].remote_unsettled == states({b"%d" % n: ACCEPTED})
    assert links[2].remote_unsettled is None


def test_a_map_larger_than_a_frame_is_sent_as_far_as_it_fits() -> None:
    keys = {b"%032d" % n: ACCEPTED if n % 2 else NO_STATE for n in range(1000)}
    pair = Pair(max_frame=16 * 1024)
    sender = pair.client.sender("link", "topic/x", unsettled=keys)
    pair.pump()
    receiver = pair.there.attached[0]
    assert receiver.remote_unsettled is not None and receiver.remote_incomplete_unsettled
    seen = list(receiver.remote_unsettled)
    assert len(seen) > 400
    assert [*seen, *sender.omitted] == list(keys)
    receiver.answer(unsettled=keys, incomplete_unsettled=False)
    pair.pump()
    assert sender.remote_unsettled is not None and sender.remote_incomplete_unsettled
    assert [*sender.remote_unsettled, *receiver.omitted] == list(keys)
    assert pair.errors == []


def test_a_large_frame_takes_a_large_map_whole() -> None:
    keys = {b"%032d" % n: ACCEPTED for n in range(1000)}
    pair = Pair(max_frame=64 * 1024)
    sender = pair.client.sender("link", "topic/x", unsettled=keys)
    pair.pump()
    assert pair.there.attached[0].remote_unsettled == states(keys)
    assert not pair.there.attached[0].remote_incomplete_unsettled and sender.omitted == ()


def test_a_map_may_be_called_incomplete_by_its_owner() -> None:
    pair = Pair()
    pair.client.receiver("link", "topic/x", unsettled={b"1": ACCEPTED}, incomplete_unsettled=True)
    pair.pump()
    assert pair.there.attached[0].remote_incomplete_unsettled
    assert pair.there.attached[0].remote_unsettled == states({b"1": ACCEPTED})


def test_before_the_open_of_the_peer_a_map_has_the_least_frame() -> None:
    pair = Pair()
    pair.client = Connection(pair.here, container="client", server=False)
    pair.server = Connection(pair.there, container="server", server=True)
    pair.client.open()
    link = pair.client.sender("link", "topic/x", unsettled={b"%032d" % n: ACCEPTED for n in range(100)})
    pair.pump()
    assert pair.there.attached[0].remote_incomplete_unsettled and link.omitted


# -- maps by hand


def attach_with(unsettled: object, incomplete: object = None) -> bytes:
    source, target = Described(SOURCE, "topic/x"), Described(TARGET, "topic/x")
    return frame(ATTACH, "a", 0, False, None, None, source, target, unsettled, incomplete, 0)


def read(unsettled: object) -> object:
    return decode_map(encode(unsettled))


def test_other_encodings_of_the_same() -> None:
    received = Raw(b"\x00\x80" + (RECEIVED).to_bytes(8, "big") + b"\xc0\x04\x02\x52\x07\x44")
    named = Raw(b"\x00\xa3\x12amqp:accepted:list\x45")
    long_tag = Raw(b"\xb0\x00\x00\x00\x01t")
    rejected = Described(REJECTED, None)
    assert read({"text": None, Symbol("sym"): named, b"r": received, b"x": rejected}) == {
        b"text": DeliveryState(),
        b"sym": DeliveryState(ACCEPTED),
        b"r": DeliveryState(RECEIVED, 7, 0),
        b"x": DeliveryState(REJECTED),
    }
    assert decode_map(b"\xc1\x08\x02" + long_tag.encoded + b"\x40") == {b"t": DeliveryState()}
    assert decode_map(b"\xc1\x01\x00") == {}


def test_a_state_within_a_transaction_is_none() -> None:
    """The transaction has ended with the link to its coordinator."""
    assert read({b"t": Described(TRANSACTIONAL, b"txn", Described(ACCEPTED))}) == {b"t": DeliveryState()}


HOSTILE = {
    "no map": (b"text", DECODE_ERROR),
    "odd": (Raw(b"\xd1\x00\x00\x00\x07\x00\x00\x00\x01\xa0\x01t"), DECODE_ERROR),
    "too many": (Raw(b"\xd1\x00\x00\x00\x04\xff\xff\xff\xfe"), DECODE_ERROR),
    "too few": (Raw(b"\xd1\x00\x00\x00\x0c\x00\x00\x00\x02\xa0\x01t\x40\x40\x40\x40\x40"), DECODE_ERROR),
    "cut off": (Raw(b"\xd1\x00\x00\x00\x06\x00\x00\x00\x02\xa0\x09"), DECODE_ERROR),
    "twice": (Raw(b"\xc1\x09\x04\xa0\x01t\x40\xa0\x01t\x40"), DECODE_ERROR),
    "a number for a tag": ({7: None}, DECODE_ERROR),
    "half a character for a tag": (Raw(b"\xc1\x07\x02\x73\x00\x00\xd8\x00\x40"), DECODE_ERROR),
    "a tag too long": ({b"t" * 33: None}, INVALID_FIELD),
    "a long tag too long": ({b"t" * 300: None}, INVALID_FIELD),
    "no state": ({b"t": True}, DECODE_ERROR),
    "an unknown state": ({b"t": Described(0x35, b"txn")}, DECODE_ERROR),
    "received of text": ({b"t": Described(RECEIVED, "a", "b")}, DECODE_ERROR),
    "nested": ({b"t": Raw(b"\x00" * 5000)}, DECODE_ERROR),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_map_ends_its_connection(name: str) -> None:
    value, condition = HOSTILE[name]
    if name in ("nested", "cut off"):  # damaged to the point where there is no attach
        with pytest.raises(AmqpError) as caught:
            read(value)
        assert caught.value.condition == condition
    else:
        assert condition_of(server(), opening(), attach_with(value)) == condition


@given(st.binary(min_size=1, max_size=80), st.sampled_from([b"\xc1", b"\xd1", b""]))
def test_random_bytes_for_a_map(content: bytes, constructor: bytes) -> None:
    size = bytes([len(content)]) if constructor == b"\xc1" else len(content).to_bytes(4, "big") if constructor else b""
    connection = server()
    try:
        connection.receive(opening() + attach_with(Raw(constructor + size + content)), 0.0)
    except AmqpError:
        assert connection.closed
    connection.release()


@pytest.mark.parametrize(
    ("head", "complaint"),
    [(b"\xc1\x01\x08", "is cut off"), (b"\xd1\0\0\0\x04\0\0\0\x40", "is cut off"), (b"\xc1\x02\x01\x40", "odd number")],
)
def test_a_map_that_is_cut_off_is_told_from_one_with_an_odd_number_of_elements(head: bytes, complaint: str) -> None:
    with pytest.raises(AmqpError, match=complaint):
        decode_map(head)
