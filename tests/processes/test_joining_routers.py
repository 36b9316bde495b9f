"""A router of another host joins a mesh that runs: another run directory, and only a port of the mesh (protocol 11).

a ── b    ▶    a ── b
                \\  /
                 d      elsewhere
"""

import contextlib
import signal
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest
import trio
import yaml
from click.testing import CliRunner

from failover.chaos.loopback import free_ports
from failover.cli.plan.join import _ask, _said
from failover.client import Publisher, Subscriber
from failover.client.management import Management
from router.amqp.sasl.scram import Verifier
from router.cli.main import main
from router.mesh.errors import RunError
from router.mesh.quantities import Address
from router.mesh.rundir import RunDirectory
from router.mesh.topology import load
from router.security.certs import Authority, issue_all
from router.security.users import UserFile, write_users
from tests.forks import COMMAND_LINE
from tests.hangs import HANGS_S
from tests.processes.mesh import TOPOLOGIES, RunningMesh, eventually, running

SECRET, PASSWORD = "a secret of routers, 29 letters", "open sesame"


@attrs.frozen
class Elsewhere:
    """Another host, where d is to run, and the mesh that it is to join."""

    mesh: RunningMesh
    folder: Path

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(self.folder / "run")

    @property
    def topology(self) -> Path:
        """The mesh's, and d."""
        return self.folder / "mesh.yaml"

    def write(self, **changes: Any) -> None:
        """Its file; `changes` take the place of whole parts."""
        amqp, inter = (f"127.0.0.1:{port}" for port in islice(free_ports(), 2))
        known = {"amqp": self.mesh.address, "inter": self.mesh.inter}
        routers = {name: {kind: str(at(name)) for kind, at in known.items()} for name in self.mesh.routers}
        said = yaml.safe_load(self.mesh.plan.read_text())
        said |= {"routers": routers | {"d": {"amqp": amqp, "inter": inter}}, "links": ["ab", "ad", "bd"]}
        said |= changes
        said["links"] = [[*link] if isinstance(link, str) else link for link in said["links"]]
        self.topology.write_text(yaml.safe_dump(said))

    def words(self, *options: str, name: str = "d", via: Address | None = None) -> list[str]:
        via = via or self.mesh.address("a")
        return ["join", name, str(self.topology), "--via", str(via), "--run-dir", str(self.directory.path), *options]

    def planned(self) -> dict[str, str]:
        """What the mesh takes itself to be."""
        status = trio.run(self.mesh.status, "b")
        plan: dict[str, str] = status["plan"]["routers"]
        return plan

    def end(self) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if str(self.directory.path) in process.cmdline():
                    process.kill()
                    process.wait(HANGS_S)


async def oncemesh(*words: str) -> str:
    done = await trio.run_process([*COMMAND_LINE, *words], capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("pair", tmp_path_factory.mktemp("pair")) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    folder = tmp_path_factory.mktemp("closed")
    (folder / "secret").write_text(SECRET)
    write_users(folder / "users", UserFile({"bob": Verifier.of(PASSWORD)}))
    with running("pair", folder, security={"secret": "secret", "users": "users"}) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    folder = tmp_path_factory.mktemp("certified")
    issue_all(load(TOPOLOGIES / "pair.yaml"), folder, ["alice"])
    files = {"certificate": "{router}.pem", "key": "{router}.key", "ca": "ca.pem"}
    with running("pair", folder, security=files) as mesh:
        yield mesh


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[RunningMesh], Elsewhere]]:
    hosts: list[Elsewhere] = []

    def host(mesh: RunningMesh) -> Elsewhere:
        hosts.append(Elsewhere(mesh, tmp_path))
        hosts[-1].write()
        return hosts[-1]

    yield host
    for at in hosts:
        at.end()


Host = Callable[[RunningMesh], Elsewhere]


async def send(url: str, count: int, name: str) -> None:
    async with Publisher([url], "topic/x", container=name, link=name, timeout=60) as publisher:
        for number in range(count):
            await publisher.send(b"%s %d" % (name.encode(), number))


