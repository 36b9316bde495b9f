"""Deliveries through all settle modes, in batches, over many frames and with credit running out."""

import gc
from itertools import pairwise

import pytest

from router.amqp.batches import Dispositions
from router.amqp.format import performative
from router.amqp.format.codec import uint
from router.amqp.format.performative import NULL, TRUE
from router.amqp.format.values import (
    ACCEPTED,
    MODIFIED,
    NO_STATE,
    RCV_FIRST,
    RCV_SECOND,
    RECEIVED,
    REJECTED,
    RELEASED,
    SND_SETTLED,
)
from router.amqp.proton.link import Link
from tests.heap import heap_bytes
from tests.router.amqp.frames import (
    ATTACH,
    BEGIN,
    DISPOSITION,
    END,
    FLOW,
    TRANSFER,
    Described,
    attach,
    encode,
    frame,
    opening,
    settlement,
    transfer,
)
from tests.router.amqp.pair import Pair, Recorder
from tests.router.amqp.server import server


class Owner(Recorder):
    """Has done with what the peer has settled."""

    def on_attach(self, link: Link) -> None:
        super().on_attach(link)
        link.answer()
        if not link.is_sender:
            link.flow(10)

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        super().on_dispositions(link, dispositions)
        link.settle_many([handle for handle, _, settled in dispositions if settled])


def test_mode_second_takes_three_steps() -> None:
    pair = Pair()
    sender, receiver = pair.sending(rcv_settle_mode=RCV_SECOND)
    handles = [sender.send(b"%d" % n, b"message %d" % n) for n in range(5)]
    pair.pump()
    assert pair.there.messages == [b"message %d" % n for n in range(5)]
    assert pair.there.presettled == [False] * 5

    receiver.update_many(pair.there.deliveries, ACCEPTED)
    pair.pump()
    assert pair.here.outcomes == [(handle, ACCEPTED, False) for handle in handles]
    assert pair.there.outcomes == []

    sender.settle_many(handles)
    pair.pump()
    assert pair.there.outcomes == [(handle, NO_STATE, True) for handle in pair.there.deliveries]
    receiver.settle_many(pair.there.deliveries)
    pair.pump()
    assert len(pair.here.outcomes) == 5


def test_mode_first_settles_with_the_outcome() -> None:
    pair = Pair()
    sender, receiver = pair.sending()
    handle = sender.send(b"1", b"message")
    pair.pump()
    receiver.update(pair.there.deliveries[0], ACCEPTED, settle=True)
    pair.pump()
    assert pair.here.outcomes == [(handle, ACCEPTED, True)]
    sender.settle(handle)
    pair.pump()
    assert pair.there.outcomes == []


def test_settled_transfers_have_no_handle() -> None:
    pair = Pair()
    sender, _ = pair.sending(snd_settle_mode=SND_SETTLED)
    assert sender.send(b"1", b"first", settled=True) is None
    pair.pump()
    assert (pair.there.deliveries, pair.there.presettled) == ([None], [True])
    assert pair.here.outcomes == pair.there.outcomes == []


def test_a_transfer_and_its_settlement_in_one_input_is_a_settled_transfer() -> None:
    pair = Pair()
    sender, _ = pair.sending()
    handle = sender.send(b"1", b"message")
    data = pair.client.data_to_send()
    sender.settle(handle)
    pair.server.receive(data + pair.client.data_to_send(), 0.0)
    assert (pair.there.deliveries, pair.there.presettled, pair.there.outcomes) == ([None], [True], [])


SETTLES = settlement(0, 0)
PRESETTLED = frame(TRANSFER, 0, 0, b"t", 0, True, payload=b"m")


@pytest.mark.parametrize("mode", [RCV_FIRST, RCV_SECOND])
@pytest.mark.parametrize(
    "later", [frame(DISPOSITION, False, 0), frame(DISPOSITION, False, 0, 0, False, Described(RECEIVED, 0, 0))]
)
@pytest.mark.parametrize(
    ("before", "amid"), [(b"", PRESETTLED), (b"", transfer(0, 0) + SETTLES), (transfer(0, 0), SETTLES)]
)
def test_what_a_sender_says_of_a_delivery_that_it_has_settled_changes_nothing(
    before: bytes, amid: bytes, later: bytes, mode: int
) -> None:
    handler = Owner()
    connection = server(handler)
    connection.receive(opening() + attach("p", 0, receiver=False, modes=(None, mode)), 0.0)
    connection.data_to_send()
    connection.receive(before, 0.0)
    connection.receive(amid + later, 0.0)
    connection.receive(later, 0.0)
    told = [row[1:] for row in handler.outcomes]
    assert (handler.presettled, told) == (([False], [(NO_STATE, True)]) if before else ([True], []))
    connection.release()


