"""The frame tap on the byte stream: frames in pieces, frames of odd forms, and what it adds to ours."""

from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.amqp.batches import Dispositions, PostedMessage, Transfers
from router.amqp.connection import Connection
from router.amqp.format.codec import Described as DecodedType
from router.amqp.format.codec import decode
from router.amqp.format.errors import FRAMING_ERROR
from router.amqp.format.values import ACCEPTED, NO_STATE, RELEASED, DeliveryState
from router.amqp.frames.walk import _PLAIN
from router.amqp.inbox import Inbox
from router.amqp.proton.link import Link
from tests.router.amqp.frames import (
    ATTACH,
    DISPOSITION,
    FLOW,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    Raw,
    Symbol,
    attach,
    encode,
    frame,
    opening,
    transfer,
)
from tests.router.amqp.pair import Pair, Recorder
from tests.router.amqp.server import Answering, condition_of, hear_damaged, server
from tests.router.amqp.test_sessions import frames_of
from tests.topic.raft.mutants import Broken, must_notice
from topic.queues.transactions.transactions import NAME_BYTES


class Resuming(Answering):
    def on_attach(self, link: Link) -> None:
        Recorder.on_attach(self, link)
        link.answer(unsettled={b"1": ACCEPTED, b"2": NO_STATE})
        if not link.is_sender:
            link.flow(50)


def conversation() -> list[bytes]:
    """What a client sends that uses all of the tap, flush by flush."""
    pair = Pair()
    pair.here, pair.there, sent = Recorder(), Resuming(), []
    pair.client = Connection(pair.here, container="client", server=False)
    pair.server = Connection(pair.there, container="server", server=True)
    take = pair.client.data_to_send

    def tapped() -> bytes:
        data = take()
        sent.append(data)
        return data

    pair.client.data_to_send = tapped  # type: ignore[method-assign]
    pair.client.open()
    pair.pump()
    sender = pair.client.sender("out", "topic/x", unsettled={b"1": NO_STATE, b"2": ACCEPTED, b"3": NO_STATE})
    receiver = pair.client.receiver("in", "topic/x", unsettled={})
    pair.pump()
    sender.send(b"1", b"a" * 300, resume=True)
    sender.send(b"4", b"new")
    sender.send(b"2", b"", resume=True, state=ACCEPTED)
    sender.send(b"3", b"", resume=True, aborted=True)
    sender.send(b"5", b"new too", settled=True)
    sender.echo()
    receiver.flow(2)
    pair.pump()
    receiver.echo()
    pair.pump()
    pair.client.close()
    pair.pump()
    assert len(pair.there.resumed) == 3
    return [data for data in sent if data]


FLUSHES = conversation()
CONVERSATION = b"".join(FLUSHES)


def hear(*pieces: bytes) -> tuple[object, ...]:
    handler = Resuming()
    connection = server(handler)
    for piece in pieces:
        connection.receive(piece, 0.0)
        connection.data_to_send()
    connection.receive_eof()
    maps = [(link.name, link.remote_unsettled) for link in handler.attached]
    connection.release()
    return handler.events, handler.order, handler.resumed, handler.messages, maps


WHOLE = hear(*FLUSHES)


def test_a_conversation_in_two_pieces_cut_anywhere() -> None:
    assert WHOLE[1] == [("resumed", b"1"), ("new", b"4"), ("resumed", b"2"), ("resumed", b"3"), ("new", b"5")]
    assert WHOLE[4] == [
        ("out", {b"1": DeliveryState(), b"2": DeliveryState(ACCEPTED), b"3": DeliveryState()}),
        ("in", {}),
    ]
    for n, data in enumerate(FLUSHES):
        for cut in range(1, len(data)):
            assert hear(*FLUSHES[:n], data[:cut], data[cut:], *FLUSHES[n + 1 :]) == WHOLE


@pytest.mark.parametrize("size", [1, 2, 3, 7, 13, 14, 15])
def test_a_conversation_in_small_pieces(size: int) -> None:
    assert hear(*(CONVERSATION[at : at + size] for at in range(0, len(CONVERSATION), size))) == WHOLE


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_conversation_ends_at_worst_its_connection(data: st.DataObject) -> None:
    hear_damaged(data, CONVERSATION, Resuming())


def extended(plain: bytes) -> bytes:
    """The same frame with an extended header."""
    return (len(plain) + 8).to_bytes(4, "big") + b"\x04" + plain[5:8] + b"\x00\x53\x14\xc0\x00\x00\x00\x00" + plain[8:]


