"""What is seen of a run, on a terminal and elsewhere."""

import io
from pathlib import Path
from typing import Any

import pytest
import trio
from rich.console import Console

from failover.chaos.clients import RunningClients, make_clients
from failover.chaos.mesh import ChaosMesh, Life
from failover.chaos.nemesis import Nemesis, Struck
from failover.chaos.view import Board, LiveView, PlainView, Rates
from router.mesh.rundir import RunDirectory
from tests.failover.chaos.scripts import script


@pytest.fixture
def board(tmp_path: Path) -> Board:
    made = script(tmp_path)
    told: Any = print
    mesh = ChaosMesh(made.topology, RunDirectory(tmp_path / "run"), told)
    clients = make_clients(made, mesh.addresses, tmp_path / "clients", told)
    nemesis = Nemesis(made, mesh, clients, told)
    nemesis.struck.append(Struck(0, "kill", ("a",), "kill a (one), for 2.0s", 1, {}, open={"a"}))
    mesh.lives.update(a=Life.DOWN, b=Life.UP, c=Life.PAUSED)
    clients.members["news"].router = "a"
    clients.members["reader1"].router = clients.members["reader2"].router = "b"
    clients.members["reader1"].running = clients.members["reader1"].attached = True
    clients.members["reader2"].finished = True
    return Board(clients, nemesis, made.offered, ["b waits for router a: 7 records, for 2.0s now"])


def accept(clients: RunningClients, count: int) -> None:
    clients.members["news"].counts["accepted"] += count
    clients.members["news"].counts["sent"] += count


async def test_a_rate_is_counted_from_look_to_look(autojump_clock: object) -> None:
    rates = Rates()
    assert rates.rate("x", 10) == 0.0
    await trio.sleep(2)
    assert rates.rate("x", 40) == 15.0


async def test_plain_lines_tell_who_waits_when_the_mesh_does_not_keep_up(board: Board, autojump_clock: object) -> None:
    out = io.StringIO()
    view = PlainView(Console(file=out, width=200, highlight=False, markup=False))
    with trio.move_on_after(12):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(view.run, board)
            await trio.sleep(1)
            accept(board.clients, 1000)
    _, busy, idle = out.getvalue().splitlines()
    assert busy == "   5.0s  offered 200/s, published 200/s, accepted 200/s, received 0/s; kill a"
    assert idle.endswith("accepted 0/s, received 0/s; kill a; b waits for router a: 7 records, for 2.0s now")


async def test_the_table_shows_clients_routers_faults_and_waits(board: Board, autojump_clock: object) -> None:
    out = io.StringIO()
    view = LiveView(Console(file=out, width=100, force_terminal=True, color_system=None, highlight=False))
    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(view.run, board)
            await trio.sleep(0.1)
            view.phase("load and faults")
            view.tell("kill a (one), for 2.0s")
    shown = out.getvalue()
    assert "routers a down  b  c paused" in shown
    assert "0.1s  load and faults" in shown
    assert "b waits for router a: 7 records" in shown
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip()}
    assert rows["reader1"] == ["b", "0", "0"] and rows["news"][0] == "dead"
    assert rows["reader2"] == ["finished", "0", "0"]
