"""Routes are shortest paths, the same ones for everybody, over links that both ends list."""

from collections.abc import Sequence
from typing import Any, overload

import networkx as nx
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from linkstate.flooding import Advertisement
from linkstate.paths import Route, shortest_paths

Edges = dict[tuple[str, str], int]


def advertisements(edges: Edges) -> dict[str, Advertisement]:
    """Everybody's advertisement when exactly these links work; the incarnation of all is 1."""
    links: dict[str, list[tuple[str, int, int]]] = {router: [] for edge in edges for router in edge}
    for (a, b), cost in edges.items():
        links[a].append((b, 1, cost))
        links[b].append((a, 1, cost))
    return {router: Advertisement(router, 1, 1, tuple(links[router]), 0.0) for router in sorted(links)}


@st.composite
def graphs(draw: st.DrawFn) -> Edges:
    names = "abcdefgh"[: draw(st.integers(2, 8))]
    pairs = [(a, b) for a in names for b in names if a < b]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    return {pair: draw(st.integers(1, 4)) for pair in chosen}


def oracle(edges: Edges) -> "nx.Graph[str]":
    graph: nx.Graph[str] = nx.Graph()
    graph.add_weighted_edges_from((a, b, cost) for (a, b), cost in edges.items())
    return graph


@given(graphs())
def test_costs_are_those_of_shortest_paths_and_ties_go_to_the_first_by_name(edges: Edges) -> None:
    graph = oracle(edges)
    for root in graph:
        routes = shortest_paths(root, advertisements(edges))
        costs = dict(nx.single_source_dijkstra_path_length(graph, root))
        assert {r: route.cost for r, route in routes.items()} == {r: c for r, c in costs.items() if r != root}
        for router, route in routes.items():
            first = min(nx.all_shortest_paths(graph, root, router, weight="weight"))
            assert route.path == tuple(first[1:])
            assert route.next_hop == first[1]


@given(graphs())
def test_all_routers_of_a_path_agree_on_the_rest_of_it(edges: Edges) -> None:
    databases = advertisements(edges)
    routes = {router: shortest_paths(router, databases) for router in databases}
    for root in routes:
        for router, route in routes[root].items():
            if route.next_hop != router:
                assert routes[route.next_hop][router].path == route.path[1:]


def test_a_link_that_one_end_does_not_list_does_not_exist() -> None:
    databases = advertisements({("a", "b"): 1})
    databases["b"] = Advertisement("b", 1, 2, (), 0.0)
    assert shortest_paths("a", databases) == {}


def test_a_link_to_an_incarnation_that_is_gone_does_not_exist() -> None:
    databases = advertisements({("a", "b"): 1})
    databases["b"] = Advertisement("b", 2, 1, databases["b"].links, 0.0)
    assert shortest_paths("a", databases) == {}


def test_a_link_that_the_other_end_has_with_our_former_incarnation_does_not_exist() -> None:
    databases = advertisements({("a", "b"): 1})
    databases["a"] = Advertisement("a", 2, 1, databases["a"].links, 0.0)
    assert shortest_paths("a", databases) == {}


def test_a_detour_is_taken_when_it_costs_less() -> None:
    routes = shortest_paths("a", advertisements({("a", "c"): 5, ("a", "b"): 2, ("b", "c"): 2}))
    assert routes["c"] == Route("b", 4, ("b", "c"), 1)


def test_a_link_to_another_of_the_same_incarnation_is_no_link_to_us() -> None:
    """a ─▶ b ── c: b lists c, which began in the same millisecond as a."""
    links = {"a": (("b", 1, 1),), "b": (("c", 1, 1),), "c": (("b", 1, 1),)}
    routers = {router: Advertisement(router, 1, 1, theirs, 0.0) for router, theirs in links.items()}
    assert shortest_paths("a", routers) == {}


class Counted(Sequence[tuple[str, int, int]]):
    """Links of a router, and how many of them were looked at."""

    def __init__(self, links: list[tuple[str, int, int]]) -> None:
        self._links = links
        self.looks = 0

    @overload
    def __getitem__(self, index: int) -> tuple[str, int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str, int, int]]: ...
    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return self._links[index]

    def __len__(self) -> int:
        return len(self._links)


@frozen
class Evil:
    """A router as one that forges the link states of all says it is."""

    incarnation: int
    links: Counted


def test_where_all_list_all_each_link_is_looked_at_only_a_few_times() -> None:
    names = [f"r{number:02}" for number in range(50)]
    routers = {name: Evil(1, Counted([(other, 1, 1) for other in names if other != name])) for name in names}
    assert len(shortest_paths(names[0], routers)) == 49
    assert all(router.links.looks <= 3 * len(names) for router in routers.values())
