"""A run from nothing to nothing: a mesh is started for it, and no process of it is left."""

from pathlib import Path
from random import Random

import trio

from tests.soak.mesh import SoakMesh
from tests.soak.results import Run
from tests.soak.scenarios import SCENARIOS
from tests.soak.stage import Cast, Lengths, Outcome, perform


async def play(run: Run, folder: Path, lengths: Lengths) -> Outcome:
    """In an empty folder. Names and addresses are the run's own, so that several runs can be audited as one."""
    scenario = SCENARIOS[run.scenario]
    mesh = SoakMesh(run.topology, folder)
    try:
        async with trio.open_nursery() as links:
            if scenario.links:
                await mesh.set_proxies(links)
            await mesh.up()
            cast = Cast(f"topic/{run.name}", f"{run.name}-", mortal=scenario.mortal)
            outcome = await perform(mesh, scenario.strike, cast, lengths, Random(f"{run.seed} {run.name}"))
            await mesh.stop_all()
            links.cancel_scope.cancel()
    finally:
        mesh.end()
    return outcome