async def test_a_router_joins_from_another_run_directory_and_is_one_of_them_until_it_is_removed(
    pair: RunningMesh, elsewhere: Host
) -> None:
    host, got = elsewhere(pair), dict[str, list[bytes]]()
    urls = {name: f"amqp://{pair.address(name)}" for name in pair.routers}

    async def subscribe(name: str, task_status: trio.TaskStatus[None]) -> None:
        link = f"s at {name}"
        async with Subscriber([urls[name]], "topic/x", container=link, link=link, timeout=60) as subscriber:
            task_status.started()
            async for delivery in subscriber:
                await delivery.accept()
                got.setdefault(name, []).append(delivery.body)
                if len(got[name]) == 90:
                    return

    with trio.fail_after(HANGS_S):
        said = await oncemesh(*host.words())
        assert "d" in said and list(host.directory.running()) == ["d"]
        urls["d"] = f"amqp://{load(host.topology).routers['d'].amqp}"
        assert (await pair.status("b"))["plan"]["routers"] == dict.fromkeys("abd", "member")
        async with trio.open_nursery() as nursery:
            for name in "abd":
                await nursery.start(subscribe, name)
            for name in "abd":
                nursery.start_soon(send, urls[name], 30, name)
        await oncemesh("remove", "d", "--run-dir", str(pair.directory.path))
        assert (await pair.status("b"))["plan"]["routers"] == dict.fromkeys("ab", "member")
        while host.directory.running():
            await trio.sleep(0.01)
        await oncemesh(*host.words(via=pair.address("b")))
        await oncemesh("remove", "d", "--run-dir", str(host.directory.path))
        assert (await pair.status("a"))["plan"]["routers"] == dict.fromkeys("ab", "member")
    for bodies in got.values():
        for name in "abd":
            told = [body.decode() for body in bodies if body.startswith(name.encode())]
            assert told == [f"{name} {number}" for number in range(30)]


async def test_a_file_that_is_applied_later_starts_nobody_who_has_joined_elsewhere(
    pair: RunningMesh, elsewhere: Host
) -> None:
    host, at = elsewhere(pair), ("--run-dir", str(pair.directory.path))
    with trio.fail_after(HANGS_S):
        await oncemesh(*host.words())
        refused = await trio.run_process([*COMMAND_LINE, "remove", "a", *at], capture_stderr=True, check=False)
        assert b"d joined later: use oncemesh apply with a topology that lists them" in refused.stderr
        said = yaml.safe_load(host.topology.read_text())
        said["links"][0] = {"between": ["a", "b"], "cost": 5}
        host.topology.write_text(yaml.safe_dump(said))
        await oncemesh("apply", str(host.topology), *at)
        assert sorted(pair.directory.running()) == ["a", "b"]
        assert {link["neighbour"]: link["cost"] for link in (await pair.status("b"))["links"]} == {"a": 5, "d": 1}
        await oncemesh("remove", "d", *at)


OTHER = {"amqp": "127.0.0.1:1", "inter": "127.0.0.1:2"}


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"mesh": "other"}, "d", "this is mesh pair, not other"),
        ({"b": OTHER}, "b", "the mesh already has a router of this name; choose another name, or use oncemesh start"),
        ({"d": {"advertise": "a"}}, "d", "router a is at {a} already, expected another address"),
        ({"e": OTHER, "links": ["ab", "ad", "de"]}, "d", "its topology has e, which the mesh does not have"),
        ({"b": None, "links": ["ad"]}, "d", "its topology lacks b, which the mesh has"),
        ({"d": {"amqp": "127.0.0.1:0"}}, "d", "amqp: 127.0.0.1:0 is no reachable address, expected a host and a port"),
    ],
    ids=["another mesh", "name", "address", "a router too many", "a router too few", "no port"],
)
def test_who_does_not_fit_is_refused_and_leaves_nothing(
    pair: RunningMesh, elsewhere: Host, changes: dict[str, Any], name: str, reason: str
) -> None:
    host = elsewhere(pair)
    routers = yaml.safe_load(host.topology.read_text())["routers"]
    changed = {router: said for router in "bde" if (said := changes.pop(router, routers.get(router)))}
    if changed.get("d", {}).get("advertise"):
        changed["d"] = routers["d"] | {"advertise": str(pair.address("a"))}
    elif "d" in changed:
        changed["d"] = routers["d"] | changed["d"]
    host.write(routers={"a": routers["a"]} | changed, **changes)
    is_refused(host, reason.replace("{a}", str(pair.address("a"))), name=name)


def is_refused(host: Elsewhere, reason: str, *options: str, **words: Any) -> None:
    said = CliRunner().invoke(main, host.words(*options, **words))
    assert (said.exit_code, reason in said.stderr) == (1, True), said.stderr
    assert host.planned() == dict.fromkeys("ab", "member")
    assert not host.directory.path.exists()