def told_by_receiver(first: int, last: int | None, settled: bool, state: int, *, short: bool) -> bytes:
    if not short:
        return frame(DISPOSITION, True, first, last, settled, Described(state) if state else None)
    fields = [TRUE, uint(first).encoded, NULL if last is None else uint(last).encoded, encode(settled)]
    return performative.build(b"\0\0", DISPOSITION, [*fields, encode(Described(state)) if state else NULL])


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("base", [1, 300])
@pytest.mark.parametrize("state", [NO_STATE, RELEASED, REJECTED])
@pytest.mark.parametrize("cut", [0, 13, 22, 25, -1])
def test_what_a_receiver_has_settled_is_not_told_otherwise_by_a_later_range(
    state: int, base: int, cut: int, *, short: bool
) -> None:
    """What the range names besides is told as ever."""
    handler = Owner()
    connection = server(handler)
    connection.receive(opening() + attach("s", 0, receiver=True), 0.0)
    connection.receive(frame(FLOW, 0, 1000, 0, 1000, 0, 0, base + 5), 0.0)
    (link,) = handler.attached
    link.settle_many(link.send_many([b""] * base, [b"m"] * base, settled=False))
    connection.data_to_send()
    handles = link.send_many([b"%d" % n for n in range(5)], [b"m"] * 5, settled=False)
    connection.data_to_send()

    settling = [told_by_receiver(base + n, None, True, state, short=short) for n in (0, 1)]
    later = told_by_receiver(base, base + 2, False, ACCEPTED, short=short)
    last = told_by_receiver(base + 4, base + 4, True, ACCEPTED, short=short)
    data = b"".join((*settling, later, last))
    connection.receive(data[:cut], 0.0)
    connection.receive(data[cut:], 0.0)
    assert handler.outcomes == [
        *((handle, state, True) for handle in handles[:2]),
        (handles[2], ACCEPTED, False),
        (handles[4], ACCEPTED, True),
    ]
    connection.release()


def test_outcomes_that_came_together_are_told_once() -> None:
    pair = Pair()
    sender, receiver = pair.sending()
    first, second = sender.send(b"1", b"message"), sender.send(b"2", b"message")
    pair.pump()
    data = b""
    for state in (ACCEPTED, RELEASED):
        receiver.update_many(pair.there.deliveries, state)
        data += pair.server.data_to_send()
    receiver.settle(pair.there.deliveries[1])
    pair.client.receive(data + pair.server.data_to_send(), 0.0)
    assert pair.here.outcomes == [(first, RELEASED, False), (second, RELEASED, True)]


def test_what_we_settled_is_not_news() -> None:
    pair = Pair()
    sender, receiver = pair.sending()
    handle = sender.send(b"1", b"message")
    pair.pump()
    receiver.update(pair.there.deliveries[0], ACCEPTED)
    sender.settle(handle)
    pair.pump()
    assert pair.here.outcomes == []


def test_outcomes_with_details() -> None:
    pair = Pair()
    sender, receiver = pair.sending()
    rejected, modified = sender.send(b"1", b"message"), sender.send(b"2", b"message")
    pair.pump()
    info = {"oncemesh:partial-acceptance": "1 of 2"}
    receiver.reject(pair.there.deliveries[0], "amqp:precondition-failed", "1 of 2", settle=True, info=info)
    receiver.modify(pair.there.deliveries[1], failed=True, undeliverable=True)
    pair.pump()
    assert pair.here.outcomes == [(rejected, REJECTED, True), (modified, MODIFIED, False)]
    outcome = sender.remote_outcome(rejected)
    assert (outcome.condition, outcome.description) == ("amqp:precondition-failed", "1 of 2")
    assert outcome.info == info
    outcome = sender.remote_outcome(modified)
    assert (outcome.failed, outcome.undeliverable, outcome.condition) == (True, True, None)


