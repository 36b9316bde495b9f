"""What the judge says of a subscriber that forgets what was sent again under the same key (protocol 10)."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.judge import Judge
from tests.simulation.parties import Message, Reader, Violation
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import State
from topic.identity import Epoch

TEXT, KEY = b"p0.1.1", b"key"
FIRST, SECOND = Epoch(1, "a", 1), Epoch(2, "b", 1)
HELD: Any = SimpleNamespace(state=State.SETTLED, name="held")
OTHER: Any = SimpleNamespace(state=State.SETTLED, name="other")
"""Records under the key: of what was sent first, and another."""


@pytest.fixture
def judge(has_left: bool) -> Judge:
    """The publisher sends the message again, as it did not hear the answer in which it was settled, or had left."""
    schedule: Any = SimpleNamespace(now=0.0)
    knobs: Any = SimpleNamespace(redeliveries=0, grace=0.0)
    holder: Any = SimpleNamespace(alive=True, topic=SimpleNamespace(records=SimpleNamespace(by_key={KEY: HELD})))
    judge = Judge(schedule, {"c": holder}, knobs, lambda who, what: None)
    sent_on: Any = SimpleNamespace(
        epoch=FIRST, client=None, first=True, router=SimpleNamespace(name="a", incarnation=1),
    )  # fmt: skip
    again_on: Any = SimpleNamespace(epoch=SECOND, client=None, router=SimpleNamespace(name="b", incarnation=1))
    identity = SimpleNamespace(address="topic/0")
    sent_on.client = again_on.client = SimpleNamespace(link=again_on if has_left else sent_on, identity=identity)
    judge.messages[TEXT] = Message(TEXT, "p0", 1, 1, False, KEY, False, sent_on)
    judge.readers["s0"] = Reader("topic/0", True, True, False, False)
    judge.lives.generations["p0", 1] = b"life"
    judge.lives.given("p0", b"life", FIRST)
    judge.applications.seen("s0", "a", TEXT, KEY, 0, False)
    judge.answered(sent_on, [TEXT], DeliveryOutcome.ACCEPTED)
    judge.republished(again_on, TEXT)
    return judge


@pytest.fixture
def has_left() -> bool:
    return False


def subscriber(settled_there: dict[bytes, Any]) -> Any:
    return SimpleNamespace(name="s0", link=SimpleNamespace(router=None, settled_there=settled_there))


def test_the_first_delivery_was_settled(judge: Judge) -> None:
    judge.applications.forgotten(subscriber({}), TEXT, 0, "settled")
    judge.applications.seen("s0", "b", TEXT, KEY, 0, False)
    with pytest.raises(Violation, match="1 exactly once"):
        judge.applications.seen("s0", "b", TEXT, KEY, 0, False)


@pytest.mark.parametrize("settled_there", [{}, {TEXT: OTHER}])
def test_the_second_is_not_settled_by_that(judge: Judge, settled_there: dict[bytes, Any]) -> None:
    judge.applications.seen("s0", "b", TEXT, KEY, 0, False)
    with pytest.raises(Violation, match="3 forgets early"):
        judge.applications.forgotten(subscriber(settled_there), TEXT, 0, "left out of the router's map")


@pytest.mark.parametrize("has_left", [False, True])
def test_the_second_is_taken_for_the_first_where_that_is_still_held(judge: Judge) -> None:
    judge.applications.seen("s0", "b", TEXT, KEY, 0, False)
    judge.applications.forgotten(subscriber({TEXT: HELD}), TEXT, 0, "left out of the router's map")
    judge.applications.seen("s0", "c", TEXT, KEY, 0, False)
    with pytest.raises(Violation, match="1 exactly once"):
        judge.applications.seen("s0", "c", TEXT, KEY, 0, False)
