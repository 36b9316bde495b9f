"""Where things are on a host that runs routers (docs/operations.md), and how one of them is started there."""

import math
import signal
from pathlib import PurePosixPath
from typing import Final

from router.mesh.config import Topology
from router.mesh.signals import DRAIN, DRAIN_S, STOP_S

PROGRAM: Final = "/opt/oncemesh/bin/oncemesh"
CONFIGURATION: Final = PurePosixPath("/etc/oncemesh")
STATE: Final = PurePosixPath("/var/lib/oncemesh")
USER: Final = "oncemesh"
PRIVILEGED: Final = 1024
"""The first port that anybody may listen at."""
STOP_SIGNAL: Final = signal.Signals(DRAIN).name
PATIENCE_S: Final = math.ceil(DRAIN_S + STOP_S)
"""For which whoever stops a router waits before it is killed."""


def capabilities(topology: Topology, router: str) -> list[str]:
    """What it needs beside the rights of anybody."""
    ports = [address.port for name, _, address in topology.listeners() if name == router]
    return ["NET_BIND_SERVICE"] if min(ports) < PRIVILEGED else []


def command(topology: Topology, router: str) -> list[str]:
    """What runs the router in the foreground, behind the program's name."""
    return ["router", router, str(CONFIGURATION / f"{topology.mesh}.yaml"), "--run-dir", str(STATE / topology.mesh)]