def test_an_outcome_that_is_told_again_has_its_details_once() -> None:
    pair = Pair()
    sender, receiver = pair.sending()
    rejected = sender.send(b"1", b"message")
    pair.pump()
    for count in ("1 of 2", "2 of 2"):
        receiver.reject(pair.there.deliveries[0], "amqp:precondition-failed", count, info={"counts": count})
        pair.pump()
    assert sender.remote_outcome(rejected).info == {"counts": "2 of 2"}


@pytest.mark.parametrize("size", [0, 1, 4000, 65_535, 65_536, 65_537, 1_000_000])
@pytest.mark.parametrize("max_frame", [4096, 64 * 1024, 1024 * 1024])
def test_messages_of_any_size_over_any_frame(size: int, max_frame: int) -> None:
    pair = Pair(max_frame=max_frame)
    sender, receiver = pair.sending()
    message = bytes(n * 7 % 251 for n in range(size))
    sender.send(b"1", message)
    sender.send(b"2", b"after")
    pair.pump()
    assert pair.there.messages == [message, b"after"]
    assert receiver.credit == 98


def test_credit_is_counted_alike_at_both_ends() -> None:
    pair = Pair()
    sender, receiver = pair.sending(credit=3)
    assert pair.here.credits == [(3, False)]
    for n in range(3):
        sender.send(b"%d" % n, b"message")
    assert sender.credit == 0
    with pytest.raises(AssertionError):
        sender.send(b"4", b"message")
    pair.pump()
    assert receiver.credit == 0
    receiver.flow(2)
    pair.pump()
    assert sender.credit == receiver.credit == 2
    assert pair.here.credits == [(3, False), (2, False)]


def test_drain_uses_credit_or_gives_it_back() -> None:
    pair = Pair()
    sender, receiver = pair.sending(credit=3)
    receiver.drain(2)
    pair.pump()
    assert (sender.credit, sender.draining) == (5, True)
    assert pair.here.credits[-1] == (5, True)
    sender.send(b"1", b"message")
    sender.drained()
    pair.pump()
    assert pair.there.messages == [b"message"]
    assert (sender.credit, sender.draining, receiver.credit) == (0, False, 0)
    receiver.flow(1)
    pair.pump()
    assert (sender.credit, sender.draining) == (1, False)


def test_a_session_that_ends_takes_its_links_along_and_no_others() -> None:
    handler = Recorder()
    pair = Pair()
    server = type(pair.server)(handler, container="server", server=True)

    def attach(name: str, channel: int) -> bytes:
        source, target = Described(0x28, "topic/x"), Described(0x29, "topic/x")
        fields = (name, 0, True, None, None, source, target, None, None, None)
        return frame(ATTACH, *fields, channel=channel)

    server.receive(opening() + frame(BEGIN, None, 0, 1000, 1000, channel=1) + attach("a", 0) + attach("b", 1), 0.0)
    for link in handler.attached:
        link.answer()
    server.data_to_send()
    server.receive(b"".join(frame(FLOW, 0, 1000, 0, 1000, 0, 0, 9, channel=n) for n in (0, 1)), 0.0)
    a, b = handler.attached
    assert a.credit == b.credit == 9
    a.send(b"1", b"unsettled")
    server.data_to_send()
    server.receive(frame(END, channel=0), 0.0)
    assert handler.events[-1] == ("detach", "a", False, None)
    assert server.links == [b]
    server.data_to_send()
    b.send(b"2", b"message")
    assert b"message" in server.data_to_send()
    server.release()


def test_links_that_come_and_go_leave_nothing_behind() -> None:
    pair = Pair()
    for n in range(5000):  # more than a connection may have at a time
        link = pair.client.sender(f"link {n}", "topic/x")
        pair.pump()
        pair.there.attached.pop().answer()
        link.detach(closed=n % 2 == 0)
        pair.pump()
    assert pair.client.links == pair.server.links == []
    assert pair.errors == []


def test_connections_that_come_and_go_leave_nothing_behind() -> None:
    def resident() -> int:
        gc.collect()
        return heap_bytes()

    def live() -> None:
        pair = Pair()
        sender, _ = pair.sending()
        for n in range(20):
            sender.send(b"%d" % n, bytes(1000))
        pair.pump()
        pair.server.release()
        pair.client.receive_eof()
        pair.client.release()

    sizes = []
    for n in range(1201):
        live()
        if n % 300 == 0:
            sizes.append(resident())
    assert min(after - before for before, after in pairwise(sizes)) < 300 * (8 << 10)  # the allocator grows at times
