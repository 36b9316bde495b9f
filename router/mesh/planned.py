"""What a topology file says of routers and links, as the plan of a mesh has it (protocol 11)."""

from linkstate.plan.names import in_ascii
from linkstate.plan.plan import Plan, PlannedLink, PlannedRouter
from router.mesh.config import Topology
from router.mesh.quantities import Address


def planned(topology: Topology) -> Plan:
    """The plan at version 0."""
    routers = {
        name: PlannedRouter(inter=_said(config.dialled), amqp=_said(config.told))
        for name, config in topology.routers.items()
    }
    links = {(link.a, link.b): PlannedLink(cost=link.cost, address=_said(link.address)) for link in topology.links}
    return Plan(routers, links)


def _said(address: Address | None) -> str:
    return in_ascii(str(address)) if address is not None else ""
