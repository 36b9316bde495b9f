r"""Partitions that last longer than termini do: nobody in use is thrown out, and who is missed in something is told so
(protocol 8, Apart).

    a      Clients reach all routers. P is at b and S at c, unless a test says otherwise.
   / \
  b - c
"""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import trio

from failover.client import MISSED, Connected, Event, Lost, Subscriber
from router.amqp.format.values import ACCEPTED, ErrorCondition
from tests.forks import COMMAND_LINE
from tests.processes.mesh import eventually
from tests.processes.severed import TOPIC, End, Stage, severable_triangle, until

TERMINUS_S = 3


@pytest.fixture
def tls() -> bool:
    """As `test_over_tls` has it otherwise."""
    return False


@pytest.fixture
async def stage(tmp_path: Path, nursery: trio.Nursery, tls: bool) -> AsyncIterator[Stage]:
    async with severable_triangle(tmp_path, nursery, tls=tls, terminus=TERMINUS_S) as stage:
        yield stage


@pytest.mark.parametrize("known", [True, False], ids=["P is known there", "P is new to it"])
async def test_a_router_without_clients_that_was_alone_throws_nobody_out(stage: Stage, known: bool) -> None:
    s = await stage.subscriber("c", None, credit=0)  # so K stays in doubt
    if known:
        p = await stage.publisher("b", None)
    stage.cut_off("a")
    if not known:
        p = await stage.publisher("b", None)
    k = p.send(b"K")
    await stage.lapses("a")

    await stage.heal()
    assert (s.detached, p.detached, p.outcomes) == (None, None, [])
    there = await stage.subscriber("a", {}, s, credit=10)
    await stage.said(there, lambda: there.bodies == [b"K"])
    there.accept()
    await stage.said(p, lambda: p.is_told_accepted(k))
    p.settle(k)
    after = p.send(b"L")
    await stage.said(there, lambda: len(there.bodies) > 1)
    there.accept()
    await stage.said(p, lambda: p.is_told_accepted(after))
    assert there.bodies == [b"K", b"L"]
    assert (there.detached, p.detached) == (None, None)


async def test_what_was_accepted_where_its_publisher_is_out_of_reach_is_not_settled_there(
    tmp_path: Path, nursery: trio.Nursery, tls: bool
) -> None:
    """P's timeout passes at c, and K is in doubt still: at b, where S goes, it is to be found in its map."""
    async with severable_triangle(tmp_path, nursery, tls=tls) as stage:
        await stage.subscriber("b", None, credit=1, timeout=TERMINUS_S + 1, container="witness", topic="topic/witness")
        s = await stage.subscriber("c", None, credit=10)
        p = await stage.publisher("b", None, timeout=TERMINUS_S)
        k = p.send(b"K")
        await stage.said(s, lambda: s.bodies == [b"K"])
        stage.cut_off("c")
        s.accept()
        await stage.lapses("c", "witness")  # it is out of reach for as long as P is, and its timeout is longer
        assert not s.is_told_settled
        assert p.outcomes == []

        s.go()
        there = await stage.subscriber("b", {s.tags[0]: ACCEPTED}, s, credit=10)
        await stage.said(there, lambda: p.is_told_accepted(k))
        p.settle(k)
        await stage.said(there, lambda: there.is_told_settled)
        assert there.bodies == []
        assert (p.detached, there.detached) == (None, None)


def assert_tells_of(condition: ErrorCondition | None) -> None:
    """What was accepted at b without a subscriber."""
    assert condition is not None
    assert condition.name == "amqp:resource-deleted"
    assert_says_why(condition.description)


def assert_says_why(text: str) -> None:
    assert "router b accepted messages without this subscriber" in text
    assert f"longer than its timeout of {TERMINUS_S} s" in text
    away_s = float(text.split("out of reach for ")[1].split(" s,")[0])
    assert away_s >= TERMINUS_S


async def accepted_without_it(stage: Stage) -> End:
    """P, at b, once K is accepted there without who is at c."""
    stage.cut_off("c")
    p = await stage.publisher("b", None)
    k = p.send(b"K")
    await stage.said(p, lambda: p.is_told_accepted(k))
    p.settle(k)
    return p


async def test_who_was_apart_and_is_missed_in_something_is_told_why(stage: Stage) -> None:
    s = await stage.subscriber("c", None, credit=10)
    p = await accepted_without_it(stage)
    assert s.detached is None
    (untold,) = (await stage.status("b"))["untold"]
    assert_says_why(untold["ending"])
    await stage.heal()
    await stage.said(s, lambda: s.detached)
    assert_tells_of(s.detached)
    await stage.all_have_been_told()
    (warning,) = [line for line in stage.log("c").splitlines() if "was ended" in line]
    assert "WARNING" in warning
    assert_says_why(warning)

    s.go()
    again = await stage.subscriber("c", None, credit=10)
    await follows(stage, p, again)


async def follows(stage: Stage, p: End, s: End) -> None:
    """S goes on with what is published from now on, and with nothing else."""
    after = p.send(b"L")
    await stage.said(s, lambda: s.bodies)
    s.accept()
    await stage.said(p, lambda: p.is_told_accepted(after))
    assert s.bodies == [b"L"]
    assert s.detached is None


