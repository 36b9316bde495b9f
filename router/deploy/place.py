"""Paths on a host that runs routers (docs/operations.md), and the command that starts a router there."""

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
"""The lowest port at which a process may listen without a privilege. Ports below it need one."""
STOP_SIGNAL: Final = signal.Signals(DRAIN).name
PATIENCE_S: Final = math.ceil(DRAIN_S + STOP_S)
"""A router has this many seconds to stop; then it is killed."""


def capabilities(topology: Topology, router: str) -> list[str]:
    """The Linux capabilities that a router needs."""
    ports = [address.port for name, _, address in topology.listeners() if name == router]
    return ["NET_BIND_SERVICE"] if min(ports) < PRIVILEGED else []


def command(topology: Topology, router: str) -> list[str]:
    """The arguments that run the router in the foreground, without the program's name."""
    return ["router", router, str(CONFIGURATION / f"{topology.mesh}.yaml"), "--run-dir", str(STATE / topology.mesh)]
