"""Short notations for plans in topology files."""

from collections.abc import Iterable, Mapping

from linkstate.plan.plan import Plan, PlannedLink, PlannedRouter


def file(routers: Iterable[str], *links: str) -> Plan:
    """A plan of routers of one letter, and links "ab", of cost 1, or "ab5"."""
    return of(routers, {(link[0], link[1]): int(link[2:] or 1) for link in links})


def of(routers: Iterable[str], costs: Mapping[tuple[str, str], int]) -> Plan:
    """A plan of routers, and the costs of the links between them."""
    links = {(min(pair), max(pair)): PlannedLink(cost=cost) for pair, cost in costs.items()}
    return Plan({name: PlannedRouter() for name in routers}, links)
