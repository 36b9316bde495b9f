"""Derives other forms from a topology: the plan of the mesh (protocol 11), the replica sets (protocol 13), and the
settings for the topic core of each router."""

from linkstate.plan.names import in_ascii
from linkstate.plan.plan import Plan, PlannedLink, PlannedRouter
from router.mesh.config import Topology
from router.mesh.quantities import Address
from topic.delivery.kinds import NAMED
from topic.queues.set_map import SetMap, SetPlan, hashed_plans
from topic.settings import Settings

BESIDES = 64 << 20
"""The largest payload between routers is the largest message plus this many bytes. The margin has room for a section,
which travels as a payload, too."""


def planned(topology: Topology) -> Plan:
    """The plan of the topology, with version 0."""
    routers = {
        name: PlannedRouter(inter=_said(config.dialled), amqp=_said(config.told))
        for name, config in topology.routers.items()
    }
    links = {(link.a, link.b): PlannedLink(cost=link.cost, address=_said(link.address)) for link in topology.links}
    return Plan(routers, links)


def settings_of(topology: Topology) -> Settings:
    timing, limits = topology.timing, topology.limits
    waits = timing.join, timing.boot_wait, timing.terminus, timing.forget
    return Settings(
        limits.window,
        limits.window_bytes,
        limits.max_message,
        limits.redeliveries,
        *waits,
        dead=timing.dead,
        grace=timing.grace,
        largest=limits.max_message + BESIDES,
        kinds=topology.kinds,
        pauses={rule.prefix: rule.pauses for rule in topology.addresses if rule.pauses is not None},
    )


def sets_of(topology: Topology) -> SetMap:
    """The replica sets: the named ones, then the hashed ones. Empty if the mesh has no queues."""
    queues = topology.queues
    if queues is None:
        return SetMap(())
    named = [SetPlan(one.name, one.ring, one.prefix, one.policy, one.copies) for one in queues.named]
    prefixes = [rule.prefix for rule in topology.addresses if NAMED[rule.kind].in_sets]
    hashed = hashed_plans(sorted(topology.routers), queues.sets, queues.replicas)
    return SetMap([*named, *hashed], prefixes, queues.replicas)


def _said(address: Address | None) -> str:
    return in_ascii(str(address)) if address is not None else ""
