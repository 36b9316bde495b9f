"""Resumed deliveries: sent with `resume`, state and abortion, and told apart from ordinary ones at the other end."""

import pytest

from router.amqp.format.values import ACCEPTED, NO_STATE, RCV_SECOND, REJECTED
from router.amqp.proton.link import Link
from tests.router.amqp.frames import ATTACH, FLOW, SOURCE, TARGET, TRANSFER, Described, Raw, frame, opening
from tests.router.amqp.pair import Pair
from tests.router.amqp.server import Answering, server

MAP = {b"%d" % n: NO_STATE for n in range(10)}


def resuming(pair: Pair, credit: int = 100) -> tuple[Link, Link]:
    """A link from the client whose ends have exchanged maps."""
    sender = pair.client.sender("link", "topic/x", rcv_settle_mode=RCV_SECOND, unsettled=MAP)
    pair.pump()
    receiver = pair.there.attached[-1]
    receiver.answer(unsettled=MAP)
    receiver.flow(credit)
    pair.pump()
    return sender, receiver


def test_resumed_and_ordinary_deliveries_keep_their_order() -> None:
    pair = Pair()
    sender, receiver = resuming(pair)
    for n, resume in enumerate([False, True, True, False, False, True, False]):
        sender.send(b"%d" % n, b"message %d" % n, resume=resume)
    pair.pump()
    kinds = ["new", "resumed", "resumed", "new", "new", "resumed", "new"]
    assert pair.there.order == [(kind, b"%d" % n) for n, kind in enumerate(kinds)]
    assert pair.there.resumed[0] == (b"1", b"message 1", False, NO_STATE, False)
    assert sender.credit == receiver.credit == 93


def test_a_state_needs_no_message_and_the_settlement_follows() -> None:
    pair = Pair()
    sender, _ = resuming(pair)
    handle = sender.send(b"1", b"", resume=True, state=ACCEPTED)
    sender.send(b"2", b"", settled=True, resume=True, state=REJECTED)
    pair.pump()
    assert pair.there.resumed == [(b"1", b"", False, ACCEPTED, False), (b"2", b"", True, REJECTED, False)]
    assert pair.there.resumed_deliveries[1] is None
    assert pair.there.outcomes == []
    sender.settle(handle)
    pair.pump()
    assert pair.there.outcomes == [(pair.there.resumed_deliveries[0], ACCEPTED, True)]


def test_a_resumed_delivery_gets_its_outcome() -> None:
    pair = Pair()
    sender, receiver = resuming(pair)
    handle = sender.send(b"1", b"again", resume=True)
    pair.pump()
    receiver.update_many(pair.there.resumed_deliveries, ACCEPTED)
    pair.pump()
    assert pair.here.outcomes == [(handle, ACCEPTED, False)]


def test_an_aborted_delivery_may_be_followed_by_a_new_one_of_its_tag() -> None:
    pair = Pair()
    sender, receiver = resuming(pair)
    assert sender.send(b"1", b"", resume=True, state=ACCEPTED, aborted=True) is None
    sender.send(b"1", b"anew")
    pair.pump()
    assert pair.there.resumed == [(b"1", b"", True, ACCEPTED, True)]
    assert pair.there.resumed_deliveries == [None]
    assert pair.there.order == [("resumed", b"1"), ("new", b"1")]
    assert sender.credit == receiver.credit == 99, "the engine gives back what the aborted one used"
    assert pair.errors == []


@pytest.mark.parametrize("max_frame", [512, 515, 520, 521, 4096])
def test_resumed_messages_of_all_sizes_fit_the_frames_of_the_peer(max_frame: int) -> None:
    """The receiving proton ends the connection at a frame that is too large."""
    pair = Pair(max_frame=max_frame)
    sender, _ = resuming(pair, 10_000)
    sizes = [*range(max_frame - 80, max_frame + 10), 3 * max_frame, 20_000]
    for size in sizes:
        sender.send(b"%032d" % size, bytes(size), resume=True)
        sender.send(b"%d" % size, b"between")
        sender.send(b"a%d" % size, bytes(size), resume=True, state=REJECTED)
    pair.pump()
    assert pair.errors == []
    assert [(tag, len(message)) for tag, message, *_ in pair.there.resumed] == [
        (tag, size) for size in sizes for tag in (b"%032d" % size, b"a%d" % size)
    ]
    assert len(pair.there.tags) == len(sizes)


