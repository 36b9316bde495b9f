"""What a peer may say in its flows: as much credit and room as there are numbers, less than before, and to drain."""

import pytest

from router.amqp.connection import Connection
from router.amqp.format.codec import Symbol
from router.amqp.format.errors import NOT_IMPLEMENTED, RESOURCE_LIMIT, UNATTACHED_HANDLE
from router.amqp.format.values import Handle
from router.amqp.frames.bounds import LARGE
from router.amqp.frames.fields import acquires
from router.amqp.proton.link import Link
from tests.router.amqp.frames import BEGIN, CLOSE, END, FLOW, HEADER, OPEN, TRANSFER, attach, frame
from tests.router.amqp.pair import Recorder
from tests.router.amqp.server import Answering, server
from tests.router.amqp.test_sessions import written

MOST = 2**32 - 1


class Patient(Answering):
    """Sends only what a test sends."""

    def on_credit(self, link: Link) -> None:
        Recorder.on_credit(self, link)


Room = tuple[int | None, int]
"""Next-incoming-id and incoming-window."""


def flow(credit: int, *, count: int | None = 0, room: Room = (0, 1000), drain: bool = False, handle: int = 0) -> bytes:
    """Of a receiver."""
    return frame(FLOW, *room, 0, 1000, handle, count, credit, None, drain)


def opened(window: int = 1000) -> bytes:
    return HEADER + frame(OPEN, "odd") + frame(BEGIN, None, 0, window, 1000)


class Subscriber:
    """Our end of a link to a peer that a test speaks for."""

    def __init__(self, window: int = 1000) -> None:
        self.handler = Patient()
        self.connection: Connection = server(self.handler)
        self.connection.receive(opened(window) + attach("s", 0, receiver=True), 0.0)
        self.connection.data_to_send()
        (self.link,) = self.handler.attached

    def hears(self, *frames: bytes) -> None:
        self.connection.receive(b"".join(frames), 0.0)

    def sends(self, *tags: bytes) -> int:
        """How many transfers are written."""
        for tag in tags:
            self.link.send(tag, b"message")
        return len(written(self.connection.data_to_send(), TRANSFER))

    def flows(self) -> list[tuple[int, int, bool]]:
        """Those that are written for the link: delivery-count, credit and drain."""
        said = written(self.connection.data_to_send(), FLOW)
        return [(fields[6], fields[7], bool(fields[9:10] and fields[9])) for fields in said if fields[5:6] == [0]]


@pytest.mark.parametrize("credit", [2**31 - 1, 2**31, MOST])
def test_credit_of_any_size_is_credit(credit: int) -> None:
    peer = Subscriber()
    peer.hears(flow(credit))
    assert peer.handler.credits == [(credit, False)]
    assert peer.sends(b"1", b"2") == 2
    peer.hears(flow(credit, count=1))
    assert peer.link.credit == credit - 1
    peer.hears(flow(1, count=2))
    assert peer.link.credit == 1
    peer.hears(flow(credit, count=2), flow(3, count=2))
    assert peer.link.credit == 3
    peer.connection.release()


def test_vast_credit_is_used_up_below_half_of_all_numbers() -> None:
    peer = Subscriber()
    peer.hears(flow(2**31 + 1))
    assert peer.sends(b"1", b"2", b"3") == 3
    peer.hears(frame(FLOW, 0, 1000, 0, 1000))
    assert peer.link.credit == 2**31 - 2
    peer.connection.release()


@pytest.mark.parametrize("lowered", [0, 1, 3])
def test_credit_that_is_taken_back_is_not_used(lowered: int) -> None:
    peer = Subscriber(window=2)
    peer.hears(flow(5, room=(0, 2)))
    assert peer.sends(b"1", b"2", b"3", b"4", b"5") == 2
    peer.hears(flow(lowered, count=0, room=(0, 2)), flow(lowered, count=0, room=(0, 100)))
    assert peer.sends() == max(0, lowered - 2)
    peer.hears(flow(lowered, count=0, room=(0, 100)))
    assert peer.sends() == 0
    assert peer.link.credit == 0
    peer.hears(flow(10, count=2, room=(2, 100)))
    assert peer.sends() == 3 - max(0, lowered - 2)
    assert peer.link.credit == 7
    peer.connection.release()


