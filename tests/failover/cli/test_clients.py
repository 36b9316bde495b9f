"""publish and subscribe against real router processes."""

import functools
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from failover.cli import clients as cli_clients
from failover.cli import publish as cli_publish
from failover.cli import subscribe as cli_subscribe
from failover.cli.json_message import as_json
from failover.cli.source import Limit, numbered, numbered_body
from failover.client import ClientError, Connected, Lost
from failover.client.status import fetch_status
from router.cli.base import console
from router.cli.main import main
from router.mesh.errors import RunError
from router.mesh.rundir import MeshRecord, RouterEntry, RunDirectory
from router.mesh.status import look
from tests.hangs import HANGS_S
from tests.processes.mesh import eventually

PAIR = """\
mesh: pair
routers:
  a: {amqp: 127.0.0.1:0}
  b: {amqp: 127.0.0.1:0}
links: [[a, b]]
"""


def oncemesh(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunDirectory]:
    folder = tmp_path_factory.mktemp("pair")
    (folder / "pair.yaml").write_text(PAIR)
    directory = RunDirectory(folder / "run")
    up = oncemesh("up", str(folder / "pair.yaml"), "--run-dir", str(directory.path), "--detach")
    assert up.exit_code == 0, up.output
    yield directory
    down = oncemesh("down", "--run-dir", str(directory.path))
    assert down.output == "router a: stopped\nrouter b: stopped\n"


def test_messages_that_nobody_subscribes_to_are_accepted(mesh: RunDirectory) -> None:
    result = oncemesh("publish", "topic/nobody", "--count", "3", "--id", "p", "--run-dir", str(mesh.path))
    told = "attached to a as p\n3 accepted, without a subscriber at topic/nobody\n"
    assert (result.exit_code, result.output) == (0, told)


def test_an_address_that_the_mesh_does_not_serve_is_told(mesh: RunDirectory) -> None:
    for command in ("publish", "subscribe"):
        result = oncemesh(command, "queue/x", "--count", "1", "--run-dir", str(mesh.path))
        assert result.exit_code == 1
        assert result.output.startswith("Error: amqp:not-found: ")


def test_the_ports_of_a_mesh_that_is_stopped_may_be_anothers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as another:
        there = f"127.0.0.1:{another.getsockname()[1]}"
        directory = RunDirectory(tmp_path / "run")
        directory.make()
        directory.write(MeshRecord("line", "", {"a": RouterEntry(None, there, there, "")}))
        result = oncemesh("publish", "topic/x", "--body", "", "--run-dir", str(directory.path))
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {directory.path}: no router of this mesh is running, start them ")


