"""Routers started one by one, as on several hosts: no launcher, no mesh.json, only the topology."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from router.cli_base import fetch_status
from router.quantities import Address
from router.topology import load


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago: routers that find each other by the topology alone need known ones."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    amqp_a, amqp_b, inter_b, inter_a = free_ports(4)
    path = tmp_path / "pair.yaml"
    path.write_text(f"""\
mesh: pair
routers:
  a: {{amqp: 127.0.0.1:{amqp_a}, inter: 127.0.0.1:{inter_a}}}
  b: {{amqp: 127.0.0.1:{amqp_b}, inter: 127.0.0.1:{inter_b}}}
links: [[a, b]]
""")
    return path


class Routers:
    def __init__(self, topology: Path) -> None:
        self.topology = topology
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> subprocess.Popen[str]:
        run_dir = self.topology.parent / f"host-of-{name}"
        command = [sys.executable, "-P", "-m", "router", name, str(self.topology), "--run-dir", str(run_dir)]
        self.processes[name] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        return self.processes[name]

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def routers(topology: Path) -> Iterator[Routers]:
    routers = Routers(topology)
    yield routers
    routers.stop()


async def until_contact(address: Address) -> None:
    while True:
        try:
            status = await fetch_status(address.host, address.port, 5)
        except OSError:  # not listening yet
            await trio.sleep(0.05)
            continue
        if all(route["contact"] for route in status["routes"]) and status["state"] == "ready":
            return
        await trio.sleep(0.05)


async def test_they_find_each_other_and_end_with_status_0_on_sigterm(routers: Routers) -> None:
    a, b = routers.start("a"), routers.start("b")
    with trio.fail_after(30):
        for router in load(routers.topology).routers.values():
            await until_contact(router.amqp)
    for process, number in ((a, signal.SIGTERM), (b, signal.SIGINT)):
        process.send_signal(number)
        _, errors = await trio.to_thread.run_sync(process.communicate)
        assert process.returncode == 0, errors


async def test_a_port_that_is_taken_is_told_without_a_traceback(routers: Routers) -> None:
    address = load(routers.topology).routers["a"].amqp
    with socket.create_server((address.host, address.port)):
        process = routers.start("a")
        _, errors = await trio.to_thread.run_sync(process.communicate)
    assert process.returncode == 1
    assert errors == f"Error: router a cannot listen on {address}: Address already in use\n"
