"""The operator of a mesh. A process that can read the files of the topology needs no other permission."""

import attrs

from router.amqp.sasl.credentials import NOBODY, Credentials
from router.mesh.config import Topology
from router.mesh.rundir import RunDirectory
from router.security.files import Files

OPERATOR = "$mesh"
"""The name of the user whose password is the mesh's secret. Without a secret, the operator shows a router's
certificate."""


def operator_of(directory: RunDirectory, shown: Credentials = NOBODY) -> tuple[str, Credentials]:
    """The scheme of the routers' URLs, and the operator's credentials for the mesh of this run directory. Raises
    FileError."""
    topology = directory.topology()
    # The files of any router that runs here will do, because they are on this host.
    here = next(iter(directory.read().routers), next(iter(topology.routers)))
    return operator_at(topology, here, shown)


def operator_at(topology: Topology, router: str, shown: Credentials = NOBODY) -> tuple[str, Credentials]:
    """The scheme of the routers' URLs, and the credentials for commands of the operator. `shown`: the credentials that
    the caller wants to use; if they name no CA, the mesh's CA is added. Without them, the operator's own credentials
    from the files of this router. Raises FileError."""
    operator = Files(topology, router).credentials(OPERATOR, frozenset(topology.routers))
    if shown == NOBODY:
        shown = operator
    elif shown.ca is None:
        shown = attrs.evolve(shown, ca=operator.ca, names=operator.names)
    return "amqps" if topology.security.tls else "amqp", shown