def test_a_router_that_is_not_there_is_told() -> None:
    result = oncemesh("publish", "topic/x", "--body", "", "--url", "amqp://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.output == "Error: cannot reach a router at 127.0.0.1:1: Connection refused\n"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the peer does not speak AMQP: it sent b'HTTP/1.1'"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "it may speak MQTT, or TLS (use amqps:// for TLS)"),  # an alert
    ],
)
def test_what_answers_but_is_no_router_is_told(said: bytes, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"amqp://127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            with server.accept()[0] as stream:
                stream.sendall(said)
                stream.shutdown(socket.SHUT_WR)
                while stream.recv(100):
                    pass

        with ThreadPoolExecutor() as pool:
            answering = pool.submit(answer)
            result = oncemesh("subscribe", "topic/x", "--url", url)
            answering.result()
    assert result.exit_code == 1
    assert f"{url} did not answer like a router: {why}" in result.output


NOWHERE = ["--url", "amqp://127.0.0.1:1"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--size", "1KB"], '"1KB" is not a size, expected a number and a unit'),
        (["--url", "http://h"], "'--url': not a router's URL: 'http://h', expected amqp://host:port"),
        (["--url", "amqp://h:99999"], "'--url': not a router's URL: 'amqp://h:99999', expected amqp://host:port"),
        (["--url", "h:abc"], "'--url': not a router's URL: 'h:abc', expected amqp://host:port with a port from 1 to"),
        (["--url", "amqp://u:p@h"], "'--url': a router's URL must not have a user or password; use --user and"),
        (["--rate", "nan"], "'--rate': nan is not a rate, expected a number above 0"),
        (["--rate", "inf"], "'--rate': inf is not a rate, expected a number above 0"),
        (["--rate", "0"], "'--rate': 0.0 is not a rate, expected a number above 0"),
        (["--rate", "x"], "'--rate': 'x' is not a valid float"),
        (
            [*NOWHERE, "--body", "a", "--run-dir", "run"],
            "--url and --run-dir exclude each other: use --url or --run-dir, not both",
        ),
        (
            [*NOWHERE, "--body", "a", "--router", "a"],
            "--url and --router exclude each other: use --url or --router, not both",
        ),
        ([*NOWHERE, "--body", "a", "--size", "1B"], "--body and --size exclude each other"),
        ([*NOWHERE, "--body", "a", "--format", "json"], "--body and --format exclude each other"),
        ([*NOWHERE, "--body", "a", "--from", "-", "--format", "json"], "--body and --from exclude each other"),
        ([*NOWHERE, "--format", "json", "--count", "2"], "--format and --count exclude each other"),
        (["--body-file", "/nowhere"], "'--body-file': '/nowhere': No such file or directory"),
        (["--property", "a"], "'--property': 'a' is not a property, expected NAME=VALUE"),
        (["--ttl", "5"], "'--ttl': \"5\" is not a duration, expected a number above 0 and a unit"),
        (["--ttl", "2000h"], "'--ttl': 2000h is too long, expected at most 4294967295 ms (49.7 days)"),
        (["--ttl", "0.4ms"], "'--ttl': 0.4ms is too short, expected at least 1 ms"),
        (["--priority", "256"], "'--priority': 256 is not in the range"),
        (["--wait-for-subscribers", "0"], "'--wait-for-subscribers': 0 is not in the range"),
        (["--id", ""], "'--id': '' is not a valid name, expected one or more printable"),
        (["--id", "a\x1b"], "'--id': 'a\\x1b' is not a valid name, expected one or more printable characters"),
        (["--id", "\udcff"], "'--id': '\\udcff' is not a valid name"),
    ],
)
def test_what_cannot_be_meant_is_told(arguments: list[str], complaint: str) -> None:
    result = oncemesh("publish", "topic/x", *arguments)
    assert result.exit_code == 2
    assert complaint in result.output


@pytest.mark.parametrize("command", ["publish", "subscribe"])
def test_an_address_has_a_name(command: str) -> None:
    result = oncemesh(command, "", "--url", "amqp://127.0.0.1:1")
    assert result.exit_code == 2
    assert "'ADDRESS': '' is not a valid name, expected one or more printable" in result.output


@pytest.mark.parametrize("host", ["a" * 64, "a..b"])
def test_a_host_that_cannot_be_is_one_that_cannot_be_reached(host: str) -> None:
    result = oncemesh("publish", "topic/x", "--body", "", "--url", f"amqp://{host}:1")
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: cannot reach a router at {host}:1: ")


def test_messages_that_the_mesh_would_refuse_are_not_made(mesh: RunDirectory) -> None:
    result = oncemesh("publish", "topic/x", "--size", "16MiB", "--run-dir", str(mesh.path))
    assert result.output == (
        "Error: messages of 16777216 bytes are too large, "
        "expected at most limits.max_message of this mesh, 16777216 bytes, including the header\n"
    )
    result = oncemesh("publish", "topic/x", "--size", "999999GiB", "--url", "amqp://127.0.0.1:1")
    assert result.output.endswith("are too large, expected at most 1073741824 bytes, including the header\n")


def test_a_file_in_the_place_of_a_clients_folder_is_told(mesh: RunDirectory) -> None:
    (mesh.path / "clients").mkdir(exist_ok=True)
    (mesh.path / "clients" / "ff").touch()
    result = oncemesh("publish", "topic/x", "--body", "", "--id", "ff", "--run-dir", str(mesh.path))
    assert result.exit_code == 1
    assert result.output == f"Error: {mesh.path / 'clients' / 'ff' / 'log'}: Not a directory\n"


