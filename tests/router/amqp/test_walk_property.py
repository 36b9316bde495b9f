"""The walk over frames in a row notes and passes what it would, were they alone."""

from hypothesis import given
from hypothesis import strategies as st

from router.amqp.format import performative
from router.amqp.format.performative import DISPOSITION, FLOW, TRANSFER, build
from router.amqp.frames.walk import Walk

STATES = b"\x40", b"\x40", b"\x00\x53\x34\x45"
IDS = st.integers(700, 709) | st.integers(0, 2**32 - 1)


def word(number: int) -> bytes:
    return b"\x70" + number.to_bytes(4, "big")


@st.composite
def transfers(draw: st.DrawFn) -> bytes:
    tag = draw(st.binary(min_size=2, max_size=3))
    handle, form = (
        draw(st.sampled_from([b"\x43", b"\x43", b"\x52\x01"])),
        draw(st.sampled_from([b"\x43", b"\x43", b"\x52\x05"])),
    )
    more = draw(st.sampled_from([[], [], *([b"\x41", b"\x40", state, b"\x42"] for state in STATES)]))
    fields = [handle, word(draw(IDS)), b"\xa0" + bytes((len(tag),)) + tag, form, b"\x42", *more]
    return build(b"\0\0", TRANSFER, fields, draw(st.binary(min_size=1, max_size=2)))


@st.composite
def dispositions(draw: st.DrawFn) -> bytes:
    first = draw(st.sampled_from([word(draw(IDS)), word(draw(IDS)), b"\x52\x05", b"\x43"]))
    last = draw(st.sampled_from([b"\x40", b"\x40", word(draw(IDS)), b"\x52\x09"]))
    settled = draw(st.sampled_from([b"\x41", b"\x41", b"\x41", b"\x42"]))
    role = draw(st.sampled_from([b"\x41", b"\x42", b"\x42"]))
    return build(b"\0\0", DISPOSITION, [role, first, last, settled])


FLOWS = st.just(build(b"\0\0", FLOW, [b"\x40"]))
FRAMES = st.lists(transfers() | dispositions() | FLOWS, max_size=12)


def is_settlement_of_receiver(frame: bytes) -> bool:
    role, _, _, settled = performative.parse(frame).fields[:4] if frame[10] == DISPOSITION else [b""] * 4
    return role == settled == b"\x41"


def walked(data: bytes, *, notes: bool, settles: bool = False) -> tuple[int, list[int]]:
    """How far it comes, and the delivery-ids that it notes as settled. `settles`: so does what came before."""
    told: list[int] = []
    walk = Walk(65536, lambda channel: told if notes else None)
    walk.attached[b"\0\0", 0] = b"\0\0", "link", True
    walk.begin()
    walk.settles = settles
    stop = walk.past(data, 0)
    ranges = zip(told[::2], told[1::2], strict=True)
    return stop, [
        number for first, last in ranges for number in {first, last} | set(range(first, min(last, first + 99)))
    ]


@given(FRAMES, st.integers(1, 4), st.booleans())
def test_frames_in_a_row_are_passed_as_each_would_be(frames: list[bytes], times: int, notes: bool) -> None:
    row = [frame for frame in frames for _ in range(times)]
    passed, told, settles = 0, [], False
    for frame in row:
        stop, settled = walked(frame, notes=notes, settles=settles)
        if stop < len(frame):
            break
        passed += stop
        settles = settles or is_settlement_of_receiver(frame)
        told += settled
    stop, settled = walked(b"".join(row), notes=notes)
    assert stop == passed
    assert set(settled) >= set(told) if stop < sum(map(len, row)) else set(settled) == set(told)


def test_who_writes_all_fields_of_its_transfers_is_passed_until_one_has_a_state() -> None:
    def transfer(number: int, state: bytes) -> bytes:
        fields = [b"\x43", word(number), b"\xa0\x01t", b"\x43", b"\x42", b"\x42", b"\x50\x01", state, *[b"\x42"] * 3]
        return build(b"\0\0", TRANSFER, fields, b"message")

    plain = b"".join(transfer(number, b"\x40") for number in range(20))
    data = plain + transfer(20, b"\x00\x53\x34\x45")
    assert walked(data, notes=False) == (len(plain), [])
    assert walked(data[len(plain) :], notes=False) == (0, [])


def test_a_row_ends_where_the_first_frame_begins_that_is_alike_in_its_begin_only() -> None:
    """In Python 3.11.2, that of Debian 12, a pattern with a possessive quantifier ended in the middle of that frame."""

    def transfer(message_format: bytes) -> bytes:
        return build(b"\0\0", TRANSFER, [b"\x43", word(7), b"\xa0\x01t", message_format, b"\x42"], b"message")

    data = b"".join([*[transfer(b"\x43")] * 9, *[transfer(b"\x40")] * 9])
    assert walked(data, notes=False) == (len(data), [])