def test_frames_with_extended_headers_and_heartbeats_between() -> None:
    heartbeat = b"\x00\x00\x00\x08\x02\x00\x00\x00"
    handler = Resuming()
    connection = server(handler)
    source, target = Described(SOURCE, "topic/x"), Described(TARGET, "topic/x")
    asking = frame(ATTACH, "a", 0, False, None, None, source, target, {b"1": None}, None, 0)
    connection.receive(opening() + heartbeat * 3 + extended(asking) + heartbeat, 0.0)
    connection.data_to_send()
    connection.receive(heartbeat + extended(transfer(0, 0, b"7")) + heartbeat + transfer(0, 1, b"8"), 0.0)
    assert handler.attached[0].remote_unsettled == {b"1": DeliveryState()}
    assert handler.tags == [b"7", b"8"]
    connection.release()


@pytest.mark.parametrize("size", [0, 7, 70_000, 2**32 - 1])
def test_sizes_that_no_frame_has(size: int) -> None:
    connection = server()
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    assert condition_of(connection, size.to_bytes(4, "big") + b"\x02\x00\x00\x00" + bytes(20)) == FRAMING_ERROR


def test_a_large_frame_in_pieces_is_not_held_back() -> None:
    """Proton counts the bytes that it was given for the peer's sign of life."""
    connection = server(Answering(), idle_timeout=2.0)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    large = transfer(0, 0, payload=bytes(50_000))
    for second, at in enumerate(range(0, len(large), 5_000)):
        connection.receive(large[at : at + 5_000], float(second))
        connection.tick(float(second))
    assert not connection.closed


@pytest.mark.parametrize(("asked", "granted"), [(None, None), ("copy", "copy"), ("move", "copy")])
def test_who_names_a_distribution_mode_gets_copies_and_nobody_else_is_told(
    asked: str | None, granted: str | None
) -> None:
    connection = server(Answering())
    source = Described(SOURCE, "topic/x", 0, None, None, None, None, asked and Symbol(asked))
    asking = frame(ATTACH, "a", 0, True, None, None, source, Described(TARGET, "x"), None, None, 0)
    connection.receive(opening() + asking, 0.0)
    data = connection.data_to_send()
    (answer,) = [fields for code, fields in frames_of(data[8:]) if code == ATTACH]
    assert answer[6].value[6] == granted
    connection.release()


def test_a_source_of_ours_names_its_outcomes() -> None:
    pair = Pair()
    pair.client.receiver("in", "topic/x", durable=1, timeout=7)
    pair.client.sender("out", "topic/x")
    pair.pump()
    for link in pair.there.attached:
        link.answer(durable=1, timeout=5, properties={"a": "b"})
    attaches = {}
    data = pair.server.data_to_send()
    while data:
        size = int.from_bytes(data[:4], "big")
        performative, _ = decode(data[8:size])
        if performative.descriptor == ATTACH:
            attaches[performative.value[0]] = performative.value
        data = data[size:]
    source = attaches["in"][5].value
    assert source[0] == "topic/x"
    assert source[8] == DecodedType(0x26, [])
    assert source[9] == [f"amqp:{outcome}:list" for outcome in ("accepted", "rejected", "released", "modified")]
    assert attaches["in"][13] == attaches["out"][13] == {"a": "b"}
    assert len(attaches["out"][5].value) <= 5


LOST = (b"", b"a transaction")
"""What `Posting` notes of a part of this transaction that is lost."""


