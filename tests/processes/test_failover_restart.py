"""What a router keeps that is killed and started again, and what it does not."""

from signal import SIGKILL

from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh


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
