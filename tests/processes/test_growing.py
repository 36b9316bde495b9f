"""A mesh that grows and shrinks while it delivers (protocol 11): routers come and go, and nothing is lost.

a ── b          a ── b ── d          a ── d
 \\  /     ▶      \\  / 5    |     ▶    \\    |
  c               c ────── e           └── e
"""

import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
import yaml
from click.testing import CliRunner

from failover.client import Handle, Outcome, Publisher, Subscriber
from failover.client.management import Management
from router.cli.main import main
from router.mesh import launcher
from router.mesh.launcher import LaunchError
from tests.hangs import HANGS_S
from tests.processes.mesh import RunningMesh, eventually

QUEUES = {"queues": {"sets": 1}, "addresses": [{"prefix": "queue/", "kind": "queue"}]}


def links(*names: str) -> list[object]:
    return [{"between": [name[0], name[1]], "cost": int(name[2:] or 1)} for name in names]


async def _in_contact(mesh: RunningMesh, router: str, other: str) -> bool:
    routes = (await mesh.status(router))["routes"]
    return any(route["router"] == other and route["contact"] for route in routes)


async def test_routers_come_and_go_and_every_message_comes_once_and_in_order(own_triangle: RunningMesh) -> None:
    mesh, got, sent = own_triangle, list[int](), list[Handle]()
    changed = trio.Event()

    async def subscribe(task_status: trio.TaskStatus[None]) -> None:
        url = f"amqp://{mesh.address('c')}"
        async with Subscriber([url], "topic/x", container="s", link="s", timeout=60) as subscriber:
            task_status.started()
            async for delivery in subscriber:
                await delivery.accept()
                if delivery.body == b"the end":
                    return
                got.append(int(delivery.body))

    async def publish() -> None:
        url = f"amqp://{mesh.address('b')}"
        async with Publisher([url], "topic/x", container="p", link="p", timeout=60) as publisher:
            while not changed.is_set():
                sent.append(await publisher.send(b"%d" % len(sent)))
                await trio.sleep(0.002)
            await publisher.send(b"the end")

    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(subscribe)
            nursery.start_soon(publish)
            await mesh.apply("abcde", links("ab", "ac", "bc5", "bd", "ce", "de"))
            assert (await mesh.status("c"))["plan"]["routers"] == dict.fromkeys("abcde", "member")
            await eventually(lambda: _in_contact(mesh, "a", "e"))
            async with Management([f"amqp://{mesh.address('a')}"]) as management:
                assert await management.ask("GET-TYPES", "e"), "which came after a"
            await mesh.apply("ade", links("ad", "ae", "de"))
            assert sorted(mesh.directory.running()) == list("ade")
            changed.set()
    assert got == list(range(len(sent)))
    assert {await handle.outcome() for handle in sent} == {Outcome.ACCEPTED}
    for name in "ade":
        status = await mesh.status(name)
        assert {route["router"] for route in status["routes"]} == set("ade") - {name}
        assert status["plan"]["routers"] == dict.fromkeys("ade", "member")


async def test_a_router_that_is_dead_goes_by_force_and_comes_back_as_another(own_triangle: RunningMesh) -> None:
    mesh = own_triangle
    mesh.signal("c", signal.SIGKILL)
    await mesh.ending("c")
    await mesh.apply("ab", links("ab"), forced=["c"])
    assert (await mesh.status("a"))["plan"]["routers"] == dict.fromkeys("ab", "member")
    await mesh.apply("abc", links("ab", "bc"))
    assert "state.db is missing" not in mesh.log("c"), "it was set aside: another router joins under that name"
    assert (await mesh.status("c"))["state"] == "ready"
    assert mesh.log("c").count("serves") == 2


async def test_a_router_that_was_removed_while_it_stood_still_ends_when_it_hears_of_that(
    own_triangle: RunningMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears of that from those that it dials; nobody dials it any more."""
    monkeypatch.setattr(launcher, "APPLY_S", 8.0)  # a few looks, of two seconds each
    mesh = own_triangle
    process = psutil.Process(mesh.pid("a"))
    process.suspend()
    try:
        with pytest.raises(LaunchError, match="router a still runs"):
            await mesh.apply("bc", links("bc"), forced=["a"])
    finally:
        process.resume()
    await mesh.ending("a")
    assert "was removed from the mesh" in mesh.log("a")


@pytest.mark.parametrize(
    ("router", "changed", "reason"),
    [
        ("b", {"amqp": "127.0.0.1:1"}, "amqp of router b cannot change while it runs, expected 127."),
        ("b", {"inter": "127.0.0.1:1"}, "inter of router b cannot change while it runs, expected none, not 127.0"),
        ("a", {"http": "127.0.0.1:0"}, "http of router a cannot change while it runs, expected none, not 127.0.0.1:0"),
        ("c", {"advertise": "host:1"}, "advertise of router c cannot change while it runs, expected none, not host:1"),
        ("", {"timing": {"dead": "2s"}}, "timing cannot change while the mesh runs"),
        ("", QUEUES, "addresses, queues cannot change while the mesh runs"),
    ],
    ids=["clients", "neighbours", "console", "told to clients", "timing", "queues"],
)
def test_what_a_router_reads_when_it_starts_cannot_be_applied(
    triangle: RunningMesh, tmp_path: Path, router: str, changed: dict[str, Any], reason: str
) -> None:
    former = triangle.directory.topology_path.read_text()
    said = yaml.safe_load(former)
    (said["routers"][router] if router else said).update(changed)
    file = tmp_path / "changed.yaml"
    file.write_text(yaml.safe_dump(said))
    done = CliRunner().invoke(main, ["apply", str(file), "--run-dir", str(triangle.directory.path)])
    assert (done.exit_code, reason in done.stderr) == (1, True), done.stderr
    assert triangle.directory.topology_path.read_text() == former


@pytest.mark.parametrize("options", [(), ("--force",)], ids=["asked", "forced"])
def test_no_router_is_removed_that_the_mesh_does_not_have(triangle: RunningMesh, options: tuple[str, ...]) -> None:
    former, known = triangle.directory.topology_path.read_text(), sorted(triangle.directory.running())
    done = CliRunner().invoke(main, ["remove", "z", *options, "--run-dir", str(triangle.directory.path)])
    told = 'Error: there is no router "z" in this mesh, expected a, b or c\n'
    assert (done.exit_code, done.stderr) == (1, told)
    assert triangle.directory.topology_path.read_text() == former
    assert sorted(triangle.directory.running()) == known


def test_a_file_that_says_the_number_of_a_free_port_changes_nothing(triangle: RunningMesh, tmp_path: Path) -> None:
    said = yaml.safe_load(triangle.directory.topology_path.read_text())
    for name, router in said["routers"].items():
        router |= {"amqp": str(triangle.address(name)), "inter": str(triangle.inter(name))}
    file = tmp_path / "same.yaml"
    file.write_text(yaml.safe_dump(said))
    done = CliRunner().invoke(main, ["apply", str(file), "--run-dir", str(triangle.directory.path)])
    assert done.exit_code == 0, done.stderr
