"""Who runs a mesh, to its routers: who can read the files that its topology names need not be let in by anybody."""

from router.amqp.sasl.credentials import Credentials
from router.mesh.rundir import RunDirectory
from router.security.files import Files

OPERATOR = "$mesh"
"""The user whose password is the mesh's secret. Where there is none it is the routers themselves who ask."""


def operator_of(directory: RunDirectory) -> tuple[str, Credentials]:
    """The scheme of the routers' URLs, and what to show them. Raises FileError."""
    topology = directory.topology()
    files = Files(topology, next(iter(topology.routers)))
    return ("amqps" if topology.security.tls else "amqp"), files.credentials(OPERATOR, frozenset(topology.routers))
