"""The management agent: what it answers, in pages, and that it never keeps the loop."""

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from router.amqp.format.codec import Raw
from router.amqp.format.message import sections_of
from router.management.agent import MOST_ROWS, Agent
from router.management.bounds import LONGEST, MOST_ITEMS, bounded
from router.management.entity import EntityType, Operations, done_at_once
from router.management.pace import LOOKS, SHARE, SLICE_S
from router.management.recent_events import RecentEvents
from router.management.recent_log import MOST_LINES
from router.management.requests import UNAVAILABLE, ManagementError, Request


async def at_once() -> None:
    pass


def things(count: int, took_s: float = 0.0) -> EntityType[int]:
    """So many; each costs some time to look at."""

    def identity(number: int) -> str:
        clock: Any = trio.lowlevel.current_clock()
        clock.jump(took_s)
        return str(number)

    return EntityType[int](
        "thing", {"identity": identity, "name": lambda n: f"name {n % 1000}"}, lambda: iter(range(count))
    )


async def ask(agent: Agent, body: Any = None, **asked: Any) -> tuple[int, str, Any]:
    answer = await agent.answer(Request("reply", None, asked, body))
    told = dict(sections_of(answer))
    return told[0x74]["statusCode"], told[0x74]["statusDescription"], told[0x77]


def agent_of(*kinds: EntityType[Any]) -> Agent:
    return Agent(kinds, lambda: ["amqp:/a"], RecentEvents("a", 1), lambda: b"{}", lambda _: Raw(b""), at_once)


async def test_a_query_is_answered_in_pages_none_of_which_is_larger_than_the_most(autojump_clock: MockClock) -> None:
    agent = agent_of(things(1200))
    seen: list[str] = []
    while True:
        _, _, body = await ask(agent, operation="QUERY", entityType="thing", offset=len(seen), count=10_000)
        assert len(body["results"]) <= MOST_ROWS
        if not body["results"]:
            break
        seen += [row[body["attributeNames"].index("identity")] for row in body["results"]]
    assert seen == [str(number) for number in range(1200)]


@pytest.mark.parametrize(
    ("offset", "count", "expected"), [(0, 3, 3), (8, 5, 2), (10, 5, 0), (2**32 - 1, 5, 0), (0, 0, 0)]
)
async def test_offset_and_count_bound_the_results(
    offset: int, count: int, expected: int, autojump_clock: MockClock
) -> None:
    _, _, body = await ask(agent_of(things(10)), operation="QUERY", entityType="thing", offset=offset, count=count)
    assert len(body["results"]) == expected


async def test_a_query_has_the_attributes_that_were_asked_for_and_are_there(autojump_clock: MockClock) -> None:
    names = ["name", "unheard-of", "type", "name"]
    _, _, body = await ask(agent_of(things(1)), {"attributeNames": names}, operation="QUERY", entityType="thing")
    assert body == {"attributeNames": ["name", "type"], "results": [["name 0", "thing"]]}
    code, told, _ = await ask(agent_of(things(1)), {"attributeNames": ["x"]}, operation="QUERY")
    assert (code, told) == (400, "unknown attributes x, expected some of type, identity, name")


async def test_without_a_type_a_query_is_for_all(autojump_clock: MockClock) -> None:
    others = EntityType[str]("other", {"identity": str, "name": str, "size": len}, lambda: ["abc"])
    _, _, body = await ask(agent_of(things(1), others), operation="QUERY")
    assert body["attributeNames"] == ["type", "identity", "name", "size"]
    assert body["results"] == [["thing", "0", "name 0", None], ["other", "abc", "abc", 3]]


async def test_a_name_that_several_have_is_asked_by_identity(autojump_clock: MockClock) -> None:
    agent = agent_of(things(2001))
    code, told, _ = await ask(agent, operation="READ", type="thing", name="name 0")
    assert (code, told) == (400, "3 entities have the name 'name 0'; name one by its identity: 0, 1000, 2000")
    assert (await ask(agent, operation="READ", identity="1000"))[2]["name"] == "name 0"


