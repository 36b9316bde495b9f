"""`python -m tests.bench.declares`: queues are declared at a steady rate while routers are killed by SIGKILL.

Three parts, on the mesh `topologies/queues.yaml`:

runs    10,000 declares at 100 a second. Meanwhile the leader of a set is killed, later a follower of it, later all
        routers; each is started again. Then each declare that was answered has to be there, under the id of the answer,
        and no queue twice, at every router.
kills   The leader of a set is killed 50 times. A declare is asked of another router at once: how long is it until the
        next leader has answered?
stops   The same when the leader is stopped in good order (SIGTERM).

With `--results FILE` each finished run and kill is written to the file, and the next call continues after these.
"""

import argparse
import json
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from failover.client.errors import ClientError
from failover.client.management import Management
from router.entities.queues import DECLARED_QUEUE
from router.entities.replicas import SET
from router.mesh.planned import sets_of
from tests.processes.mesh import RunningMesh, eventually

SET_NAME: Final = "q0"
"""The set whose leader is killed."""
CLIENTS: Final = 48
"""Connections that send declares: each waits for its answer, and a lost leader delays answers for seconds."""
AGAIN_S: Final = 60
"""Seconds for which a client looks for a router."""
DOWN_S: Final = 2.0
"""Seconds for which a killed router is down."""
PHASES: Final = ((0.2, "leader"), (0.45, "follower"), (0.7, "all"))
"""(share of a run's time, the router that is killed then)"""


@attrs.define
class Declared:
    """The answers that clients got."""

    ids: dict[str, str] = attrs.field(factory=dict)
    """Name -> id, for the queues whose declares were answered."""
    refused: list[str] = attrs.field(factory=list)
    """Why the others failed."""
    waits_s: list[float] = attrs.field(factory=list)
    """Seconds from the time when a declare was due to its answer."""


@contextmanager
def mesh_in(folder: Path) -> Iterator[RunningMesh]:
    mesh = RunningMesh("queues", folder, {})
    try:
        trio.run(mesh.up)
        yield mesh
    except BaseException:
        mesh.tell()
        raise
    finally:
        mesh.end()


def url(mesh: RunningMesh, router: str) -> str:
    return f"amqp://{mesh.address(router)}"


# declares


async def declare(mesh: RunningMesh, names: Sequence[str], rate: float) -> Declared:
    """Declare queues of these names at this rate, in declares a second, at all routers in turn."""
    told, start = Declared(), trio.current_time()
    send, receive = trio.open_memory_channel[tuple[str, float]](len(names))
    async with trio.open_nursery() as nursery:
        for number in range(min(CLIENTS, len(names))):
            place = number % len(mesh.routers)
            routers = mesh.routers[place:] + mesh.routers[:place]
            nursery.start_soon(_declare_due, [url(mesh, router) for router in routers], receive.clone(), told)
        receive.close()
        for number, name in enumerate(names):
            await trio.sleep_until(start + number / rate)
            send.send_nowait((name, start + number / rate))
        send.close()
    return told


async def _declare_due(urls: Sequence[str], due: trio.MemoryReceiveChannel[tuple[str, float]], told: Declared) -> None:
    async with due, Management(urls, timeout=AGAIN_S) as management:
        async for name, at in due:
            try:
                row = await management.ask("CREATE", type=DECLARED_QUEUE.managed, name=name)
            except ClientError as error:
                told.refused.append(str(error))
            else:
                told.ids[name] = row["identity"]
                told.waits_s.append(trio.current_time() - at)


# kills


async def leader(mesh: RunningMesh, at: Sequence[str], former: str = "") -> str:
    """The leader of the set according to these routers, once it is not the former one."""
    found = ""

    async def is_known() -> bool:
        nonlocal found
        for router in at:
            async with Management([url(mesh, router)]) as management:
                found = await _leader_at(management)
            if found in ("", former):
                return False
        return True

    await eventually(is_known)
    return found


async def kill(mesh: RunningMesh, routers: Sequence[str], down_s: float) -> None:
    """Kill these routers, and start them again after a while. On a busy machine they may be up late."""
    for router in routers:
        mesh.signal(router, signal.SIGKILL)
    for router in routers:
        await mesh.ending(router)
    await trio.sleep(down_s)
    for router in routers:
        mesh.begin(router)


async def _kill_in_turn(mesh: RunningMesh, length_s: float, down_s: float) -> None:
    start = trio.current_time()
    for share, whom in PHASES:
        await trio.sleep_until(start + share * length_s)
        leads = await leader(mesh, mesh.routers)
        follows = next(router for router in mesh.routers if router != leads)
        await kill(mesh, {"leader": [leads], "follower": [follows], "all": mesh.routers}[whom], down_s)


# the checks


async def known(mesh: RunningMesh, router: str) -> list[tuple[str, str]]:
    """Name and id of each queue that the router has."""
    async with Management([url(mesh, router)]) as management:
        rows = await management.query(DECLARED_QUEUE.managed, ("name", "identity"))
    return [(row["name"], row["identity"]) for row in rows]


