"""What a peer says of an error, or of a delivery's state: proton keeps it with each delivery that it is said of."""

from typing import Any

import pytest

from router.amqp.batches import Dispositions
from router.amqp.connection import Connection
from router.amqp.format.errors import RESOURCE_LIMIT
from router.amqp.format.values import ErrorCondition
from router.amqp.frames.bounds import LARGE, MOST_TOLD, bounded
from router.amqp.proton.link import Link
from tests.router.amqp.frames import (
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    Described,
    Symbol,
    attach,
    encode,
    frame,
    opening,
)
from tests.router.amqp.server import condition_of, server
from tests.router.amqp.test_bounds import Sending, error, sending

MODIFIED, REJECTED = 0x27, 0x25


class Hearing(Sending):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[ErrorCondition | None] = []
        self.annotations: list[bytes] = []

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        self.heard.append(condition)

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        self.heard.append(condition)

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        outcomes = [link.remote_outcome(handle) for handle in dispositions.handles]
        self.annotations = [each.annotations for each in outcomes]
        self.heard.extend(ErrorCondition(each.condition or "", each.description, each.info) for each in outcomes)


def said(code: int, told: Described) -> bytes:
    """Of a delivery, a link, a session with a link, or a connection."""
    fields: dict[int, tuple[Any, ...]] = {
        DISPOSITION: (True, 0, 0, False, Described(REJECTED, told)),
        DETACH: (0, False, told),
        END: (told,),
        CLOSE: (told,),
    }
    return frame(code, *fields[code])


def heard(*said: bytes) -> list[ErrorCondition | None]:
    return hearing(*said).heard


def hearing(*said: bytes) -> Hearing:
    """With one delivery sent."""
    handler = Hearing()
    connection = server(handler)
    credit = frame(FLOW, 0, 2**31 - 1, 0, 2**31 - 1, 0, 0, 1)
    connection.receive(opening() + attach("a", 0, receiver=True, modes=(0, 1)) + credit, 0.0)
    connection.data_to_send()
    for data in said:
        connection.receive(data, 0.0)
    connection.release()
    return handler


@pytest.mark.parametrize("told", [["x", 1], "x", {None: 1}])
def test_annotations_that_no_reader_takes_are_none(told: Any) -> None:
    """They would stand in the message that the next consumer gets."""
    modified = frame(DISPOSITION, True, 0, 0, False, Described(MODIFIED, True, False, told))
    assert hearing(modified).annotations == [b""]


@pytest.mark.parametrize("code", [DISPOSITION, DETACH, END, CLOSE])
def test_of_an_error_nothing_is_kept_that_is_large(code: int) -> None:
    """Its texts are cut between two characters, and not in the middle of one."""
    small: dict[str, Any] = {Symbol("x"): "y"}
    text = "a" + "\N{LATIN SMALL LETTER E WITH ACUTE}" * LARGE
    cut = text[: LARGE // 2]
    assert len(cut.encode()) == LARGE - 1
    assert heard(said(code, error(small, text)))[0] == ErrorCondition("test:error", cut, small)
    assert heard(said(code, error({Symbol("x"): "y" * LARGE}, text)))[0] == ErrorCondition("test:error", cut, {})
    assert heard(said(code, error({Symbol("x"): MOST_TOLD * [None]})))[0] == ErrorCondition("test:error", "why", {})
    named = Described(0x1D, Symbol("c" * 2 * LARGE), "why", small)
    assert heard(said(code, named))[0] == ErrorCondition("c" * LARGE, "why", small)


@pytest.mark.parametrize("value", [b"d" * LARGE, LARGE * [None]])
def test_a_large_description_that_is_no_text_is_none(value: Any) -> None:
    assert heard(said(DETACH, Described(0x1D, Symbol("test:error"), value)))[0] == ErrorCondition("test:error", "", {})


def test_a_small_error_is_left_as_it_is() -> None:
    fields = [encode(value) for value in (True, 0, 9, False, Described(REJECTED, error({Symbol("x"): "y"})))]
    assert bounded(DISPOSITION, fields) is fields


@pytest.mark.parametrize("annotations", [{Symbol("x"): MOST_TOLD * [None]}, {Symbol("x"): "y" * LARGE}])
def test_annotations_for_a_whole_range_are_not_large(annotations: Any) -> None:
    modified = frame(DISPOSITION, True, 0, 99, False, Described(MODIFIED, True, False, annotations))
    assert condition_of(sending(100), modified) == RESOURCE_LIMIT


@pytest.mark.parametrize(
    "told",
    [
        error(None, "d" * 60_000),
        error({Symbol("x"): 1000 * [None]}),
        Described(0x1D, Symbol("c" * 60_000), "why"),
        Described(0x1D, Symbol("c" * 20_000), "d" * 20_000, {Symbol("x"): "y" * 20_000}),
    ],
)
def test_what_is_left_of_an_error_is_not_large(told: Described) -> None:
    fields = [encode(value) for value in (True, 0, 399, False, Described(REJECTED, told))]
    left = bounded(DISPOSITION, fields)
    assert len(left) == len(fields) and sum(map(len, left)) < 4 * LARGE
    connection = sending(400)
    connection.receive(frame(DISPOSITION, True, 0, 399, False, Described(REJECTED, told)), 0.0)
    connection.release()
