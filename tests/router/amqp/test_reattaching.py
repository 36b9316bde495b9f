"""A link that its peer detached, did not close, and attaches again on the same session: what its deliveries become."""

from collections.abc import Iterator
from typing import Any

import pytest

from router.amqp.connection import Connection
from router.amqp.format.performative import code_of
from router.amqp.format.values import ACCEPTED, HEARTBEAT, Bounds, ErrorCondition
from router.amqp.proton.link import Link
from router.amqp.proton.restated import SHORT
from tests.router.amqp.frames import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    TRANSFER,
    Described,
    attach,
    frame,
    opening,
    settlement,
    transfer,
)
from tests.router.amqp.pair import Recorder

CREDIT = 10


class Keeping(Recorder):
    """Keeps every link that is suspended, and continues it. Answers at once, unless told to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = False
        self.formers: list[Link | None] = []

    def on_attach(self, link: Link) -> None:
        super().on_attach(link)
        link.context = self
        self.formers.append(link.former)
        if link.former is not None:
            link.continue_former()
        if not self.waits:
            self.answer(link)

    @staticmethod
    def answer(link: Link) -> None:
        link.answer()
        if not link.is_sender:
            link.flow(CREDIT)

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        super().on_detach(link, closed, condition)
        link.context = None if closed else self


class Server:
    """Hears frames by hand."""

    def __init__(self) -> None:
        self.handler = Keeping()
        self.connection = Connection(self.handler, container="server", server=True)
        self.hear(opening())

    def hear(self, *frames: bytes) -> bytes:
        """Returns what it says."""
        self.connection.receive(b"".join(frames), 0.0)
        return self.connection.data_to_send()

    @property
    def link(self) -> Link:
        return self.handler.attached[-1]


def suspended(handle: int) -> bytes:
    return frame(DETACH, handle, False)


def accepted(first: int) -> bytes:
    """By the receiver of the delivery, not settled."""
    return frame(DISPOSITION, True, first, first, False, Described(ACCEPTED))


def credit(handle: int, count: int, sent: int = 0) -> bytes:
    return frame(FLOW, sent, 1000, 0, 1000, handle, sent, count)


def test_what_was_received_goes_on_by_the_handle_that_it_had() -> None:
    server = Server()
    server.hear(attach("a", 0, receiver=False))
    server.hear(transfer(0, 0, b"1"), suspended(0), attach("a", 1, receiver=False))
    first, again = server.handler.attached
    assert again.former is first
    assert first.ended and server.connection.links == [again]
    assert again.remote_state(server.handler.deliveries[0]) == (0, False)
    server.hear(settlement(0, 0))
    assert server.handler.outcomes == [(server.handler.deliveries[0], 0, True)]
    again.settle(server.handler.deliveries[0])
    server.hear()
    server.connection.release()


def test_what_was_sent_goes_on_by_the_handle_that_it_had() -> None:
    server = Server()
    server.hear(attach("a", 0, receiver=True), credit(0, 5))
    handle = server.link.send(b"1", b"m")
    server.hear()
    server.hear(suspended(0))
    server.hear(attach("a", 1, receiver=True), credit(1, 5, sent=1), accepted(0))
    assert server.handler.outcomes == [(handle, ACCEPTED, False)]
    server.link.settle(handle)
    assert code_of(server.hear()) == DISPOSITION
    server.connection.release()


def test_news_wait_until_the_attach_is_answered_and_are_there_to_be_looked_at() -> None:
    server = Server()
    server.hear(attach("a", 0, receiver=True), credit(0, 5))
    handle = server.link.send(b"1", b"m")
    server.hear()
    server.handler.waits = True
    server.hear(suspended(0), attach("a", 1, receiver=True), credit(1, 5, sent=1), accepted(0))
    assert server.handler.outcomes == []
    assert server.link.remote_state(handle) == (ACCEPTED, False)
    server.handler.answer(server.link)
    server.hear(frame(DISPOSITION, True, 0, 0, True, Described(ACCEPTED)))
    assert server.handler.outcomes == [(handle, ACCEPTED, True)]
    server.connection.release()


def test_a_delivery_of_which_half_has_come_is_released() -> None:
    server = Server()
    server.hear(attach("a", 0, receiver=False))
    server.hear(transfer(0, 0, b"1", more=True), suspended(0))
    said = server.hear(attach("a", 1, receiver=False))
    assert b"\x00\x53\x26" in said, "a disposition that says released"
    server.hear(transfer(1, 1, b"1", payload=b"whole"))
    assert server.handler.messages == [b"whole"]
    server.connection.release()


@pytest.mark.parametrize("closed", [False, True])
def test_who_attaches_again_at_once_is_answered_in_that_order(closed: bool) -> None:
    """Proton itself writes attaches first, and takes two links of one name for an error."""
    server = Server()
    server.hear(attach("a", 0, receiver=True), credit(0, 5))
    said = server.hear(frame(DETACH, 0, closed), attach("a", 1, receiver=True), credit(1, 5))
    assert list(codes(said)) == [DETACH, ATTACH]
    server.link.send(b"1", b"m")
    assert list(codes(server.hear())) == [TRANSFER]
    server.connection.release()


def test_who_attaches_again_at_once_is_refused_in_that_order(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    server.hear(attach("a", 0, receiver=True))
    monkeypatch.setattr(server.handler, "answer", lambda link: link.refuse("amqp:not-allowed", "not now"))
    said = server.hear(suspended(0), attach("a", 1, receiver=True))
    assert list(codes(said)) == [DETACH, ATTACH, DETACH]
    server.connection.release()


def codes(said: bytes) -> Iterator[int]:
    while said:
        size = int.from_bytes(said[:4], "big")
        yield code_of(said[:size])
        said = said[size:]


def test_what_was_closed_or_resumed_or_on_another_session_is_no_reattach() -> None:
    server = Server()
    server.hear(attach("closed", 0, receiver=False))
    server.hear(frame(DETACH, 0, True), attach("closed", 1, receiver=False))
    server.hear(attach("resumed", 2, receiver=False))
    server.hear(suspended(2), attach("resumed", 3, receiver=False, unsettled={}))
    server.hear(attach("turned", 4, receiver=False))
    server.hear(suspended(4), attach("turned", 5, receiver=True))
    server.hear(attach("moved", 6, receiver=False), frame(BEGIN, None, 0, 1000, 1000, channel=1))
    elsewhere = attach("moved", 0, receiver=False)
    server.hear(suspended(6), elsewhere[:6] + b"\0\1" + elsewhere[8:])
    assert server.handler.formers == [None] * 8
    server.connection.release()


def test_what_ended_with_its_session_or_for_breaking_a_limit_is_not_continued() -> None:
    server = Server()
    server.hear(attach("a", 0, receiver=False), transfer(0, 0, b"1"), suspended(0))
    server.hear(frame(END), frame(BEGIN, None, 0, 1000, 1000), attach("a", 0, receiver=False))
    assert server.handler.formers == [None, None]
    server.hear(b"".join(transfer(0, n) for n in range(CREDIT + 1)))
    server.hear(suspended(0), attach("a", 1, receiver=False))
    assert server.handler.formers == [None, None, None]
    server.connection.release()


def test_to_leave_and_come_back_leaves_nothing_behind() -> None:
    """Neither with a delivery that is unsettled all the time, nor with those that are settled after each attach."""
    server = Server()
    server.hear(attach("a", 0, receiver=False))
    server.hear(transfer(0, 0, b"lasts"))
    lasting: Any = server.handler.deliveries[0]
    for number in range(1, Bounds().links + 10):
        server.hear(transfer(0, number, b"%d" % number), suspended(0), attach("a", 0, receiver=False))
        server.link.settle(server.handler.deliveries[-1])
        server.hear()
    assert server.link.remote_state(lasting) == (0, False)
    assert len(server.connection.links) == 1
    server.hear(frame(DETACH, 0, True))
    assert server.connection.links == []
    server.connection.release()


@pytest.mark.parametrize("receiver", [False, True])
def test_what_is_heard_of_it_later_touches_nothing_that_was_freed(receiver: bool) -> None:
    """Proton's own link has no delivery, and goes; that which it continues has one."""
    server = Server()
    server.hear(attach("a", 0, receiver=receiver), credit(0, 5) if receiver else transfer(0, 0, b"1"))
    if receiver:
        server.link.send(b"1", b"m")
        server.hear()
    server.hear(suspended(0), attach("a", 1, receiver=receiver))
    server.hear(suspended(1))
    server.hear(accepted(0) if receiver else settlement(0, 0))
    server.hear(frame(END))
    server.hear(SHORT * HEARTBEAT)  # of what is longer it asks how much each link has unsettled
    assert server.connection.links == []
    server.connection.release()
