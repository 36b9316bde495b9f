"""Work whose amount a peer chooses: each frame costs what it is long, whatever it says, and however often."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from router.amqp.batches import Dispositions
from router.amqp.connection import Connection
from router.amqp.format.errors import FRAMING_ERROR, RESOURCE_LIMIT, AmqpError
from router.amqp.format.message import merged
from router.amqp.format.values import Bounds
from router.amqp.frames import walk
from router.amqp.frames.bounds import MOST_BYTES, MOST_VALUES
from router.amqp.proton.engine import LEAST_STEP_S, Engine
from router.amqp.proton.link import Link
from router.amqp.proton.restated import AT_FIRST
from router.amqp.sasl.client import SaslClient
from router.amqp.sasl.layer import MECHANISMS, SASL_HEADER, sasl_frame
from router.amqp.sasl.server import ANONYMOUS
from tests.router.amqp.frames import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    HEADER,
    OPEN,
    SOURCE,
    TARGET,
    Described,
    Raw,
    Symbol,
    attach,
    encode,
    frame,
    opening,
    transfer,
)
from tests.router.amqp.server import Answering, condition_of, server

NULLS_WITHOUT_END = Raw(b"\xf0\x00\x00\x00\x05\x7f\xff\xff\xff\x40")
SEVENTY_NULLS = Raw(b"\xf0\x00\x00\x00\x05\x00\x00\x00\x46\x40")


def error(info: Any, description: str = "why") -> Described:
    return Described(0x1D, Symbol("test:error"), description, info)


class Sending(Answering):
    """Sends as many as it may, and settles nothing."""

    def on_credit(self, link: Link) -> None:
        for number in range(link.credit):
            link.send(b"%d" % number, b"message")

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        pass


def sending(count: int) -> Connection:
    """With so many deliveries sent on one link."""
    connection = server(Sending())
    credit = frame(FLOW, 0, 2**31 - 1, 0, 2**31 - 1, 0, 0, count)
    connection.receive(opening() + attach("a", 0, receiver=True, modes=(0, 1)) + credit, 0.0)
    connection.data_to_send()
    return connection


def test_whoever_tells_the_same_of_all_deliveries_again_and_again_is_sent_away() -> None:
    again = frame(DISPOSITION, True, 0, 999, False) * (8 + AT_FIRST // 1000 + 2)
    assert condition_of(sending(1000), again) == RESOURCE_LIMIT


def test_whoever_tells_each_outcome_and_each_settlement_may_do_so_for_ever() -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=True, modes=(0, 1)), 0.0)
    connection.data_to_send()
    sent = 0
    for _ in range(AT_FIRST // 20):
        connection.receive(frame(FLOW, 0, 2**31 - 1, 0, 2**31 - 1, 0, sent, 20), 0.0)
        connection.data_to_send()
        accepted = Described(0x24)
        states = [frame(DISPOSITION, True, sent, sent + 19, settled, accepted) for settled in (False, True)]
        connection.receive(b"".join(states), 0.0)
        connection.data_to_send()
        sent += 20


def test_proton_never_makes_more_events_at_once_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed = []
    push = Engine.push

    def counted(self: Engine, data: bytes, start: int, end: int) -> None:
        pushed.append(end - start)
        push(self, data, start, end)

    connection = sending(5000)
    monkeypatch.setattr(Engine, "push", counted)
    one = frame(DISPOSITION, True, 0, 4999, False)
    with pytest.raises(AmqpError):
        connection.receive(one * 200, 0.0)
    assert max(pushed) <= 20 * len(one)


@pytest.mark.parametrize(
    "hostile",
    [
        frame(BEGIN, None, 0, 1000, 1000, None, None, None, {Symbol("x"): NULLS_WITHOUT_END}, channel=1),
        attach("a", 0, receiver=False, properties={Symbol("x"): NULLS_WITHOUT_END}),
        frame(ATTACH, "a", 0, True, None, None, Described(SOURCE, *7 * [None], {Symbol("x"): NULLS_WITHOUT_END}),
              Described(TARGET)),
        frame(DETACH, 0, False, error({Symbol("x"): NULLS_WITHOUT_END})),
        frame(END, error({Symbol("x"): NULLS_WITHOUT_END})),
        frame(CLOSE, error({Symbol("x"): NULLS_WITHOUT_END})),
        frame(DISPOSITION, True, 0, 99, False, Described(0x27, True, False, {Symbol("x"): NULLS_WITHOUT_END})),
        frame(DISPOSITION, True, 0, None, False, Described(0x27, None, None, NULLS_WITHOUT_END)),
        frame(DISPOSITION, True, 0, 99, False, Described(0x25, error({Symbol("x"): NULLS_WITHOUT_END}))),
    ],
)  # fmt: skip
def test_an_array_of_elements_without_bytes_has_no_end_but_ours(hostile: bytes) -> None:
    assert condition_of(server(), opening(), hostile) == RESOURCE_LIMIT


@pytest.mark.parametrize(
    ("sent", "refused"),
    [
        (frame(DETACH, 0, False, error({Symbol("x"): SEVENTY_NULLS})), None),
        (frame(DISPOSITION, True, 0, None, False, Described(0x25, error({Symbol("x"): SEVENTY_NULLS}))), None),
        (frame(DISPOSITION, True, 0, None, False, Described(0x27, None, None, SEVENTY_NULLS)), RESOURCE_LIMIT),
    ],
)
def test_each_element_without_bytes_counts_in_an_error_and_a_state(sent: bytes, refused: str | None) -> None:
    """The info of an error may be left out."""
    connection = server()
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    if refused is None:
        connection.receive(sent, 0.0)
    else:
        with pytest.raises(AmqpError, match=refused):
            connection.receive(sent, 0.0)
    connection.release()


def array(constructor: bytes, *elements: bytes) -> Raw:
    body = len(elements).to_bytes(4, "big") + constructor + b"".join(elements)
    return Raw(b"\xf0" + len(body).to_bytes(4, "big") + body)


@pytest.mark.parametrize(
    "values",
    [
        lambda count: count * [None],
        lambda count: [count * [None]],
        lambda count: Raw(b"\xd1" + encode(count * [None])[1:]),
        lambda count: array(b"\x56", *count * [b"\x01"]),
        lambda count: [array(b"\x40", *count // 2 * [b""]), array(b"\x45", *(count + 1) // 2 * [b""])],
        lambda count: array(b"\xf0", *count // 11 * [array(b"\x43", *10 * [b""]).encoded[1:]]),
        lambda count: array(b"\xe0", *count // 8 * [b"\x07\x05\x56\x01\x01\x01\x01\x01"]),
    ],
)
def test_a_connection_a_session_or_a_link_is_told_no_more_values_than_there_is_room_for(
    values: Callable[[int], Any],
) -> None:
    for code, most in MOST_VALUES.items():
        for count, refused in ((most - 40, None), (most + 20, RESOURCE_LIMIT)):
            told = {Symbol("x"): values(count)}
            hostile = {
                OPEN: HEADER + frame(OPEN, "x", *8 * [None], told),
                BEGIN: opening() + frame(BEGIN, None, 0, 1000, 1000, None, None, None, told, channel=1),
                ATTACH: opening() + attach("a", 0, receiver=False, properties=told),
            }[code]
            connection = server()
            try:
                connection.receive(hostile, 0.0)
            except AmqpError as raised:
                assert raised.condition == refused
            else:
                assert refused is None
            connection.release()


@pytest.mark.parametrize("code", MOST_BYTES)
@pytest.mark.parametrize(("more", "refused"), [(-200, None), (1, RESOURCE_LIMIT)])
def test_a_session_or_a_link_is_told_no_more_bytes_than_there_is_room_for(
    code: int, more: int, refused: str | None
) -> None:
    """With an unsettled map, which has a limit of its own."""
    told = {Symbol("x"): (MOST_BYTES[code] + more) * "x"}
    hostile = {
        BEGIN: frame(BEGIN, None, 0, 1000, 1000, None, None, None, told, channel=1),
        ATTACH: attach("a", 0, receiver=False, unsettled={bytes(30): None}, properties=told),
    }[code]
    connection = server()
    if refused is None:
        connection.receive(opening() + hostile, 0.0)
    else:
        with pytest.raises(AmqpError, match=f"more than {MOST_BYTES[code]} bytes") as raised:
            connection.receive(opening() + hostile, 0.0)
        assert raised.value.condition == refused
    connection.release()


@pytest.mark.parametrize("place", range(5, 10))
def test_the_values_of_all_fields_of_an_open_count(place: int) -> None:
    """Locales, capabilities, and properties: half of what there is room for in each of two is enough."""
    half = MOST_VALUES[OPEN] // 2
    symbols = Raw(b"\xf0" + (half + 5).to_bytes(4, "big") + half.to_bytes(4, "big") + b"\xa3" + bytes(half))
    fields: list[Any] = 10 * [None]
    for at in (5 + (place - 4) % 5, place):
        fields[at] = symbols if at < 9 else dict.fromkeys(map(str, range(half // 2)))
    fields[0] = "x"
    assert condition_of(server(), HEADER + frame(OPEN, *fields)) == RESOURCE_LIMIT


def test_an_unsettled_map_has_a_limit_of_its_own() -> None:
    handler = Answering()
    connection = server(handler)
    unsettled = {b"%d" % number: None for number in range(2 * MOST_VALUES[ATTACH])}
    connection.receive(opening() + attach("a", 0, receiver=False, unsettled=unsettled), 0.0)
    assert len(handler.attached) == 1
    connection.release()


def test_whoever_wants_to_hear_something_each_millisecond_is_not_looked_at_each_millisecond() -> None:
    connection = server()
    connection.receive(HEADER + frame(OPEN, "hasty", None, None, None, 1), 0.0)
    now = 0.0
    for _ in range(100):
        now = connection.tick(now) or 0.0
        connection.data_to_send()
    assert now >= 100 * LEAST_STEP_S * 0.99


def test_annotations_are_taken_apart_once_for_all_that_they_modify() -> None:
    merged.__globals__["_entries"].cache_clear()
    ours, theirs = (b"\xc1\x05\x02\xa3\x01" + key + b"\x40" for key in (b"a", b"b"))
    assert len({merged(ours, theirs) for _ in range(1000)}) == 1
    assert merged.__globals__["_entries"].cache_info().misses == 2


@pytest.mark.parametrize("kind", ["dispositions", "transfers"])
def test_a_read_of_ever_other_frames_makes_few_patterns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    alike = walk._alike

    def counted(*described: Any) -> walk.Row:
        made.append(described)
        return alike(*described)

    monkeypatch.setattr(walk, "_alike", counted)
    connection = server(Answering())
    count = 100
    connection.receive(opening() + b"".join(attach(f"a{n}", n, receiver=False) for n in range(count)), 0.0)
    connection.data_to_send()
    plain = [frame(0x14, n // 2, n, b"%d" % (n % 2), 0, payload=b"m") for n in range(2 * count)]
    others = [frame(DISPOSITION, True, 0, 0, True, payload=bytes(n // 2)) for n in range(2 * count)]
    connection.receive(b"".join(plain if kind == "transfers" else others), 0.0)
    assert len(made) <= walk.MOST_NEW
    connection.release()


def test_a_pattern_is_not_made_of_a_large_settlement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "_alike", lambda *described: pytest.fail("of a frame of 60,000 bytes"))
    connection = server()
    connection.receive(opening() + attach("a", 0, receiver=False, modes=(0, 1)), 0.0)
    connection.data_to_send()
    begin = b"\x00\x53\x15\xc0\x09\x04\x42\x70"
    bodies = [begin + n.to_bytes(4, "big") + b"\x40\x41" + bytes(60_000) for n in range(4)]
    connection.receive(b"".join((8 + len(b)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + b for b in bodies), 0.0)


def test_sessions_that_come_and_go_unread_are_not_without_end() -> None:
    cycle = frame(BEGIN, None, 0, 1000, 1000) + frame(END)
    assert condition_of(server(), HEADER + frame(OPEN, "x"), cycle * (Bounds().sessions + 1)) == RESOURCE_LIMIT


def calls(connection: Connection, data: bytes) -> int:
    """Of functions, for this input and what is answered; of a garbage collection, and whoever looks at it, none."""
    count = 0

    def counting(*_: Any) -> None:
        nonlocal count
        count += 1

    gc.disable()
    sys.setprofile(counting)
    try:
        connection.receive(data, 0.0)
        connection.data_to_send()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize("end", [frame(END, channel=1), transfer(7, 0)[:6] + b"\x00\x01" + transfer(7, 0)[8:]])
def test_the_end_of_a_session_costs_the_same_whatever_other_sessions_have(end: bytes) -> None:
    costs = []
    for links in (10, 500):
        connection = server()
        connection.receive(opening() + b"".join(attach(f"a{n}", n, receiver=False) for n in range(links)), 0.0)
        connection.data_to_send()
        connection.receive(frame(BEGIN, None, 0, 1000, 1000, channel=1), 0.0)
        connection.data_to_send()
        costs.append(calls(connection, end))
    assert costs[0] == costs[1]


def test_all_links_are_answered_with_few_looks_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull looks at all links: one for each would cost their square."""
    pulls = []
    pull = Engine.pull

    def counted(self: Engine) -> bytes:
        pulls.append(self)
        return pull(self)

    connection = server()
    connection.receive(opening() + b"".join(attach(f"a{n}", n, receiver=n % 2 == 0) for n in range(100)), 0.0)
    connection.data_to_send()
    connection.receive(b"".join(frame(FLOW, 0, 1000, 0, 1000, n, 0, 5, 0, False, True) for n in range(100)), 0.0)
    monkeypatch.setattr(Engine, "pull", counted)
    written = connection.data_to_send()
    assert written.count(b"\x00\x53\x13") >= 100
    assert len(pulls) <= 4


def test_a_message_in_tiny_pieces_takes_no_more_room_than_its_bytes() -> None:
    handler = Answering()
    connection = server(handler)
    connection.receive(opening() + attach("a", 0, receiver=False), 0.0)
    connection.data_to_send()
    connection.receive(transfer(0, 0, more=True, payload=b"ab") * 3000, 0.0)
    assert sys.getsizeof(handler.attached[0].partial) < 2 * 6000


def test_a_server_offers_its_mechanisms_once() -> None:
    client = SaslClient()
    offer = sasl_frame(MECHANISMS, ANONYMOUS)
    client.receive(SASL_HEADER + offer)
    with pytest.raises(AmqpError) as caught:
        client.receive(offer)
    assert caught.value.condition == FRAMING_ERROR
