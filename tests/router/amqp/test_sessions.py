"""What is said about a session, not about one of its links: flow, its end by an error, settlements in ranges."""

from typing import Any

import pytest

from router.amqp.batches import Transfers
from router.amqp.format.codec import decode
from router.amqp.format.errors import INVALID_FIELD, UNATTACHED_HANDLE
from router.amqp.format.message import in_envelope
from router.amqp.format.performative import build, code_of, parse
from router.amqp.format.values import ACCEPTED, RCV_FIRST, RCV_SECOND
from router.amqp.frames.walk import Walk
from tests.router.amqp.frames import (
    BEGIN,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    HEADER,
    OPEN,
    TRANSFER,
    attach,
    frame,
    opening,
    settlement,
    transfer,
)
from tests.router.amqp.server import Answering, condition_of, server


def frames_of(data: bytes) -> list[tuple[int, list[Any]]]:
    """Each with its channel in front of its fields."""
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        if size > 8:
            fields = parse(data[:size]).fields
            found.append((code_of(data[:size]), [data[6:8], *(decode(field)[0] for field in fields)]))
        data = data[size:]
    return found


def written(data: bytes, code: int) -> list[list[Any]]:
    return [fields for kind, fields in frames_of(data) if kind == code]


@pytest.mark.parametrize("channel", [0, 3])
def test_a_session_that_asks_for_an_echo_gets_it(channel: int) -> None:
    connection = server()
    begins = b"" if channel == 0 else frame(BEGIN, None, 7, 1000, 1000, channel=channel)
    connection.receive(opening() + begins, 0.0)
    (ours, *_) = [began for began in written(connection.data_to_send()[8:], BEGIN) if began[1] == channel]
    asking = frame(FLOW, 7 if channel else 0, 1000, 0, 1000, None, None, None, None, False, True, channel=channel)
    connection.receive(asking, 0.0)
    (answer,) = written(connection.data_to_send(), FLOW)
    assert answer[0] == ours[0] and answer[1] == (7 if channel else 0)
    assert answer[5:6] in ([], [None])  # of no link
    connection.receive(frame(FLOW, 0, 1000, 0, 1000), 0.0)
    assert written(connection.data_to_send(), FLOW) == []
    connection.release()


@pytest.mark.parametrize("before", [b"", attach("b", 7, receiver=False) + frame(DETACH, 7, True)])
def test_a_transfer_on_a_handle_that_is_not_attached_ends_its_session(before: bytes) -> None:
    handler = Answering()
    connection = server(handler)
    other = frame(BEGIN, None, 0, 1000, 1000, channel=1)
    connection.receive(opening() + other + attach("a", 0, receiver=False) + before, 0.0)
    connection.data_to_send()
    connection.receive(transfer(0, 0) + transfer(7, 1) + transfer(0, 2), 0.0)
    ((_, error),) = written(connection.data_to_send(), END)
    assert error.value[0] == UNATTACHED_HANDLE
    assert handler.messages == [b"m"]
    assert handler.events[-1] == ("detach", "a", False, UNATTACHED_HANDLE)
    connection.receive(attach("late", 3, receiver=False) + transfer(7, 3) + frame(END), 0.0)
    assert written(connection.data_to_send(), END) == []
    assert ("attach", "late") not in handler.events and not connection.closed
    connection.release()


PARTS = frame(TRANSFER, 0, 0, b"t", 7, False, True, payload=b"m")
"""The first of a delivery's frames, which is of a format of its own."""


