"""The command demo: the whole job once, small enough to watch. A mesh, clients, and the audit's verdict.

The mesh is the triangle on free ports, so that it runs next to anything. Its run directory is made anew
each time; a directory that is not a demo's is left alone.
"""

import shutil
from pathlib import Path

import attrs
import click
import trio
from rich.console import Console
from rich.progress import Progress, TaskID

from router.cli_audit import judge
from router.cli_base import console, fetch_status
from router.cli_clients import attached, client_log, numbered, progress, send_all
from router.cli_mesh import until_signal
from router.launcher import Launcher
from router.quantities import format_duration
from router.rundir import MeshRecord, RunDirectory, RunError
from router.status import look
from router.status_view import routers_table
from router.topology import load

MESSAGES = 5_000
SIZE = 100
ADDRESS = "topic/demo"
PUBLISHERS = {"amy": "a", "bob": "b"}
SUBSCRIBERS = {"sue": "a", "tom": "b", "uma": "c"}
MOST_S = 60.0
"""What is not delivered by then is left to the audit."""

TOPOLOGY = """\
# The triangle, on free ports.
mesh: demo
routers:
  a: {amqp: 127.0.0.1:0}
  b: {amqp: 127.0.0.1:0}
  c: {amqp: 127.0.0.1:0}
links:
  - [a, b]
  - [b, c]
  - [a, c]
addresses:
  - {prefix: topic/, kind: topic}
"""


@click.command()
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("run/demo"),
    show_default=True,
    help="Where logs and state go; made anew.",
)
def demo(run_dir: Path) -> None:
    """Watch the main job once: a mesh, clients, and the audit.

    \b
    Example: oncemesh demo
    """
    directory = RunDirectory(run_dir)
    prepare(directory)
    attached(_demo, directory)
    raise click.exceptions.Exit(judge((str(directory.path),)))


def prepare(directory: RunDirectory) -> None:
    """An empty directory with the demo's topology in it."""
    if directory.path.exists() and any(directory.path.iterdir()):
        topology = directory.topology_path
        if not topology.exists() or topology.read_text() != TOPOLOGY:
            raise RunError(f"{directory.path}: not the directory of a demo, choose another with --run-dir")
        if directory.exists() and directory.running():
            raise RunError(f"{directory.path}: a demo is running here, stop it with oncemesh down")
        shutil.rmtree(directory.path)
    directory.path.mkdir(parents=True, exist_ok=True)
    directory.topology_path.write_text(TOPOLOGY)


async def _demo(directory: RunDirectory) -> None:
    out = console()
    launcher = Launcher(directory, fetch_status)
    plan = load(directory.topology_path)
    async with until_signal() as scope:
        with out.status("starting the mesh"):
            await launcher.up(plan)
        try:
            await _show(out, directory)
        finally:
            with trio.CancelScope(shield=True):
                await launcher.stop(list(plan.routers))
    if scope.cancelled_caught:
        raise RunError("interrupted; the mesh is stopped")


async def _show(out: Console, directory: RunDirectory) -> None:
    out.print(f"three routers, each linked to both others, in {directory.path}", soft_wrap=True)
    out.print(routers_table(await look(directory, fetch_status)))
    out.print(f"subscribers {_placed(SUBSCRIBERS)}; publishers {_placed(PUBLISHERS)}, {MESSAGES} messages each")
    started = trio.current_time()
    with progress(out) as bars, trio.move_on_after(MOST_S) as patience:
        await Clients(directory, directory.read(), bars).run()
    if patience.cancelled_caught:
        out.print(f"not all was delivered within {format_duration(MOST_S)}", style="red")
    else:
        out.print(f"all delivered and settled in {format_duration(trio.current_time() - started)}; now the audit")


def _placed(clients: dict[str, str]) -> str:
    return ", ".join(f"{name} at {router}" for name, router in clients.items())


@attrs.frozen
class Clients:
    """The demo's clients, with a progress bar for each."""

    directory: RunDirectory
    record: MeshRecord
    bars: Progress

    async def run(self) -> None:
        """Subscribers first: who is attached before a message is published gets it."""
        async with trio.open_nursery() as nursery:
            for name, router in SUBSCRIBERS.items():
                bar = self.bars.add_task(f"{name} at {router} received", total=MESSAGES * len(PUBLISHERS))
                await nursery.start(self.subscribe, name, router, bar)
            for name, router in PUBLISHERS.items():
                bar = self.bars.add_task(f"{name} at {router} accepted", total=MESSAGES)
                nursery.start_soon(self.publish, name, router, bar)

    def url(self, router: str) -> str:
        return f"amqp://{self.record.routers[router].amqp}"

    async def subscribe(self, name: str, router: str, bar: TaskID, task_status: trio.TaskStatus[None]) -> None:
        from failover.client import Subscriber

        log = client_log(self.directory, name)
        expected = MESSAGES * len(PUBLISHERS)
        async with Subscriber([self.url(router)], ADDRESS, container=name, link="demo", log=log) as subscriber:
            task_status.started()
            async for delivery in subscriber:
                await delivery.accept()
                self.bars.advance(bar)
                expected -= 1
                if not expected:
                    return

    async def publish(self, name: str, router: str, bar: TaskID) -> None:
        from failover.client import Publisher

        log = client_log(self.directory, name)
        bodies = (numbered(number, SIZE) for number in range(MESSAGES))
        async with Publisher([self.url(router)], ADDRESS, container=name, link="demo", log=log) as publisher:
            await send_all(publisher, bodies, lambda _: self.bars.advance(bar))
