"""Bodies are cut exactly, joined bodies read as one, and whatever else comes is the peer's error."""

from collections.abc import Callable
from contextlib import nullcontext, suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkstate.chunks import CHUNK
from linkstate.frames import (
    DATA,
    GREET,
    JOINED,
    MANY,
    PROBE,
    AgedAdvertisement,
    Entries,
    Hello,
    PeerError,
    Summary,
    bin_prefix,
    decode_channel,
    decode_linkstate,
    encode_entries,
    encode_header,
    encode_hello,
    encode_summary,
)
from linkstate.outbox import Outbox
from router.neighbours import JOINED_BYTES

Decode = Callable[[bytes], object]

HELLO = Hello("a", 7, 99, 8, 12345)
TARGETS = [["b", 1, 2, 3, 4], ["c", 5, 6, 7, 8]]


def data(payload: bytes) -> bytes:
    return encode_header([DATA, "a", 3, 99, TARGETS]) + bin_prefix(len(payload)) + payload


@pytest.mark.parametrize("fields", [[], [1], [2], [2, 5], [2, 5, "rows"], [1, 5, [], 0], 7, "text", {}])
def test_a_linkstate_header_of_another_shape_is_the_peers_error(fields: object) -> None:
    with pytest.raises(PeerError):
        header = msgpack.packb(fields)
        decode_linkstate(bin_prefix(len(header)) + header)


def test_a_chunk_that_is_larger_than_any_is_the_peers_error() -> None:
    assert len(decode_channel(data(bytes(CHUNK)))) == 1
    with pytest.raises(PeerError, match="a chunk has"):
        decode_channel(data(bytes(CHUNK + 1)))


def test_frames_that_are_joined_to_a_body_that_is_larger_than_any_are_the_peers_error() -> None:
    """Each may be answered."""
    probe = encode_header([PROBE, "a", 3, 99, TARGETS])
    most = JOINED // len(probe)
    assert len(decode_channel(most * probe)) == most < 20_000
    with pytest.raises(PeerError, match="share a body"):
        decode_channel((most + 1) * probe)


@pytest.mark.parametrize("most", [MANY - 1, MANY])
def test_link_state_of_more_routers_or_in_more_frames_than_there_are_is_the_peers_error(most: int) -> None:
    names = [f"router {number}" for number in range(most)]
    bodies = [
        most * encode_hello(HELLO),
        encode_summary(1, [(name, 1, 1) for name in names]),
        encode_entries(1, [AgedAdvertisement(name, 1, 1, 0, ()) for name in names]),
    ]
    for body in bodies:
        with nullcontext() if most < MANY else pytest.raises(PeerError, match=f"{MANY}"):
            decode_linkstate(body)


def test_one_frame_may_be_as_long_as_its_targets_make_it() -> None:
    targets = [[f"router {number}", 1, 2, 3, 4] for number in range(JOINED // 10)]
    [frame] = decode_channel(encode_header([PROBE, "a", 3, 99, targets]))
    assert frame.targets == targets


def test_a_neighbour_joins_no_more_than_is_taken() -> None:
    outbox = Outbox()
    for payload in 100 * [b"", bytes(1000), bytes(CHUNK)]:
        outbox.put("channel", data(payload))
    while taken := outbox.take(JOINED_BYTES):
        assert sum(map(len, taken[1])) <= JOINED


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536])
def test_a_prefix_is_as_short_as_it_can_be(size: int) -> None:
    assert bin_prefix(size) + bytes(size) == msgpack.packb(bytes(size))


def test_linkstate_frames_come_back_as_they_were() -> None:
    entry = AgedAdvertisement("b", 9, 3, 250, (("a", 7, 1), ("c", 8, 4)))
    body = encode_hello(HELLO) + encode_summary(98, [("a", 7, 2)]) + encode_entries(97, [entry])
    assert decode_linkstate(body) == [HELLO, Summary(98, {"a": (7, 2)}), Entries(97, (entry,))]


@given(st.lists(st.one_of(st.binary(), st.sampled_from([255, 256, 65535, 65536]).map(bytes)), max_size=3))
def test_payloads_are_any_bytes_and_cut_out_exactly(payloads: list[bytes]) -> None:
    frames = decode_channel(b"".join(map(data, payloads)))
    assert [frame.chunk().content for frame in frames] == payloads
    assert all(frame.targets == TARGETS for frame in frames)
    assert [msgpack.unpackb(frame.raw_chunk()) for frame in frames] == payloads


@given(st.binary(), st.sampled_from([decode_linkstate, decode_channel]))
def test_arbitrary_bytes_are_the_peers_error(body: bytes, decode: Decode) -> None:
    with suppress(PeerError):
        decode(body)


junk: st.SearchStrategy[object] = st.sampled_from(
    [None, True, -1, 0, 2**64 - 1, 0.5, "b", b"b", [], [[]], [["b", 1, 1]], {}]
)
rows = st.lists(junk, max_size=5)
headers = st.builds(
    lambda fields, at, value: [*fields[:at], value, *fields[at + 1 :]],
    st.sampled_from(
        [
            [0, "a", 7, 99, 8, 12345],
            [1, 99, [["a", 7, 2]]],
            [2, 99, [["b", 9, 3, 250, [["a", 7, 1]]]]],
            [DATA, "a", 3, 99, TARGETS],
        ]
    ),
    st.integers(0, 5),
    junk | rows | st.lists(rows, max_size=2),
)


@given(headers, st.sampled_from([decode_linkstate, decode_channel]))
def test_a_header_with_anything_else_in_it_is_the_peers_error(fields: list[object], decode: Decode) -> None:
    with suppress(PeerError):
        decode(encode_header(fields))


@given(st.integers(1, len(data(b"payload")) - 1))
def test_a_body_that_is_cut_off_is_the_peers_error(length: int) -> None:
    with pytest.raises(PeerError):
        decode_channel(data(b"payload")[:length])


@pytest.mark.parametrize(
    "fields",
    [
        [GREET, "a", 3, 99, [["b", 1, 2, 3]]],
        [GREET, "a", 3, 99, [["b", 1, 2, 3, True]]],
        [GREET, "a", 3, 99, ["b"]],
        [GREET, b"a", 3, 99, TARGETS],
        [5, "a", 3, 99, TARGETS],
    ],
)
def test_a_channel_header_of_another_shape_is_the_peers_error(fields: list[object]) -> None:
    with pytest.raises(PeerError):
        decode_channel(encode_header(fields))


@pytest.mark.parametrize(
    "row",
    [
        "b",
        ["b", 1, 1, 0],
        ["b", 1, 1, 0, [["a", 1]]],
        ["b", 1, 1, 0, [["a", 1, 0]]],
        ["b", 1, 1, -1, []],
        ["b", 0, 1, 0, []],
        ["b", 1, 2**63, 0, []],
    ],
)
def test_a_malformed_advertisement_is_the_peers_error(row: object) -> None:
    with pytest.raises(PeerError):
        decode_linkstate(encode_header([2, 99, [row]]))


@pytest.mark.parametrize("incarnation", [0, -1, 2**63])
def test_a_hello_of_an_impossible_incarnation_is_the_peers_error(incarnation: int) -> None:
    with pytest.raises(PeerError):
        decode_linkstate(encode_hello(Hello("a", incarnation, 99, 0, 0)))
