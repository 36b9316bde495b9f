"""Routers that speak different versions of the wire: both say so, and neither lets the other in."""

import sys

from router.mesh.launcher import ROUTER_COMMAND
from router.neighbours import MESH, VERSION
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, eventually

NEWER = "import router.neighbours as n; n.VERSION += 1; import runpy; runpy.run_module('router', run_name='__main__')"


async def contacts(mesh: RunningMesh, router: str) -> set[str]:
    return {route["router"] for route in (await mesh.status(router))["routes"] if route["contact"]}


async def test_two_versions_have_no_link_until_they_are_one(own_triangle: RunningMesh) -> None:
    mesh = own_triangle
    await mesh.stop("b")
    mesh.use((sys.executable, "-P", "-c", NEWER))
    mesh.begin("b")
    seen = {
        "b": [
            f"router {name} speaks wire version {VERSION}, this router {VERSION + 1}: they cannot be linked"
            for name in "ac"
        ]
    }
    for name in "ac":
        seen[name] = [f"router b speaks wire version {VERSION + 1}, this router {VERSION}: they cannot be linked"]

    async def told() -> bool:
        return all(line in mesh.log(name) for name, lines in seen.items() for line in lines)

    await eventually(told)
    assert await contacts(mesh, "b") == set()
    assert await contacts(mesh, "a") == {"c"}
    await mesh.stop("b")
    mesh.use(ROUTER_COMMAND)
    await mesh.start("b")  # waits until it is up
    assert await contacts(mesh, "a") == {"b", "c"}
    assert all(mesh.log(name).count(line) == 1 for name, lines in seen.items() for line in lines)


async def test_the_first_version_said_nothing_of_itself(own_triangle: RunningMesh, clients: Clients) -> None:
    mesh = own_triangle
    old = await clients.connect(mesh.inter("b"), "a", expect_open=False, properties={MESH: "triangle"})
    await clients.until(lambda: old.connection.closed)
    assert old.closed is not None and old.closed.name == "amqp:not-allowed"
    assert f"router a speaks wire version 1, this router {VERSION}: they cannot be linked" in mesh.log("b")
