"""Commands that look at a mesh from anywhere: what they ask of `$management`, over the loss of routers."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from itertools import permutations
from typing import Any

import trio
from click.testing import CliRunner

from failover.cli.doctor.command import ask_others
from failover.cli.doctor.symptoms import Clock
from failover.cli.watch.events import news
from failover.cli.watch.mesh_client import of_each
from failover.cli.watch.status import ask_one_router
from failover.client import Subscriber
from failover.client.management import Management, RefusedError
from router.cli.main import main
from router.mesh.status import look
from tests.hangs import HANGS_S
from tests.processes.clients import fetch_status
from tests.processes.mesh import RunningMesh, eventually


def url(mesh: RunningMesh, router: str) -> str:
    return f"amqp://{mesh.address(router)}"


def test_commands_ask_any_router_for_all(triangle: RunningMesh) -> None:
    def told(*words: str) -> str:
        result = CliRunner().invoke(main, [*words, "--url", url(triangle, "b")])
        assert result.exit_code == 0, result.output
        return result.output

    document = json.loads(told("status", "--json"))
    assert {name: router["status"]["state"] for name, router in document["routers"].items()} == dict.fromkeys(
        "abc", "ready"
    )
    assert "mesh triangle: 1 of 1 router ready" in told("status", "--router", "c")
    events = [json.loads(line) for line in told("events", "--since", "1h", "--json").splitlines()]
    assert events == sorted(events, key=lambda event: event["time"])
    assert {event["router"] for event in events if event["kind"] == "boot"} == {*"abc"}
    of_a = told("events", "--router", "a").splitlines()
    assert of_a and all(re.fullmatch(r"[-0-9]{10} [:0-9]{8}\.[0-9]{3}  a  \S.*", line) for line in of_a), of_a
    seen = json.loads(told("top", "--once", "--json", "--interval", "10ms"))
    assert {router["router"] for router in seen["routers"]} == {*"abc"} and seen["links"] == []
    assert {(way["router"], way["neighbour"]) for way in seen["neighbours"]} == {*permutations("abc", 2)}
    refused = CliRunner().invoke(main, ["events", "--router", "z", "--url", url(triangle, "b")])
    assert (refused.exit_code, refused.output) == (
        1, 'Error: there is no router "z" in this mesh, expected a, b or c\n'
    )  # fmt: skip


async def test_routers_count_what_they_tell_each_other(triangle: RunningMesh) -> None:
    async with Management([url(triangle, "a")]) as management:
        for router in "abc":
            for row in await management.query("io.oncemesh.neighbour", router=router):
                assert row["messagesSent"] > 0 < row["messagesReceived"], "HELLOs, and this query"
                assert row["bytesSent"] > 0 < row["bytesReceived"]


async def test_the_doctor_hears_routers_of_other_hosts_by_way_of_a_router_of_this(triangle: RunningMesh) -> None:
    here = (await look(triangle.directory, fetch_status))["b"]
    clocks: dict[str, Clock] = {}
    told = await ask_others(triangle.directory, {"b": here}, clocks)
    assert {*clocks} == {*told} == {"a", "c"} and told["a"]["router"] == "a"
    assert all(abs(clock.ahead_s) < 60 and not clock.refused for clock in clocks.values())
    await ask_others(triangle.directory, {}, clocks)
    assert {*clocks} == {"a", "c"}


def test_a_bench_measures_what_it_sends(triangle: RunningMesh) -> None:
    load = ["--publishers", "2", "--subscribers", "2", "--rate", "200", "--warm-up", "100ms", "--duration", "500ms"]
    result = CliRunner().invoke(main, ["bench", "topic/bench", *load, "--json", "--url", url(triangle, "a")])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["sent"] == 100 and told["outcomes"] == {"accepted": 100} and told["delivered"] == 200
    assert 0 < told["delivery_ms"]["p50"] <= told["delivery_ms"]["p99.9"] <= told["delivery_ms"]["max"]
    assert 0 < told["accepted_per_s"] <= 200


async def test_who_follows_goes_on_at_another_router_and_misses_nothing(own_triangle: RunningMesh) -> None:
    mesh, seen, known = own_triangle, list[dict[str, Any]](), dict[str, int]()
    async with Management([url(mesh, "a")], timeout=60) as management:

        async def told(*expected: tuple[str, str]) -> bool:
            seen.extend(await news(management, [], known))
            return {(event["router"], event["kind"]) for event in seen} >= {*expected}

        await eventually(partial(told, ("a", "boot"), ("b", "boot"), ("c", "boot")))
        async with Subscriber([url(mesh, "a")], "topic/x", container="s", link="l"):
            mesh.signal("a", signal.SIGKILL)
            await mesh.ending("a")
            await eventually(partial(told, ("b", "neighbour-down"), ("c", "contact-lost")))

            async def told_of_the_move() -> bool:
                await told()
                return any(event["kind"] == "moved" for event in seen)

            await eventually(told_of_the_move)
            afar = await ask_one_router(management, [])
            assert {name: view.status is None for name, view in afar.views.items()} == {
                "a": True,
                "b": False,
                "c": False,
            }
            assert afar.views["a"].amqp == str(mesh.address("a"))
            [moved] = [event for event in seen if event["kind"] == "moved"]
            assert (moved["former"], moved["container"], moved["role"]) == ("a", "s", "subscriber")
        former = {event["sequence"] for event in seen if event["router"] == "a"}
        await mesh.start("a")

        async def told_of_another_life() -> bool:
            await told()
            boots = [event["sequence"] for event in seen if (event["router"], event["kind"]) == ("a", "boot")]
            return len(boots) == 2 and boots[1] > max(former)

        await eventually(told_of_another_life)
        sequences = [(event["router"], event["sequence"]) for event in seen]
        assert len(sequences) == len({*sequences})


async def test_a_request_that_is_not_done_says_why(triangle: RunningMesh) -> None:
    async with Management([url(triangle, "a")]) as management:
        try:
            await management.ask("DANCE", "c")
        except RefusedError as error:
            assert error.status == 501
        assert [*await of_each(["a", "removed"], management.status)] == ["a"]
        publishers = await management.query("io.oncemesh.publisher", ["name"], "b")
        assert publishers == []
        async with trio.open_nursery() as nursery:
            for router in "abc" * 10:
                nursery.start_soon(management.status, router)


def test_ctrl_c_and_a_pipe_that_closes_end_it_quietly(triangle: RunningMesh) -> None:
    run = "from router.cli.main import main; main(prog_name='oncemesh')"
    command = [sys.executable, "-c", run, "events", "--follow", "--json", "--url", url(triangle, "a")]
    for ending in ("ctrl-C", "pipe"):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            assert json.loads(process.stdout.readline())["kind"]
            if ending == "pipe":
                process.stdout.close()
                assert CliRunner().invoke(main, ["publish", "topic/x", "--body", "x", "--url", url(triangle, "b")])
            else:
                os.kill(process.pid, signal.SIGINT)
            assert process.wait(HANGS_S) in (0, 1), ending
            assert b"Traceback" not in process.stderr.read()
