"""Who runs a mesh, to its routers: who can read the files that its topology names need not be let in by anybody."""

import attrs

from router.amqp.sasl.credentials import NOBODY, Credentials
from router.mesh.config import Topology
from router.mesh.rundir import RunDirectory
from router.security.files import Files

OPERATOR = "$mesh"
"""The user whose password is the mesh's secret. Where there is none it is the routers themselves who ask."""


def operator_of(directory: RunDirectory, shown: Credentials = NOBODY) -> tuple[str, Credentials]:
    """The scheme of the routers' URLs, and what to show them. Raises FileError."""
    topology = directory.topology()
    here = next(iter(directory.read().routers), next(iter(topology.routers)))  # the files of others are elsewhere
    return operator_at(topology, here, shown)


def operator_at(topology: Topology, router: str, shown: Credentials = NOBODY) -> tuple[str, Credentials]:
    """The same, where the files of that router are. Who is `shown` to be somebody believes the mesh's CA, too."""
    operator = Files(topology, router).credentials(OPERATOR, frozenset(topology.routers))
    if shown == NOBODY:
        shown = operator
    elif shown.ca is None:
        shown = attrs.evolve(shown, ca=operator.ca, names=operator.names)
    return "amqps" if topology.security.tls else "amqp", shown