@pytest.mark.parametrize("window", [3, MOST])
@pytest.mark.parametrize("lowered", [0, 1, 2, 4])
def test_room_that_is_taken_back_is_not_used(window: int, lowered: int) -> None:
    peer = Subscriber(window=window)
    peer.hears(flow(100, room=(0, window)))
    assert peer.sends(b"1", b"2", b"3") == 3
    peer.hears(flow(100, room=(0, lowered)))
    assert peer.sends(b"4", b"5", b"6") == max(0, lowered - 3)
    peer.hears(flow(100, room=(0, lowered)))
    assert peer.sends() == 0
    peer.hears(flow(100, room=(3, MOST)))
    assert peer.sends() == 3 - max(0, lowered - 3)
    peer.connection.release()


def test_room_is_counted_from_our_begin_by_who_has_not_read_it() -> None:
    peer = Subscriber(window=1)
    peer.hears(flow(10, count=None, room=(None, 1)))
    assert peer.sends(b"1", b"2", b"3") == 1
    peer.hears(flow(10, count=None, room=(None, 1)))
    assert peer.sends() == 0
    peer.hears(flow(10, count=1, room=(1, 2)))
    assert peer.sends() == 2
    peer.connection.release()


def test_drain_is_answered_where_there_was_no_credit() -> None:
    peer = Subscriber()
    peer.hears(flow(0, drain=True))
    assert peer.flows() == [(0, 0, True)]
    assert peer.handler.credits == []
    assert peer.flows() == []
    peer.connection.release()


@pytest.mark.parametrize("window", [2, 1000])
def test_drain_is_answered_where_all_credit_is_used_as_soon_as_what_was_sent_is_written(window: int) -> None:
    peer = Subscriber(window)
    peer.hears(flow(3, room=(0, window)))
    peer.link.send_many([b"1", b"2", b"3"], [b"message"] * 3, settled=False)
    if window == 2:
        peer.hears(flow(3, room=(0, 2), drain=True))
        assert peer.flows() == []
        peer.hears(flow(1, count=2, room=(2, 2), drain=True))
    else:
        peer.hears(flow(3, drain=True))
    assert peer.flows() == [(3, 0, True)]
    peer.connection.release()


@pytest.mark.parametrize("sent", [0, 1, 3])
@pytest.mark.parametrize("window", [0, 1000])
def test_credit_is_given_back_to_who_drains_behind_what_is_sent(sent: int, window: int) -> None:
    peer = Subscriber(window)
    peer.hears(flow(3, room=(0, window), drain=True))
    assert peer.handler.credits == [(3, True)]
    for n in range(sent):
        peer.link.send(b"%d" % n, b"message")
    peer.link.drained()
    assert peer.link.credit == 0
    if sent and not window:
        assert peer.flows() == []
        peer.hears(flow(3, room=(0, 5), drain=True))
        peer.link.drained()
    assert peer.flows() == [(3, 0, True)]
    peer.hears(flow(2, count=3, room=(sent, 1000)))
    assert peer.link.credit == 2
    peer.connection.release()


@pytest.mark.parametrize("sent", [0, 3])
def test_the_answer_to_a_drain_says_how_many_messages_wait(sent: int) -> None:
    peer = Subscriber()
    peer.hears(flow(3, drain=True))
    for n in range(sent):
        peer.link.send(b"%d" % n, b"message")
    peer.link.drained(7)
    said = written(peer.connection.data_to_send(), FLOW)
    assert [fields[8] for fields in said if fields[5:6] == [0]] == [7]
    peer.hears(flow(2, count=3, room=(sent, 1000)), frame(FLOW, sent, 1000, 0, 1000, 0, 3, 2, None, False, True))
    said = written(peer.connection.data_to_send(), FLOW)
    assert [fields[8:9] for fields in said if fields[5:6] == [0]] in ([[]], [[None]])
    peer.connection.release()


def test_drain_is_answered_behind_the_attach_that_it_came_with() -> None:
    handler = Recorder()
    connection = server(handler)
    connection.receive(opened() + attach("s", 0, receiver=True) + flow(0, count=None, drain=True), 0.0)
    assert written(connection.data_to_send()[8:], FLOW) == []
    handler.attached[0].answer()
    (answer,) = written(connection.data_to_send(), FLOW)
    assert answer[5:8] == [0, 0, 0]
    connection.release()


def test_a_flow_on_a_handle_that_is_not_attached_ends_its_session() -> None:
    peer = Subscriber()
    peer.hears(flow(1, handle=3))
    ((_, error),) = written(peer.connection.data_to_send(), END)
    assert error.value[0] == UNATTACHED_HANDLE
    assert peer.handler.events[-1] == ("detach", "s", False, UNATTACHED_HANDLE)
    assert not peer.connection.closed
    peer.connection.release()


LOWERING = [
    pytest.param(flow(10), id="credit"),
    pytest.param(flow(100, room=(0, 10)), id="room"),
    pytest.param(frame(FLOW, 0, 10, 0, 1000), id="the session's room"),
]


