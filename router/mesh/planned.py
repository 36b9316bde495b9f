"""What a topology file says of routers and links, as the plan of a mesh has it (protocol 11)."""

from linkstate.plan.plan import Plan, PlannedLink, PlannedRouter
from router.mesh.config import Topology


def planned(topology: Topology) -> Plan:
    """The plan at version 0."""
    routers = {
        name: PlannedRouter(inter=str(config.dialled or ""), amqp=str(config.told))
        for name, config in topology.routers.items()
    }
    links = {(link.a, link.b): PlannedLink(cost=link.cost, address=str(link.address or "")) for link in topology.links}
    return Plan(routers, links)
