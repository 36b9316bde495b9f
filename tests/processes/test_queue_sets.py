"""Replica sets of real routers: what was answered is there, whoever is killed (protocol 13).

a ── b ── c, and a ── c; each has a replica of each of the eight sets, and leads some
"""

import re
import resource
import signal
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.bench.declares import check, declare, names_of_set, one_end, one_run
from tests.processes.mesh import RunningMesh, eventually, running


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("queues", tmp_path) as found:
        yield found


async def test_what_was_answered_is_there_once_though_a_leader_a_follower_and_all_were_killed(
    mesh: RunningMesh,
) -> None:
    figures = await one_run(mesh, 200, rate=50.0, down_s=0.2)
    assert figures["answered"] == 200, "clients ask again at other routers"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_another_router_answers_when_the_leader_has_ended(mesh: RunningMesh, number: signal.Signals) -> None:
    name = next(names_of_set(mesh))
    assert (await one_end(mesh, chain([name], names_of_set(mesh)), number))["took_ms"] > 0
    told = await declare(mesh, [name], rate=1.0)
    await check(mesh, told)
    assert list(told.ids) == [name]


async def test_a_router_whose_store_cannot_be_written_ends_and_the_others_go_on(mesh: RunningMesh) -> None:
    size = 16 * mesh.directory.log_path("b").stat().st_size  # its log has room for the last words
    resource.prlimit(mesh.pid("b"), resource.RLIMIT_FSIZE, (size, size))
    told = await declare(mesh, [f"queue/{number}" for number in range(size // 4096)], rate=1000.0)
    assert await mesh.ending("b") == "exit status 1"
    assert "queues.db: replica sets cannot be stored: " in mesh.log("b").splitlines()[-1]
    await mesh.start("b")
    await check(mesh, told)


def sets_in_log(mesh: RunningMesh, router: str, what: str) -> list[str]:
    """The sets of which the router's log says this."""
    found = re.findall(rf"set (\w+): this router {what}", mesh.log(router))
    return [str(name) for name in found]


async def leaders_of_sets(mesh: RunningMesh) -> dict[str, list[str]]:
    """For each router that leads sets the names of these sets, sorted, when all sets are led."""
    names: dict[str, str] = {}

    async def are_led() -> bool:
        names.update({one["name"]: one["leader"] for one in (await mesh.status("a"))["sets"]})
        return None not in names.values()

    await eventually(are_led)
    led: dict[str, list[str]] = {}
    for name in sorted(names):
        led.setdefault(names[name], []).append(name)
    return led


async def test_a_router_that_drains_first_gives_its_sets_away(mesh: RunningMesh) -> None:
    # Elections decide which routers lead sets.
    drained, led = max((await leaders_of_sets(mesh)).items(), key=lambda entry: len(entry[1]))
    others = [router for router in mesh.routers if router != drained]
    former = {router: len(sets_in_log(mesh, router, "leads it, in")) for router in others}
    past = len(mesh.log(drained))
    assert await mesh.drain(drained) == "drained and stopped"
    told = mesh.log(drained)[past:]
    assert sorted(re.findall(r"set (\w+): this router leads it no more", told)) == led
    assert told.index("draining") < told.index("leads it no more")
    assert told.rindex("leads it no more") < told.index("stopping")
    taken = [name for router in others for name in sets_in_log(mesh, router, "leads it, in")[former[router] :]]
    assert sorted(taken) == led, "each was handed over once"
    await mesh.start(drained)


async def test_if_all_routers_stop_no_set_moves(mesh: RunningMesh) -> None:
    await leaders_of_sets(mesh)
    former = {router: len(sets_in_log(mesh, router, "leads it, in")) for router in mesh.routers}
    assert {*(await mesh.stop(*mesh.routers)).values()} == {"stopped"}
    assert {router: len(sets_in_log(mesh, router, "leads it, in")) for router in mesh.routers} == former
    await mesh.start(*mesh.routers)
