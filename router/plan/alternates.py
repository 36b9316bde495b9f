"""The other routers that clients of this router may use: `failover-server-list` of its open, and the messages of
`$routers`.

The list has the members of the plan. Reachable routers come first, and among these the routers with the fewest links.
The order of equals is random, so that the clients of a router that dies do not all go to the same next one. Unreachable
routers are in the list, too: a client may reach them when it tries.
"""

from random import Random
from typing import Final

from linkstate.mesh import Mesh
from router.mesh.config import Security
from router.mesh.quantities import Address
from topic.node import Node

MOST_NAMED: Final = 256
"""The highest number of routers in the list. Our clients keep no more, and a client's frame has room for these."""


class Alternates:
    def __init__(self, node: Node, mesh: Mesh, security: Security) -> None:
        self._node = node
        self._mesh = mesh
        self.router = node.name
        self._scheme = "amqps" if security.tls else "amqp"
        self._random = Random()

    def __call__(self, first: str = "") -> list[dict[str, object]]:
        """The list of routers. `first`: the router that heads it, however many links it has."""
        directory = self._node.topic.directory
        others = self._others()

        def rank(name: str) -> tuple[bool, bool, int, float]:
            is_away = name not in directory.contacts
            return name != first, is_away, directory.load_of(name), self._random.random()

        names = sorted(others, key=rank)
        return [self._server(Address.parse(others[name])) for name in names[:MOST_NAMED]]

    def known(self) -> list[tuple[str, str, bool]]:
        """Each other router, its address for clients, and whether it is reachable. The list of routers depends only on
        these facts and on the loads."""
        contacts = self._node.topic.directory.contacts
        return [(name, at, name in contacts) for name, at in self._others().items()]

    def loads(self) -> dict[str, int]:
        """Router -> the number of its links, this router included. Empty while a member cannot be reached."""
        directory = self._node.topic.directory
        names = (self.router, *self._others()) if directory.complete else ()
        return {name: directory.load_of(name) for name in names}

    def _others(self) -> dict[str, str]:
        """Router -> its address for clients. A router that leaves takes no clients."""
        plan = self._mesh.plan
        return {name: at for name in sorted(plan.members - {self.router}) if (at := plan.routers[name].amqp)}

    def _server(self, at: Address) -> dict[str, object]:
        return {"network-host": at.host, "port": at.port, "scheme": self._scheme, "hostname": at.host}
