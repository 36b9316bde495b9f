"""Whatever the network does: FIFO, no loss, no duplicate in a contact, and both ends agree when it ended."""

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from linkstate.chunks import CHUNK
from tests.linkstate.network import DEAD, Link, Network, line, ring

MESHES = [
    line("a", "b"),
    line("a", "b", "c"),
    ring("a", "b", "c"),
    {("a", "b"): 1, ("b", "d"): 1, ("a", "c"): 1, ("c", "d"): 1},
    {("a", "b"): 1, ("b", "c"): 2, ("b", "d"): 1, ("d", "c"): 1},
]

FAULTS = ["cut", "cut one end", "connect", "connect", "deafen", "hear", "restart", "vanish", "pause", "drop"]

faults = st.tuples(st.sampled_from(FAULTS), st.integers(0, 7))
sends = st.tuples(st.sampled_from(["send", "send", "send large"]), st.integers(0, 7))
waits = st.tuples(st.just("wait"), st.sampled_from([1, 5, 30, 200, 700, 1300]))
weather = st.tuples(st.sampled_from(["weather", "narrow"]), st.sampled_from([0, 0, 1, 2, 3]))
steps = st.lists(st.one_of(sends, sends, waits, waits, faults, weather), max_size=60)


def do(network: Network, step: tuple[str, int], serial: int) -> None:
    what, value = step
    router = network.routers[value % len(network.routers)]
    a, b = _direction(network, value)
    match what:
        case "send":
            others = [r for r in network.routers if r != router]
            for i in range(1 + value):
                network.send(router, others, f"{serial}.{i}".encode())
        case "send large":
            network.send(router, [r for r in network.routers if r != router], f"{serial}.".encode().ljust(3 * CHUNK))
        case "wait":
            network.run(value / 1000)
        case "weather":
            network.loss, network.jitter = [(0.0, 0.0), (0.3, 0.0), (0.0, 0.3), (0.2, 0.05)][value]
        case "narrow":
            network.rate = [inf, 10e6, 1e6, 2e5][value]
        case "cut":
            network.cut(a, b)
        case "cut one end":
            network.cut(a, b, both=False)
        case "connect":
            network.connect(a, b)
        case "deafen":
            network.deaf.add((a, b))
        case "hear":
            network.deaf.clear()
        case "restart":
            network.restart(router)
        case "vanish":
            network.restart(router, noticed=False)
        case "pause":
            network.pause(router, 0.4 * (value + 1))
        case "drop":
            network.drop_contact(router, network.routers[(value + 1) % len(network.routers)])


def _direction(network: Network, value: int) -> Link:
    links = list(network.links)
    a, b = links[value // 2 % len(links)]
    return (a, b) if value % 2 else (b, a)


@settings(max_examples=200)
@given(mesh=st.sampled_from(MESHES), seed=st.integers(0, 2**16), script=steps)
def test_contacts_keep_their_promise_through_any_faults(
    mesh: dict[Link, int], seed: int, script: list[tuple[str, int]]
) -> None:
    network = Network(mesh, seed)
    network.connect_all()
    network.run(0.1)
    for serial, step in enumerate(script):
        do(network, step, serial)

    # when the faults stop
    network.heal()
    network.run(8 * DEAD)

    # then everybody is in contact with the present incarnation of everybody
    assert network.all_in_contact()
    for router in network.routers:
        network.send(router, [r for r in network.routers if r != router], f"last of {router}".encode())
    network.run(2 * DEAD)

    # and all that was sent in the contacts that now exist has arrived, in partner contacts
    network.ledger.check_pairs()
    for (here, there), contact in network.ledger.current.items():
        sender = network.ledger.current[there, here]
        assert network.ledger.partner[contact] == sender
        assert network.ledger.received[contact] == network.ledger.sent[sender]

    # and the channels have nothing more to say
    network.transmitted.clear()
    network.run(2 * DEAD)
    assert all(action.lane == "linkstate" for _, action in network.transmitted)
