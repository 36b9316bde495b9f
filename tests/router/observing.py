"""A router with a real node for tests of what it shows. The rest of its process is faked."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from linkstate.mesh import Mesh
from router.entities.observed import ObservedRouter
from router.management.recent_events import RecentEvents
from router.mesh.topology import load
from topic.node import Node

ALONE = "mesh: alone\nrouters: {a: {amqp: '127.0.0.1:5672'}}\n"


def observed(node: Node, folder: Path, **parts: Any) -> ObservedRouter:
    """Writes the topology to that folder."""
    path = folder / "alone.yaml"
    path.write_text(ALONE)
    assert isinstance(node.mesh, Mesh)
    nobody: Any = SimpleNamespace(connections={}, exchanged=lambda name: None)
    log = SimpleNamespace(why="", missing=0, written=0)
    counting = SimpleNamespace(exceeded={}, refused={}, is_open=True)
    whole: dict[str, Any] = {"log": log, "guard": counting, "doors": counting, "events": RecentEvents("a", 1)}
    whole |= {"folder": folder, "replicas": None, **parts}
    return ObservedRouter(load(path), node, node.mesh, nobody, nobody, **whole)
