"""An operator's word that the routers and links of a mesh are to be others (protocol 11).

The command writes the topology into the run directory and sends a router there `APPLY`. From that router the plan goes
to all others, wherever they run.
"""

import logging
from enum import Enum
from pathlib import Path

from linkstate.mesh import Mesh
from linkstate.plan.plan import PlanError
from router.mesh.errors import FileError, RunError
from router.mesh.planned import planned
from router.mesh.rundir import RunDirectory
from topic.node import Node

log = logging.getLogger("oncemesh")


class Start(Enum):
    """What a router is started for, when it is."""

    AGAIN = "again"
    """A mesh that it has been in: the plan is what it remembers of it."""
    MESH = "mesh"
    """The whole mesh is started: the plan is what the topology says."""
    JOIN = "join"
    """A mesh that runs, as a new router, whatever one of its name has left. It takes clients when it is in."""


def apply(node: Node, mesh: Mesh, run_dir: Path, *, afresh: bool = False) -> None:
    """Make the plan what the topology in the run directory says. `afresh`: the whole mesh is being started, and who was
    leaving as it stopped is gone."""
    directory = RunDirectory(run_dir)
    try:
        wanted, forced = planned(directory.topology()), directory.read().forced
        now = node.now()
        version = node.topic.outlet.clock.stamp(), node.name
        former = mesh.plan.without_leaving() if afresh else mesh.plan
        mesh.replan(former.revised(wanted, version, forced), now)
    except (PlanError, RunError, FileError) as error:
        log.error("cannot apply the topology: %s", error)
        return
    node.pump()
    if not afresh:
        log.info("topology applied, plan %x", mesh.plan.digest)


def leave(node: Node, mesh: Mesh) -> None:
    """Say that this router, which was leaving, is gone."""
    now = node.now()
    mesh.replan(mesh.plan.without(node.name, (node.topic.outlet.clock.stamp(), node.name)), now)
    node.pump()
