"""Files that run a mesh on its hosts: what starts them understands them, and what they start is our own command."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from router.cli.main import main
from router.cli.router import router as router_command
from router.deploy.place import PROGRAM

MESH = """\
mesh: hosts
routers:
  a: {amqp: 0.0.0.0:5671, inter: 0.0.0.0:5772, advertise: a.example.org:5671}
  b: {amqp: "[::]:443", inter: "[::]:5772", advertise: "[2001:db8::2]:443"}
links: [[a, b]]
security: {certificate: "{router}.pem", key: "{router}.key", ca: ca.pem}
"""
NAMES = ["compose.yaml", "oncemesh-hosts-a.service", "oncemesh-hosts-b.service"]


def render(folder: Path, text: str = MESH) -> Result:
    (folder / "mesh.yaml").write_text(text)
    return CliRunner().invoke(main, ["render", str(folder / "mesh.yaml"), str(folder / "out")])


OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    result = render(tmp_path)
    assert result.exit_code == 0, result.output
    assert sorted(result.stdout.split()) == [str(tmp_path / "out" / name) for name in NAMES]
    return tmp_path / "out"


def settings(unit: Path) -> Iterator[tuple[str, str]]:
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals:
            yield name, value


def parsed(command: Sequence[str]) -> dict[str, object]:
    """By our own command line: the arguments and options that are given."""
    word, *arguments = command
    assert word == router_command.name
    context = router_command.make_context(word, list(arguments))
    return {name: str(value) for name, value in context.params.items() if value}


def expected(name: str) -> dict[str, object]:
    return {"name": name, "topology": "/etc/oncemesh/hosts.yaml", "run_dir": "/var/lib/oncemesh/hosts"}


@pytest.mark.parametrize(("name", "capability"), [("a", ""), ("b", "CAP_NET_BIND_SERVICE")])
def test_a_unit_starts_the_router_and_stops_it_by_a_drain(out: Path, name: str, capability: str) -> None:
    found = dict(settings(out / f"oncemesh-hosts-{name}.service"))
    program, *command = found["ExecStart"].split()
    assert program == PROGRAM and parsed(command) == expected(name)
    assert (found["KillSignal"], found["TimeoutStopSec"], found["Restart"]) == ("SIGUSR1", "15", "on-failure")
    assert found["StateDirectory"] == "oncemesh/hosts" and found["ProtectSystem"] == "strict"
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == capability
    assert found["ExecReload"] == "/bin/kill -HUP $MAINPID"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_understands_the_units(out: Path, tmp_path: Path) -> None:
    for name in NAMES[1:]:
        text = (out / name).read_text().replace(PROGRAM, sys.executable)  # it looks whether that is there
        (tmp_path / name).write_text(text)
        verified = subprocess.run(["systemd-analyze", "verify", str(tmp_path / name)], capture_output=True, text=True)
        assert (verified.returncode, verified.stderr) == (0, "")


def test_a_service_of_the_compose_file_does_the_same(out: Path) -> None:
    document = yaml.safe_load((out / "compose.yaml").read_text())
    assert document["name"] == "hosts" and list(document["services"]) == ["a", "b"]
    for name, service in document["services"].items():
        program, *command = service["command"]
        assert program == "oncemesh" and parsed(command) == expected(name)
        assert (service["stop_signal"], service["stop_grace_period"]) == ("SIGUSR1", "15s")
        assert service["volumes"] == ["/etc/oncemesh:/etc/oncemesh:ro", f"{name}:/var/lib/oncemesh"]
        assert service["cap_drop"] == ["ALL"] and service["network_mode"] == "host"
    assert [service["cap_add"] for service in document["services"].values()] == [[], ["NET_BIND_SERVICE"]]
    assert document["volumes"] == {"a": {}, "b": {}}


def test_what_it_wrote_is_written_anew_and_nothing_else(out: Path, tmp_path: Path) -> None:
    unit = out / NAMES[1]
    unit.write_text(unit.read_text() + "# changed\n")
    assert render(tmp_path).exit_code == 0 and "changed" not in unit.read_text()
    unit.write_text("[Unit]\n")
    (out / NAMES[2]).unlink()
    refused = render(tmp_path)
    assert (refused.exit_code, unit.read_text(), (out / NAMES[2]).exists()) == (1, "[Unit]\n", False)
    assert refused.stderr == (
        f"Error: {unit}: not written by oncemesh render, so it is kept; expected another folder\n"
    )


def test_a_router_that_its_neighbours_cannot_find_is_told(tmp_path: Path) -> None:
    refused = render(tmp_path, MESH.replace('inter: "[::]:5772"', 'inter: "[::]:0"'))
    assert refused.exit_code == 1 and not (tmp_path / "out").exists()
    assert (
        refused.stderr
        == f"Error: {tmp_path}/mesh.yaml: routers.b.inter is missing or has no port, expected host:port\n"
    )


def test_the_mesh_of_the_operations_page_is_rendered_as_it_says(tmp_path: Path) -> None:
    text, joining = re.findall(r"```yaml\n(.*?)```", OPERATIONS, re.DOTALL)
    grown = re.sub("links: .*\n", joining.partition("...\n")[2], text)
    for said, names in ((grown, "abcd"), (text, "abc")):
        assert render(tmp_path, said).exit_code == 0
        assert all((tmp_path / "out" / f"oncemesh-news-{name}.service").exists() for name in names)
    named = set(re.findall(r"oncemesh-news-[a-z]\.service", OPERATIONS))
    assert named <= {path.name for path in (tmp_path / "out").iterdir()}
    assert "/etc/oncemesh/news.yaml" in OPERATIONS and "--run-dir /var/lib/oncemesh/news" in OPERATIONS


def test_who_follows_the_operations_page_finds_the_command_and_has_each_unit_before_it_is_enabled() -> None:
    """sudo and shells look in no folder of ours."""
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", OPERATIONS, re.DOTALL))
    assert f"ln -s {PROGRAM} /usr/local/bin/\n" in shell.partition("oncemesh certs")[0]
    for enabled, before in (("a", "deploy/oncemesh-news-NAME.service"), ("d", "oncemesh-news-d.service")):
        told, _, _ = OPERATIONS.partition(f"systemctl enable --now oncemesh-news-{enabled}")
        assert "oncemesh render" in told.rpartition("## ")[2] and before in told
