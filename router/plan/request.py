"""An operator's request to change the routers and links of a mesh (protocol 11).

The command writes the topology into the run directory and sends a router of this directory the signal `APPLY`. This
router spreads the plan to all other routers, on any host.
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
    """The reason for which a router is started."""

    AGAIN = "again"
    """The router comes back to its mesh, with the plan that it remembers."""
    MESH = "mesh"
    """The whole mesh is started, with the plan of the topology."""
    JOIN = "join"
    """The router joins a running mesh as a new router. It sets aside the state of an earlier router of its name, and
    takes no clients before it has joined."""


def apply(node: Node, mesh: Mesh, run_dir: Path, *, afresh: bool = False) -> None:
    """Replace the plan by the topology in the run directory. `afresh`: the whole mesh is being started. Routers that
    were leaving when the mesh stopped then no longer belong to the plan."""
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
    """Tell the mesh that this router, which was leaving, is now gone."""
    now = node.now()
    mesh.replan(mesh.plan.without(node.name, (node.topic.outlet.clock.stamp(), node.name)), now)
    node.pump()
