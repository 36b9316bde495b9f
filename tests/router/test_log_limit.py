"""Warnings that strangers provoke are written so many a minute; the rest is counted (`router.log_limit`)."""

import logging

import pytest
import trio
import trio.testing

from router.log_limit import MINUTE_S, MOST, limit_logs

NAME = "oncemesh.clients"
LOG = logging.getLogger(NAME)


@pytest.fixture
async def limited(nursery: trio.Nursery) -> None:
    """Each test asks for the clock by itself: pytest-trio runs none by that of a fixture, and minutes were minutes."""
    nursery.start_soon(limit_logs)
    await trio.testing.wait_all_tasks_blocked()


def provoke(count: int, log: logging.Logger = LOG) -> None:
    for number in range(count):
        log.warning("refused: %s", f"stranger {number}")


async def test_what_is_left_out_is_counted(
    autojump_clock: object, limited: None, caplog: pytest.LogCaptureFixture
) -> None:
    provoke(1000)
    assert len(caplog.records) == MOST[NAME]
    caplog.clear()
    await trio.sleep(MINUTE_S + 1)
    assert caplog.messages == [f"{1000 - MOST[NAME]} more like this within a minute; the last: refused: stranger 999"]
    caplog.clear()
    await trio.sleep(MINUTE_S)
    assert caplog.messages == [], "a minute without any"
    provoke(1)
    assert caplog.messages == ["refused: stranger 0"]


async def test_a_kind_hides_no_other(limited: None, caplog: pytest.LogCaptureFixture) -> None:
    """Nor does it hide what routers say of themselves, or what is no warning."""
    caplog.set_level(logging.INFO)
    provoke(1000)
    caplog.clear()
    LOG.warning("another kind: %s", 1)
    LOG.info("refused: %s", "no warning")
    provoke(100, logging.getLogger("oncemesh"))
    assert len(caplog.records) == 102


async def test_the_count_is_told_at_the_end_too(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(limit_logs)
            await trio.testing.wait_all_tasks_blocked()
            provoke(MOST[NAME] + 1)
    assert caplog.messages[-1].startswith("1 more like this")
    caplog.clear()
    provoke(2 * MOST[NAME])
    assert len(caplog.records) == 2 * MOST[NAME], "nobody limits any more"


async def test_of_clients_of_mqtt_that_come_back_again_and_again_not_every_line_is_written(
    autojump_clock: object, limited: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for number in range(1000):
            logging.getLogger("oncemesh.mqtt").info("client %d goes on", number)
            LOG.info("of others, %d", number)
    assert sum("goes on" in line for line in caplog.messages) == MOST["oncemesh.mqtt"]
    assert sum("of others" in line for line in caplog.messages) == 1000
