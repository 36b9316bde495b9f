"""How promises that end are counted when a run is over."""

from typing import Any

import pytest

from tests.simulation.parties import APART, GIVEN_UP, Message, Reader
from tests.simulation.promises import Promises
from topic.delivery.outcomes import DeliveryOutcome

LINK: Any = None


@pytest.fixture
def message() -> Message:
    return Message(b"p0.1.1", "p0", 1, 1, False, b"key", False, LINK)


@pytest.fixture
def reader() -> Reader:
    return Reader("topic/0", True, True, False, False)


@pytest.fixture
def promises(message: Message, reader: Reader) -> Promises:
    promises = Promises({"s0": reader})
    promises.ended.append((message, "s0", APART))
    return promises


def test_what_its_publisher_was_told_of_and_the_subscriber_never_had_counts_by_its_cause(
    promises: Promises, message: Message
) -> None:
    message.told = True
    assert promises.causes() == {APART: 1}
    assert promises.kept_all_the_same() == 0


def test_what_was_processed_in_the_end_is_no_promise_broken(
    promises: Promises, message: Message, reader: Reader
) -> None:
    message.told = True
    reader.finish(message.text, DeliveryOutcome.ACCEPTED, False, 0)
    assert not promises.causes()
    assert promises.kept_all_the_same() == 1


def test_what_no_publisher_was_told_of_was_given_up(promises: Promises) -> None:
    assert promises.causes() == {GIVEN_UP: 1}
