"""Whom deliveries at a home wait for that no subscriber and no router has yet."""

import attrs
import pytest
import trio

from linkstate.mesh_actions import Full
from router.entities.survey import DeliveryWait, Survey
from tests.topic.bench import SETTINGS, Bench
from tests.topic.clients import NEWS
from topic.delivery.outcomes import DeliveryOutcome
from topic.settings import BALANCED, BackOff


def balanced(*names: str, window: int = SETTINGS.window) -> Bench:
    return Bench(*names, settings=attrs.evolve(SETTINGS, kinds=((NEWS, BALANCED),), window=window))


def look(bench: Bench, survey: Survey, router: str = "a") -> list[DeliveryWait]:
    survey.take(bench.stations[router].node)
    return survey.waits


async def test_what_waits_at_a_balanced_address_waits_for_any_subscriber_with_credit(autojump_clock: object) -> None:
    bench, survey = balanced("a", "b"), Survey()
    pen, awaited = bench.publisher("a"), f"any subscriber of {NEWS} with credit"
    pen.send(b"1", b"2")
    assert look(bench, survey) == [DeliveryWait(awaited, [str(pen.stream.identity)], 2, 0.0)]
    bench.subscriber("a", "without", credit=0)
    await trio.sleep(9)
    assert look(bench, survey) == [DeliveryWait(awaited, [str(pen.stream.identity)], 2, 9.0)]
    reader = bench.subscriber("b", credit=1)
    bench.flow()
    assert [(wait.awaited, wait.records) for wait in look(bench, survey)] == [(awaited, 1), ("router b", 1)]
    reader.grant(1)
    bench.flow()
    assert [(wait.awaited, wait.records) for wait in look(bench, survey)] == [("router b", 2)]
    reader.accept(b"1", b"2")
    assert look(bench, survey) == []


async def test_what_a_subscriber_has_given_back_waits_for_the_end_of_its_rest() -> None:
    settings = attrs.evolve(SETTINGS, kinds=((NEWS, BALANCED),), pauses={NEWS: BackOff(2.0)})
    bench, survey = Bench("a", settings=settings), Survey()
    reader, pen = bench.subscriber("a"), bench.publisher("a")
    pen.send(b"1")
    reader.answer(DeliveryOutcome.RELEASED, b"1")
    waits = look(bench, survey)
    assert [(wait.awaited, wait.records) for wait in waits] == [(f"the end of its rest at {NEWS}", 1)]
    bench.wait(2)
    assert [wait.awaited for wait in look(bench, survey)] == [f"subscriber {reader.end.identity}"]


async def test_what_a_subscriber_gave_back_waits_for_any() -> None:
    bench, survey = balanced("a"), Survey()
    pen, reader = bench.publisher("a"), bench.subscriber("a", credit=1)
    pen.send(b"1")
    reader.answer(DeliveryOutcome.RELEASED, b"1")
    assert [wait.awaited for wait in look(bench, survey)] == [f"any subscriber of {NEWS} with credit"]


async def test_a_publisher_without_credit_is_held_for_any_subscriber_with_credit() -> None:
    bench, survey = balanced("a", window=2), Survey()
    pen = bench.publisher("a")
    pen.send(b"1", b"2")
    look(bench, survey)
    assert survey.held == {pen.stream.publisher: [f"any subscriber of {NEWS} with credit"]}


@pytest.mark.parametrize("kinds", [(), ((NEWS, BALANCED),)])
async def test_what_is_for_a_full_router_waits_for_that(kinds: tuple[tuple[str, str], ...]) -> None:
    bench, survey = Bench("a", "b", settings=attrs.evolve(SETTINGS, kinds=kinds)), Survey()
    bench.subscriber("b")
    pen = bench.publisher("a")
    bench.stations["a"].contacts.out.append(Full("b"))
    bench.flow()
    pen.send(b"1", b"2")
    awaited = "router b, to receive messages that are under way"
    assert look(bench, survey) == [DeliveryWait(awaited, [str(pen.stream.identity)], 2, 0.0)]
