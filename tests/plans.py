"""Short notations for plans of meshes."""

from collections.abc import Iterable, Mapping

from linkstate.plan.plan import Plan, PlannedLink, PlannedRouter


def file(routers: Iterable[str], *links: str) -> Plan:
    """A plan as a topology file has it: routers with names of one letter, and links such as "ab" with cost 1, or "ab5"
    with cost 5."""
    return of(routers, {(link[0], link[1]): int(link[2:] or 1) for link in links})


def of(routers: Iterable[str], costs: Mapping[tuple[str, str], int]) -> Plan:
    """A plan of routers, and the costs of the links between them."""
    links = {(min(pair), max(pair)): PlannedLink(cost=cost) for pair, cost in costs.items()}
    return Plan({name: PlannedRouter() for name in routers}, links)
