"""A run from nothing to nothing: a mesh is started for it, and no process of it is left."""

from pathlib import Path
from random import Random

import trio
import trio._core._run as scheduler

from tests.soak.mesh import SoakMesh
from tests.soak.results import Run
from tests.soak.scenarios import SCENARIOS
from tests.soak.stage import Cast, Lengths, Outcome, perform


async def play(run: Run, folder: Path, lengths: Lengths) -> Outcome:
    """In an empty folder. Names and addresses are the run's own, so that several runs can be audited as one."""
    seed = f"{run.seed} {run.name}"
    _seed_scheduler(seed)
    scenario = SCENARIOS[run.scenario]
    mesh = SoakMesh(run.topology, folder)
    try:
        async with trio.open_nursery() as links:
            if scenario.links:
                await mesh.set_proxies(links)
            await mesh.up()
            cast = Cast(f"topic/{run.name}", f"{run.name}-", mortal=scenario.mortal)
            outcome = await perform(mesh, scenario.strike, cast, lengths, Random(seed))
            await mesh.stop_all()
            links.cancel_scope.cancel()
    finally:
        mesh.end()
    return outcome


def _seed_scheduler(seed: str) -> None:
    """Of tasks that can go on at once, the clients' run in the same order again when the run is replayed."""
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # as trio itself tells testers to
    scheduler._r.seed(seed)
