"""A mesh with replica sets gets routers by `apply` and by `join`, which take the places of voters that leave it
(protocol 11.7, 13.4).

a ── b          a ── b          a ── b          a ── b
 \\  /     ▶     | \\/ |    ▶     \\  /     ▶      \\  /
  c             | /\\ |           e               d      elsewhere
                c ── e
"""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from failover.cli.watch.known_queues import all_queues, sets_of_mesh
from failover.client.management import Management
from router.entities.queues import DECLARED_QUEUE
from router.mesh.topology import load
from tests.hangs import HANGS_S
from tests.processes.mesh import RunningMesh, running
from tests.processes.test_joining_routers import Elsewhere, oncemesh

EU = {"name": "eu", "prefix": "queue/eu/", "prefer": "b"}


def queues(*voters: str) -> dict[str, Any]:
    return {"sets": 1, "named": [{**EU, "voters": [*voters]}]}


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("queues", tmp_path, queues=queues("a", "b", "c")) as found:
        yield found


@pytest.fixture
def elsewhere(mesh: RunningMesh, tmp_path: Path) -> Iterator[Elsewhere]:
    host = Elsewhere(mesh, tmp_path / "elsewhere")
    host.folder.mkdir()
    yield host
    host.end()


async def names(management: Management) -> set[str]:
    return {one.name for one in await all_queues(management, await sets_of_mesh(management))}


async def voters(management: Management) -> dict[str, set[str]]:
    return {name: {*one.best["voters"]} for name, one in (await sets_of_mesh(management)).items()}


async def declare(management: Management, name: str) -> None:
    await management.ask("CREATE", None, {}, type=DECLARED_QUEUE.managed, name=name)


async def test_routers_that_come_take_the_places_of_voters_that_leave(mesh: RunningMesh, elsewhere: Elsewhere) -> None:
    here = ("--run-dir", str(mesh.directory.path))
    with trio.fail_after(HANGS_S):
        async with Management([f"amqp://{mesh.address('a')}"]) as at_a:
            await declare(at_a, "queue/eu/x")
            await declare(at_a, "queue/x")

        await mesh.apply("abce", [[*pair] for pair in combinations("abce", 2)])
        e = f"amqp://{mesh.address('e')}"
        async with Management([e]) as at_e:
            assert await names(at_e) == {"queue/eu/x", "queue/x"}
            await declare(at_e, "queue/eu/y")
            told = await oncemesh("queue", "replicas", "eu", "--add", "e", "--remove", "c", "--url", e)
            assert told == "set eu has the voters b, a, e\n"
            assert await voters(at_e) == {"eu": {*"abe"}, "q0": {*"abc"}}
            told = await oncemesh("remove", "c", *here)
            assert told.startswith("set q0 has the voters a, b, e\n")
            mesh.removed("c")
            assert await voters(at_e) == {"eu": {*"abe"}, "q0": {*"abe"}}

        elsewhere.write(links=["ab", "ae", "be", "ad", "bd"], queues=queues("a", "b", "e"))
        await oncemesh(*elsewhere.words())
        d = f"amqp://{load(elsewhere.topology).routers['d'].amqp}"
        async with Management([d]) as at_d:
            assert await names(at_d) == {"queue/eu/x", "queue/eu/y", "queue/x"}
            await declare(at_d, "queue/y")
            said = yaml.safe_load(elsewhere.topology.read_text())
            del said["routers"]["e"]
            said |= {"links": [["a", "b"], ["a", "d"], ["b", "d"]], "queues": queues("a", "b", "d")}
            elsewhere.topology.write_text(yaml.safe_dump(said))
            told = await oncemesh("apply", str(elsewhere.topology), *here)
            assert told.startswith("set eu has the voters b, a, d\nset q0 has the voters a, b, d\n")
            mesh.removed("e")
            assert await voters(at_d) == {"eu": {*"abd"}, "q0": {*"abd"}}
            assert await names(at_d) == {"queue/eu/x", "queue/eu/y", "queue/x", "queue/y"}
        assert (await mesh.status("a"))["plan"]["routers"] == dict.fromkeys("abd", "member")


async def test_one_file_replaces_a_router_and_its_replicas_move_before_it_leaves(
    mesh: RunningMesh, tmp_path: Path
) -> None:
    entries, here = mesh.directory.read().routers, ("--run-dir", str(mesh.directory.path))
    amqp = {name: entries[name].amqp if name in entries else f"{mesh.host}:0" for name in "abe"}
    said = yaml.safe_load(mesh.plan.read_text()) | {"queues": queues("a", "b", "e")}
    said |= {"routers": {name: {"amqp": address} for name, address in amqp.items()}}
    said |= {"links": [["a", "b"], ["a", "e"], ["b", "e"]]}
    wanted = tmp_path / "wanted.yaml"
    wanted.write_text(yaml.safe_dump(said))
    with trio.fail_after(HANGS_S):
        async with Management([f"amqp://{mesh.address('a')}"]) as at_a:
            await declare(at_a, "queue/eu/x")
            told = await oncemesh("apply", str(wanted), *here)
            assert told.startswith("set eu has the voters b, a, e\nset q0 has the voters a, b, e\n")
            mesh.removed("c")
            assert await voters(at_a) == {"eu": {*"abe"}, "q0": {*"abe"}}
            assert await names(at_a) == {"queue/eu/x"}
        assert (await mesh.status("a"))["plan"]["routers"] == dict.fromkeys("abe", "member")