class Posting(Answering):
    """Notes the messages within transactions, among the others and the dispositions."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes | tuple[bytes, bytes] | int] = []

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        super().on_transfers(link, transfers)
        self.seen += transfers.messages

    def on_posted(self, link: Link, posted: PostedMessage) -> None:
        self.seen.append((posted.message, posted.transaction))

    def on_part_lost(self, connection: Connection, transaction: bytes) -> None:
        self.seen.append((b"", transaction))

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        self.seen += dispositions.states
        super().on_dispositions(link, dispositions)


DESCRIPTORS = [b"\x53\x34", encode(Symbol("amqp:transactional-state:list"))]


@pytest.mark.parametrize("code", DESCRIPTORS)
@pytest.mark.parametrize("before", [[], [None, None, False]])
@pytest.mark.parametrize("resume", [None, True])
def test_a_transfer_within_a_transaction_comes_in_its_place(
    before: list[Any], code: bytes, resume: bool | None
) -> None:
    """Nobody takes it for a message that its sender cannot take back, resumed or not."""
    handler = Posting()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False) + attach("b", 1, receiver=False), 0.0)
    connection.data_to_send()
    state = Raw(b"\0" + code + encode([b"transaction"]))
    plain = [frame(TRANSFER, 0, n, b"%d" % n, 0, False, False, *before, payload=b"%d" % n) for n in range(3)]
    within = frame(TRANSFER, 0, 3, b"3", 0, False, True, None, state, resume, payload=b"3")
    within += frame(TRANSFER, 0, None, None, None, False, False, payload=b"33")
    later = frame(TRANSFER, 0, 4, b"4", 0, False, False, *before, payload=b"4")
    connection.receive(b"".join(plain) + within + later + transfer(1, 5, payload=b"5"), 0.0)
    assert handler.seen == [b"0", b"1", b"2", (b"333", b"transaction"), b"4", b"5"]
    assert not connection.closed
    connection.release()


@pytest.mark.parametrize("code", DESCRIPTORS)
def test_an_outcome_within_a_transaction_comes_before_the_discharge_behind_it(code: bytes) -> None:
    handler = Posting()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False) + attach("b", 1, receiver=True), 0.0)
    connection.receive(frame(FLOW, 0, 100, 0, 100, 1, 0, 2), 0.0)
    connection.data_to_send()
    state = Raw(b"\0" + code + encode([bytes(NAME_BYTES)]))
    outcome = frame(DISPOSITION, True, 0, None, True, state)
    assert len(outcome) > _PLAIN, "even without an outcome the tap looks into it"
    connection.receive(outcome + transfer(0, 0, payload=b"discharge"), 0.0)
    assert handler.seen == [0x34, b"discharge"]
    connection.release()


def within(*fields: Any) -> Raw:
    """A transactional state."""
    return Raw(b"\0\x53\x34" + encode([b"a transaction", *fields]))


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize(
    ("last", "over", "are_lost"),
    [
        (None, [], False),
        (1, [], False),
        (None, [0], True),
        (1, [0], True),
        (1, [1], True),
        (5, [], True),
    ],
)
def test_an_outcome_of_a_delivery_that_is_over_is_lost_to_its_transaction(
    last: int | None, over: list[int], are_lost: bool, is_written: bool
) -> None:
    """The router may have settled it while the outcome was under way."""
    handler = Posting()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False) + attach("b", 1, receiver=True), 0.0)
    with patch.object(Posting, "on_credit", Recorder.on_credit):
        connection.receive(frame(FLOW, 0, 100, 0, 100, 1, 0, 2), 0.0)
    link = handler.attached[1]
    handles = [link.send(b"%d" % number, b"message") for number in range(2)]
    connection.data_to_send()
    for number in over:
        link.update(handles[number], RELEASED, settle=True)
    if is_written:
        connection.data_to_send()
    outcome = frame(DISPOSITION, True, 0, last, False, within(Described(0x24, [])))
    connection.receive(outcome + transfer(0, 0, payload=b"discharge"), 0.0)
    told = (len(handles) if last is not None else 1) - len(over)
    assert handler.seen == [LOST] * are_lost + [0x34] * told + [b"discharge"]
    connection.release()


@pytest.mark.parametrize("why", ["detached", "too large", "without credit"])
@pytest.mark.parametrize("is_settled", [False, True])
def test_a_message_that_is_not_taken_is_lost_to_its_transaction(why: str, is_settled: bool) -> None:
    handler = Posting()
    handler.credit = 1
    connection = server(handler, max_message=20)
    connection.receive(opening() + attach("a", 0, receiver=False) + attach("b", 1, receiver=False), 0.0)
    connection.data_to_send()
    if why == "detached":
        connection.expel(handler.attached[0], "amqp:resource-deleted", "the queue is deleted")
    if why == "without credit":
        connection.receive(transfer(0, 0, payload=b"a message"), 0.0)
        handler.seen.clear()
    body = bytes(100 if why == "too large" else 10)
    message = frame(TRANSFER, 0, 1, b"1", 0, is_settled, False, None, within(), payload=body)
    connection.receive(message + transfer(1, 2, payload=b"discharge"), 0.0)
    assert handler.seen == [LOST, b"discharge"]
    connection.release()


BROKEN: list[Broken] = [
    (Inbox, "hand_over_outcomes", "handle not in self._settling", "True",
     partial(test_an_outcome_of_a_delivery_that_is_over_is_lost_to_its_transaction, None, [0], True, False)),
    (Inbox, "hand_over_outcomes", "told.deliveries", "1",
     partial(test_an_outcome_of_a_delivery_that_is_over_is_lost_to_its_transaction, 1, [0], True, True)),
    (Inbox, "_discard", "self._lose_part(link, delivery)", "pass",
     partial(test_a_message_that_is_not_taken_is_lost_to_its_transaction, "detached", is_settled=False)),
    (Inbox, "_reject_oversized", "self._lose_part(link, delivery)", "pass",
     partial(test_a_message_that_is_not_taken_is_lost_to_its_transaction, "too large", is_settled=False)),
    (Inbox, "_complete_posted", "self._lose_part(link, delivery)", "pass",
     partial(test_a_message_that_is_not_taken_is_lost_to_its_transaction, "without credit", is_settled=False)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_of_transactions_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
