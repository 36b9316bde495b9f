"""Where clients of this router may go instead, for its open's `failover-server-list`.

Members of the plan: those that can be reached now come first, the fewest links before others, and equals by chance, so
that not all clients of a router that dies go to the same next one. Who is not there now may be when it is tried.
"""

from random import Random

from linkstate.mesh import Mesh
from router.mesh.quantities import Address
from topic.node import Node


class Alternates:
    def __init__(self, node: Node, mesh: Mesh, scheme: str) -> None:
        self._node = node
        self._mesh = mesh
        self._scheme = scheme
        self._random = Random()

    def __call__(self) -> list[dict[str, object]]:
        plan, directory = self._mesh.plan, self._node.topic.directory
        names = [name for name in directory.members.others if plan.routers[name].amqp]
        names.sort(key=lambda name: (name not in directory.contacts, directory.load_of(name), self._random.random()))
        return [self._server(Address.parse(plan.routers[name].amqp)) for name in names]

    def _server(self, at: Address) -> dict[str, object]:
        return {"network-host": at.host, "port": at.port, "scheme": self._scheme, "hostname": at.host}