async def test_who_was_apart_and_is_missed_in_nothing_goes_on_as_if_it_had_not_been(stage: Stage) -> None:
    """K waits for T, too: when S is back, K is in doubt still."""
    s = await stage.subscriber("c", None, credit=10)
    t = await stage.subscriber("b", None, credit=0, container="T")
    p = await stage.publisher("b", None)
    stage.cut_off("c")
    k = p.send(b"K")
    await stage.lapses("b")
    await stage.heal()
    await stage.said(s, lambda: s.bodies == [b"K"])
    s.accept()
    t.link.flow(10)
    await stage.said(t, lambda: t.bodies == [b"K"])
    t.accept()
    await stage.said(p, lambda: p.is_told_accepted(k))
    assert (s.detached, t.detached, p.detached) == (None, None, None)


async def test_what_it_answered_while_it_was_apart_is_not_given_to_it_again(stage: Stage) -> None:
    s = await stage.subscriber("c", None, credit=10)
    p = await stage.publisher("b", None)
    k = p.send(b"K")
    await stage.said(s, lambda: s.bodies == [b"K"])
    stage.cut_off("c")
    s.accept()
    await stage.said(p, lambda: p.is_told_accepted(k))
    p.settle(k)
    assert not s.is_told_settled
    await stage.heal()
    await until(lambda: s.detached)
    assert_tells_of(s.detached)

    again = await stage.subscriber("c", {s.tags[0]: ACCEPTED}, s, credit=10)
    await follows(stage, p, again)


@pytest.mark.parametrize("router", ["b", "a"], ids=["to where it is missed", "to where that was heard of"])
async def test_who_moves_before_the_partition_heals_is_told_once(stage: Stage, router: str) -> None:
    s = await stage.subscriber("c", None, credit=10)
    p = await accepted_without_it(stage)
    s.go()
    told = await stage.subscriber(router, {}, s, credit=10)
    await until(lambda: told.detached)
    assert_tells_of(told.detached)
    assert told.order == []
    told.go()

    there = await stage.subscriber(router, {}, s, credit=10)
    await stage.heal()
    await follows(stage, p, there)


async def test_our_own_client_tells_why_and_goes_on(stage: Stage) -> None:
    events: list[Event] = []
    async with Subscriber([stage.url("c")], TOPIC, container="S", link="link", events=events.append) as s:
        p = await accepted_without_it(stage)
        await stage.heal()
        await until(lambda: [type(event) for event in events] == [Connected, Lost, Connected])
        after = p.send(b"L")
        delivery = await anext(s)
        assert delivery.body == b"L"
        await delivery.accept()
        await stage.said(p, lambda: p.is_told_accepted(after))
    (lost,) = [event for event in events if isinstance(event, Lost)]
    assert lost.condition == MISSED
    assert_says_why(lost.reason)


async def test_the_command_shows_why_and_goes_on(stage: Stage, nursery: trio.Nursery) -> None:
    arguments = ["subscribe", TOPIC, "--url", stage.url("c"), "--id", "S", "--count", "1"]
    process = await nursery.start(partial(trio.run_process, [*COMMAND_LINE, *arguments], stdout=PIPE, stderr=PIPE))
    shown, printed = bytearray(), bytearray()
    nursery.start_soon(_read, process.stderr, shown)
    nursery.start_soon(_read, process.stdout, printed)
    await until(lambda: shown.count(b"attached to ") == 1)
    p = await accepted_without_it(stage)
    await stage.heal()
    await until(lambda: shown.count(b"attached to ") == 2)
    after = p.send(b"L")
    await stage.said(p, lambda: p.is_told_accepted(after))
    assert await process.wait() == 0
    await until(lambda: printed == b"L\n")
    told, why, again = shown.decode().splitlines()
    assert told == "attached to c as S"
    assert " reconnects: amqp:resource-deleted: " in why
    assert_says_why(why)
    assert again.endswith(" as S")


async def _read(stream: trio.abc.ReceiveStream, into: bytearray) -> None:
    async for part in stream:
        into += part


async def test_plain_clients_outlive_short_cuts_of_each_router(tmp_path: Path, nursery: trio.Nursery) -> None:
    """They ask for no timeout. Each router in turn is cut off until all have lost it."""
    async with severable_triangle(tmp_path, nursery, grace=3600.0) as stage:
        readers = [await stage.subscriber(at, None, credit=100, timeout=0, container=f"S at {at}") for at in "abc"]
        p = await stage.publisher("b", None)
        sent: list[Any] = []

        async def is_alone(router: str) -> bool:
            reports = [await stage.status(other) for other in "abc" if other != router]
            routes = [route for report in reports for route in report["routes"] if route["router"] == router]
            return not any(route["contact"] for route in routes)

        def has_all(reader: End) -> bool:
            return len(reader.bodies) == len(sent)

        for router in "abc":
            sent.append(p.send(b"before the cut of %s" % router.encode()))
            stage.cut_off(router)
            p.connection.wake()
            await eventually(partial(is_alone, router))
            sent.append(p.send(b"in the cut of %s" % router.encode()))
            p.connection.wake()
            await stage.heal()
            for reader in readers:
                await stage.said(reader, partial(has_all, reader))
                for delivery in reader.deliveries[-2:]:
                    reader.link.update(delivery, ACCEPTED)
                reader.connection.wake()
            await until(lambda: all(map(p.is_told_accepted, sent[-2:])))
            for delivery in sent[-2:]:
                p.settle(delivery)
        assert all(reader.bodies == readers[0].bodies for reader in readers)
        assert [end.detached for end in (*readers, p)] == [None] * 4