def test_a_router_of_another_wire_version_is_refused(
    pair: RunningMesh, elsewhere: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.neighbours.VERSION", 1)
    is_refused(elsewhere(pair), "this router 1")


def test_where_nobody_listens_nobody_is_joined(pair: RunningMesh, elsewhere: Host) -> None:
    port = next(free_ports())
    is_refused(elsewhere(pair), "Connection refused", via=Address("127.0.0.1", port))


def test_who_cannot_start_is_not_in_the_mesh(pair: RunningMesh, elsewhere: Host) -> None:
    host = elsewhere(pair)
    (host.directory.path / "d").mkdir(parents=True)
    (host.directory.path / "d" / "log").write_text("where the delivery log should go")
    said = CliRunner().invoke(main, host.words())
    assert (said.exit_code, "router d cannot start" in said.stderr) == (1, True), said.stderr
    assert "Warning" not in said.stderr
    assert host.planned() == dict.fromkeys("ab", "member")


def test_whom_no_router_reaches_is_stopped_and_not_in_the_mesh(
    pair: RunningMesh, elsewhere: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.mesh.launcher.START_S", 3.0)
    host, nobody = elsewhere(pair), next(free_ports())
    links = ({"between": [name, "d"], "address": f"127.0.0.1:{nobody}"} for name in "ab")
    host.topology.write_text(
        yaml.safe_dump(yaml.safe_load(host.topology.read_text()) | {"links": [["a", "b"], *links]})
    )
    said = CliRunner().invoke(main, host.words())
    assert (said.exit_code, "router d was stopped again because no router of the mesh" in said.stderr) == (1, True), (
        said.stderr
    )
    assert host.planned() == dict.fromkeys("ab", "member")
    assert not host.directory.running()


async def test_a_router_that_is_killed_meanwhile_is_not_missed(pair: RunningMesh, elsewhere: Host) -> None:
    host = elsewhere(pair)

    async def b_expects_d() -> bool:
        return "d" in (await pair.status("b"))["plan"]["routers"]

    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(oncemesh, *host.words())
            await eventually(b_expects_d)
            pair.signal("a", signal.SIGKILL)
        assert [route["router"] for route in (await pair.status("b"))["routes"]] == ["d"]
        await pair.ending("a")
        await pair.start("a")
        await oncemesh("remove", "d", "--run-dir", str(pair.directory.path))


async def test_of_two_who_join_at_once_under_one_name_one_is_refused(pair: RunningMesh, elsewhere: Host) -> None:
    host, refused = elsewhere(pair), list[str]()
    said = _said("d", load(host.topology))

    async def ask(via: str, port: int) -> None:
        async with Management([f"amqp://{pair.address(via)}"]) as management:
            try:
                await _ask(management, "CREATE", "d", said | {"inter": f"127.0.0.1:{port}"})
            except RunError as error:
                refused.append(str(error))

    async with Management([f"amqp://{pair.address('a')}"]) as management:
        for number in range(1, 6):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "a", 1)
                nursery.start_soon(ask, "b", 2)
            assert len(refused) == number
            assert "the mesh already has a router of this name" in refused[-1]
            await _ask(management, "DELETE", "d")


def test_only_who_runs_a_closed_mesh_lets_a_router_join(closed: RunningMesh, elsewhere: Host) -> None:
    host = elsewhere(closed)
    for file in ("secret", "users"):
        (host.folder / file).write_bytes((closed.plan.parent / file).read_bytes())
    (host.folder / "password").write_text(PASSWORD)
    bob = "--user", "bob", "--password-file", str(host.folder / "password")
    is_refused(
        host, "user 'bob' may not use CREATE, expected the secret of the mesh or an operator's credentials", *bob
    )
    said = CliRunner().invoke(main, host.words())
    assert said.exit_code == 0, said.stderr
    assert host.planned() == dict.fromkeys("abd", "member")
    assert CliRunner().invoke(main, ["remove", "d", "--run-dir", str(closed.directory.path)]).exit_code == 0


def test_a_wrong_secret_is_nobodys(closed: RunningMesh, elsewhere: Host) -> None:
    host = elsewhere(closed)
    (host.folder / "secret").write_text(SECRET.upper())
    (host.folder / "users").write_bytes((closed.plan.parent / "users").read_bytes())
    is_refused(host, "amqp:unauthorized-access")


def test_a_certificate_alone_makes_no_router(certified: RunningMesh, elsewhere: Host) -> None:
    """A client's is vouched for by the same CA. Who runs the mesh has one, too."""
    host, authority = elsewhere(certified), Authority(certified.plan.parent, "")
    for name in ("d", "$mesh"):
        for path in authority.issue(name):
            path.rename(host.folder / path.name)
    (host.folder / "ca.pem").write_bytes((certified.plan.parent / "ca.pem").read_bytes())
    is_refused(host, "user 'd' may not use CREATE, expected the secret of the mesh or an operator's credentials")
    operator = "--certificate", str(host.folder / "$mesh.pem"), "--key", str(host.folder / "$mesh.key")
    said = CliRunner().invoke(main, host.words(*operator))
    assert said.exit_code == 0, said.stderr
    assert host.planned() == dict.fromkeys("abd", "member")
    assert CliRunner().invoke(main, ["remove", "d", "--run-dir", str(certified.directory.path)]).exit_code == 0