async def test_others_run_while_ten_thousand_are_looked_at(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    took_s = 0.0001
    agent, passes = agent_of(things(10_000, took_s)), []

    async def run() -> None:
        while True:
            passes.append(trio.current_time())
            await trio.sleep(0.001)

    nursery.start_soon(run)
    code, _, _ = await ask(agent, operation="READ", identity="9999")
    assert code == 200
    gaps = [later - earlier for earlier, later in pairwise(passes)]
    assert max(gaps) <= SLICE_S + (LOOKS + 2) * took_s + 0.001
    assert trio.current_time() >= SHARE * 10_000 * took_s


async def test_requests_are_worked_on_one_after_the_other(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    open_passes = 0

    def entities() -> Iterator[int]:
        nonlocal open_passes
        open_passes += 1
        yield from range(3)

    def look(_: int) -> str:
        nonlocal open_passes
        assert open_passes == 1
        return ""

    def last(number: int) -> str:
        nonlocal open_passes
        open_passes -= number == 2
        return ""

    agent = agent_of(EntityType[int]("thing", {"identity": look, "name": last}, entities))
    async with trio.open_nursery() as asking:
        for _ in range(5):
            asking.start_soon(ask, agent, None)
            asking.start_soon(lambda: ask(agent, operation="QUERY"))
    assert open_passes == 0


def test_what_strangers_chose_is_cut_to_a_bounded_size() -> None:
    assert bounded("x" * 1000) == "x" * (LONGEST - 1) + "…"
    assert len(bounded(range(10_000))) == MOST_ITEMS
    assert bounded({str(n): "y" * 1000 for n in range(1000)}).keys() == {str(n) for n in range(MOST_ITEMS)}


async def test_entity_less_operations(autojump_clock: MockClock) -> None:
    agent = agent_of(things(0))
    assert (await ask(agent, operation="GET-MGMT-NODES"))[2] == ["amqp:/a"]
    assert (await ask(agent, operation="get-types"))[2] == {"thing": []}
    assert (await ask(agent, operation="GET-ATTRIBUTES", entityType="thing"))[2] == {
        "thing": ["type", "identity", "name"]
    }
    assert (await ask(agent, operation="GET-OPERATIONS"))[2] == {"thing": ["READ"]}
    assert (await ask(agent, operation="GET-ANNOTATIONS"))[2] == {"thing": []}


async def test_what_can_be_created_changed_and_deleted_is(autojump_clock: MockClock) -> None:
    made: dict[str, str] = {}

    def create(name: str, said: Mapping[Any, Any]) -> str:
        made[name] = said.get("size", "small")
        return name

    def update(name: str, said: Mapping[Any, Any]) -> str:
        made[name] = said["size"]
        return name

    attributes: dict[str, Callable[[str], Any]] = {"identity": str, "name": str, "size": made.__getitem__}
    may = Operations[str](done_at_once(create), done_at_once(update), done_at_once(made.__delitem__))
    agent = agent_of(EntityType[str]("made", attributes, lambda: list(made), may), things(1))
    assert (await ask(agent, operation="GET-OPERATIONS"))[2]["made"] == ["READ", "CREATE", "UPDATE", "DELETE"]
    told = await ask(agent, operation="CREATE", type="made", name="x")
    assert told == (201, "Created", {"type": "made", "identity": "x", "name": "x", "size": "small"})
    told = await ask(agent, {"size": "large"}, operation="UPDATE", type="made", name="x")
    assert told == (200, "OK", {"type": "made", "identity": "x", "name": "x", "size": "large"})
    assert (await ask(agent, operation="DELETE", type="made", name="x"))[0] == 204 and not made
    assert (await ask(agent, operation="UPDATE", type="made", name="x"))[0] == 404
    assert (await ask(agent, operation="CREATE", type="thing", name="x"))[0] == 501
    assert (await ask(agent, operation="UPDATE", type="thing", identity="0"))[0] == 501
    assert (await ask(agent, operation="CREATE", type="made"))[0] == 400


async def test_what_others_decide_is_awaited_while_others_are_answered(autojump_clock: MockClock) -> None:
    decided, answered = trio.Event(), list[str]()

    async def create(name: str, said: Mapping[Any, Any]) -> str:
        await decided.wait()
        raise ManagementError(UNAVAILABLE, f"nobody leads, and {name} was not made")

    attributes: dict[str, Callable[[str], Any]] = {"identity": str, "name": str}
    agent = agent_of(EntityType[str]("made", attributes, list, Operations(create)), things(1))

    async def note(**asked: Any) -> None:
        code, told, _ = await ask(agent, **asked)
        answered.append(f"{code} {told}")

    async with trio.open_nursery() as asking:
        asking.start_soon(lambda: note(operation="CREATE", type="made", name="x"))
        await trio.sleep(1)
        await note(operation="READ", type="thing", identity="0")
        decided.set()
    assert answered == ["200 OK", "503 nobody leads, and x was not made"]


async def test_the_last_lines_of_the_log_are_told(autojump_clock: MockClock) -> None:
    agent, log = agent_of(things(0)), logging.getLogger("oncemesh.tested")
    log.warning("before")
    with agent.log.listening():
        for number in range(2 * MOST_LINES):
            log.warning("line %d of \x1b", number)
    code, _, lines = await ask(agent, operation="GET-LOG")
    assert (code, len(lines)) == (200, MOST_LINES)
    _, _, lines = await ask(agent, operation="GET-LOG", limit=2)
    assert [line[:3] for line in lines] == [
        ["oncemesh.tested", "warning", f"line {number} of \\x1b"] for number in (2 * MOST_LINES - 2, 2 * MOST_LINES - 1)
    ]


@pytest.mark.parametrize(("limit", "count"), [("3", 3), ("0", 0), (2, 2), ("12", 5)])
async def test_a_number_may_come_as_text(limit: str | int, count: int, autojump_clock: MockClock) -> None:
    agent = agent_of(things(5))
    status, _, body = await ask(agent, operation="QUERY", entityType="thing", count=limit)
    assert (status, len(body["results"])) == (200, count)


@pytest.mark.parametrize("limit", ["", "-1", "3.0", "three", "٣", " 3", "9" * 21, str(2**32), True])
async def test_another_text_is_no_number(limit: str | bool) -> None:
    status, why, _ = await ask(agent_of(things(5)), operation="QUERY", entityType="thing", count=limit)
    assert status == 400 and why == f"count is {limit!r}, expected a number from 0 to {2**32 - 1}"


def of_dispatch(name: str, **attributes: str) -> EntityType[int]:
    readers: dict[str, Callable[[int], Any]] = {"identity": str, "name": lambda n: f"M0name {n}"}
    readers |= {key: lambda n, said=said: said for key, said in attributes.items()}  # type: ignore[misc]
    return EntityType[int](f"org.apache.qpid.dispatch.{name}", readers, lambda: iter([7]))


async def test_a_type_has_the_name_by_which_it_was_asked_for() -> None:
    agent = agent_of(of_dispatch("router"), of_dispatch("router.address", key="M0a"), of_dispatch("connection"))
    for asked, told in {
        "org.apache.qpid.dispatch.connection": "org.apache.qpid.dispatch.connection",
        "connection": "org.apache.qpid.dispatch.connection",
        "io.skupper.router.connection": "io.skupper.router.connection",
        "io.skupper.router.routerMetrics": "io.skupper.router.routerMetrics",
        "io.skupper.router.network": "io.skupper.router.network",
    }.items():
        _, _, body = await ask(agent, operation="QUERY", entityType=asked)
        assert [dict(zip(body["attributeNames"], row, strict=True))["type"] for row in body["results"]] == [told]
        _, _, entity = await ask(agent, operation="READ", type=asked, identity="7")
        assert entity["type"] == told
    _, _, body = await ask(agent, operation="QUERY")
    assert len(body["results"]) == 3, "each entity has one type"
    status, _, _ = await ask(agent, operation="QUERY", entityType="io.skupper.router.thing")
    assert status == 400


async def test_addresses_have_no_phase_for_the_tools_of_skupper_router() -> None:
    agent = agent_of(of_dispatch("router.address", key="M0a"), of_dispatch("router.link", owningAddr="M0a"))
    for prefix, address in {"org.apache.qpid.dispatch": "M0a", "io.skupper.router": "Ma"}.items():
        _, _, entity = await ask(agent, operation="READ", type=f"{prefix}.router.address", identity="7")
        assert entity["key"] == address
        _, _, entity = await ask(agent, operation="READ", type=f"{prefix}.router.link", identity="7")
        assert (entity["owningAddr"], entity["name"]) == (address, "M0name 7")


async def test_types_are_told_by_both_names_and_the_schema_once() -> None:
    agent = agent_of(of_dispatch("connection"), things(1))
    _, _, types = await ask(agent, operation="GET-TYPES")
    assert set(types) == {"org.apache.qpid.dispatch.connection", "io.skupper.router.connection", "thing"}
    _, _, schema = await ask(agent, operation="get-schema")
    assert schema["prefix"] == "org.apache.qpid.dispatch"
    assert schema["entityTypes"]["connection"]["fullyQualifiedType"] == "org.apache.qpid.dispatch.connection"
    assert schema["entityTypes"]["connection"]["operations"] == ["READ"]
    assert set(schema["entityTypes"]) == {"connection", "thing"}