def test_what_waits_for_credit_of_the_session_is_still_resumed_when_it_goes() -> None:
    """A peer with a window of one frame: proton keeps the rest back until it hears more."""
    handler = Answering()
    connection = server(handler)
    source, target = Described(SOURCE, "topic/x"), Described(TARGET, "topic/x")
    begin = frame(0x11, None, 0, 1, 1000)
    asking = frame(ATTACH, "a", 0, True, None, None, source, target, {b"1": None})
    connection.receive(opening()[: -len(frame(0x11, None, 0, 1000, 1000))] + begin + asking, 0.0)
    connection.data_to_send()
    link = handler.attached[0]
    link.credit = 0
    handler.credits.clear()
    handler.on_credit = lambda link: None  # type: ignore[method-assign]
    connection.receive(frame(FLOW, 0, 1, 0, 1000, 0, 0, 5), 0.0)
    link.send(b"0", b"new")
    link.send(b"1", b"resumed", resume=True)
    first = connection.data_to_send()
    assert b"new" in first and b"resumed" not in first
    connection.receive(frame(FLOW, 1, 1, 1, 1000, 0, 1, 4), 0.0)
    assert b"\x40\x40\x41resumed" in connection.data_to_send()


def test_a_resumed_delivery_of_a_stranger_cut_off_by_its_end_or_aborted_half_way() -> None:
    handler = Answering()
    connection = server(handler)
    source, target = Described(SOURCE, "topic/x"), Described(TARGET, "topic/x")
    asking = frame(ATTACH, "a", 0, False, None, None, source, target, {b"1": None}, None, 0)
    connection.receive(opening() + asking, 0.0)
    connection.data_to_send()

    def transfer(number: int, more: bool, resume: bool, aborted: bool, payload: bytes) -> bytes:
        return frame(
            TRANSFER, 0, number, b"%d" % number, 0, None, more, None, None, resume, aborted, None, payload=payload
        )

    connection.receive(transfer(0, True, True, False, b"begin"), 0.0)
    connection.receive(transfer(0, True, False, False, b"middle") + transfer(0, False, False, True, b"dropped"), 0.0)
    assert handler.resumed == [(b"0", b"", True, NO_STATE, True)]
    connection.receive(transfer(1, True, True, False, b"be"), 0.0)
    connection.receive(transfer(1, False, True, False, b"gin") + transfer(2, False, False, False, b"new"), 0.0)
    assert handler.resumed[1:] == [(b"1", b"begin", False, NO_STATE, False)]
    assert (handler.tags, handler.messages) == ([b"2"], [b"new"])
    connection.receive(transfer(3, True, True, False, b"cut off"), 0.0)
    connection.receive_eof()
    assert len(handler.resumed) == 2
    connection.release()


def test_without_maps_nobody_looks_for_resumed_transfers() -> None:
    """Such transfers name no delivery that this end knows: they are new."""
    handler = Answering()
    connection = server(handler)
    source, target = Described(SOURCE, "topic/x"), Described(TARGET, "topic/x")
    connection.receive(opening() + frame(ATTACH, "a", 0, False, None, None, source, target, None, None, 0), 0.0)
    connection.data_to_send()
    long_form = frame(TRANSFER, 0, 0, b"0", 0, None, False, None, Raw(b"\x40"), True, payload=b"m")
    connection.receive(long_form, 0.0)
    assert (handler.tags, handler.resumed) == ([b"0"], [])
    connection.release()
