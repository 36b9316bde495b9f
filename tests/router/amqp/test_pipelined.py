"""Channels and handles that are free as soon as who used them has said so, and are used again in the same breath."""

import pytest

from router.amqp.batches import Transfers
from router.amqp.format.errors import (
    HANDLE_IN_USE,
    NOT_ALLOWED,
    RESOURCE_LIMIT,
    UNATTACHED_HANDLE,
    AmqpError,
)
from router.amqp.format.performative import build
from router.amqp.proton.link import Link
from tests.router.amqp.frames import ATTACH, BEGIN, CLOSE, DETACH, END, FLOW, HEADER, OPEN, Raw, attach, frame, transfer
from tests.router.amqp.server import Answering, condition_of, server
from tests.router.amqp.test_sessions import frames_of, written

ONE_CHANNEL = HEADER + frame(OPEN, "odd", None, 65536, Raw(b"\x60\0\0"))
BEGINS = frame(BEGIN, None, 0, 1000, 1000)
ONE_HANDLE = HEADER + frame(OPEN, "odd") + frame(BEGIN, None, 0, 1000, 1000, 0)


class Holding(Answering):
    """Answers no transfer."""

    def on_transfers(self, link: Link, transfers: Transfers) -> None: ...


def codes(data: bytes) -> list[int]:
    return [code for code, _ in frames_of(data)]


@pytest.mark.parametrize("end", [frame(END), build(b"\0\0", END, []), b"\0\0\0\x0c\x02\0\0\0\0\x53\x17\x45"])
@pytest.mark.parametrize("times", [1, 50])
def test_a_channel_is_begun_again_in_one_write(times: int, end: bytes) -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(ONE_CHANNEL + BEGINS, 0.0)
    connection.data_to_send()
    connection.receive((end + BEGINS + attach("p", 0, receiver=False)) * times, 0.0)
    assert codes(connection.data_to_send()) == [END, BEGIN, ATTACH, FLOW] * times
    connection.receive(transfer(0, 0), 0.0)
    assert handler.messages == [b"m"] and not connection.closed
    connection.release()


@pytest.mark.parametrize("receiver", [False, True])
@pytest.mark.parametrize("times", [1, 50])
def test_a_handle_is_attached_again_in_one_write(times: int, receiver: bool) -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(ONE_HANDLE + attach("0", 0, receiver=receiver), 0.0)
    connection.data_to_send()
    again = b"".join(frame(DETACH, 0, True) + attach(str(n + 1), 0, receiver=receiver) for n in range(times))
    connection.receive(again + frame(FLOW, 0, 1000, 0, 1000, 0, 0, 30), 0.0)
    said = connection.data_to_send()
    assert [code for code in codes(said) if code != FLOW][: 2 * times] == [DETACH, ATTACH] * times
    assert {fields[2] for fields in written(said, ATTACH)} == {0}
    assert handler.attached[-1].name == str(times) and handler.attached[-1].credit
    connection.release()


def test_a_name_is_attached_again_in_the_same_write() -> None:
    handler = Answering()
    connection = server(handler)
    attaches = attach("p", 0, receiver=False)
    connection.receive(ONE_HANDLE + attaches, 0.0)
    connection.data_to_send()
    connection.receive(transfer(0, 0) + frame(DETACH, 0, True) + attaches, 0.0)
    assert codes(connection.data_to_send())[-3:] == [DETACH, ATTACH, FLOW]
    connection.receive(transfer(0, 1), 0.0)
    assert handler.messages == [b"m", b"m"] and not connection.closed
    connection.release()


def test_who_attaches_more_than_its_handle_max_lets_us_answer_loses_its_session() -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(ONE_HANDLE + attach("0", 0, receiver=False) + attach("1", 1, receiver=False), 0.0)
    ((_, error),) = written(connection.data_to_send()[8:], END)
    assert error.value[0] == RESOURCE_LIMIT and "handle-max" in error.value[1]
    assert handler.events[-1] == ("detach", "0", False, RESOURCE_LIMIT)
    connection.receive(frame(END) + BEGINS, 0.0)
    assert codes(connection.data_to_send()) == [BEGIN]
    connection.release()


