"""The message-format of transfers, which proton neither reads nor writes (AMQP 1.0 2.7.5): carried, per delivery."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.amqp.format.codec import decode
from router.amqp.format.errors import INVALID_FIELD
from router.amqp.format.message import content_of, format_of, in_envelope, modified
from router.amqp.format.performative import build, parse
from router.amqp.format.values import NO_STATE
from tests.router.amqp.frames import TRANSFER, attach, frame, opening
from tests.router.amqp.pair import Pair
from tests.router.amqp.server import Answering, server

BATCH = 0x80013700  # Azure's: many messages in one
FORMATS = [0, 5, 0, 0, BATCH, BATCH, 0, 2**32 - 1, 0]


def formats_in(data: bytes) -> list[int]:
    """Of the transfers that are written, frame by frame."""
    formats = []
    while data:
        size = int.from_bytes(data[:4], "big")
        if data[10] == TRANSFER:
            formats.append(decode(parse(data[:size]).fields[3])[0])
        data = data[size:]
    return formats


def sent(message: bytes, message_format: int) -> bytes:
    return in_envelope(message, message_format) if message_format or message >= b"\xff" else message


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("size", [1, 100, 200_000])
def test_each_delivery_keeps_its_format(size: int, settled: bool) -> None:
    """Also amid others of one tag, and over many frames."""
    pair = Pair(max_frame=4096)
    sender, _ = pair.sending(credit=100)
    messages = [sent(bytes([n]) * size, message_format) for n, message_format in enumerate(FORMATS)]
    for n, message in enumerate(messages):
        sender.send(b"same" if settled else b"%d" % n, message, settled)
    pair.pump()
    assert pair.there.messages == messages
    assert [format_of(message) for message in pair.there.messages] == FORMATS
    assert [content_of(message) for message in pair.there.messages] == [bytes([n]) * size for n in range(len(FORMATS))]


def test_the_wire_has_it_where_amqp_has_it() -> None:
    pair = Pair()
    sender, _ = pair.sending()
    for n, message_format in enumerate(FORMATS):
        sender.send(b"%d" % n, sent(b"message", message_format))
    data = pair.client.data_to_send()
    assert formats_in(data) == FORMATS
    assert data.count(b"message") == len(FORMATS) and b"\xff\x00\x00\x00\x05" not in data


@pytest.mark.parametrize("max_frame", [512, 65536])
def test_a_resumed_delivery_has_its_format_too(max_frame: int) -> None:
    pair = Pair(max_frame=max_frame)
    sender = pair.client.sender("out", "topic/x", unsettled={b"1": NO_STATE, b"2": NO_STATE})
    pair.pump()
    receiver = pair.there.attached[-1]
    receiver.answer(unsettled={b"1": NO_STATE, b"2": NO_STATE})
    receiver.flow(10)
    pair.pump()
    messages = [in_envelope(b"a" * 2000, BATCH), b"b" * 2000]
    for tag, message in zip((b"1", b"2"), messages, strict=True):
        sender.send(tag, message, resume=True)
    sender.send(b"3", b"c")
    pair.pump()
    assert [message for _, message, *_ in pair.there.resumed] == messages
    assert pair.there.messages == [b"c"]


@given(st.binary(min_size=1, max_size=20))
def test_what_begins_like_an_envelope_arrives_as_it_was(content: bytes) -> None:
    """A message of format 0 that is none: nobody may choose a format by its content."""
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(frame(TRANSFER, 0, 0, b"t", 0, True, payload=b"\xff" + content), 0.0)
    (message,) = handler.messages
    assert (content_of(message), format_of(message)) == (b"\xff" + content, 0)
    connection.release()


UINTS = {0: [b"\x40", b"\x43", b"\x52\x00", bytes(5).replace(b"\0", b"\x70", 1)], 67: [b"\x52\x43", b"\x70\0\0\0\x43"]}


@pytest.mark.parametrize("message_format", UINTS)
def test_however_it_is_encoded(message_format: int) -> None:
    """Also right behind transfers that look much like it."""
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    forms = [form for pair in zip(UINTS[message_format], [b"\x43"] * 4, strict=False) for form in pair]
    transfers = [
        build(b"\0\0", TRANSFER, [b"\x43", bytes((0x52, n)), b"\xa0\x01R", form, b"\x41", b"\x42"], b"m")
        for n, form in enumerate(forms, 5)
    ]
    connection.receive(b"".join(transfers), 0.0)
    assert [format_of(message) for message in handler.messages[::2]] == [message_format] * len(UINTS[message_format])
    assert {format_of(message) for message in handler.messages[1::2]} == {0}
    connection.release()


def test_an_aborted_delivery_leaves_no_format_behind() -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    begun = frame(TRANSFER, 0, 0, b"t", 5, True, True, payload=b"m")
    aborted = frame(TRANSFER, 0, 0, b"t", None, True, False, None, None, None, True)
    connection.receive(begun + aborted + frame(TRANSFER, 0, 1, b"u", 0, True, payload=b"m"), 0.0)
    assert handler.messages == [b"m"]
    connection.release()


def test_messages_of_another_format_have_no_header_of_ours() -> None:
    message = in_envelope(b"\x00\x53\x70\x45" + b"what only its format knows", 5)
    assert modified(message, 3, b"\xc1\x05\x02\xa3\x01a\x40") == message


@pytest.mark.parametrize(("first", "then", "goes_on"), [(0, 1, False), (1, 2, False), (1, 1, True), (1, None, True)])
def test_a_delivery_has_one_format(first: int, then: int | None, goes_on: bool) -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(frame(TRANSFER, 0, 0, b"t", first, True, True, payload=b"one"), 0.0)
    connection.receive(frame(TRANSFER, 0, 0, b"t", then, True, False, payload=b"two"), 0.0)
    assert [content_of(message) for message in handler.messages] == ([b"onetwo"] if goes_on else [])
    assert (INVALID_FIELD.encode() in connection.data_to_send()) is not goes_on
    connection.release()