def test_a_router_or_a_client_name_that_cannot_be_is_told(mesh: RunDirectory) -> None:
    with pytest.raises(RunError, match='there is no router "z" in this mesh, expected a or b'):
        cli_clients.find_target(mesh.path, [], "z", "x")
    with pytest.raises(RunError, match=r'"\.\./x" is not a valid client name'):
        cli_clients.find_target(mesh.path, [], None, "../x")
    with pytest.raises(RunError, match=r'"x{32}…" is not a valid client name, expected .*, at most 128 characters$'):
        cli_clients.find_target(mesh.path, [], None, "x" * 129)


def test_the_router_asked_for_comes_first_and_the_others_follow(mesh: RunDirectory) -> None:
    entries = mesh.read().routers
    target = cli_clients.find_target(mesh.path, [], "b", "x")
    assert target.urls == (f"amqp://{entries['b'].amqp}", f"amqp://{entries['a'].amqp}")
    assert target.log == mesh.path / "clients" / "x" / "log"


async def test_what_is_published_at_one_router_is_printed_at_another(
    mesh: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    find = functools.partial(cli_clients.find_target, mesh.path, [])
    taken: list[int] = []

    async def subscribe() -> None:
        target = find("b", "reader")
        taken.append(await cli_subscribe._subscribe(target, "reader", "topic/x", 5, as_json))

    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscribe)
            await attached(mesh, "reader")
            source = numbered(20, 5, b"", Limit.of(None))
            account = await cli_publish._publish(find("a", "writer"), "writer", "topic/x", source)

    assert account.is_well and account.outcomes == {"accepted": 5}
    assert taken == [5]
    output, errors = capsys.readouterr()
    assert errors.splitlines() == ["attached to b as reader", "attached to a as writer", "5 accepted"]
    lines = [json.loads(line) for line in output.splitlines()]
    assert [line["body"] for line in lines] == [f"{number} ".ljust(20, ".") for number in range(5)]
    assert len({line["key"] for line in lines}) == 5
    assert list((mesh.path / "clients" / "reader" / "log").iterdir())


async def attached(mesh: RunDirectory, container: str) -> None:
    """Until some router has a subscriber of this container that is attached."""

    async def is_so() -> bool:
        statuses = [view.status for view in (await look(mesh, fetch_status)).values() if view.status]
        subscribers = [one for status in statuses for one in status["subscribers"]]
        return any(one["container"] == container and one["status"] == "attached" for one in subscribers)

    await eventually(is_so)


def test_what_routers_say_is_shown_as_it_is_and_does_nothing_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell = cli_clients.teller(console(stderr=True), "s")
    tell(Lost("amqp:link:stolen: \x1b[2J"))
    tell(Connected("amqp://a:1", "\u202ea"))
    assert capsys.readouterr().err == "s reconnects: amqp:link:stolen: \\x1b[2J\nattached to \\u202ea as s\n"


def test_the_reason_of_the_end_does_nothing_to_the_terminal() -> None:
    async def refused() -> None:
        raise ClientError("amqp:not-found", "\x1b[2J")

    with pytest.raises(RunError) as caught:
        cli_clients.attached(refused)
    assert str(caught.value) == r"amqp:not-found: \x1b[2J"


def test_an_error_that_several_tasks_met_is_one() -> None:
    error = ClientError(None, "no more")

    async def meet() -> None:
        raise error

    async def several() -> None:
        async with trio.open_nursery() as outer, trio.open_nursery() as inner:
            outer.start_soon(meet)
            inner.start_soon(meet)
            inner.start_soon(meet)

    with pytest.raises(RunError, match="the connection was lost: no more"):
        cli_clients.attached(several)


@pytest.mark.parametrize(("number", "size", "body"), [(7, 5, b"7 ..."), (1234, 2, b"12"), (1, 0, b"")])
def test_bodies_have_the_size_asked_for(number: int, size: int, body: bytes) -> None:
    assert numbered_body(number, size) == body