async def check(mesh: RunningMesh, told: Declared) -> None:
    """Check that each answered declare is there, and none twice."""
    lists: dict[str, list[tuple[str, str]]] = {}

    async def are_equal() -> bool:
        for router in mesh.routers:
            lists[router] = sorted(await known(mesh, router))
        return all(there == lists[mesh.routers[0]] for there in lists.values()) and {*told.ids.items()} <= {
            *there_all()
        }

    def there_all() -> list[tuple[str, str]]:
        return lists[mesh.routers[0]]

    try:
        await eventually(are_equal)
    except trio.TooSlowError:
        missing = {router: sorted({*told.ids.items()} - {*there})[:5] for router, there in lists.items()}
        raise AssertionError(f"routers have different queues, or lack some that were answered: {missing}") from None
    names = Counter(name for name, _ in there_all())  # ids of two sets may be equal
    twice = [name for name, times in names.items() if times > 1]
    assert not twice, f"there twice: {twice[:5]}"


async def one_run(mesh: RunningMesh, number: int, rate: float, down_s: float = DOWN_S) -> dict[str, float]:
    """Declare this many queues while routers are killed. Returns the figures."""
    told = Declared()
    start = trio.current_time()

    async def declare_all() -> None:
        nonlocal told
        told = await declare(mesh, [f"queue/{each}" for each in range(number)], rate)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(declare_all)
        nursery.start_soon(_kill_in_turn, mesh, number / rate, down_s)
    await check(mesh, told)
    assert len(told.ids) + len(told.refused) == number
    return {
        "declared": number,
        "answered": len(told.ids),
        "refused": len(told.refused),
        "seconds": round(trio.current_time() - start, 1),
        "p50_ms": _ms(_share(told.waits_s, 0.5)),
        "p99_ms": _ms(_share(told.waits_s, 0.99)),
        "max_ms": _ms(max(told.waits_s)),
    }


async def one_end(mesh: RunningMesh, names: Iterator[str], number: signal.Signals) -> dict[str, float]:
    """Send this signal to the set's leader. Returns the longest time of a declare after it: declares go to another
    router, one after the other, until another router leads."""
    leads = await leader(mesh, mesh.routers)
    other = next(router for router in mesh.routers if router != leads)
    async with Management([url(mesh, other)]) as management:
        await management.ask("GET-MGMT-NODES")  # so it is connected
        mesh.signal(leads, number)
        took: list[float] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mesh.ending, leads)
            while not took or leads in await _leader_at(management):
                start = trio.current_time()
                await management.ask("CREATE", type=DECLARED_QUEUE.managed, name=next(names))
                took.append(trio.current_time() - start)
    await mesh.start(leads)
    await leader(mesh, mesh.routers)
    return {"took_ms": _ms(max(took))}


async def _leader_at(management: Management) -> str:
    """The leader according to the router; empty if it knows none."""
    rows = await management.query(SET.managed, ("name", "leader"))
    return next((row["leader"] for row in rows if row["name"] == SET_NAME and row["leader"]), "")


def names_of_set(mesh: RunningMesh) -> Iterator[str]:
    """Names of queues that belong to the set."""
    sets = sets_of(mesh.directory.topology())
    names = (f"queue/kill-{number}-{time.time_ns()}" for number in count())
    return (name for name in names if (plan := sets.plan_of(name)) is not None and plan.name == SET_NAME)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _share(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# the command


class Results:
    """One line of JSON for each finished run and kill."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def of(self, part: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["part"] == part]

    def add(self, part: str, figures: dict[str, float]) -> None:
        row = {"part": part, **figures}
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--declares", type=int, default=10_000, help="Of each run.")
    parser.add_argument("--rate", type=float, default=100.0, help="Declares a second.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--results", type=Path, help="Go on behind what is in this file.")
    parser.add_argument("--folder", type=Path, help="Where the routers have their files; default: a temporary folder.")
    asked = parser.parse_args()
    results = Results(asked.results)
    while len(results.of("run")) < asked.runs:
        _with_mesh(asked.folder, lambda mesh: results.add("run", trio.run(one_run, mesh, asked.declares, asked.rate)))

    for part, most, number in (("kill", asked.kills, signal.SIGKILL), ("stop", asked.stops, signal.SIGTERM)):

        def end_again(mesh: RunningMesh, part: str = part, most: int = most, number: signal.Signals = number) -> None:
            names = names_of_set(mesh)
            while len(results.of(part)) < most:
                results.add(part, trio.run(one_end, mesh, names, number))

        if len(results.of(part)) < most:
            _with_mesh(asked.folder, end_again)
    _sum_up(results)


def _with_mesh(folder: Path | None, use: Callable[[RunningMesh], None]) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as place, mesh_in(Path(place)) as mesh:
        use(mesh)


def _sum_up(results: Results) -> None:
    runs = results.of("run")
    answered, refused = sum(row["answered"] for row in runs), sum(row["refused"] for row in runs)
    print(f"{len(runs)} runs: {answered} declares answered, all there, none twice; {refused} not answered")
    for part in ("kill", "stop"):
        if took := [row["took_ms"] for row in results.of(part)]:
            median, worst = statistics.median(took), max(took)
            print(f"{len(took)} {part}s: p50 {median:.0f} ms, p99 {_share(took, 0.99):.0f} ms, worst {worst:.0f} ms")


if __name__ == "__main__":
    main()
