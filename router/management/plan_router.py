"""The operations on routers of the plan (protocol 11).

A CREATE lets a router that runs elsewhere join the mesh. The request has the joining router's view of the mesh. The
plan lists only changes to the initial routers, and each router reads the initial routers from its own topology file. So
the joining router's own file must have the same initial routers."""

from collections.abc import Collection, Mapping
from typing import Any

import attrs

from linkstate.plan.names import MOST_COST, in_ascii
from linkstate.plan.plan import Pair, Plan, PlanError, PlannedLink, PlannedRouter
from router.entities.observed import ObservedRouter
from router.entities.routers import is_there
from router.management.requests import BAD_REQUEST, CONFLICT, ManagementError
from router.mesh.quantities import Address
from router.mesh.reading import expected
from router.mesh.topology import ROUTERS_NAMED, names_a_router
from router.neighbours import VERSION


@attrs.frozen
class Joining:
    """A router that asks to join, and its view of the mesh."""

    name: str
    mesh: str
    wire: int
    """The version of the protocol that the joining router speaks."""
    others: frozenset[str]
    """All other routers in the topology of the joining router."""
    planned: PlannedRouter
    links: dict[Pair, PlannedLink]

    @classmethod
    def read(cls, name: str, said: Mapping[Any, Any]) -> "Joining":
        """Read a request to join. Raises ManagementError."""
        match said:
            case {
                "mesh": str(mesh),
                "wire": int(wire),
                "routers": list(routers),
                "amqp": str(amqp),
                "inter": str(inter),
                "links": dict(links),
            } if all(isinstance(router, str) for router in routers):
                planned = PlannedRouter(amqp=_found_at("amqp", amqp), inter=_found_at("inter", inter))
                return cls(name, mesh, wire, frozenset(routers) - {name}, planned, dict(_links(name, links)))
        raise ManagementError(BAD_REQUEST, "expected mesh, wire, routers, amqp, inter and links in the body")


def _links(name: str, said: Mapping[Any, Any]) -> Collection[tuple[Pair, PlannedLink]]:
    links = []
    for neighbour, link in said.items():
        match link:
            case [int(cost), str(address)] if (
                isinstance(neighbour, str) and neighbour != name and cost is not True and 0 < cost <= MOST_COST
            ):
                low, high = sorted((name, neighbour))
                at = _found_at(f"link to {neighbour}", address) if address else ""
                links.append(((low, high), PlannedLink(cost=cost, address=at)))
            case _:
                what = "expected [cost, address], and another router"
                raise ManagementError(BAD_REQUEST, f"links: {neighbour!r}: {link!r}, {what}")
    return links


def _found_at(what: str, text: str) -> str:
    """Check that `text` is a host:port to which other hosts can connect. Raises ManagementError."""
    try:
        address = Address.parse(text)
    except ValueError as error:
        raise ManagementError(BAD_REQUEST, f"{what}: {error}") from None
    if address.is_anywhere or address.port == 0:
        raise ManagementError(BAD_REQUEST, f"{what}: {text} is no reachable address, expected a host and a port")
    return in_ascii(str(address))


def join(at: ObservedRouter, name: str, said: Mapping[Any, Any]) -> str:
    """Add the router to the plan. Returns its name. Raises ManagementError."""
    joining = Joining.read(name, said)
    plan = at.linkstate.plan
    reasons = [*_misfits(at, joining), *_clashes(at, joining)]
    if reasons:
        raise ManagementError(BAD_REQUEST, "; ".join(reasons))
    routers = {name: plan.routers[name] for name in plan.members} | {joining.name: joining.planned}
    links = {pair: link for pair, link in plan.links.items() if plan.members.issuperset(pair)} | joining.links
    now = at.node.now()
    try:
        revised = plan.revised(Plan(routers, links), (at.node.topic.outlet.clock.stamp(), at.name))
    except PlanError as error:
        raise ManagementError(BAD_REQUEST, str(error)) from None
    at.linkstate.replan(revised, now)
    at.node.pump()
    return joining.name


def _misfits(at: ObservedRouter, joining: Joining) -> Collection[str]:
    """The reason for which the router does not belong to this mesh; empty if it does."""
    members, reasons = at.linkstate.plan.members, []
    if joining.mesh != at.topology.mesh:
        reasons.append(f"this is mesh {at.topology.mesh}, not {joining.mesh}")
    if joining.wire != VERSION:
        reasons.append(f"the mesh speaks wire version {VERSION}, this router {joining.wire}")
    if unknown := sorted(joining.others - members):
        reasons.append(f"its topology has {', '.join(unknown)}, which the mesh does not have")
    if lacking := sorted(members - joining.others - {joining.name}):
        reasons.append(f"its topology lacks {', '.join(lacking)}, which the mesh has")
    return reasons


def _clashes(at: ObservedRouter, joining: Joining) -> Collection[str]:
    """The reason for which the plan has no place for the router; empty if it has one. A router that has made the same
    request before, and is not in contact, may join: it repeats the request."""
    plan, name, reasons = at.linkstate.plan, joining.name, []
    if not names_a_router(name):
        reasons.append(f"{name!r} cannot name a router, {ROUTERS_NAMED}")
    if name in plan.members and (is_there(at, name) or _places(plan.routers[name]) != _places(joining.planned)):
        reasons.append(
            "the mesh already has a router of this name; choose another name, or use oncemesh start on its host"
        )
    for router in sorted(plan.listed - {name}):
        taken = _places(plan.routers[router]) & _places(joining.planned)
        reasons += (f"router {router} is at {address} already, expected another address" for address in sorted(taken))
    neighbours = {end for pair in joining.links for end in pair} - {name}
    if strange := sorted(neighbours - plan.members):
        reasons.append(f"there is no router {strange[0]!r}, {expected(strange[0], sorted(plan.members))}")
    if not neighbours:
        reasons.append("it has no link, expected a link to a router of the mesh")
    return reasons


def _places(router: PlannedRouter) -> set[str]:
    return {router.amqp, router.inter}


def remove(at: ObservedRouter, name: str) -> None:
    """Remove a router from the mesh by force. The router must not be running. Raises ManagementError."""
    if is_there(at, name):
        raise ManagementError(BAD_REQUEST, f"router {name} is running: use oncemesh remove {name}")
    sets = at.node.sets.overview() if at.node.sets is not None else ()
    if needy := [one.name for one in sets if name in one.voters and name not in one.may_stop]:
        what = f"router {name} is a voter of replica sets {', '.join(needy)}, and no majority is left without it"
        raise ManagementError(CONFLICT, f"{what}: start their other voters first")
    now = at.node.now()
    at.linkstate.replan(at.linkstate.plan.without(name, (at.node.topic.outlet.clock.stamp(), at.name)), now)
    at.node.pump()
