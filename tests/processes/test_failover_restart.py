"""What a router keeps that is killed and started again, and what it does not."""

from signal import SIGKILL, SIGTERM

import trio

from failover.client import MemoryStore, Subscriber
from router.mesh.quantities import Address
from router.mesh.signals import DRAIN
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh, eventually


async def test_a_killed_router_comes_back_where_it_was_in_a_new_incarnation(
    own_triangle: RunningMesh, clients: Clients
) -> None:
    before, inter = await own_triangle.status("b"), own_triangle.inter("b")
    own_triangle.signal("b", SIGKILL)
    assert await own_triangle.ending("b") == "ended by SIGKILL"
    await own_triangle.start("b")

    after = await own_triangle.status("b")  # at the same address
    assert own_triangle.inter("b") == inter
    assert after["incarnation"] > before["incarnation"]
    assert after["pid"] != before["pid"]
    logs = (own_triangle.directory.log_path("b").parent / "log").iterdir()
    assert {int(log.name.split("-")[0]) for log in logs} == {before["incarnation"], after["incarnation"]}
    assert own_triangle.log("b").count("serves") == 2


async def test_a_drained_router_takes_nobody_and_waits_for_who_may_come_back_elsewhere(
    own_triangle: RunningMesh,
) -> None:
    await draining(own_triangle)
    own_triangle.signal("b", DRAIN)  # once more

    async def told_twice() -> bool:
        return "already draining" in own_triangle.log("b")

    await eventually(told_twice)
    assert "stopping" not in own_triangle.log("b")
    async with Subscriber([f"amqp://{own_triangle.address('a')}"], "topic/x", container="s", link="l"):
        assert await own_triangle.ending("b") == "exit status 0"
    await own_triangle.start("b")


async def test_a_draining_router_that_is_told_to_stop_does(own_triangle: RunningMesh) -> None:
    await draining(own_triangle)
    own_triangle.signal("b", SIGTERM)
    assert await own_triangle.ending("b") == "exit status 0"
    assert "some clients" not in own_triangle.log("b")
    async with Subscriber([f"amqp://{own_triangle.address('a')}"], "topic/x", container="s", link="l"):
        pass  # nobody need be waited for when the mesh is looked at
    await own_triangle.start("b")


async def draining(mesh: RunningMesh) -> None:
    """Router b is, and waits for a subscriber that may come back elsewhere."""
    address = mesh.address("b")
    async with Subscriber([f"amqp://{address}"], "topic/x", container="s", link="l", store=MemoryStore()):
        pass  # it has a store, so its link stays
    mesh.signal("b", DRAIN)
    await eventually(lambda: refuses(address))


async def refuses(address: Address) -> bool:
    try:
        await (await trio.open_tcp_stream(address.host, address.port)).aclose()
    except OSError:
        return True
    return False
