"""Peers that break AMQP: their connection (or link) ends with the right error, and nothing else happens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.amqp.connection import Connection
from router.amqp.format.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    INVALID_FIELD,
    MESSAGE_SIZE,
    NOT_ALLOWED,
    RESOURCE_LIMIT,
    TRANSFER_LIMIT,
    AmqpError,
)
from router.amqp.format.performative import code_of
from router.amqp.format.values import ACCEPTED, RCV_SECOND, REJECTED, Bounds, Uncounted
from router.amqp.inbox import DELIVERY_BYTES, MOST_EXCESS
from tests.router.amqp.frames import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    FLOW,
    HEADER,
    OPEN,
    Raw,
    attach,
    frame,
    opening,
    settlement,
    transfer,
)
from tests.router.amqp.pair import Pair, Recorder
from tests.router.amqp.server import Answering, condition_of, hear_damaged, server


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 64, b"AMQP\x00\x00\x09\x01", b"\x16\x03\x01"])
def test_bytes_that_are_not_amqp(garbage: bytes) -> None:
    handler = Recorder()
    assert condition_of(server(handler), garbage + bytes(16)) == FRAMING_ERROR
    assert handler.events == [("close", FRAMING_ERROR)]


def test_a_frame_larger_than_announced() -> None:
    connection = server(max_frame=4096)
    assert condition_of(connection, opening(), (5000).to_bytes(4, "big") + b"\x02\x00\x00\x00") == FRAMING_ERROR


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        (b"\x00\x53\x1f\x45", FRAMING_ERROR),
        (b"\x00\xa3\x0eamqp:else:list\x45", FRAMING_ERROR),
        (b"\x00\x53\x14\x40", DECODE_ERROR),
        (b"nonsense", FRAMING_ERROR),
    ],
)
def test_a_frame_of_no_known_kind(body: bytes, condition: str) -> None:
    data = (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body
    assert condition_of(server(), opening(), data) == condition


def test_begin_before_open() -> None:
    assert condition_of(server(), HEADER + frame(BEGIN, None, 0, 1000, 1000)) == NOT_ALLOWED


@pytest.mark.parametrize("cut", [0, 8])
@pytest.mark.parametrize("data", [frame(BEGIN, None, 0, 1000, 1000), frame(OPEN, "name\0of another")])
def test_whoever_breaks_amqp_before_or_by_its_open_is_told(data: bytes, cut: int) -> None:
    connection = server()
    data = HEADER + data
    connection.receive(data[:cut], 0.0)
    assert connection.data_to_send() in (b"", HEADER)
    with pytest.raises(AmqpError) as caught:
        connection.receive(data[cut:], 0.0)
    told = connection.data_to_send()
    while told:
        last, told = told, told[int.from_bytes(told[:4], "big") :] if told[:4] != b"AMQP" else told[8:]
    assert code_of(last) == CLOSE
    assert caught.value.condition.encode() in last
    assert connection.data_to_send() == b""


def test_a_second_open() -> None:
    assert condition_of(server(), opening() + frame(OPEN, "again")) == NOT_ALLOWED


def test_attach_without_a_session() -> None:
    assert condition_of(server(), HEADER + frame(OPEN, "x") + attach("a", 0, receiver=False)) == NOT_ALLOWED


def test_a_link_name_that_is_not_utf8() -> None:
    assert condition_of(server(), opening() + attach("\udcff", 0, receiver=False)) == DECODE_ERROR


def test_properties_nested_without_end() -> None:
    nested = b"\x40"
    for _ in range(2000):
        nested = b"\xd0" + (4 + len(nested)).to_bytes(4, "big") + b"\x00\x00\x00\x01" + nested
    data = opening() + attach("a", 0, receiver=False, properties=Raw(nested))
    connection = server()
    try:
        connection.receive(data, 0.0)
    except AmqpError as error:
        assert error.condition == DECODE_ERROR


def test_transfers_without_credit_end_the_link() -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(b"".join(transfer(0, n) for n in range(11)), 0.0)
    assert handler.events[-1] == ("detach", "a", False, TRANSFER_LIMIT)
    assert handler.messages == []
    assert not connection.closed


def test_transfers_without_credit_that_come_before_the_peer_has_read_our_detach_are_ignored() -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False) + attach("b", 1, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(b"".join(transfer(0, n) for n in range(11)), 0.0)
    assert handler.events[-1] == ("detach", "a", False, TRANSFER_LIMIT)
    connection.data_to_send()
    connection.receive(b"".join(transfer(0, n) for n in range(11, 99)), 0.0)
    assert connection.data_to_send() == b"", "they are not settled"
    connection.receive(transfer(1, 99), 0.0)
    assert len(handler.messages) == 1, "the other link goes on"
    connection.receive(frame(DETACH, 0, False) + attach("a", 0, receiver=False), 0.0)
    connection.receive(transfer(0, 100), 0.0)
    assert len(handler.messages) == 2, "the link has credit again"
    connection.release()


def test_transfers_without_credit_on_a_detached_link_count_and_do_not_go_on_for_ever() -> None:
    class Counted(Uncounted):
        held = 0

        def add(self, size: int) -> None:
            self.held += size

    connection = server(Answering())
    connection.account = account = Counted()
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(b"".join(transfer(0, n) for n in range(11)), 0.0)
    before = account.held
    connection.receive(b"".join(transfer(0, n) for n in range(11, MOST_EXCESS + 10)), 0.0)
    assert account.held - before >= (MOST_EXCESS - 1) * DELIVERY_BYTES
    with pytest.raises(AmqpError, match=TRANSFER_LIMIT):
        connection.receive(transfer(0, MOST_EXCESS + 10), 0.0)
    connection.release()


def test_a_transfer_to_a_sending_end() -> None:
    data = opening() + attach("a", 0, receiver=True)
    assert condition_of(server(), data, transfer(0, 0)) == NOT_ALLOWED


def test_a_transfer_to_a_sending_end_amid_its_dispositions() -> None:
    data = opening() + attach("a", 0, receiver=True) + frame(FLOW, 0, 1000, 0, 1000, 0, 0, 5)
    accepted = b"\x00\x53\x24\x45"
    disposition = frame(DISPOSITION, True, 0, 4, True)[:-1] + b"\x41" + accepted
    assert condition_of(server(), data, transfer(0, 0) + disposition + transfer(0, 1)) in (NOT_ALLOWED, FRAMING_ERROR)


def test_a_tag_too_long() -> None:
    data = opening() + attach("a", 0, receiver=False)
    assert condition_of(server(), data, transfer(0, 0, b"x" * 33)) == INVALID_FIELD


def test_more_links_than_anybody_needs() -> None:
    connection = server(Recorder())
    connection.receive(opening(), 0.0)
    attaches = [attach(f"l{n}", n, receiver=False) for n in range(Bounds().links + 1)]
    assert condition_of(connection, b"".join(attaches)) == RESOURCE_LIMIT


def test_a_message_too_large_ends_its_link_and_nothing_else() -> None:
    pair = Pair(max_frame=4096, max_message=10_000)
    sender, _ = pair.sending()
    other = pair.client.sender("other", "topic/x")
    pair.pump()
    pair.there.attached[-1].answer()
    pair.there.attached[-1].flow(1)
    pair.pump()
    sender.send(b"1", bytes(10_000))
    sender.send(b"2", bytes(10_001))
    sender.send(b"3", b"late")
    pair.pump()
    other.send(b"4", b"fine")
    pair.pump()
    assert pair.there.tags == [b"1", b"4"]
    assert pair.there.events[-1] == ("detach", "link", False, MESSAGE_SIZE)
    assert pair.here.events[-1] == ("detach", "link", False, MESSAGE_SIZE)
    assert [outcome[1:] for outcome in pair.here.outcomes] == [(REJECTED, True)], "the others stay in doubt"


def test_a_transfer_cut_off_or_aborted_leaves_nothing() -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(transfer(0, 0, b"1", more=True, payload=b"beginning"), 0.0)
    connection.receive(transfer(0, 0, b"1", aborted=True, payload=b""), 0.0)
    connection.receive(transfer(0, 1, b"2", payload=b"whole"), 0.0)
    assert handler.messages == [b"whole"]
    assert handler.attached[0].credit == 9  # the aborted one had taken one too, and gave it back
    connection.receive(transfer(0, 2, b"3", more=True, payload=b"beginning"), 0.0)
    connection.receive_eof()
    assert handler.messages == [b"whole"]
    assert handler.events[-1] == ("close", None)
    connection.release()


def test_an_aborted_transfer_that_is_settled_besides_is_no_news() -> None:
    """Nobody was told of it."""
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    between = attach("b", 1, receiver=False)
    connection.receive(transfer(0, 0, b"1", aborted=True) + between + settlement(0, 0), 0.0)
    assert handler.outcomes == []
    connection.release()


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_whoever_aborts_again_and_again_keeps_its_credit(frames: int) -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    for n in range(3 * handler.credit):
        parts = [transfer(0, n, b"1", more=True)] * (frames - 1)
        connection.receive(b"".join(parts) + transfer(0, n, b"1", aborted=True), 0.0)
        assert code_of(connection.data_to_send()) == FLOW
    connection.receive(b"".join(transfer(0, n) for n in range(3 * handler.credit, 4 * handler.credit)), 0.0)
    assert len(handler.messages) == handler.credit
    connection.receive(transfer(0, 4 * handler.credit), 0.0)
    assert handler.events[-1] == ("detach", "a", False, TRANSFER_LIMIT)
    connection.release()


def test_aborted_transfers_need_credit_too() -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(b"".join(transfer(0, n) for n in range(handler.credit)), 0.0)
    assert len(handler.messages) == handler.credit
    connection.receive(transfer(0, handler.credit, aborted=True), 0.0)
    assert handler.events[-1] == ("detach", "a", False, TRANSFER_LIMIT)
    connection.release()


def test_silence_beyond_the_idle_timeout() -> None:
    handler = Recorder()
    connection = server(handler, idle_timeout=2.0)
    connection.receive(opening(), 0.0)
    now: float | None = 100.0
    with pytest.raises(AmqpError) as caught:
        while now is not None and now < 110.0:
            now = connection.tick(now)
    assert caught.value.condition == RESOURCE_LIMIT
    assert now is not None and 102.0 <= now <= 102.5
    assert handler.events[-1] == ("close", RESOURCE_LIMIT)


def conversation() -> bytes:
    """What a client sends that does a bit of everything."""
    pair = Pair()
    sent = bytearray()
    take = pair.client.data_to_send

    def tapped() -> bytes:
        data = take()
        sent.extend(data)
        return data

    pair = Pair.__new__(Pair)
    pair.here, pair.there, pair.errors = Recorder(), Answering(), []
    pair.client = Connection(pair.here, container="client", server=False, properties={"a": [1, {"b": b"c"}]})
    pair.server = Connection(pair.there, container="server", server=True)
    take = pair.client.data_to_send
    pair.client.data_to_send = tapped  # type: ignore[method-assign]
    pair.client.open()
    pair.pump()
    sender = pair.client.sender("out", "topic/x", rcv_settle_mode=RCV_SECOND, properties={"x": "y"})
    receiver = pair.client.receiver("in", "topic/x", rcv_settle_mode=RCV_SECOND)
    receiver.flow(3)
    pair.pump()
    sender.send(b"1", b"a" * 200)
    sender.send(b"2", b"b" * 40, settled=True)
    pair.pump()
    receiver.update_many(pair.here.deliveries, ACCEPTED)
    receiver.drain(2)
    pair.pump()
    sender.detach(closed=False)
    receiver.detach()
    pair.pump()
    pair.client.close()
    pair.pump()
    return bytes(sent)


CONVERSATION = conversation()


@settings(max_examples=400)
@given(st.data())
def test_a_damaged_conversation_ends_at_worst_its_connection(data: st.DataObject) -> None:
    hear_damaged(data, CONVERSATION, Answering())


@settings(max_examples=200)
@given(st.lists(st.binary(min_size=1, max_size=60), max_size=8))
def test_frames_of_random_content(bodies: list[bytes]) -> None:
    connection = server()
    connection.receive(opening() + attach("a", 0, receiver=False) + attach("b", 1, receiver=True), 0.0)
    connection.data_to_send()
    try:
        for body in bodies:
            code = bytes([ATTACH + body[0] % 9 - 2])
            payload = b"\x00\x53" + code + b"\xc0" + bytes([min(len(body), 255)]) + body
            connection.receive((8 + len(payload)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + payload, 0.0)
            connection.data_to_send()
    except AmqpError:
        assert connection.closed
    connection.release()
