"""Computes the shortest paths over the advertised links (protocol 3, layer 1).

Among paths of equal cost, a router takes the path whose list of router names comes first in the order of names. Each
router on this path takes the rest of the same path, by the same rule. So routers with the same
database agree on the whole path of a frame, not only on the next hop, and no frame loops between two equal paths.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Protocol

from attrs import frozen


@frozen
class Route:
    """The path to one router, and the router's present incarnation."""

    next_hop: str
    cost: int
    path: tuple[str, ...]  # the names of the routers on the path, from the next hop to the target
    incarnation: int


class Advertised(Protocol):
    """The advertised facts about a router from which paths are computed."""

    @property
    def incarnation(self) -> int: ...
    @property
    # each link has the neighbour, the neighbour's incarnation, and the cost
    def links(self) -> Sequence[tuple[str, int, int]]: ...


def shortest_paths(root: str, routers: Mapping[str, Advertised]) -> dict[str, Route]:
    """The routes to all routers that `root` can reach, keyed and sorted by the router's name."""
    listed = {name: {(there, incarnation) for there, incarnation, _ in r.links} for name, r in routers.items()}
    routes: dict[str, Route] = {}
    candidates: list[tuple[int, tuple[str, ...]]] = [(0, ())]
    while candidates:
        cost, path = heapq.heappop(candidates)
        router = path[-1] if path else root
        if router in routes:
            continue
        if path:
            routes[router] = Route(path[0], cost, path, routers[router].incarnation)
        for neighbour, link_cost in _two_way_links(router, routers, listed):
            if neighbour != root and neighbour not in routes:
                heapq.heappush(candidates, (cost + link_cost, (*path, neighbour)))
    return dict(sorted(routes.items()))


def is_link(here: str, there: str, routers: Mapping[str, Advertised]) -> bool:
    """Whether both routers list the link between them, each with the present incarnation of the other."""
    ends = [routers[name] for name in (here, there) if name in routers]
    return len(ends) == 2 and all(
        any((neighbour, incarnation) == (far_name, far.incarnation) for neighbour, incarnation, _ in near.links)
        for near, far, far_name in ((ends[0], ends[1], there), (ends[1], ends[0], here))
    )


def _two_way_links(
    router: str, routers: Mapping[str, Advertised], listed: Mapping[str, Set[tuple[str, int]]]
) -> Iterator[tuple[str, int]]:
    """The working links of a router, as pairs (neighbour, cost). A link works if each end lists the
    present incarnation of the other end. `listed`: the links of each router as a set, because a full mesh has many
    links."""
    here = routers[router]
    for neighbour, incarnation, cost in here.links:
        there = routers.get(neighbour)
        if there is None or there.incarnation != incarnation:
            continue
        assert cost >= 1, "a link without a cost would allow loops"
        if (router, here.incarnation) in listed[neighbour]:
            yield neighbour, cost
