"""What proton would keep of a peer's performative: no more than there is room for (`router.amqp.frames.bounds`)."""

from collections.abc import Callable
from typing import Any

import pytest

from router.amqp.batches import Dispositions
from router.amqp.format.errors import DECODE_ERROR, RESOURCE_LIMIT, AmqpError
from router.amqp.format.values import ErrorCondition
from router.amqp.frames.bounds import LONGEST_TEXT, MOST_VALUES
from router.amqp.proton.link import Link
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
)
from tests.router.amqp.server import Answering, condition_of, server
from tests.router.amqp.test_bounds import Sending, sending

NULLS_WITHOUT_END = Raw(b"\xf0\x00\x00\x00\x05\x7f\xff\xff\xff\x40")


def error(info: Any, description: str = "why") -> Described:
    return Described(0x1D, Symbol("test:error"), description, info)


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
def test_an_array_has_no_more_elements_than_bytes(hostile: bytes) -> None:
    assert condition_of(server(), opening(), hostile) == DECODE_ERROR


def test_annotations_for_a_whole_range_are_not_large() -> None:
    annotations = {Symbol(f"k{number}"): None for number in range(300)}
    modified = frame(DISPOSITION, True, 0, 99, False, Described(0x27, True, False, annotations))
    assert condition_of(sending(100), modified) == RESOURCE_LIMIT


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
        lambda count: array(b"\xe0", *count // 8 * [b"\x07\x05\x56\x01\x01\x01\x01\x01"]),
    ],
)
def test_a_link_or_a_session_is_told_no_more_values_than_there_is_room_for(values: Callable[[int], Any]) -> None:
    most = MOST_VALUES[ATTACH]
    for count, refused in ((most - 40, None), (most + 20, RESOURCE_LIMIT)):
        told = {Symbol("x"): values(count)}
        for hostile in (
            attach("a", 0, receiver=False, properties=told),
            frame(BEGIN, None, 0, 1000, 1000, None, None, None, told, channel=1),
        ):
            connection = server()
            connection.receive(opening(), 0.0)
            try:
                connection.receive(hostile, 0.0)
            except AmqpError as raised:
                assert raised.condition == refused
            else:
                assert refused is None
            connection.release()


def test_an_open_may_name_all_routers_of_a_large_mesh_and_no_more() -> None:
    entry = {Symbol("network-host"): "host", Symbol("port"): 5672, Symbol("hostname"): "name", Symbol("scheme"): "amqp"}
    for count, refused in ((400, None), (500, RESOURCE_LIMIT)):
        told = frame(OPEN, "x", *8 * [None], {Symbol("failover-server-list"): count * [entry]})
        connection = server()
        try:
            connection.receive(HEADER + told, 0.0)
        except AmqpError as raised:
            assert raised.condition == refused
        else:
            assert refused is None
        connection.release()


def test_an_unsettled_map_has_a_limit_of_its_own() -> None:
    handler = Answering()
    connection = server(handler)
    unsettled = {b"%d" % number: None for number in range(2 * MOST_VALUES[ATTACH])}
    connection.receive(opening() + attach("a", 0, receiver=False, unsettled=unsettled), 0.0)
    assert len(handler.attached) == 1
    connection.release()


def test_of_an_error_nothing_is_kept_that_is_large_but_its_text() -> None:
    """Proton makes a node of each value, and keeps those of a link that is detached and has deliveries."""
    heard = []

    class Hearing(Sending):
        def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
            heard.append(condition)

        def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
            outcomes = [link.remote_outcome(handle) for handle in dispositions.handles]
            heard.extend(ErrorCondition(each.condition or "", each.description, each.info) for each in outcomes)

    connection = server(Hearing())
    credit = frame(FLOW, 0, 2**31 - 1, 0, 2**31 - 1, 0, 0, 2)
    connection.receive(opening() + attach("a", 0, receiver=True, modes=(0, 1)) + credit, 0.0)
    connection.data_to_send()
    text = "at Main.java " * 200
    infos: list[dict[str, Any]] = [{Symbol("x"): 2000 * [None]}, {Symbol("x"): "y"}]
    for info in infos:
        connection.receive(frame(DISPOSITION, True, 0, 1, False, Described(0x25, error(info, text))), 0.0)
        assert heard[-2:] == 2 * [ErrorCondition("test:error", text, {} if len(info["x"]) > 1 else info)]
    connection.receive(frame(DETACH, 0, False, error({Symbol("x"): 2000 * [None]}, text)), 0.0)
    assert heard[-1] == ErrorCondition("test:error", text, {})
    connection.release()


def test_of_a_rejection_no_more_text_is_kept_than_there_is_room_for() -> None:
    """With each delivery of its range."""
    heard: list[str | None] = []

    class Hearing(Sending):
        def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
            heard.extend(link.remote_outcome(handle).description for handle in dispositions.handles)

    connection = server(Hearing())
    credit = frame(FLOW, 0, 2**31 - 1, 0, 2**31 - 1, 0, 0, 2)
    connection.receive(opening() + attach("a", 0, receiver=True, modes=(0, 1)) + credit, 0.0)
    connection.data_to_send()
    text = "x" + "é" * 10_000
    connection.receive(frame(DISPOSITION, True, 0, 1, False, Described(0x25, error(None, text))), 0.0)
    assert heard == 2 * [text[: LONGEST_TEXT // 2] + "…"]
    connection.release()
