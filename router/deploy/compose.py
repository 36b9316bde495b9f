"""A compose file with a service for each router. Every host has the same file, and starts its own services.

Containers use the network of their host, so the addresses of the topology are valid in them, too.
"""

from typing import Any, Final

import yaml

from router.deploy.place import CONFIGURATION, PATIENCE_S, STATE, STOP_SIGNAL, capabilities, command
from router.mesh.config import Topology

FILE: Final = "compose.yaml"
IMAGE: Final = "oncemesh"


def compose(topology: Topology) -> str:
    services = {router: _service(topology, router) for router in topology.routers}
    document = {
        "name": topology.mesh.lower(),
        "services": services,
        "volumes": {router: {} for router in topology.routers},
    }
    return yaml.safe_dump(document, sort_keys=False)


def _service(topology: Topology, router: str) -> dict[str, Any]:
    return {
        "image": IMAGE,
        "command": ["oncemesh", *command(topology, router)],
        "network_mode": "host",
        "restart": "on-failure",
        "stop_signal": STOP_SIGNAL,
        "stop_grace_period": f"{PATIENCE_S}s",
        "read_only": True,
        "cap_drop": ["ALL"],
        "cap_add": capabilities(topology, router),
        "security_opt": ["no-new-privileges:true"],
        "volumes": [f"{CONFIGURATION}:{CONFIGURATION}:ro", f"{router}:{STATE}"],
    }
