"""`oncemesh queue` with real routers: any of them declares, shows and deletes, as long as a majority is there.

a ── b ── c, and a ── c; each has a replica of each set
"""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from failover.client.management import Management
from router.entities.queues import DECLARED_QUEUE
from router.entities.replicas import SET
from tests.forks import COMMAND_LINE
from tests.processes.mesh import RunningMesh, eventually, running
from tests.router.http.web import ask


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("queues", tmp_path, http=True) as found:
        yield found


@attrs.frozen
class Told:
    exit_code: int
    output: str


def url(mesh: RunningMesh, router: str) -> str:
    return f"amqp://{mesh.address(router)}"


async def queue(mesh: RunningMesh, router: str, *words: str) -> Told:
    command = [*COMMAND_LINE, "queue", *words, "--url", url(mesh, router)]
    ran = await trio.run_process(command, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    return Told(ran.returncode, ran.stdout.decode())


async def listed(mesh: RunningMesh, router: str) -> list[dict[str, Any]]:
    told = await queue(mesh, router, "list", "--json")
    assert told.exit_code == 0, told.output
    return list(json.loads(told.output))


async def test_a_mesh_with_queues_has_the_series_of_its_sets(mesh: RunningMesh) -> None:
    reply = await ask(mesh.http("a"), "/metrics")
    leads = set(re.findall(r'^oncemesh_set_leads\{set="(\w+)"\}', reply.text, re.MULTILINE))
    assert leads == {f"q{number}" for number in range(8)}
    series = {one.series.name: one.measured for one in SET.attributes if one.series is not None}
    everywhere = {name for name, says in series.items() if not says.startswith("at the leader")}
    assert everywhere <= {*re.findall(r"^(oncemesh_set_\w+)\{", reply.text, re.MULTILINE)}


async def test_any_router_does_it_while_a_majority_is_there(mesh: RunningMesh) -> None:
    declared = await queue(mesh, "a", "declare", "queue/orders", "--limit-messages", "5")
    assert declared.exit_code == 0 and declared.output.endswith(": limit-messages 5\n"), declared.output
    assert (await queue(mesh, "b", "declare", "queue/orders", "--limit-messages", "5")) == declared
    configured = await queue(mesh, "c", "configure", "queue/orders", "--limit-bytes", "1KiB")
    assert configured.output.endswith(": limit-messages 5, limit-bytes 1KiB\n"), configured.output
    [row] = await listed(mesh, "b")
    assert row["settings"] == {"limit_messages": 5, "limit_bytes": 1024}
    shown = json.loads((await queue(mesh, "a", "show", "queue/orders", "--json")).output)
    assert {name: one["role"] for name, one in shown["replicas"].items()} == {
        router: "leader" if router == row["leader"] else "follower" for router in "abc"
    }
    async with Management([url(mesh, "a")]) as management:
        for router in "abc":

            async def has_it(router: str = router) -> bool:
                rows = await management.query(DECLARED_QUEUE.managed, (), router)
                return [(one["identity"], one["limitBytes"]) for one in rows] == [(row["id"], 1024)]

            await eventually(has_it)
    for router in "cab":
        moved = await queue(mesh, "a", "move", row["set"], router)
        assert moved == Told(0, f"set {row['set']} is led by router {router}\n")
    [row] = await listed(mesh, "a")
    assert row["leader"] == "b"
    mesh.signal(row["leader"], signal.SIGKILL)
    await mesh.ending(row["leader"])
    left, *_ = others = [router for router in "abc" if router != row["leader"]]
    deleted = await queue(mesh, left, "delete", "queue/orders")
    assert deleted == Told(0, "queue queue/orders is deleted\n")
    assert await listed(mesh, left) == []
    mesh.signal(others[1], signal.SIGKILL)
    await mesh.ending(others[1])
    began = trio.current_time()
    refused = await queue(mesh, left, "declare", "queue/more")
    assert refused.exit_code == 1 and refused.output.startswith("Error: "), refused.output
    assert " s" in refused.output and trio.current_time() - began < 30, refused.output
    async with Management([url(mesh, left)]) as management:
        assert {row["leader"] for row in await management.query(SET.managed, ("leader",))} == {None}
    for router in "abc":
        if router != left:
            await mesh.start(router)
    assert (await queue(mesh, left, "declare", "queue/more")).exit_code == 0
    assert [row["name"] for row in await listed(mesh, left)] == ["queue/more"]


async def test_a_router_leaves_when_no_set_needs_it_any_more(mesh: RunningMesh) -> None:
    """Router c is a voter of all sets."""

    async def remove(*options: str) -> Told:
        command = [*COMMAND_LINE, "remove", "c", "--run-dir", str(mesh.directory.path), *options]
        ran = await trio.run_process(command, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
        return Told(ran.returncode, ran.stdout.decode())

    assert (await queue(mesh, "a", "declare", "queue/orders")).exit_code == 0
    names = ", ".join(f"q{number}" for number in range(8))
    why = f"router c is a voter of replica sets {names}: choose others first"
    assert await remove() == Told(1, f"Error: {why}, for example with oncemesh queue voters q0 a b\n")
    for number in range(8):
        told = await queue(mesh, "c", "voters", f"q{number}", "a", "b")
        warning = f"warning: a set of two voters needs both: q{number} stops if one of a, b does\n"
        assert told == Told(0, f"set q{number} has the voters a, b\n{warning}")
    told = await remove()
    assert told.exit_code == 0, told.output
    mesh.removed("c")
    assert (await queue(mesh, "a", "declare", "queue/more")).exit_code == 0
    assert [row["name"] for row in await listed(mesh, "b")] == ["queue/more", "queue/orders"]