def test_a_delivery_that_begins_without_its_delivery_id_ends_its_session() -> None:
    handler = Answering()
    connection = server(handler)
    other = frame(BEGIN, None, 0, 1000, 1000, channel=1)
    connection.receive(opening() + other + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(transfer(0, 0) + frame(TRANSFER, 0, None, b"u", 0, payload=b"m") + transfer(0, 1), 0.0)
    ((_, error),) = written(connection.data_to_send(), END)
    assert error.value[0] == INVALID_FIELD
    assert handler.messages == [b"m"] and not connection.closed
    assert handler.events[-1] == ("detach", "a", False, INVALID_FIELD)
    connection.release()


@pytest.mark.parametrize("form", [(0, 1, None), (0, 1, None, None, False, True), (0, 1)])
@pytest.mark.parametrize("apart", [False, True])
def test_a_delivery_that_begins_without_its_tag_ends_its_link(form: tuple[int | None, ...], apart: bool) -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False) + attach("b", 1, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(transfer(0, 0), 0.0)
    rest = frame(TRANSFER, *form, payload=b"no"), transfer(1, 2, payload=b"of another link")
    for data in rest if apart else [b"".join(rest)]:
        connection.receive(data, 0.0)
    ((_, handle, closed, error),) = written(connection.data_to_send(), DETACH)
    assert (handle, closed, error.value[0]) == (0, None, INVALID_FIELD)
    assert handler.messages == [b"m", b"of another link"] and not connection.closed
    connection.release()


@pytest.mark.parametrize("apart", [False, True])
def test_what_goes_on_with_a_delivery_need_not_name_it(apart: bool) -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    goes_on = frame(TRANSFER, 0, None, None, None, None, True, payload=b"-")
    last, other = frame(TRANSFER, 0, payload=b"n"), transfer(0, 1, b"u")
    for data in (PARTS, goes_on, goes_on, last, other) if apart else [PARTS + goes_on + goes_on + last + other]:
        connection.receive(data, 0.0)
    assert handler.messages == [in_envelope(b"m--n", 7), b"m"]
    assert written(connection.data_to_send(), DETACH) == []
    connection.receive(frame(TRANSFER, 0, 2, payload=b"n"), 0.0)
    assert len(written(connection.data_to_send(), DETACH)) == 1
    connection.release()


class Unsettled(Answering):
    """Accepts, and leaves it to the publisher to settle."""

    credit = 1000

    def on_transfers(self, link: Any, transfers: Transfers) -> None:
        link.update_many([handle for handle in transfers.handles if handle], ACCEPTED)


def attached(mode: int) -> Any:
    connection = server(Unsettled())
    connection.receive(opening() + attach("a", 0, receiver=False, modes=(None, mode)), 0.0)
    connection.data_to_send()
    return connection


def settled_to_us(data: bytes) -> list[tuple[int, int]]:
    """Ranges that the router has settled to its publisher."""
    dispositions = written(data, DISPOSITION)
    assert all(fields[0] == b"\0\0" and fields[1] is fields[4] is True and len(fields) == 5 for fields in dispositions)
    return [(fields[2], fields[3]) for fields in dispositions]


def encoded(first: int, last: int | None, form: str) -> bytes:
    """A sender's settlement, as libraries write them."""
    if form == "long":
        return settlement(first, last) if last is not None else frame(DISPOSITION, False, first, None, True)
    width = {"zero or byte": 1, "word": 4}[form]
    code = {1: b"\x52", 4: b"\x70"}[width]
    ids = [
        b"\x40" if n is None else b"\x43" if not n and width == 1 else code + n.to_bytes(width, "big")
        for n in (first, last)
    ]
    return build(b"\0\0", DISPOSITION, [b"\x42", *ids, b"\x41"])


@pytest.mark.parametrize("form", ["long", "zero or byte", "word"])
def test_what_a_publisher_in_mode_second_settles_is_settled_to_it_when_nothing_is_unsettled(form: str) -> None:
    connection = attached(RCV_SECOND)
    connection.receive(b"".join(transfer(0, n, b"%d" % n) for n in range(20)), 0.0)
    connection.data_to_send()
    told = [(0, 4), (5, 5), (6, None), (7, 9), (12, 15), (16, 19)]
    connection.receive(b"".join(encoded(*ids, form) for ids in told), 0.0)
    assert settled_to_us(connection.data_to_send()) == []
    connection.receive(transfer(0, 20) + encoded(10, 11, form) + encoded(20, None, form), 0.0)
    assert settled_to_us(connection.data_to_send()) == [(0, 9), (12, 19), (10, 11), (20, 20)]
    connection.release()


@pytest.mark.parametrize("at_once", [1, 64])
def test_it_need_not_have_settled_all_of_it(at_once: int) -> None:
    """Libraries have room for so many only, and always some under way."""
    connection = attached(RCV_SECOND)
    connection.receive(b"".join(transfer(0, n, b"%d" % n) for n in range(1000)), 0.0)
    connection.data_to_send()
    answered = []
    for first in range(0, 960, at_once):
        connection.receive(encoded(first, first + at_once - 1, "word"), 0.0)
        answered += settled_to_us(connection.data_to_send())
    assert answered == [(first, first + 127) for first in range(0, 896, 128)]
    connection.release()


@pytest.mark.parametrize("last", [None, 777])
def test_settlements_as_proton_writes_them_need_no_look(last: int | None) -> None:
    """There may be one for every message."""
    told: list[int] = []
    data = encoded(700, last, "word") * 3
    assert Walk(65536, lambda channel: told).past(data, 0) == len(data)
    assert told == [700, last or 700] * 3


def test_settlements_of_ranges_are_all_noted_in_a_later_input_too() -> None:
    """Two of one size, behind nothing else: they are not taken for outcomes, of which a row is skipped."""
    told: list[int] = []
    walk = Walk(65536, lambda channel: told)
    ranges = [(n, n + 1) for n in (700, 710, 720, 730)]
    for some in ranges[:1], ranges[1:]:
        data = b"".join(encoded(*one, "word") for one in some)
        assert walk.past(data, 0) == len(data)
    assert told == [number for one in ranges for number in one]


def test_in_mode_first_there_is_nothing_to_be_answered() -> None:
    connection = attached(RCV_FIRST)
    connection.receive(transfer(0, 0), 0.0)
    connection.data_to_send()
    connection.receive(settlement(0, 0), 0.0)
    assert written(connection.data_to_send(), DISPOSITION) == []
    connection.release()


def test_a_session_that_has_ended_is_not_answered() -> None:
    connection = attached(RCV_SECOND)
    connection.receive(transfer(0, 0) + settlement(0, 0) + frame(END), 0.0)
    assert settled_to_us(connection.data_to_send()) == []
    connection.receive(frame(BEGIN, None, 0, 1000, 1000) + attach("b", 0, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(transfer(0, 0), 0.0)
    connection.data_to_send()
    connection.receive(settlement(0, 0), 0.0)
    assert settled_to_us(connection.data_to_send()) == []  # in mode first
    connection.release()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_publisher_whose_session_ends_before_its_attach_is_answered_has_nothing_to_be_answered(at_once: bool) -> None:
    """Else a later session on the same channel was answered on the former one's."""

    def begin(channel: int) -> bytes:
        return frame(BEGIN, None, 0, 1000, 1000, channel=channel)

    def publisher(name: str) -> bytes:
        data = attach(name, 0, receiver=False, modes=(None, RCV_SECOND))
        return data[:6] + b"\0\1" + data[8:]

    connection = attached(RCV_SECOND)
    ended = begin(1) + publisher("a") + frame(END, channel=1)
    begun = begin(2) + begin(1) + publisher("b")
    sent = b""
    for piece in [ended + begun] if at_once else [ended, begun]:
        connection.receive(piece, 0.0)
        sent += connection.data_to_send()
    ours = [fields[0] for fields in written(sent, BEGIN) if fields[1] == 1][-1]
    for data in transfer(0, 0), settlement(0, 0):
        connection.receive(data[:6] + b"\0\1" + data[8:], 0.0)
        answers = written(connection.data_to_send(), DISPOSITION)
    assert [fields[0] for fields in answers] == [ours] != [b"\0\1"]
    connection.release()


@pytest.mark.parametrize("breaks", [False, True])
def test_a_publisher_whose_session_ends_while_others_end_has_nothing_to_be_answered(breaks: bool) -> None:
    """What our output waits for is the next begin, and it brings the attach of the former session's publisher."""

    def begin(channel: int) -> bytes:
        return frame(BEGIN, None, 0, 1000, 1000, channel=channel)

    def on_one(data: bytes) -> bytes:
        return data[:6] + b"\0\1" + data[8:]

    connection = attached(RCV_SECOND)
    connection.receive(begin(5) + begin(1), 0.0)
    former = [fields[0] for fields in written(connection.data_to_send(), BEGIN)][-1]
    publisher = on_one(attach("a", 0, receiver=False, modes=(None, RCV_SECOND)))
    broken = on_one(transfer(7, 0)) if breaks else b""
    ended = frame(END, channel=1) + frame(END, channel=5)
    again = begin(1) + on_one(attach("b", 0, receiver=False, modes=(None, RCV_SECOND)))
    connection.receive(publisher + broken + ended + again, 0.0)
    (ours,) = [fields[0] for fields in written(connection.data_to_send(), BEGIN)]
    connection.receive(on_one(transfer(0, 0)), 0.0)
    connection.data_to_send()
    connection.receive(on_one(settlement(0, 0)), 0.0)
    answers = written(connection.data_to_send(), DISPOSITION)
    assert [fields[0] for fields in answers] == [ours] != [former]
    connection.release()


@pytest.mark.parametrize(
    "data",
    [
        HEADER + frame(OPEN, "name\0of another"),
        opening() + attach("name\0of another", 0, receiver=False),
        opening() + attach("a", 0, receiver=False, address="topic/x\0of another"),
        opening() + attach("a", 0, receiver=True, address="topic/x\0of another"),
    ],
)
def test_a_name_with_a_nul_is_refused(data: bytes) -> None:
    """Proton would take it for a shorter one, that of somebody else."""
    assert condition_of(server(), data) == INVALID_FIELD
