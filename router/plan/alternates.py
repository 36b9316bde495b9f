"""Where clients of this router may go instead: its open's `failover-server-list`, and what `$routers` tells.

Members of the plan: those that can be reached now come first, the fewest links before others, and equals by chance, so
that not all clients of a router that dies go to the same next one. Who is not there now may be when it is tried.
"""

from random import Random
from typing import Final

from linkstate.mesh import Mesh
from router.mesh.config import Security
from router.mesh.quantities import Address
from topic.node import Node

MOST_NAMED: Final = 256
"""Our clients go to no more, and a client's frame has room for these."""


class Alternates:
    def __init__(self, node: Node, mesh: Mesh, security: Security) -> None:
        self._node = node
        self._mesh = mesh
        self.router = node.name
        self._scheme = "amqps" if security.tls else "amqp"
        self._random = Random()

    def __call__(self, first: str = "") -> list[dict[str, object]]:
        """`first`: the router that is to head the list, however many links it has."""
        directory = self._node.topic.directory
        others = self._others()

        def rank(name: str) -> tuple[bool, bool, int, float]:
            is_away = name not in directory.contacts
            return name != first, is_away, directory.load_of(name), self._random.random()

        names = sorted(others, key=rank)
        return [self._server(Address.parse(others[name])) for name in names[:MOST_NAMED]]

    def known(self) -> list[tuple[str, str, bool]]:
        """What makes another list: who the others are, where, and whether they can be reached."""
        contacts = self._node.topic.directory.contacts
        return [(name, at, name in contacts) for name, at in self._others().items()]

    def loads(self) -> dict[str, int]:
        """How many links each router has, this one among them; nothing while a member cannot be reached."""
        directory = self._node.topic.directory
        names = (self.router, *self._others()) if directory.complete else ()
        return {name: directory.load_of(name) for name in names}

    def _others(self) -> dict[str, str]:
        """Router -> the address that clients are told. A router that leaves takes no clients."""
        plan = self._mesh.plan
        return {name: at for name in sorted(plan.members - {self.router}) if (at := plan.routers[name].amqp)}

    def _server(self, at: Address) -> dict[str, object]:
        return {"network-host": at.host, "port": at.port, "scheme": self._scheme, "hostname": at.host}