def test_what_is_said_of_a_session_that_we_have_ended_is_for_nobody() -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(ONE_HANDLE + attach("p", 0, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(frame(DETACH, 5, True), 0.0)
    ((_, error),) = written(connection.data_to_send(), END)
    assert error.value[0] == UNATTACHED_HANDLE
    late = transfer(0, 0) + frame(FLOW, 0, 1000, 0, 1000, 0, 0, 3, None, None, True) + attach("q", 0, receiver=True)
    connection.receive(late + frame(0x15, True, 0, 3, True) + frame(DETACH, 0, True), 0.0)
    assert connection.data_to_send() == b"" and handler.messages == []
    connection.receive(frame(END) + BEGINS + attach("q", 0, receiver=True), 0.0)
    assert codes(connection.data_to_send()) == [BEGIN, ATTACH]
    connection.release()


def test_a_session_ends_although_something_in_it_waits_for_room() -> None:
    connection = server()
    connection.receive(HEADER + frame(OPEN, "odd") + frame(BEGIN, None, 0, 0, 1000), 0.0)
    connection.receive(attach("s", 0, receiver=True) + frame(FLOW, 0, 0, 0, 1000, 0, 0, 5), 0.0)
    connection.data_to_send()
    connection.receive(transfer(9, 0), 0.0)
    assert codes(connection.data_to_send()) == [END]
    connection.receive(frame(END) + BEGINS, 0.0)
    assert codes(connection.data_to_send()) == [BEGIN]
    connection.release()


def test_a_close_says_why_although_something_waits_for_room() -> None:
    connection = server()
    connection.receive(HEADER + frame(OPEN, "odd") + frame(BEGIN, None, 0, 0, 1000), 0.0)
    connection.receive(attach("s", 0, receiver=True) + frame(FLOW, 0, 0, 0, 1000, 0, 0, 5), 0.0)
    connection.data_to_send()
    with pytest.raises(AmqpError):
        connection.receive(frame(OPEN, "again"), 0.0)
    ((_, error),) = written(connection.data_to_send(), CLOSE)
    assert error.value[0] == NOT_ALLOWED
    assert connection.data_to_send() == b""
    connection.release()


def test_a_handle_that_is_in_use_ends_the_session() -> None:
    connection = server()
    connection.receive(ONE_HANDLE + attach("a", 0, receiver=False) + attach("b", 0, receiver=True), 0.0)
    ((_, error),) = written(connection.data_to_send()[8:], END)
    assert error.value[0] == HANDLE_IN_USE and not connection.closed
    connection.release()


def test_a_channel_that_is_in_use_ends_the_connection() -> None:
    assert condition_of(server(), ONE_CHANNEL + BEGINS, BEGINS) == NOT_ALLOWED


def test_a_range_that_ends_before_it_begins_ends_the_connection_with_a_condition_of_the_standard() -> None:
    connection = server()
    connection.receive(ONE_HANDLE + attach("s", 0, receiver=True), 0.0)
    connection.data_to_send()
    with pytest.raises(AmqpError) as caught:
        connection.receive(frame(0x15, True, 5, 3, True), 0.0)
    assert caught.value.condition == NOT_ALLOWED
    ((_, error),) = written(connection.data_to_send(), CLOSE)
    assert error.value[0] == NOT_ALLOWED
    connection.release()


def test_a_delivery_id_out_of_order_ends_the_connection_with_a_condition_of_the_standard() -> None:
    data = ONE_HANDLE + attach("p", 0, receiver=False)
    assert condition_of(server(), data, transfer(0, 0) + transfer(0, 7)) == "amqp:invalid-field"


def test_the_flow_that_a_session_asks_for_is_not_that_of_a_link_that_is_closed() -> None:
    """Proton settles what the link had as it is freed, and would say a flow of it by a handle that there is not."""
    connection = server(Holding())
    connection.receive(ONE_HANDLE + attach("0", 0, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(transfer(0, 0), 0.0)
    connection.data_to_send()
    echo = frame(FLOW, 1, 1000, 1, 1000, None, None, None, None, None, True)
    connection.receive(echo + frame(DETACH, 0, True), 0.0)
    flows = written(connection.data_to_send(), FLOW)
    assert [fields[5:] for fields in flows] == [[]]
    connection.release()
