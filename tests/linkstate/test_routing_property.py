"""On random meshes with loss, reordering, restarts and cut links, routes end up as shortest paths."""

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.linkstate.network import DEAD, Link, Network


@st.composite
def meshes(draw: st.DrawFn) -> dict[Link, int]:
    """Two to six routers in one piece."""
    names = "abcdef"[: draw(st.integers(2, 6))]
    tree = [(draw(st.sampled_from(names[:i])), names[i]) for i in range(1, len(names))]
    pairs = [(a, b) for a in names for b in names if a < b]
    chosen = {*tree, *draw(st.lists(st.sampled_from(pairs)))}
    return {pair: draw(st.integers(1, 3)) for pair in sorted(chosen)}


faults = st.tuples(st.sampled_from(["cut", "cut one end", "connect", "restart"]), st.integers(0, 20))


def apply(network: Network, fault: str, value: int) -> None:
    links = sorted(network.links)
    a, b = links[value % len(links)]
    match fault:
        case "cut":
            network.cut(a, b)
        case "cut one end":
            network.cut(b, a, both=False)
        case "connect":
            network.connect(a, b)
        case "restart":
            network.restart(network.routers[value % len(network.routers)], noticed=value % 2 == 0)


@settings(max_examples=60)
@given(
    mesh=meshes(),
    seed=st.integers(0, 2**16),
    script=st.lists(st.tuples(faults, st.integers(0, 300)), max_size=12),
    gone=st.sets(st.integers(0, 14)),
)
def test_routes_end_up_as_the_shortest_paths_over_the_links_that_work(
    mesh: dict[Link, int], seed: int, script: list[tuple[tuple[str, int], int]], gone: set[int]
) -> None:
    # given faults on a network that loses and reorders
    network = Network(mesh, seed)
    network.loss, network.jitter = 0.2, 0.05
    network.connect_all()
    for (fault, value), pause_ms in script:
        network.run(pause_ms / 1000)
        apply(network, fault, value)

    # when it calms down with some links cut for good
    network.heal()
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(network.routers)
    for i, ((a, b), cost) in enumerate(sorted(mesh.items())):
        if i in gone:
            network.cut(a, b)
        else:
            graph.add_edge(a, b, weight=cost)
    network.run(5 * DEAD)

    # then routes are shortest paths, and contacts are with those who can be reached
    for router, state in network.meshes.items():
        costs = dict(nx.single_source_dijkstra_path_length(graph, router))
        del costs[router]
        assert {r: route.cost for r, route in state.routes.items()} == costs
        assert set(state.contacts) == set(costs)
        for target, route in state.routes.items():
            first = min(path[1] for path in nx.all_shortest_paths(graph, router, target, weight="weight"))
            assert route.next_hop == first