@pytest.mark.parametrize("lowers", LOWERING)
@pytest.mark.parametrize("is_written", [True, False])
def test_a_flow_that_lowers_something_behind_our_close_is_discarded(lowers: bytes, is_written: bool) -> None:
    peer = Subscriber()
    peer.hears(flow(100))
    peer.connection.data_to_send()
    peer.connection.close(RESOURCE_LIMIT, "full")
    said = peer.connection.data_to_send() if is_written else b""
    peer.hears(lowers, lowers, flow(100, room=(0, 1)), frame(CLOSE))
    assert len(written(said + peer.connection.data_to_send(), CLOSE)) == 1
    assert peer.handler.events[-1] == ("close", None)
    peer.connection.release()


@pytest.mark.parametrize("lowers", LOWERING)
def test_a_flow_that_lowers_something_behind_the_peers_close_is_discarded(lowers: bytes) -> None:
    peer = Subscriber()
    peer.hears(flow(100), frame(CLOSE), lowers)
    assert len(written(peer.connection.data_to_send(), CLOSE)) == 1
    assert peer.handler.events[-1] == ("close", None)
    peer.connection.release()


class Refusing(Patient):
    def __init__(self, at: str) -> None:
        super().__init__()
        self._at = at

    def on_open(self, connection: Connection) -> None:
        if self._at == "open":
            connection.refuse(RESOURCE_LIMIT, "full")
        else:
            super().on_open(connection)

    def on_attach(self, link: Link) -> None:
        link.connection.close(RESOURCE_LIMIT, "full")


@pytest.mark.parametrize("lowers", LOWERING)
@pytest.mark.parametrize("at", ["open", "attach"])
def test_a_peer_that_is_not_let_in_may_have_lowered_its_credit_meanwhile(lowers: bytes, at: str) -> None:
    connection = server(Refusing(at))
    connection.receive(opened() + attach("s", 0, receiver=True) + flow(100) + lowers, 0.0)
    ((_, error),) = written(connection.data_to_send()[8:], CLOSE)
    assert error.value[0] == RESOURCE_LIMIT
    connection.receive(lowers + frame(CLOSE), 0.0)
    assert connection.closed and connection.data_to_send() == b""
    connection.release()


class Long(Answering):
    """Sends one message of three frames."""

    sent: Handle | None = None

    def on_credit(self, link: Link) -> None:
        self.sent = self.sent or link.send(b"1", bytes(1200))


@pytest.mark.parametrize(("first", "credit"), [(1, 2**31 - 1), (1, MOST), (MOST, 2**31 - 1)])
def test_what_is_half_written_goes_on_with_all_the_credit_that_there_is(first: int, credit: int) -> None:
    """Its reader counts it from its first frame on. Proton does not, and takes 2^31 for a negative number."""
    connection = server(Long())
    connection.receive(HEADER + frame(OPEN, "odd", None, 512) + frame(BEGIN, None, 0, 1, 1000), 0.0)
    connection.receive(attach("s", 0, receiver=True) + frame(FLOW, 0, 1, 0, 1000, 0, 0, first), 0.0)
    assert len(written(connection.data_to_send()[8:], TRANSFER)) == 1
    for number in (1, 2):
        connection.receive(flow(credit, count=1, room=(number, 1)), 0.0)
        assert len(written(connection.data_to_send(), TRANSFER)) == 1
    connection.release()


@pytest.mark.parametrize(
    ("told", "is_refused"),
    [
        ({Symbol("txn-id"): b"1"}, True),
        ({Symbol("txn-id"): b"1", Symbol("x"): "long" * LARGE}, True),
        ({Symbol("txn-id"): None}, False),
        ({Symbol("other"): "txn-id"}, False),
    ],
)
def test_a_flow_for_a_transaction_gives_no_credit(told: dict[Symbol, object], is_refused: bool) -> None:
    """AMQP 1.0 4.4.3: the messages would belong to the transaction as they are sent."""
    handler = Answering()
    connection = server(handler)
    connection.receive(opened() + attach("a", 0, receiver=True), 0.0)
    connection.receive(frame(FLOW, 0, 1000, 0, 1000, 0, 0, 5, None, False, False, told), 0.0)
    out = connection.data_to_send()
    assert (NOT_IMPLEMENTED.encode() in out) is is_refused and (b"out" in out) is not is_refused
    assert not connection.closed
    connection.release()


def test_a_flow_whose_properties_make_no_sense_names_no_transaction() -> None:
    assert not acquires(b"\xc1\x08\x02\xa3\xfftxn-id")
