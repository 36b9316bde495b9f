"""Other forms of what AMQP lets a peer say: they mean what their usual form means."""

from collections.abc import Callable

import pytest

from router.amqp.connection import Connection
from router.amqp.format.codec import Described as Value
from router.amqp.format.codec import Symbol, decode
from router.amqp.format.codec import encode as encoded
from router.amqp.format.errors import DECODE_ERROR, FRAMING_ERROR, INVALID_FIELD, NOT_IMPLEMENTED
from router.amqp.format.message import application_properties, body_of, in_envelope, merged, modified, section_of
from router.amqp.format.performative import code_of, frames_of, parse
from router.amqp.format.values import ACCEPTED, MODIFIED, REJECTED
from router.amqp.proton.link import Link
from tests.router.amqp.frames import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    HEADER,
    OPEN,
    TRANSFER,
    Described,
    Raw,
    attach,
    frame,
    transfer,
)
from tests.router.amqp.server import Answering, condition_of, server

NAMES = "open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"
OPENING = frame(OPEN, "odd") + frame(BEGIN, None, 0, 1000, 1000)


def rebuilt(whole: bytes, descriptor: bytes, *, header: bytes = b"") -> bytes:
    """The frame with another descriptor, which was a number of one byte, and an extended header."""
    body = b"\0" + descriptor + whole[11:]
    size = 8 + len(header) + len(body)
    return size.to_bytes(4, "big") + bytes((2 + len(header) // 4, 0)) + whole[6:8] + header + body


def by_name(whole: bytes) -> bytes:
    return rebuilt(whole, encoded(Symbol(f"amqp:{NAMES[code_of(whole) - OPEN]}:list")))


def by_wide_name(whole: bytes) -> bytes:
    name = f"amqp:{NAMES[code_of(whole) - OPEN]}:list".encode()
    return rebuilt(whole, b"\xb3" + len(name).to_bytes(4, "big") + name)


def by_wide_number(whole: bytes) -> bytes:
    return rebuilt(whole, b"\x80" + code_of(whole).to_bytes(8, "big"))


def behind_a_header(whole: bytes) -> bytes:
    return rebuilt(whole, whole[9:11], header=b"\0\x53\x13\xc0\x45\x45\x45\x45")


def in_form(form: Callable[[bytes], bytes], data: bytes) -> bytes:
    return b"".join(map(form, frames_of(data)))


@pytest.mark.parametrize("size", [0, 100_000])
@pytest.mark.parametrize("form", [by_name, by_wide_name, by_wide_number, behind_a_header])
def test_performatives_are_read_in_every_form(form: Callable[[bytes], bytes], size: int) -> None:
    usual, other = Answering(), Answering()
    for handler, data in ((usual, bytes), (other, lambda whole: in_form(form, whole))):
        connection = server(handler, max_frame=65536)
        connection.receive(HEADER + data(OPENING + attach("p", 0, receiver=False)), 0.0)
        connection.receive(data(attach("s", 1, receiver=True) + frame(FLOW, 0, 1000, 0, 1000, 1, 0, 3)), 0.0)
        connection.data_to_send()
        parts = transfer(0, 0, more=size > 0) + (transfer(0, 0, payload=bytes(60_000)) if size else b"")
        connection.receive(data(parts)[:500], 0.0)
        connection.receive(data(parts)[500:], 0.0)
        connection.receive(data(frame(DISPOSITION, True, 0, 2, True, Described(ACCEPTED))), 0.0)
        connection.receive(data(frame(DETACH, 1, True)), 0.0)
        connection.receive(data(frame(END)), 0.0)
        connection.receive(data(frame(0x18)), 0.0)
        connection.data_to_send()
        connection.release()
    assert other.events == usual.events and other.messages == usual.messages
    assert [outcome[1:] for outcome in other.outcomes] == [(ACCEPTED, True)] * 3


STATES = {ACCEPTED: "accepted", REJECTED: "rejected", 0x26: "released", MODIFIED: "modified"}


@pytest.mark.parametrize("code", STATES)
@pytest.mark.parametrize("wide", [False, True])
def test_outcomes_are_read_in_every_form(code: int, wide: bool) -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(HEADER + OPENING + attach("s", 0, receiver=True) + frame(FLOW, 0, 1000, 0, 1000, 0, 0, 1), 0.0)
    connection.data_to_send()
    descriptor = b"\x80" + code.to_bytes(8, "big") if wide else encoded(Symbol(f"amqp:{STATES[code]}:list"))
    connection.receive(frame(DISPOSITION, True, 0, None, True, Raw(b"\0" + descriptor + b"\x45")), 0.0)
    assert [outcome[1:] for outcome in handler.outcomes] == [(code, True)]
    connection.release()


def attached(source: bytes, target: bytes, *, receiver: bool) -> Connection:
    connection = server(handler := Answering())
    connection.context = handler
    connection.receive(HEADER + OPENING, 0.0)
    connection.receive(frame(ATTACH, "l", 0, receiver, None, None, Raw(source), Raw(target), None, None, 0), 0.0)
    return connection


def test_termini_are_read_in_every_form() -> None:
    target, source = encoded(Symbol("amqp:target:list")), encoded(Symbol("amqp:source:list"))
    anonymous = attached(b"\0" + source + b"\x45", b"\0" + target + b"\x45", receiver=False)
    (link,) = anonymous.context.attached
    assert link.remote_target is not None and link.remote_target.address is None and not link.remote_target.coordinator
    anonymous.release()
    coordinator = b"\0" + encoded(Symbol("amqp:coordinator:list")) + b"\x45"
    transactions = attached(b"\0" + source + b"\x45", coordinator, receiver=False)
    (link,) = transactions.context.attached
    assert link.remote_target is not None and link.remote_target.coordinator
    transactions.release()
    fields = encoded(["topic/x", None, None, None, None])
    subscriber = attached(b"\0" + source + fields, b"\0" + target + b"\x45", receiver=True)
    assert subscriber.context.attached[0].address == "topic/x"
    subscriber.release()


@pytest.mark.parametrize(
    ("what", "condition"),
    [
        (frame(ATTACH, "l", 0, True, None, None, Described(0x28, Raw(b"\xa3\x01x"))), DECODE_ERROR),
        (frame(ATTACH, "l", 0, True, None, None, Described(0x28, "x", Raw(b"\x50\x01"))), DECODE_ERROR),
        (frame(ATTACH, "l", Raw(b"\x60\0\0"), True), DECODE_ERROR),
        (frame(ATTACH, None, 0, True), INVALID_FIELD),
        (frame(ATTACH, "l", 0), INVALID_FIELD),
        (frame(BEGIN, channel=1), INVALID_FIELD),
        (frame(BEGIN, None, 0, None, 1000, channel=1), INVALID_FIELD),
        (frame(BEGIN, None, 0, 1000, channel=1), INVALID_FIELD),
        (frame(FLOW, 0, None, 0, 1000), INVALID_FIELD),
        (frame(DISPOSITION, True, Raw(b"\x60\0\0"), None, True, None, True, 0, 0, 0, 0), DECODE_ERROR),
        (
            frame(DISPOSITION, True, 0, None, True, Raw(b"\0" + encoded(Symbol("acme:kept:list")) + b"\x45")),
            NOT_IMPLEMENTED,
        ),
        (frame(FLOW, 0, 1000, 0, 1000, Raw(b"\x60\0\0"), 0, 3), DECODE_ERROR),
        (frame(BEGIN, None, 0, Raw(b"\x80" + bytes(8)), 1000, channel=1), DECODE_ERROR),
    ],
)
def test_what_has_no_form_of_its_type_is_refused(what: bytes, condition: str) -> None:
    assert condition_of(server(), HEADER + OPENING, what) == condition


@pytest.mark.parametrize("fields", [3, 4, 5, 8])
def test_a_transfer_without_handle_is_refused_in_its_most_common_form(fields: int) -> None:
    values = [b"\x40", b"\x43", b"\xa0\x01t", b"\x43", *[b"\x40"] * 4]
    body = b"".join(values[:fields])
    whole = b"\x02\0\0\0\0\x53\x14\xc0" + bytes((len(body) + 1, fields)) + body + b"\0\x53\x77\xa1\x01x"
    conversation = HEADER + OPENING + attach("p", 0, receiver=False)
    assert condition_of(server(), conversation, (len(whole) + 4).to_bytes(4, "big") + whole) == INVALID_FIELD


@pytest.mark.parametrize(
    ("what", "condition"),
    [
        (frame(OPEN), INVALID_FIELD),
        (frame(OPEN, None, "host"), INVALID_FIELD),
        (frame(OPEN, "odd", channel=1), FRAMING_ERROR),
    ],
)
def test_an_open_without_container_or_on_another_channel_is_refused(what: bytes, condition: str) -> None:
    assert condition_of(server(), HEADER, what) == condition


SECTIONS = {
    "amqp:header:list": [True],
    "amqp:message-annotations:map": {Symbol("x-a"): 1},
    "amqp:properties:list": ["id"],
    "amqp:application-properties:map": {"key": "value"},
    "amqp:data:binary": b"body",
}


APART = Value(Symbol("x:a"), [Value(Symbol("x:b"), 1)])
WITHIN = Value(Symbol("x:a"), Value(Symbol("x:b"), 1))


def holds(value: Value) -> list[bytes]:
    """Frames that have it in one of their maps."""
    held = Raw(encoded({Symbol("x"): [value], Symbol("y"): 2}))
    source = Described(0x28, "topic/x", 0, None, 0, False, None, None, held)
    return [
        frame(BEGIN, None, 0, 9, 9, None, None, None, held, channel=1),
        attach("x", 3, receiver=False, properties=held),
        frame(ATTACH, "y", 4, True, None, None, source, Described(0x29)),
        frame(DISPOSITION, True, 0, None, True, Described(MODIFIED, True, False, held)),
        frame(DETACH, 0, True, Described(0x1D, Symbol("x:y"), "why", held)),
    ]


@pytest.mark.parametrize("number", range(5))
def test_a_described_value_within_one_is_refused(number: int) -> None:
    opened = HEADER + OPENING + attach("s", 0, receiver=True) + frame(FLOW, 0, 1000, 0, 1000, 0, 0, 1)
    assert condition_of(server(), opened, holds(WITHIN)[number]) == NOT_IMPLEMENTED
    connection = server()
    connection.receive(opened + holds(APART)[number], 0.0)
    assert not connection.closed
    connection.release()


def test_what_has_described_values_otherwise_is_read() -> None:
    connection = server(handler := Answering())
    connection.receive(HEADER + OPENING + holds(APART)[1], 0.0)
    (link,) = handler.attached
    assert link.remote_properties == {"x": [APART], "y": 2}
    connection.release()


def test_sections_are_read_by_name() -> None:
    named = b"".join(b"\0" + encoded(Symbol(name)) + encoded(value) for name, value in SECTIONS.items())
    assert body_of(named) == b"body"
    assert application_properties(named) == {"key": "value"}
    assert decode(section_of(named, 0x73))[0] == ["id"]
    again = modified(named, 1, encoded({Symbol("x-b"): 2}))
    assert decode(section_of(again, 0x70))[0] == [True, None, None, None, 1]
    assert decode(section_of(again, 0x72))[0] == {"x-a": 1, "x-b": 2}
    assert merged(b"", b"") == b"" and again.count(b"header") + again.count(b"\0\x53\x70") == 1


def test_a_link_keeps_its_name_where_another_of_that_name_was_stolen() -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(HEADER + OPENING + attach("s", 0, receiver=True) + attach("s", 1, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(attach("s", 2, receiver=True), 0.0)
    said = [(code_of(each), parse(each).fields) for each in frames_of(connection.data_to_send())]
    assert [code for code, _ in said] == [DETACH, ATTACH]
    assert decode(said[0][1][0])[0] == 0 and decode(said[0][1][2])[0].value[0] == "amqp:link:stolen"
    assert decode(said[1][1][0])[0] == "s"
    assert ("detach", "s", False, "amqp:link:stolen") in handler.events
    assert [link.name for link in handler.attached] == ["s"] * 3 and not handler.attached[1].ended
    connection.receive(frame(DETACH, 0, True) + attach("s", 0, receiver=True) + frame(DETACH, 2, True), 0.0)
    assert [code_of(each) for each in frames_of(connection.data_to_send())] == [DETACH, ATTACH]
    connection.receive(frame(FLOW, 0, 1000, 0, 1000, 0, 0, 3) + frame(DETACH, 0, True) + frame(DETACH, 1, True), 0.0)
    assert not connection.closed
    connection.release()


class Crowded(Answering):
    """Has more to send than there is room for."""

    def on_credit(self, link: Link) -> None:
        link.send(b"1", b"message")


def test_what_was_stolen_is_detached_although_it_waits_for_room() -> None:
    handler = Crowded()
    connection = server(handler)
    connection.receive(HEADER + frame(OPEN, "odd") + frame(BEGIN, None, 0, 0, 1000), 0.0)
    connection.receive(attach("s", 0, receiver=True) + frame(FLOW, 0, 0, 0, 1000, 0, 0, 5), 0.0)
    connection.data_to_send()
    connection.receive(attach("s", 1, receiver=True), 0.0)
    assert [code_of(each) for each in frames_of(connection.data_to_send())] == [DETACH, ATTACH]
    connection.receive(frame(FLOW, 0, 5, 0, 1000, 0, 0, 5) + frame(DETACH, 0, True), 0.0)
    assert connection.data_to_send() == b""
    connection.receive(frame(FLOW, 0, 5, 0, 1000, 1, 0, 1) + attach("t", 0, receiver=True), 0.0)
    assert sorted(code_of(each) for each in frames_of(connection.data_to_send())) == [ATTACH, TRANSFER]
    connection.release()


@pytest.mark.parametrize("receiver", [True, False])
def test_a_link_that_is_stolen_again_and_again_in_one_write_is_attached_once_at_a_time(receiver: bool) -> None:
    handler = Answering()
    connection = server(handler)
    attaches = [attach("s", handle, receiver=receiver) for handle in range(4)]
    connection.receive(HEADER + OPENING + b"".join(attaches), 0.0)
    said = [code_of(each) for each in frames_of(connection.data_to_send())]
    assert [code for code in said if code in (ATTACH, DETACH)] == [ATTACH, DETACH] * 3 + [ATTACH]
    assert not handler.attached[3].ended
    connection.release()


def test_a_name_is_taken_until_all_links_that_had_it_are_detached() -> None:
    handler = Answering()
    connection = server(handler)
    first, second = attach("s", 0, receiver=True), attach("s", 1, receiver=True)
    connection.receive(HEADER + OPENING + first + second + frame(DETACH, 1, True), 0.0)
    connection.data_to_send()
    connection.receive(attach("s", 2, receiver=True), 0.0)
    said = [code_of(each) for each in frames_of(connection.data_to_send())]
    assert said == [ATTACH] and not handler.attached[2].ended
    connection.receive(frame(DETACH, 0, True) + frame(DETACH, 2, True) + attach("s", 0, receiver=True), 0.0)
    assert [code_of(each) for each in frames_of(connection.data_to_send())] == [DETACH, ATTACH]
    connection.release()


class OfAFormat(Answering):
    """Sends one message of a format, which takes several frames."""

    def on_credit(self, link: Link) -> None:
        link.send(b"1", in_envelope(bytes(1500), 7))


def test_a_format_is_said_in_the_first_of_many_frames_only() -> None:
    connection = server(OfAFormat())
    opening = HEADER + frame(OPEN, "odd", None, 512) + frame(BEGIN, None, 0, 1000, 1000)
    connection.receive(opening + attach("s", 0, receiver=True), 0.0)
    connection.receive(frame(FLOW, 0, 1000, 0, 1000, 0, 0, 1), 0.0)
    frames = [parse(each) for each in frames_of(connection.data_to_send()) if code_of(each) == TRANSFER]
    assert [decode(said.field(3))[0] for said in frames] == [7, None, None, None]
    connection.release()
